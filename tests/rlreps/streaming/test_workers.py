import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.streaming.implicit_krasulina import implicit_krasulina
from rlreps.streaming.oja import oja
from rlreps.streaming.passes import Runs, stream_passes
from rlreps.streaming.schedules import power_decay
from rlreps.streaming.workers import start_workers, stream_workers, worker_mesh, worker_step

PROGRAM = Path(__file__).with_name("workers_program.py")
FEATURES, K, WORKERS, ROWS = 6, 2, 4, 40


def data(shape=(WORKERS, ROWS), seed=0):
    return np.random.default_rng(seed).normal(size=(*shape, FEATURES)).astype(np.float32)


def rule():
    return implicit_krasulina(FEATURES, K, learning_rate=1.0, initial_scale=0.1)


def two_steps():
    """The combined factor after two steps of simulated workers of unequal weight."""
    states = start_workers(rule(), jax.random.key(0), WORKERS)
    step = jax.jit(worker_step(rule()))
    for half in (slice(0, ROWS // 2), slice(ROWS // 2, ROWS)):
        _, states = step(states, jnp.asarray(data()[:, half]), jnp.arange(1.0, WORKERS + 1.0))
    return np.asarray(states.rows)


def test_workers_learn_alone_and_go_on_from_what_they_combine_to():
    start = rule().init(jax.random.key(0))
    states = start_workers(rule(), jax.random.key(0), WORKERS)
    before, after = worker_step(rule())(states, jnp.asarray(data()), jnp.ones(WORKERS))
    alone = [rule().update_each(start, jnp.asarray(rows)) for rows in data()]
    for index, state in enumerate(alone):
        np.testing.assert_allclose(before.rows[index], state.rows, atol=1e-5)
    mean = np.mean([state.rows for state in alone], axis=0)
    for index in range(WORKERS):
        np.testing.assert_allclose(after.rows[index], mean, atol=1e-5)
    assert after.step.tolist() == [ROWS] * WORKERS


@pytest.mark.parametrize("processes", [1, 2])
def test_a_mesh_over_processes_does_what_simulated_workers_do(processes):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    started = [
        subprocess.Popen(
            [sys.executable, PROGRAM, address, str(processes), str(index)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(processes)
    ]
    expected = two_steps()
    for process in started:
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        # Gloo, which carries what CPU processes exchange, prints to standard output.
        found = json.loads(out.splitlines()[-1])
        assert found["devices"] == 2 * processes
        assert f"a multiple of the mesh's {2 * processes} devices, got 3" in found["refused"]
        np.testing.assert_allclose(found["rows"], expected[0], atol=1e-5)


def test_one_worker_that_is_never_averaged_is_a_plain_pass():
    rows = data((60,))
    make = lambda rate: implicit_krasulina(FEATURES, K, learning_rate=power_decay(rate, 0.8))  # noqa: E731
    size = lambda components: float(np.abs(components).sum())  # noqa: E731
    workers = stream_workers(
        make, rows, Runs([5], [1.0]), workers=1, combine_every=20, evaluate=size
    )
    plain = stream_passes(make, rows, Runs([5], [1.0]), evaluate=size, evaluate_every=20)
    assert workers.rows_seen.tolist() == [0, 20, 40, 60]
    np.testing.assert_allclose(workers.components, plain.components, atol=1e-4)
    np.testing.assert_allclose(workers.combined, plain.figures, atol=1e-3)
    np.testing.assert_allclose(workers.workers[:, :, 0], plain.figures, atol=1e-3)


def test_combined_models_are_nearer_to_the_truth_than_their_workers():
    generator = np.random.default_rng(1)
    deviations = np.asarray([3.0, 2.5, 0.7, 0.7, 0.7, 0.7])
    rows = (generator.normal(size=(8000, FEATURES)) * deviations).astype(np.float32)

    def lost(components):
        """1 − the share of the first two axes that the components hold."""
        return 1.0 - float(np.sum(components[:2] ** 2)) / 2.0

    found = stream_workers(
        lambda rate: oja(FEATURES, K, learning_rate=rate),
        rows,
        Runs([0, 1], [0.01, 0.01]),
        workers=8,
        combine_every=200,
        evaluate=lost,
    )
    assert found.workers.shape == (6, 2, 8)
    assert (found.combined[-1] < 0.5 * found.workers[-1].mean(axis=1)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "expected workers >= 1, got 0"),
        ({"combine_every": 16}, r"expected combine_every in \[1, 15\].*got 16"),
        ({"combine_every": 10, "rows_per_update": 3}, "multiple of rows_per_update"),
    ],
)
def test_counts_that_do_not_fit_are_refused(options, message):
    settings = {"workers": 4, "combine_every": 5, **options}
    with pytest.raises(InputError, match=message):
        stream_workers(
            lambda rate: oja(FEATURES, K, learning_rate=rate),
            data((60,)),
            Runs([0], [0.1]),
            evaluate=lambda components: 0.0,
            **settings,
        )


def test_steps_on_shapes_that_do_not_fit_are_refused():
    states = start_workers(rule(), jax.random.key(0), WORKERS)
    rows, weights = jnp.asarray(data()), jnp.ones(WORKERS)
    with pytest.raises(InputError, match="n a multiple of 3, got"):
        worker_step(rule(), rows_per_update=3)(states, rows, weights)
    with pytest.raises(InputError, match=r"expected a weight for each worker, got \(3,\)"):
        worker_step(rule())(states, rows, weights[:3])


def test_workers_that_a_mesh_cannot_share_out_are_refused():
    with pytest.raises(InputError, match="expected workers >= 1 and a multiple of"):
        start_workers(rule(), jax.random.key(0), 0, mesh=worker_mesh())
