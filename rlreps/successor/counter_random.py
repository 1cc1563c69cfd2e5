"""Random bits and normals by counter, in the form that the rollout kernel's inner loop wants them.

Threefry-2x32 with 13 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; 13
is the least that passes every battery of their tests). JAX's own generator is the same function
with 20 rounds; compiled for a CPU it loops over the rounds in memory and spends a whole block on
each 32 bits, which made random numbers three quarters of a rollout's cost. Here the rounds are
unrolled, so that they fuse and vectorise, and both words of a block are used.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

ROUNDS = 13

_PARITY = 0x1BD11BDA
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)

NORMAL_BITS = 24
"""High bits of a word that `standard_normal` uses; the others are free for other draws."""


def threefry2x32(
    key: tuple[Array, Array], counter: tuple[Array, Array], *, rounds: int = ROUNDS
) -> tuple[Array, Array]:
    """Encrypts counters with a key.

    Args:
        key: Two words (uint32) that broadcast against the counters.
        counter: Two words (uint32) of any one shape.
        rounds: Rounds of mixing.

    Returns:
        Two words (uint32) of the counters' shape: 64 random bits for each counter.
    """
    words = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    x, y = counter[0] + words[0], counter[1] + words[1]
    for index in range(rounds):
        x = x + y
        y = _rotate(y, _ROTATIONS[index % 8]) ^ x
        if index % 4 == 3:
            injection = index // 4 + 1
            x = x + words[injection % 3]
            y = y + words[(injection + 1) % 3] + jnp.uint32(injection)
    return x, y


def standard_normal(bits: Array) -> Array:
    """Standard normals (float32) from the high 24 bits of random words (uint32).

    The inverse distribution function at the midpoint of one of 2²⁴ equal steps: symmetric about
    zero, and never beyond 5.42 standard deviations, which leaves out 6e-8 of the probability.
    """
    steps = (bits >> jnp.uint32(32 - NORMAL_BITS)).astype(jnp.int32)
    # Odd whole numbers below 2²⁴ in size, which float32 holds exactly.
    symmetric = (2 * steps + (1 - 2**NORMAL_BITS)).astype(jnp.float32)
    normal: Array = np.float32(math.sqrt(2.0)) * lax.erf_inv(symmetric * 2.0**-NORMAL_BITS)
    return normal


def _rotate(word: Array, distance: int) -> Array:
    rotated: Array = (word << jnp.uint32(distance)) | (word >> jnp.uint32(32 - distance))
    return rotated
