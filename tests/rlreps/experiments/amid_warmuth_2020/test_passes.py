"""A pass over stored rows, and workers that combine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020 import passes
from rlreps.experiments.amid_warmuth_2020.passes import draw_orders, run_passes
from rlreps.numerics import compile_once
from rlreps.streaming import (
    ImplicitKrasulina,
    IncrementalPCA,
    PowerDecay,
    mean_then_qr,
)

FEATURES, K = 6, 2


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


def first(components):
    return float(components[0, 0])


def magnitude(components):
    return float(np.abs(components).sum())


def test_every_row_is_seen_once_in_updates_of_as_many_rows():
    rows = data(24)
    for rows_per_update in (1, 5):
        options = {"evaluate_every": 12, "rows_per_update": rows_per_update}
        found = run_passes(Recorder, rows, [3, 3], [1.0, 7.0], evaluate=first, **options)
        interval = 12 - 12 % rows_per_update
        assert found.rows_seen.tolist() == [interval * point for point in range(3)]
        updates = 2 * interval // rows_per_update
        np.testing.assert_array_equal(found.components[:, 1:, 0], [[updates, 1], [updates, 7]])
        if rows_per_update == 1:
            np.testing.assert_allclose(found.figures[-1], [rows[:, 0].sum()] * 2, rtol=1e-5)


def test_runs_together_end_where_each_ends_alone_whatever_the_interval():
    seeds, rates = [0, 1, 0], [1.0, 1.0, 10.0]
    together = run_passes(krasulina, data(24), seeds, rates, evaluate_every=8, evaluate=magnitude)
    for index, (seed, rate) in enumerate(zip(seeds, rates, strict=True)):
        alone = run_passes(
            krasulina, data(24), [seed], [rate], evaluate=magnitude, evaluate_every=24
        )
        np.testing.assert_allclose(together.components[index], alone.components[0], atol=1e-5)
        np.testing.assert_allclose(together.figures[-1, index], alone.figures[-1, 0], atol=1e-4)
    assert np.abs(together.components[2] - together.components[0]).max() > 1e-2


def test_a_pass_uses_its_states_up_and_transfers_nothing_by_accident(forbid_transfers, monkeypatch):
    points = []

    def evaluate(components):
        points.append(components)
        if len(points) == 2:  # All programs are compiled.
            forbid_transfers()
        return first(components)

    def compile_and_look(function, *arguments, **options):
        program = compile_once(function, *arguments, **options)

        def run(states, *others):
            found = program(states, *others)
            assert all(leaf.is_deleted() for leaf in jax.tree.leaves(states))
            return found

        return run

    monkeypatch.setattr(passes, "compile_once", compile_and_look)
    run_passes(krasulina, data(24), [3], [1.0], evaluate=evaluate, evaluate_every=6)
    assert len(points) == 5


def test_a_pass_without_jit_is_the_compiled_pass():
    options = {"evaluate": first, "evaluate_every": 2}
    compiled = run_passes(Recorder, data(4), [3], [1.0], **options)
    with jax.disable_jit():
        plain = run_passes(Recorder, data(4), [3], [1.0], **options)
    np.testing.assert_allclose(plain.components, compiled.components, rtol=1e-5)


def test_workers_share_the_rows_of_a_pass_and_go_on_from_their_mean():
    rows = data(26)
    options = {"workers": 3, "evaluate_every": 5, "rows_per_update": 2}
    found = run_passes(Recorder, rows, [5, 6], [1.0, 7.0], evaluate=first, **options)
    assert found.rows_seen.tolist() == [0, 4, 8]
    assert found.workers.shape == (3, 2, 3)
    np.testing.assert_allclose(found.workers.mean(axis=2), found.figures, atol=1e-5)
    assert (np.ptp(found.workers[1:], axis=2) > 0.1).all()
    np.testing.assert_array_equal(found.components[:, 1:, 0], [[4, 1], [4, 7]])
    # Of 26 rows three workers get eight each.
    for run, seed in enumerate((5, 6)):
        order = draw_orders([seed], 26)[0]
        np.testing.assert_allclose(
            found.figures[2, run], rows[order[:24], 0].sum() / 3.0, rtol=1e-4, atol=1e-5
        )


def test_mean_then_qr_takes_the_mean_basis_and_forgets_the_energies():
    rule = IncrementalPCA(FEATURES, K)
    weights = np.asarray([1.0, 2.0, 0.5], np.float32)
    start = rule.init(jax.random.key(0))
    learned = [rule.update(start, data(12, seed=worker)) for worker in range(3)]
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *learned)
    combined = mean_then_qr(rule, states, weights)
    bases = np.stack([np.asarray(state.rows, np.float64).T for state in learned])
    basis, upper = np.linalg.qr(np.tensordot(weights / weights.sum(), bases, axes=1))
    expected = basis * np.sign(np.diagonal(upper))
    np.testing.assert_allclose(rule.components(combined), expected, atol=1e-5)
    assert int(combined.step) == 1
    assert np.array_equal(combined.energies, [1, 1])


def test_mean_then_qr_refuses_a_rule_whose_vectors_are_not_orthonormal():
    rule = ImplicitKrasulina(FEATURES, K, learning_rate=0.1)
    states = jax.tree.map(lambda leaf: leaf[None], rule.init(jax.random.key(0)))
    message = "a rule on orthonormal vectors, got 'ImplicitKrasulina'"
    with pytest.raises(InputError, match=message):
        mean_then_qr(rule, states, np.ones(1, np.float32))
