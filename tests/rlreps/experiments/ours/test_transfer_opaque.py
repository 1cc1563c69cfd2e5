"""What learned features buy agents that see codes: tables, budgets, verdicts, smoke preset."""

import dataclasses

import jax
import numpy as np
import pytest

from rlreps.experiments.ours import mazes
from rlreps.experiments.ours import transfer_opaque as transfer
from rlreps.experiments.ours.agent_arms import ArmRuns
from rlreps.experiments.ours.transfer_opaque import (
    COSINES,
    EXACT,
    EXPERIMENT,
    LABELS,
    LEARNED,
    PRESETS,
    SCRATCH,
)

CODES = mazes.observation_of("spiral").table()


def test_a_code_finds_its_cell():
    cells, weights = jax.jit(transfer.of_code)(CODES)
    np.testing.assert_array_equal(cells[:, 0], np.arange(len(CODES)))
    np.testing.assert_array_equal(weights, 1.0)


def test_all_arms_have_the_same_number_of_steps_with_and_without_rewards():
    config = PRESETS["laptop"]
    steps = {label: config.agents("spiral", 0, label).steps for label in LABELS}
    spared = {label for label, count in steps.items() if count == config.base.steps}
    assert spared == {LEARNED, EXACT}
    assert {*steps.values()} == {config.base.steps, config.base.steps + config.free_steps}


def test_mean_returns_are_over_all_steps_and_free_ones_count_as_never_arriving():
    base = PRESETS["laptop"].base
    base = dataclasses.replace(base, steps=8_000, evaluate_every=2_000)
    assert base.dqn.warmup < 2_000
    steps, returns = 2_000.0 * np.arange(5), np.array([[-290.0, -200.0, -100.0, -50.0, -40.0]])
    run = ArmRuns(
        label="", config=base, folder=None, steps=steps, returns=returns, measures={}, seconds=1.0
    )
    assert transfer.over_budget(run, 0) == pytest.approx(-97.5)
    # Evaluations at 2,000 and 4,000 free steps; those at 6,000 and later are the agent's own.
    assert transfer.over_budget(run, 6_000) == pytest.approx((-600.0 - 680.0) / 7)


def rows(learned, scratch, *, control=0, null=(20, 20), seeds=20, arms=LABELS):
    """Agents of all arms, of which so many reach the threshold, the first ones."""
    counts = {
        arena: {**dict.fromkeys(arms, control), LEARNED: ours, SCRATCH: theirs}
        for arena, ours, theirs in zip(
            (*mazes.MAZES, mazes.NULL), (*learned, null[0]), (*scratch, null[1]), strict=True
        )
    }
    return [
        {"arena": arena, "arm": arm, "seed": seed, "reached": float(seed < count)}
        for arena, found in counts.items()
        for arm, count in found.items()
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (rows((20, 20, 5), (0, 2, 5)), [True, True, True]),
        # 60 points may be 50, and one maze does not do.
        (rows((12, 12, 20), (0, 0, 0)), [None, True, True]),
        (rows((5, 5, 20), (0, 0, 0)), [False, None, True]),
        # What needs no data does as well.
        (rows((20, 20, 20), (0, 0, 0), control=20), [True, None, True]),
        # The others were better.
        (rows((0, 0, 0), (20, 20, 20), control=20), [False, False, True]),
        (rows((20, 20, 20), (0, 0, 0), null=(20, 0)), [True, True, False]),
        (rows((19, 19, 19), (0, 0, 0), seeds=19), [None, None, None]),
        # Without one of the data-free arms nobody can tell what helps.
        (
            rows((20, 20, 20), (0, 0, 0), arms=[each for each in LABELS if each != COSINES]),
            [True, None, True],
        ),
        # Of two mazes.
        (
            [row for row in rows((20, 20, 20), (0, 0, 0)) if row["arena"] != "spiral"],
            [None, None, True],
        ),
    ],
)
def test_the_goal_is_met_by_two_mazes_of_three(judge, given, expected):
    found = judge(EXPERIMENT, PRESETS["laptop"], given)
    assert [claim.holds for claim in found] == expected


def test_a_gain_that_its_sign_test_does_not_show_is_none(judge):
    """Five of twenty gain, whose interval is above 0: the exact p-value is 1/16."""
    found = judge(EXPERIMENT, PRESETS["laptop"], rows((5, 5, 5), (0, 0, 0)))[1]
    assert found.holds is None
    assert "p = " in found.found


@pytest.mark.integration
def test_thresholds_and_components_are_those_of_the_arenas_exact_model():
    config = PRESETS["laptop"]
    model = mazes.cell_model("five_corridors")
    goal = model.discs(mazes.GOALS[:1])[:, 0]
    steps = np.zeros(model.num_states)
    for _ in range(1_000):
        steps = 1.0 + np.einsum("ast,t->sa", model.to, (1.0 - goal) * steps).min(axis=1)
    best = transfer.optimal_return(config.agents("five_corridors", 0, SCRATCH))
    assert best == pytest.approx(-steps[goal == 0.0].mean(), rel=0.03)
    exact = transfer.exact_table(config, "five_corridors").astype(np.float64)
    gram = exact.T @ exact
    sizes = np.diag(gram)
    np.testing.assert_allclose(gram, np.diag(sizes), atol=1e-3 * sizes[0])
    assert np.mean(np.square(exact)) == pytest.approx(1.0)
    # The fit of one agent spans most of what counts: of the measure, its projection's square.
    chain = np.einsum("sa,ast->st", model.uniform, model.to)
    measure = np.linalg.inv(np.eye(len(chain)) - config.discount * chain) @ chain
    basis, _ = np.linalg.qr(transfer.learned_table(config, "five_corridors", 1_000))
    best_share = np.sum(np.linalg.svd(measure, compute_uv=False)[: config.num_features] ** 2)
    assert np.sum(np.square(basis.T @ measure)) > 0.9 * best_share


# Few steps: fits warn.
@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")
@pytest.mark.experiments
def test_the_smoke_preset_measures_every_arm(smoke):
    summary, out = smoke("transfer-opaque")
    config = PRESETS["smoke"]
    assert [row["arm"] for row in summary["arms"]] == list(config.labels)
    features = np.load(out / "features" / "five_corridors.npy")
    assert features.shape == (2, mazes.BINS**2, config.num_features)
    assert not np.array_equal(*features)
