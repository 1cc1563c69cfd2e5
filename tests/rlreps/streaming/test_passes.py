"""Passes over stored rows and workers that combine, simulated and spread over processes."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.streaming import (
    ImplicitKrasulina,
    IncrementalPCA,
    MeanThenQR,
    Oja,
    PowerDecay,
    Runs,
    run_passes,
    run_workers,
    start_workers,
    worker_step,
)

PROGRAM = Path(__file__).with_name("workers_program.py")
FEATURES, K, WORKERS, ROWS = 6, 2, 4, 40


def data(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=(*shape, FEATURES)).astype(np.float32)


class Recorder:
    """A rule that sums the first entry of all rows and counts its updates."""

    num_inputs, num_components = FEATURES, 1

    def __init__(self, rate):
        self.rate = rate

    def init(self, key):
        return 0.0 * self.rate, jnp.zeros((), jnp.int32)

    def update(self, state, batch):
        return state[0] + jnp.sum(batch[:, 0]), state[1] + 1

    def update_each(self, state, rows):
        return state[0] + jnp.sum(rows[:, 0]), state[1] + len(rows)

    def combine(self, states, weights):
        return jnp.average(states[0], weights=weights), states[1][0]

    def components(self, state):
        return jnp.stack([state[0], state[1].astype(jnp.float32), self.rate])[:, None]


def krasulina(rate):
    return ImplicitKrasulina(FEATURES, K, learning_rate=PowerDecay(rate, 0.8))


RULE = ImplicitKrasulina(FEATURES, K, learning_rate=1.0, initial_scale=0.1)


def magnitude(components):
    return float(np.abs(components).sum())


def test_every_row_is_seen_once_a_pass_in_updates_of_as_many_rows():
    rows = data(24)
    for rows_per_update in (1, 5):
        found = run_passes(
            Recorder,
            rows,
            Runs([3, 3], [1.0, 7.0]),
            evaluate=lambda components: float(components[0, 0]),
            evaluate_every=12,
            rows_per_update=rows_per_update,
            passes=2,
        )
        interval = 12 - 12 % rows_per_update
        assert found.rows_seen.tolist() == [interval * point for point in range(5)]
        updates = 4 * interval // rows_per_update
        np.testing.assert_array_equal(found.components[:, 1:, 0], [[updates, 1], [updates, 7]])
        assert (np.diff(found.seconds) > 0.0).all()
        if rows_per_update == 1:
            sums = np.asarray([0.0, 1.0, 2.0]) * rows[:, 0].sum()
            expected = np.stack([sums, sums], axis=1)
            np.testing.assert_allclose(found.figures[::2], expected, rtol=1e-5)


def test_orders_differ_between_seeds_and_passes_and_come_again():
    runs = Runs([3, 4, 3], [1.0, 1.0, 1.0])
    first, second = runs.orders(0, 50), runs.orders(1, 50)
    assert (np.sort(first, axis=1) == np.arange(50)).all()
    assert (first[0] == first[2]).all()
    assert (first[0] != first[1]).any()
    assert (first[0] != second[0]).any()
    np.testing.assert_array_equal(first, runs.orders(0, 50))


def test_runs_together_end_where_each_ends_alone_whatever_the_interval():
    runs = Runs([0, 1, 0], [1.0, 1.0, 10.0])
    together = run_passes(krasulina, data(24), runs, evaluate_every=8, evaluate=magnitude)
    one = {"evaluate_every": 24, "devices": jax.local_devices(backend="cpu")[:1]}
    for index, (seed, rate) in enumerate(zip(*runs, strict=True)):
        alone = run_passes(krasulina, data(24), Runs([seed], [rate]), evaluate=magnitude, **one)
        np.testing.assert_allclose(together.components[index], alone.components[0], atol=1e-5)
        np.testing.assert_allclose(together.figures[-1, index], alone.figures[-1, 0], atol=1e-4)
    assert np.abs(together.components[2] - together.components[0]).max() > 1e-2


def two_steps(mesh=None):
    """Each worker's factor after one step, and the combined one after two, of unequal weights."""
    states = start_workers(RULE, jax.random.key(0), WORKERS, mesh=mesh)
    step, first = jax.jit(worker_step(RULE, mesh=mesh)), None
    for half in np.split(data(WORKERS, ROWS), 2, axis=1):
        before, states = step(states, half, np.arange(1.0, WORKERS + 1.0, dtype=np.float32))
        first = first or (before, states)
    return first, np.asarray(states.rows)


def test_workers_learn_alone_and_go_on_from_what_they_combine_to():
    (before, after), _ = two_steps()
    start, update_each = RULE.init(jax.random.key(0)), jax.jit(RULE.update_each)
    alone = np.stack([update_each(start, rows[: ROWS // 2]).rows for rows in data(WORKERS, ROWS)])
    np.testing.assert_allclose(before.rows, alone, atol=1e-5)
    mean = np.average(alone, axis=0, weights=np.arange(1.0, WORKERS + 1.0))
    np.testing.assert_allclose(after.rows, np.broadcast_to(mean, alone.shape), atol=1e-5)
    assert after.step.tolist() == [ROWS // 2] * WORKERS


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"combine_every": 3}, "combine_every in [1, 8], the rows of a worker, and a multiple"),
        ({"combine_every": 10}, "combine_every in [1, 8]"),
        ({"passes": 0}, "passes"),
        ({"runs": Runs([5, 6], [1.0])}, "a learning rate for each of the 2 seeds"),
    ],
)
def test_workers_and_runs_that_do_not_fit_the_rows_are_refused(given, expected):
    options = {"workers": 3, "combine_every": 4, "rows_per_update": 2, "evaluate": float, **given}
    runs = options.pop("runs", Runs([5], [1.0]))
    with pytest.raises(InputError, match=re.escape(expected)):
        run_workers(Recorder, data(26), runs, **options)


def test_workers_share_the_rows_of_a_pass_and_go_on_from_their_mean():
    rows = data(26)
    found = run_workers(
        Recorder,
        rows,
        Runs([5, 6], [1.0, 7.0]),
        workers=3,
        combine_every=4,
        evaluate=lambda components: float(components[0, 0]),
        rows_per_update=2,
        passes=2,
    )
    assert found.rows_seen.tolist() == [0, 4, 8, 12, 16]
    assert found.workers.shape == (5, 2, 3)
    np.testing.assert_allclose(found.workers.mean(axis=2), found.combined, atol=1e-5)
    assert (np.ptp(found.workers[1:], axis=2) > 0.1).all()
    np.testing.assert_array_equal(found.components[:, 1:, 0], [[8, 1], [8, 7]])
    # Of 26 rows three workers get eight each.
    for run, seed in enumerate((5, 6)):
        order = Runs([seed], [1.0]).orders(0, 26)[0]
        np.testing.assert_allclose(
            found.combined[2, run], rows[order[:24], 0].sum() / 3.0, rtol=1e-4, atol=1e-5
        )


@pytest.mark.integration
@pytest.mark.parametrize("base", [Oja(FEATURES, K, learning_rate=0.1), IncrementalPCA(FEATURES, K)])
def test_mean_then_qr_takes_the_mean_basis_and_forgets_the_energies(base):
    rule, weights = MeanThenQR(base), np.asarray([1.0, 2.0, 0.5], np.float32)
    start = rule.init(jax.random.key(0))
    learned = [rule.update(start, data(12, seed=worker)) for worker in range(3)]
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *learned)
    combined = rule.combine(states, weights)
    bases = np.stack([np.asarray(state.rows, np.float64).T for state in learned])
    basis, upper = np.linalg.qr(np.tensordot(weights / weights.sum(), bases, axes=1))
    expected = basis * np.sign(np.diagonal(upper))
    np.testing.assert_allclose(rule.components(combined), expected, atol=1e-5)
    assert int(combined.step) == 1
    assert np.array_equal(getattr(combined, "energies", [1, 1]), [1, 1])


@pytest.mark.integration
def test_combined_models_are_nearer_to_the_truth_than_their_workers():
    deviations = np.asarray([3.0, 2.5, 0.7, 0.7, 0.7, 0.7], np.float32)
    found = run_workers(
        lambda rate: Oja(FEATURES, K, learning_rate=rate),
        data(8000, seed=1) * deviations,
        Runs([0, 1], [0.01, 0.01]),
        workers=8,
        combine_every=200,
        evaluate=lambda components: 1.0 - float(np.sum(components[:2] ** 2)) / 2.0,
    )
    assert found.workers.shape == (6, 2, 8)
    assert (found.combined[-1] < 0.5 * found.workers[-1].mean(axis=1)).all()


@pytest.mark.integration
@pytest.mark.parametrize("processes", [1, 2])
def test_a_mesh_over_processes_does_what_simulated_workers_do(processes):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    devices = "--xla_force_host_platform_device_count=2"
    started = [
        subprocess.Popen(
            [sys.executable, PROGRAM, address, str(processes), str(index)],
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": devices},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(processes)
    ]
    _, expected = two_steps()
    for process in started:
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        # Gloo, which carries what CPU processes exchange, prints to standard output.
        found = json.loads(out.splitlines()[-1])
        assert found["devices"] == 2 * processes
        assert f"a multiple of the mesh's {2 * processes} devices, got 3" in found["refused"]
        np.testing.assert_allclose(found["rows"], expected[0], atol=1e-5)
        np.testing.assert_allclose(found["apart"], found["alone"], atol=1e-6)
