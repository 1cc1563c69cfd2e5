import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import FunctionEncoder
from rlreps.experiments.ours.slow_puddle.claims import compare_with_goals, relative_errors
from rlreps.experiments.ours.slow_puddle.config import PRESETS, Contender, Goals
from rlreps.experiments.ours.slow_puddle.figures import ContenderResult
from rlreps.experiments.ours.slow_puddle.measures import (
    measure_features,
    successor_distances,
    training_measures,
)
from rlreps.experiments.ours.slow_puddle.problem import make_problem
from rlreps.subspace import PrincipalSubspace
from rlreps.successor.ground_truth import GroundTruth
from rlreps.successor.measure import Transition

MIXING = np.triu(np.random.default_rng(0).normal(size=(4, 4))) + 2.0 * np.eye(4)


@pytest.fixture(scope="module")
def problem():
    return make_problem(Transition(bins=8, points=64), 4)


@pytest.fixture(scope="module")
def successor(problem):
    """A ground truth of another, random subspace without a constant part."""
    random = np.random.default_rng(1).normal(size=(64, 4))
    basis, _ = np.linalg.qr(random - random.mean(axis=0))
    principal = PrincipalSubspace(
        basis=basis,
        singular_values=np.arange(4.0, 0.0, -1.0),
        total_energy=30.0,
        method="exact",
        settings={},
    )
    return GroundTruth(coordinates=jnp.asarray(problem.centres), matrix=None, principal=principal)


def with_constant(functions):
    return np.concatenate([np.ones((len(functions), 1)), functions], axis=1)


def test_features_that_mix_earlier_ones_and_the_constant_count_as_the_eigenfunctions(
    problem, successor
):
    functions = with_constant(problem.eigenfunctions @ MIXING + 3.0)
    found = measure_features(jnp.asarray(functions, jnp.float32), problem, successor)
    np.testing.assert_allclose(found.functions, problem.eigenfunctions, atol=2e-5)
    np.testing.assert_allclose(found.eigenvalues, problem.eigenvalues, rtol=1e-5)
    np.testing.assert_allclose(found.cosines, 1.0, atol=1e-8)
    np.testing.assert_allclose(found.distances, 0.0, atol=1e-8)
    true = successor_distances(problem.eigenfunctions, successor)
    np.testing.assert_allclose(found.successor_distances, true, atol=1e-5)


def test_two_eigenfunctions_turned_into_each_other_span_the_same_but_are_not_the_same(
    problem, successor
):
    turn = np.eye(4)
    turn[:2, :2] = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2.0)
    features = with_constant(problem.eigenfunctions @ turn)
    found = measure_features(jnp.asarray(features, jnp.float32), problem, successor)
    np.testing.assert_allclose(found.distances, [0.5, 0.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(found.cosines, [0.5**0.5, 0.5**0.5, 1.0, 1.0], atol=1e-6)
    between = problem.eigenvalues[:2].mean()
    np.testing.assert_allclose(found.eigenvalues[:2], between, rtol=1e-5)


def test_what_is_followed_in_training_is_what_is_measured_after_it(problem, successor):
    features = jax.random.normal(jax.random.key(0), (64, 4))
    encoder = FunctionEncoder(
        lambda key: features, lambda params, _: jnp.hstack([jnp.ones((64, 1)), params])
    )
    followed = training_measures(encoder, problem, (1, 2, 4))(features)
    measured = measure_features(encoder.apply(features, None), problem, successor)
    for d in (1, 2, 4):
        assert float(followed[f"distance_{d}"]) == pytest.approx(
            measured.distances[d - 1], rel=1e-4
        )
    assert followed["subspace_distance"] == followed["distance_4"]
    weighed = problem.measure[:, None] * measured.functions * problem.eigenfunctions
    for k, cosine in enumerate(weighed.sum(axis=0)):
        assert float(followed[f"cosine_{k + 1}"]) == pytest.approx(abs(cosine), abs=1e-5)


def test_features_that_collapsed_reach_nothing(problem, successor):
    nothing = with_constant(np.zeros((64, 4)))
    found = measure_features(jnp.asarray(nothing, jnp.float32), problem, successor)
    np.testing.assert_array_equal(found.distances, 1.0)
    np.testing.assert_array_equal(found.successor_distances, 1.0)
    assert np.isnan(found.eigenvalues).all()
    assert not found.cosines.any()
    encoder = FunctionEncoder(
        lambda key: nothing, lambda params, _: jnp.asarray(params, jnp.float32)
    )
    followed = training_measures(encoder, problem, (2, 4))(nothing)
    distances = [float(followed[name]) for name in ("distance_2", "distance_4")]
    assert distances == pytest.approx([1.0, 1.0], abs=1e-6)
    assert float(followed["cosine_1"]) == 0.0


def test_the_distance_to_the_successor_measure_leaves_the_mean_out(problem, successor):
    found = successor_distances(problem.eigenfunctions, successor)
    centred = problem.eigenfunctions - problem.eigenfunctions.mean(axis=0)
    for d in range(1, 5):
        basis = successor.principal.basis[:, :d]
        fitted = centred[:, :d] @ np.linalg.lstsq(centred[:, :d], basis, rcond=None)[0]
        assert found[d - 1] == pytest.approx(np.sum((basis - fitted) ** 2) / d, rel=1e-6)
    # A constant added to all functions changes nothing.
    shifted = successor_distances(problem.eigenfunctions + 5.0, successor)
    np.testing.assert_allclose(shifted, found, rtol=1e-6)


def result_of(problem, successor, *tables):
    return ContenderResult(
        contender=Contender(name="one"),
        history=[],
        seconds=1.0,
        diverged=0,
        learned=[
            measure_features(jnp.asarray(with_constant(table), jnp.float32), problem, successor)
            for table in tables
        ],
    )


def test_goals_are_judged_by_the_worst_seed_and_without_goals_not_at_all(problem, successor):
    true = problem.eigenfunctions
    floor = successor_distances(true, successor)
    config = dataclasses.replace(PRESETS["smoke"], goals=Goals())

    def holds(config, *tables):
        result = result_of(problem, successor, *tables)
        return [claim.holds for claim in compare_with_goals(config, problem, floor, result)]

    assert holds(config, true, true) == [True] * 4
    other = np.random.default_rng(2).normal(size=true.shape)
    assert holds(config, true, other)[:3] == [False] * 3
    assert holds(PRESETS["smoke"], true) == [None] * 4
    collapsed = result_of(problem, successor, np.zeros_like(true))
    assert np.isinf(relative_errors(problem, collapsed)).all()
