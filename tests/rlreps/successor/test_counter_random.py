"""The counter-based generator against JAX's own, published vectors and the normal distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.extend.random import threefry_2x32

from rlreps.successor.chains import standard_normal, threefry2x32


def words(*values):
    return tuple(jnp.uint32(value) for value in values)


def test_twenty_rounds_are_the_generator_of_jax():
    generator = np.random.default_rng(0)
    key = jnp.asarray(generator.integers(2**32, size=2, dtype=np.uint32))
    counters = jnp.asarray(generator.integers(2**32, size=2000, dtype=np.uint32))
    expected = threefry_2x32(key, counters)
    got = threefry2x32((key[0], key[1]), (counters[:1000], counters[1000:]), rounds=20)
    np.testing.assert_array_equal(np.concatenate(got), expected)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
        ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0xFD36D048, 0x2D17272C)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xBA3E4725, 0xF27D669E)),
    ],
)
def test_thirteen_rounds_give_the_known_answers_of_random123(counter, key, expected):
    assert tuple(int(word) for word in threefry2x32(words(*key), words(*counter))) == expected


def test_normals_are_the_inverse_distribution_function_at_midpoints_of_24_bits():
    steps = np.unique(
        np.concatenate([np.arange(64), np.geomspace(1, 2**23, 500).astype(int), [2**23 - 1, 2**23]])
    )
    steps = np.concatenate([steps, 2**24 - 1 - steps])
    expected = scipy.stats.norm.ppf((steps + 0.5) / 2**24)
    got = standard_normal(jnp.asarray(steps.astype(np.uint32) << 8))
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)
    assert np.max(np.abs(got)) < 5.42


def test_the_low_byte_of_a_word_does_not_enter_its_normal():
    word = jnp.uint32(0xABCDEF00)
    assert standard_normal(word) == standard_normal(word | jnp.uint32(0xFF))


def test_words_are_uniform_independent_of_each_other_and_of_neighbouring_counters():
    count = 200_000
    counters = jnp.arange(count, dtype=jnp.uint32)
    first, second = jax.jit(threefry2x32)(words(7, 9), (counters, jnp.zeros_like(counters)))
    later, _ = jax.jit(threefry2x32)(words(7, 9), (counters, jnp.ones_like(counters)))
    normals = [np.asarray(standard_normal(word), np.float64) for word in (first, second, later)]
    for sample in normals:
        assert scipy.stats.kstest(sample, "norm").pvalue > 1e-3
    samples = [*normals, np.roll(normals[0], 1), np.asarray(first & jnp.uint32(3), np.float64)]
    correlations = np.corrcoef(samples) - np.eye(len(samples))
    assert np.max(np.abs(correlations)) < 5 / np.sqrt(count)
    actions = np.bincount(np.asarray(first & jnp.uint32(3)))
    assert scipy.stats.chisquare(actions).pvalue > 1e-3
