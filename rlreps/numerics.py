"""Numerical tools of the whole library: compilation, products, averages, keys, devices."""

import collections
import functools
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from rlreps.errors import InputError, require

P = ParamSpec("P")
R = TypeVar("R")
Params = TypeVar("Params")
Tree = TypeVar("Tree")

PRNG = "threefry2x32"
"""The generator of every key. Other generators' bits depend on the batch that they are drawn in."""

_LEVEL = "xla_backend_optimization_level"
_WITHOUT_JIT = "jax_disable_jit"


def require_unmasked(name: str, value: Any) -> None:
    """Raise an ``InputError`` if entries of an array are masked: NumPy would use them as values."""
    require(not np.ma.is_masked(value), f"{name} without masked entries", "a masked array")


def as_real(given: Any, name: str) -> np.ndarray:
    """Return an array of real numbers or booleans; bfloat16, which NumPy lacks, as float32.

    Raises:
        InputError: For anything else, and for masked entries.
    """
    require_unmasked(name, given)
    try:
        array = np.asarray(given)
    except (RuntimeError, TypeError, ValueError) as error:  # Such as a PyTorch tensor's.
        hint = ": convert it by .float() first" if "BFloat16" in str(error) else ""
        raise InputError(f"expected {name} as an array, got {error}{hint}") from error
    if array.dtype.kind in "iufb":
        return array
    require(array.dtype.name == "bfloat16", f"{name} of real numbers", array.dtype.name)
    return array.astype(np.float32)


def as_inputs(observations: Array) -> Array:
    """Convert observations to float32; bytes are multiplied by 1 / 255."""
    numbers = observations.astype(jnp.float32)
    return numbers * (1.0 / 255.0) if observations.dtype == np.uint8 else numbers


def floating_leaves(tree: object) -> list[Array]:
    """List the leaves of real and complex numbers."""
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def all_finite(tree: object) -> Array:
    """Return whether every floating leaf is finite, [] (bool)."""
    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in floating_leaves(tree)]))


def jit(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """Compile a function with ``jax.jit``, keeping its signature for the type checker."""
    compiled: Callable[P, R] = jax.jit(function, **options)
    return compiled


def jit_briefly(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """Compile a large program, such as agents' learning or a network's start, faster on a CPU.

    LLVM optimises it at level 1 of 3, unless ``XLA_FLAGS`` name a level: agents learned as fast and
    started sooner (docs/results/speed.md). Within another program this is ``jax.jit``.
    """
    plain = jit(function, **options)
    if not (level := _brief_options()):
        return plain
    brief = jit(function, compiler_options=level, **options)

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        try:
            return brief(*args, **named)
        except ValueError:  # Only outermost programs accept options.
            if not isinstance(jnp.zeros(()), jax.core.Tracer):
                raise
            return plain(*args, **named)

    return call


def _brief_options() -> dict[str, Any]:
    """Return the compiler options of ``jit_briefly``; none if it equals ``jax.jit``."""
    on_cpu = jax.default_backend() == "cpu"
    return {_LEVEL: 1} if on_cpu and _LEVEL not in os.environ.get("XLA_FLAGS", "") else {}


_MOST_PROGRAMS = 32
_programs: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()
"""Programs that ``compile_once`` compiled, the most recently used last."""


def compile_once(
    function: Callable[..., Any], *args: Any, brief: bool = False, **options: Any
) -> Any:
    """Compile a function for arguments like these, unless this process has compiled it before.

    The function is traced at each call, a tenth of the work, and the program is looked up by its
    text. So the function may depend on anything, and functions, optimizers and encoders that are
    rebuilt for each call need no new compilation. Programs that call the host are always compiled.
    Of the others, the 32 most recently used are kept.

    Args:
        function: The function to compile.
        args: Pytrees of arrays; only their shapes, types and devices matter.
        brief: Whether to compile as ``jit_briefly`` does.
        options: Options of ``jax.jit``.

    Returns:
        The ``jax.stages.Compiled`` program; the function itself under ``jax.disable_jit``.
    """
    # An attribute that the configuration makes at run time.
    if getattr(jax.config, _WITHOUT_JIT):
        return function
    lowered = jax.jit(function, **options).lower(*args)
    text, level = lowered.as_text(), _brief_options() if brief else {}
    leaves = jax.tree.leaves(args)
    taken = tuple((jax.typeof(leaf), getattr(leaf, "sharding", None)) for leaf in leaves)
    given = (lowered.in_tree, lowered.out_tree, frozenset(jnp.zeros(()).devices()), *level)
    key = (hashlib.sha256(text.encode()).digest(), taken, given)
    program = _programs.pop(key, None)
    if program is None:
        program = lowered.compile(compiler_options=level or None)
    # The program's text does not name functions of the host.
    if "callback" not in text:
        _programs[key] = program
        while len(_programs) > _MOST_PROGRAMS:
            _programs.popitem(last=False)
    return program


def interruptible(function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
    """Call a long native function that Ctrl-C ends at once.

    Python handles signals between instructions of its main thread. So the call runs in another
    thread while the main thread waits. An interrupted call goes on until its end, without effect.
    The function has to release Python's lock, as BLAS, NumPy and SciPy's LU factors do.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*args, **named)
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args, **named))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result()


def matmul(left: Array, right: Array) -> Array:
    """Multiply matrices at full precision; an accelerator's default would round."""
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)


def require_array(expected: str, value: Any) -> None:
    """Raise an ``InputError`` unless a value is an array of NumPy or JAX; lists are none."""
    require(hasattr(value, "shape") and hasattr(value, "dtype"), expected, type(value).__name__)
    require_unmasked(expected, value)


def num_rows(tree: Any) -> int:
    """Return the length b of the leading axis that all arrays [b, ...] of a pytree share."""
    leading: int = jax.tree.leaves(tree)[0].shape[0]
    return leading


def inverse_or_zero(values: np.ndarray) -> np.ndarray:
    """Return 1 / x where x is positive, and 0 elsewhere."""
    positive = values > 0.0
    return np.where(positive, 1.0 / np.where(positive, values, 1.0), 0.0)


def effective_number(values: np.ndarray) -> np.ndarray:
    """Return (Σ x²)² / Σ x⁴ along the first axis: the number of entries that hold most of Σ x²."""
    squares, fourths = np.square(values).sum(axis=0), np.maximum((values**4).sum(axis=0), 1e-300)
    return np.asarray(squares**2 / fourths)


def digest_of(arrays: Mapping[str, np.ndarray], text: str = "") -> str:
    """Return the SHA-256 of a text and named arrays, in the order of their names."""
    hasher = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        hasher.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return hasher.hexdigest()


def digest_of_leaves(tree: Any) -> str:
    """Return the SHA-256 of the arrays of a pytree, in their order."""
    leaves = enumerate(jax.tree.leaves(tree))
    return digest_of({f"{place:04}": np.asarray(leaf) for place, leaf in leaves})


def bytes_of(observations: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """View each observation [m, ...] as one value that compares by its bytes, [m].

    Negative zeros become zeros, which are equal numbers with other bytes.
    """
    flat = np.ascontiguousarray(observations, dtype).reshape(len(observations), -1)
    flat = flat + flat.dtype.type(0) if flat.dtype.kind == "f" else flat
    return flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()


def hash_rows(rows: np.ndarray) -> np.ndarray:
    """Hash each row [m, ...] by its bytes, for this process, [m].

    The hashes of two different rows are equal with probability 2^-64.
    """
    blocks = (rows[start : start + 1_000] for start in range(0, len(rows), 1_000))
    # Lists of bytes are hashed several times as fast as the rows of an array.
    found = (map(hash, bytes_of(block, rows.dtype).tolist()) for block in blocks)
    return np.fromiter(itertools.chain.from_iterable(found), np.int64, len(rows))


def rows_equal(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Tell which rows of two arrays [n, ...] are equal, [n]; compare a block of rows at a time."""
    right, equal = np.broadcast_to(right, left.shape), np.empty(len(left), np.bool_)
    for start in range(0, len(left), 1_000):
        rows = slice(start, start + 1_000)
        equal[rows] = (left[rows] == right[rows]).reshape(len(equal[rows]), -1).all(axis=1)
    return equal


def take_rows(tree: Tree, rows: slice | Array) -> Tree:
    """Take rows of every array [b, ...] of a pytree."""
    taken: Tree = jax.tree.map(lambda leaf: leaf[rows], tree)
    return taken


class DecayedMean(NamedTuple):
    """A decayed average of arrays, corrected for its start at zero.

    Attributes:
        total: Decayed sums, a pytree of arrays.
        weight: Total weight of the values added, []; 0 before the first update.
    """

    total: Any
    weight: Array

    @classmethod
    def empty(cls, zeros: Any) -> "DecayedMean":
        """Return the average before the first update, of arrays like these zeros."""
        return cls(zeros, jnp.zeros(()))

    def add(self, values: Any, rate: Array | float, amount: Array | float = 1.0) -> "DecayedMean":
        """Decay by 1 − ``rate``, add values of weight ``rate`` · ``amount``; return the average."""
        decay, share = 1.0 - rate, rate * amount
        total = jax.tree.map(lambda old, new: decay * old + share * new, self.total, values)
        return DecayedMean(total, decay * self.weight + share)

    def mean(self) -> Any:
        """Return the average; zero before the first update."""
        weight = jnp.where(self.weight > 0.0, self.weight, 1.0)
        return jax.tree.map(lambda total: total / weight, self.total)


def optimizer_step(
    optimizer: optax.GradientTransformation,
    gradients: Params,
    state: Any,
    params: Params,
    **extra: Array,
) -> tuple[Params, Any]:
    """Take one optimizer step: (new parameters, new optimizer state).

    ``extra`` goes to optimizers that take further arguments, such as the loss as ``value``.
    """
    # Optax mixes integer counts with floats, which strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"):
        update = optax.with_extra_args_support(optimizer).update
        updates, state = update(gradients, state, params, **extra)
        return optax.apply_updates(params, updates), state


def require_seeds(seeds: Sequence[int]) -> None:
    """Raise an ``InputError`` unless there are seeds, all in [0, 2³²): keys use 32 bits."""
    given = np.asarray(seeds)
    whole = given.ndim == 1 and given.dtype.kind in "iu" and len(given) >= 1
    fits = whole and bool((given >= 0).all() and (given < 2**32).all())
    require(fits, "at least one seed, integers, each in [0, 2**32)", seeds)


def seed_key(seed: Array | int, purpose: int) -> Array:
    """Derive the key of one purpose of a run from its seed.

    Every random draw is keyed by (seed, purpose, step), never by its position in a loop: fold the
    step into this key. Purposes of training are 0 initialisation, 1 batches, 2 the loss.

    Raises:
        InputError: For a number outside [0, 2³²), which would share the key of another seed.
    """
    if isinstance(seed, int | np.integer):
        require_seeds([seed])
    return jax.random.fold_in(jax.random.key(seed, impl=PRNG), purpose)


def make_keys(seeds: Iterable[int]) -> Array:
    """Make a key for each seed in [0, 2³²), [seeds]."""
    make = functools.partial(jax.random.key, impl=PRNG)
    keys: Array = jax.vmap(make)(jnp.asarray([*seeds], jnp.uint32))
    return keys


_PARITY = 0x1BD11BDA
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def threefry2x32(
    key: tuple[Array, Array], counter: tuple[Array, Array], rounds: int = 13
) -> tuple[Array, Array]:
    """Encrypt counters with a key: 64 random bits for each counter.

    The generator is Threefry-2x32 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
    3"; 13 rounds are the fewest that pass all their statistical tests). JAX's own generator is the
    same function with 20 rounds. On a CPU, JAX's generator loops over the rounds in memory and uses
    only 32 of the 64 bits of each block; random numbers then took three quarters of the time of a
    rollout. This function unrolls the rounds, so that XLA can fuse and vectorise them.

    Args:
        key: Two words (uint32) that broadcast against the counters.
        counter: Two words (uint32) of any one shape.
        rounds: Number of rounds; JAX's own generator has 20.

    Returns:
        Two words (uint32) of the counters' shape.
    """
    words = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    x, y = counter[0] + words[0], counter[1] + words[1]
    for index in range(rounds):
        x = x + y
        distance = _ROTATIONS[index % 8]
        y = ((y << jnp.uint32(distance)) | (y >> jnp.uint32(32 - distance))) ^ x
        if index % 4 == 3:
            injection = index // 4 + 1
            x = x + words[injection % 3]
            y = y + words[(injection + 1) % 3] + jnp.uint32(injection)
    return x, y


def usable_cores() -> int:
    """Count the cores this process may use; all cores if the system (macOS, Windows) cannot say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def largest_even_share(devices: Sequence[jax.Device], runs: int) -> Sequence[jax.Device]:
    """Return the first k devices, where k is the largest number that divides the runs evenly."""
    return devices[: max(n for n in range(1, len(devices) + 1) if runs % n == 0)]
