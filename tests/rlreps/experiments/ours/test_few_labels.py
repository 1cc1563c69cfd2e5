"""Values from few labels: what is measured, verdicts, presets; its smoke preset."""

import numpy as np
import pytest

from rlreps.experiments.ours.few_labels import (
    COSINES,
    EXPERIMENT,
    FOURIER,
    LEARNED,
    NETWORKS,
    Config,
    unexplained_share,
)
from rlreps.experiments.ours.mazes import CONTROL_ARENA, MAZES
from rlreps.experiments.ours.tabular import exact_components
from rlreps.formatting import format_number
from rlreps.worlds import World


@pytest.fixture
def ring():
    """Twelve cells on a ring, two actions that go either way with a slip."""
    size = 12
    clockwise = 0.9 * np.roll(np.eye(size), 1, axis=1) + 0.1 * np.eye(size)
    to = np.stack([clockwise, clockwise.T])
    return World.from_arrays(probabilities=to, rewards=np.zeros((size, 2)))


def test_unexplained_variance_is_nought_for_features_that_tell_all_and_one_for_none():
    rng = np.random.default_rng(0)
    features, other = rng.normal(size=(2, 400, 3))
    values = features @ rng.normal(size=(3, 5)) + 7.0
    labelled = rng.permutation(400)[:60]
    assert unexplained_share([features], values, labelled) < 1e-6
    rest = np.delete(values, labelled, axis=0)
    shift = np.square(values[labelled].mean(axis=0) - rest.mean(axis=0)) / rest.var(axis=0)
    found = unexplained_share([np.zeros((400, 1))], values, labelled)
    np.testing.assert_allclose(found, 1.0 + shift.mean())
    # Columns of two kinds: each takes the table that explains it, whatever the order.
    both = np.concatenate([values, other @ rng.normal(size=(3, 2))], axis=1)
    for tables in ([features, other], [other, features]):
        assert unexplained_share(tables, both, labelled) < 1e-6


def test_exact_components_are_eigenfunctions_of_a_symmetric_walk_as_large_as_their_sums(ring):
    found = exact_components(ring, 5, discount=0.5)
    steps = 0.1 + 0.9 * np.cos(2.0 * np.pi * np.array([0, 1, 1, 2, 2]) / 12)
    sizes = np.abs(steps / (1.0 - 0.5 * steps))
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), sizes)
    np.testing.assert_allclose(np.ptp(found[:, 0]), 0.0, atol=1e-12)
    waves = np.exp(2j * np.pi * np.outer(np.arange(12), [1, 2]) / 12)
    outside = found[:, 1:3] - waves[:, :1] @ (waves[:, :1].conj().T @ found[:, 1:3]) / 6
    np.testing.assert_allclose(np.real(outside), 0.0, atol=1e-9)


def rows(learned, best=0.1):
    """Shares at one number of labels: learned features' in each arena, a best of cosines."""
    noise = np.linspace(-0.001, 0.001, 10)
    return [
        {"arena": arena, "seed": seed, "labels": 50, "draw": draw, "arm": arm, "share": share}
        for arena, ours in zip((*MAZES, CONTROL_ARENA), learned, strict=True)
        for seed in range(10)
        for draw in range(2)
        for arm, share in (
            (LEARNED, ours + noise[seed] + (0.01 if draw else -0.01)),
            (COSINES, best),
            (FOURIER, 2 * best),
            (NETWORKS, 3 * best),
        )
    ]


@pytest.mark.parametrize(
    ("learned", "mazes_hold", "null_holds"),
    [
        ((0.03, 0.03, 0.09, 0.09), True, True),
        ((0.03, 0.09, 0.09, 0.03), False, False),
        ((0.03, 0.05, 0.09, 0.05), None, None),
    ],
)
def test_the_goal_is_half_the_share_of_the_best_basis_in_two_mazes(
    judge, learned, mazes_hold, null_holds
):
    config = Config(labels=(50,))
    found = judge(EXPERIMENT, config, rows(learned))
    assert [claim.holds for claim in found] == [mazes_hold, null_holds]


def test_the_replicates_that_choose_a_basis_do_not_judge_the_null_by_it(judge):
    given, random = rows((0.03, 0.03, 0.09, 0.0525)), np.random.default_rng(0)
    noise = 0.02 * random.normal(size=(3, 10))
    noise -= noise.mean(axis=1, keepdims=True)  # Chance alone makes a basis best.
    noise += [[0.0], [1e-6], [2e-6]]
    arms = (COSINES, FOURIER, NETWORKS)
    for row in given:
        if row["arena"] == CONTROL_ARENA and row["arm"] in arms:
            row["share"] = 0.1 + noise[arms.index(row["arm"]), row["seed"]]
    (_, null) = judge(EXPERIMENT, Config(labels=(50,)), given)
    chosen = [min(range(3), key=lambda arm: np.delete(noise[arm], s).mean()) for s in range(10)]
    theirs = 0.1 + np.mean([noise[arm, seed] for seed, arm in enumerate(chosen)])
    assert null.found == f"{format_number(0.0525 / theirs)} of the best's"
