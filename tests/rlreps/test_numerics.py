import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.numerics import (
    DecayedMean,
    compile_once,
    interruptible,
    largest_even_share,
    seed_key,
    threefry2x32,
)


@pytest.mark.parametrize(("runs", "count"), [(4, 2), (6, 3), (1, 1)])
def test_as_many_devices_as_share_the_runs_out(runs, count):
    devices = ["first", "second", "third"]
    assert largest_even_share(devices, runs) == devices[:count]


def test_programs_are_compiled_once_and_told_apart_by_all_that_makes_them():
    x, constant = jnp.arange(3.0), np.full(3, 2.0, np.float32)

    def times(factor, name="result"):
        return lambda x: {name: factor * x}

    first = compile_once(times(constant), x)
    assert compile_once(times(constant.copy()), x) is first
    others = [
        compile_once(times(constant + 1.0), x),
        compile_once(times(constant, "other"), x),
        compile_once(times(np.float32(2.0)), jnp.ones((1, 3))),
    ]
    assert len({first, *others}) == 4
    np.testing.assert_array_equal(first(x)["result"], 2.0 * x)
    np.testing.assert_array_equal(others[0](x)["result"], 3.0 * x)
    np.testing.assert_array_equal(others[1](x)["other"], 2.0 * x)
    # The last 32 are kept.
    for shift in range(32):
        compile_once(times(float(shift) + 5.0), x)
    assert compile_once(times(constant), x) is not first


def test_programs_that_call_the_host_are_compiled_each_time():
    def calls(host):
        shape = jax.ShapeDtypeStruct((3,), np.float32)
        return lambda x: jax.pure_callback(host, shape, x)

    x = jnp.arange(3.0)
    for factor in (2.0, 3.0):
        once = compile_once(calls(lambda x, factor=factor: np.asarray(factor * x)), x)
        np.testing.assert_array_equal(once(x), factor * np.arange(3.0))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_whose_key_would_be_another_seeds_is_refused(seed):
    with pytest.raises(InputError, match=r"each in \[0, 2\*\*32\), got"):
        seed_key(seed, 0)
    keys = {tuple(jax.random.key_data(seed_key(each, 1)).tolist()) for each in (0, 7, 2**32 - 1)}
    assert len(keys) == 3


def test_an_average_is_the_decayed_mean_of_what_was_added_as_often_as_it_was_counted():
    arrays = np.random.default_rng(0).normal(size=(5, 3, 2))
    amounts = [1.0, 0.0, 1.0, 1.0, 2.0]
    average = DecayedMean.empty({"a": jnp.zeros((3, 2)), "b": jnp.zeros(())})
    np.testing.assert_array_equal(average.mean()["a"], 0.0)
    for array, amount in zip(np.float32(arrays), amounts, strict=True):
        average = average.add({"a": array, "b": array[0, 0]}, 0.01, amount)
    weights = 0.99 ** np.arange(4, -1, -1) * amounts
    expected = np.tensordot(weights / weights.sum(), arrays, axes=1)
    np.testing.assert_allclose(average.mean()["a"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(average.mean()["b"], expected[0, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no timers")
def test_interruptible_calls_end_at_a_signal_and_return_or_raise_otherwise():
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    started, release = time.monotonic(), threading.Event()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            interruptible(release.wait, 20.0)
    finally:
        signal.signal(signal.SIGALRM, before)
        release.set()
    assert time.monotonic() - started < 5.0
    assert interruptible(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        interruptible(divmod, 7, 0)


def words(*values):
    return tuple(jnp.uint32(value) for value in values)


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
