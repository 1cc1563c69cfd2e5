"""Slow features of PuddleWorld: eigenproblem, sources, operator, measurements; its smoke preset."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse

from rlreps.encoders import FunctionEncoder, Tabular
from rlreps.errors import InputError
from rlreps.experiments.harness import in_path
from rlreps.experiments.ours import slow_puddle
from rlreps.experiments.ours.slow_puddle import (
    PRESETS,
    Config,
    Contender,
    Goals,
    Learned,
    Result,
    make_problem,
    measure_features,
    slowest_eigenfunctions,
    sparse_graph_operator,
    state_source,
    successor_distances,
    training_measures,
)
from rlreps.operators import GraphLaplacian, Sample, graph_laplacian
from rlreps.runs.folder import RunFolder
from rlreps.sources import chain_source
from rlreps.subspace import PrincipalSubspace
from rlreps.successor.ground_truth import GroundTruth
from rlreps.successor.measure import MonteCarlo, Transition

SMOKE = PRESETS["smoke"]
CELLS = 36
MIXING = np.triu(np.random.default_rng(0).normal(size=(4, 4))) + 2.0 * np.eye(4)


@pytest.fixture(scope="module")
def problem():
    return make_problem(Transition(bins=6, points=64), 4)


@pytest.fixture(scope="module")
def successor(problem):
    """A ground truth of another, random subspace without a constant part."""
    random = np.random.default_rng(1).normal(size=(CELLS, 4))
    basis, _ = np.linalg.qr(random - random.mean(axis=0))
    principal = PrincipalSubspace(
        basis=basis,
        singular_values=np.arange(4.0, 0.0, -1.0),
        total_energy=30.0,
        method="exact",
        settings={},
    )
    return GroundTruth(coordinates=problem.centres, matrix=None, principal=principal)


@pytest.fixture(scope="module")
def measured(problem, successor):
    """Functions → what is measured of them with the constant, in float32."""

    def measure(functions):
        features = np.concatenate([np.ones((CELLS, 1)), functions], axis=1)
        return measure_features(features.astype(np.float32), problem, successor)

    return measure


@pytest.mark.parametrize("dense", [slow_puddle._DENSE, 0], ids=["dense", "Lanczos"])
def test_eigenfunctions_are_those_of_a_dense_generalised_solver(problem, dense, monkeypatch):
    monkeypatch.setattr(slow_puddle, "_DENSE", dense)
    laplacian, sigma = problem.graph.laplacian.toarray(), np.diag(problem.graph.measure)
    values, vectors = scipy.linalg.eigh(laplacian, sigma, subset_by_index=(0, 6))
    found, functions = slowest_eigenfunctions(problem.graph, 7)
    np.testing.assert_allclose(found, values, rtol=1e-8, atol=1e-12)
    residual = laplacian @ functions - sigma @ functions * found
    np.testing.assert_allclose(residual, 0.0, atol=1e-10)
    np.testing.assert_allclose(functions.T @ sigma @ functions, np.eye(7), atol=1e-8)
    np.testing.assert_allclose(np.abs(np.sum(functions * (sigma @ vectors), axis=0)), 1.0)
    np.testing.assert_allclose(problem.eigenvalues, values[1:5], rtol=1e-8)
    np.testing.assert_allclose(problem.eigenfunctions, functions[:, 1:5], atol=1e-8)


def test_the_laplacian_is_of_the_uniform_measure_and_the_one_after_it(problem):
    chain, uniform = problem.chain.toarray(), np.diag(np.full(CELLS, 1 / CELLS))
    after = np.diag(chain.T @ np.full(CELLS, 1 / CELLS))
    expected = uniform + after - uniform @ chain - chain.T @ uniform
    np.testing.assert_allclose(problem.graph.laplacian.toarray(), expected, atol=1e-15)
    np.testing.assert_allclose(problem.graph.measure, np.diag(uniform + after) / 2)
    assert problem.graph.measure.min() > 0.1 / CELLS
    assert problem.graph.measure.sum() == pytest.approx(1.0)
    still, _ = slowest_eigenfunctions(graph_laplacian(np.eye(5), np.full(5, 0.2)), 2)
    np.testing.assert_allclose(still, 0.0, atol=1e-12)
    measure = np.where(np.arange(CELLS) == 4, 0.0, problem.graph.measure)
    broken = GraphLaplacian(problem.graph.laplacian, measure, measure)
    with pytest.raises(InputError, match="a measure of every state, got '1 states without'"):
        slowest_eigenfunctions(broken, 3)
    with pytest.raises(InputError, match="fewer eigenfunctions than the 36 states, got 36"):
        slowest_eigenfunctions(problem.graph, 36)


def test_the_mean_squared_change_along_pairs_is_the_eigenvalue(problem):
    pairs, source = 400_000, chain_source(problem.chain)
    batch = jax.jit(source.sample, static_argnums=(1, 2))(jax.random.key(0), pairs, 1)
    states, after = map(np.asarray, batch.pair)
    changes = np.square(problem.eigenfunctions[states] - problem.eigenfunctions[after])
    error = changes.std(axis=0) / np.sqrt(pairs)
    assert np.all(np.abs(changes.mean(axis=0) - problem.eigenvalues) < 5.0 * error)


def test_states_come_with_their_measure():
    measure = np.array([0.05, 0.5, 0.15, 0.3])
    sample = jax.jit(state_source(measure).sample, static_argnums=(1, 2))
    drawn = np.asarray(sample(jax.random.key(0), 100_000, 1).inputs)
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    assert np.all(np.abs(shares - measure) < 5.0 * np.sqrt(measure * (1 - measure) / len(drawn)))


def test_the_sparse_operator_is_the_dense_one(problem):
    table, states = np.random.default_rng(0).normal(size=(CELLS, 4)), np.array([3, 0, 35, 3])
    operator = sparse_graph_operator(problem.graph)

    @jax.jit
    def apply(table):
        targets, weights = jnp.zeros((4, 0)), jnp.ones(4)
        return operator.apply(
            Sample(lambda inputs: table[inputs], states, targets, table[states], weights)
        )

    expected = (problem.graph.laplacian @ table)[states] / problem.graph.measure[states, None]
    np.testing.assert_allclose(apply(table.astype(np.float32)), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(apply(np.ones((CELLS, 4), np.float32)), 0.0)


def test_mixtures_of_earlier_ones_and_the_constant_count_as_the_eigenfunctions(
    problem, successor, measured
):
    found = measured(problem.eigenfunctions @ MIXING + 3.0)
    np.testing.assert_allclose(found.functions, problem.eigenfunctions, atol=2e-5)
    np.testing.assert_allclose(found.eigenvalues, problem.eigenvalues, rtol=1e-5)
    np.testing.assert_allclose(found.cosines, 1.0, atol=1e-8)
    np.testing.assert_allclose(found.distances, 0.0, atol=1e-8)
    true = successor_distances(problem.eigenfunctions, successor)
    np.testing.assert_allclose(found.successor_distances, true, atol=1e-5)
    # The mean over states is left out, and so is a constant added to all functions.
    centred = problem.eigenfunctions - problem.eigenfunctions.mean(axis=0)
    for d in range(1, 5):
        basis = successor.principal.basis[:, :d]
        fitted = centred[:, :d] @ np.linalg.lstsq(centred[:, :d], basis, rcond=None)[0]
        assert true[d - 1] == pytest.approx(np.sum((basis - fitted) ** 2) / d, rel=1e-6)


def test_two_eigenfunctions_turned_into_each_other_span_the_same_but_are_not_the_same(
    problem, measured
):
    turn = np.eye(4)
    turn[:2, :2] = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2.0)
    found = measured(problem.eigenfunctions @ turn)
    np.testing.assert_allclose(found.distances, [0.5, 0.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(found.cosines, [0.5**0.5, 0.5**0.5, 1.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(found.eigenvalues[:2], problem.eigenvalues[:2].mean(), rtol=1e-5)


def test_what_is_followed_in_training_is_what_is_measured_after_it(problem, measured):
    encoder = FunctionEncoder(
        lambda key: (), lambda params, _: jnp.hstack([jnp.ones((CELLS, 1)), params])
    )
    follow = jax.jit(training_measures(encoder, problem, (1, 2, 4)))
    table = np.random.default_rng(0).normal(size=(CELLS, 4)).astype(np.float32)
    followed, found = follow(table), measured(table)
    for d in (1, 2, 4):
        expected = found.distances[d - 1]
        assert float(followed[f"distance_{d}"]) == pytest.approx(expected, rel=1e-4)
    assert followed["subspace_distance"] == followed["distance_4"]
    weighed = problem.graph.measure[:, None] * found.functions * problem.eigenfunctions
    for k, cosine in enumerate(weighed.sum(axis=0), start=1):
        assert float(followed[f"cosine_{k}"]) == pytest.approx(abs(cosine), abs=1e-5)
    # Features that collapsed reach nothing.
    collapsed = np.zeros((CELLS, 4), np.float32)
    followed, found = follow(collapsed), measured(collapsed)
    np.testing.assert_allclose(found.distances, 1.0, atol=1e-12)
    np.testing.assert_allclose(found.successor_distances, 1.0, atol=1e-12)
    assert np.isnan(found.eigenvalues).all()
    assert not found.cosines.any()
    distances = [float(followed[name]) for name in ("distance_2", "distance_4")]
    assert distances == pytest.approx([1.0, 1.0], abs=1e-6)
    assert float(followed["cosine_1"]) == 0.0


def test_goals_are_judged_by_the_worst_seed_and_without_goals_not_at_all(
    problem, successor, measured
):
    true, truth = problem.eigenfunctions, problem.eigenvalues
    floor = successor_distances(true, successor)

    def result(*tables):
        learned = map(np.stack, zip(*map(measured, tables), strict=True))
        return Result(Contender(name="one"), [], Learned(*learned))

    def holds(goals, *tables):
        config = dataclasses.replace(SMOKE, goals=goals)
        claims = slow_puddle.judge(config, truth, floor, result(*tables))
        return [claim.holds for claim in claims]

    other = np.random.default_rng(2).normal(size=true.shape)
    assert holds(Goals(), true, true) == [True] * 4
    assert holds(Goals(), true, other)[:3] == [False] * 3
    assert holds(None, true) == [None] * 4
    assert np.isinf(result(np.zeros_like(true)).relative_errors(truth)).all()


def config(**changes):
    settings = {
        "successor": Transition(bins=4),
        "contenders": (Contender(name="one", steps=20),),
        "dimensions": (2, 4),
        "shown": 2,
    }
    return Config(**{**settings, **changes})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Contender(name="one", rows=5), "an even number of rows, two for each pair, got 5"),
        (lambda: Contender(name="one", averaging_rate=0.0), r"averaging_rate in \(0, 1\], got 0.0"),
        (lambda: Contender(name="one", action="guessed"), "action to be one of exact, sampled"),
        (lambda: Contender(name="one", steps=0), "steps >= 1, got 0"),
        (lambda: config(contenders=()), "at least one contender, each once"),
        (lambda: config(contenders=(Contender(name="a"),) * 2), "each once"),
        (lambda: config(evaluations=3), r"evaluations \(3\), got 20"),
        (lambda: config(successor=MonteCarlo(bins=4)), "method transition, got 'monte_carlo'"),
        (lambda: config(encoder=Tabular()), "an encoder of coordinates"),
        (lambda: config(dimensions=(4, 2)), "dimensions >= 1, rising"),
        (lambda: config(dimensions=(0, 2)), "dimensions >= 1, rising"),
        (lambda: config(dimensions=(2, 14)), "dimensions <= 13, got 14"),
        (lambda: config(shown=5), "1 <= shown <= the largest d, got 5"),
        (lambda: config(num_seeds=0), "num_seeds >= 1, got 0"),
    ],
)
def test_settings_without_meaning_are_refused(build, message):
    assert Contender(name="one", action="exact", rows=1).rows == 1
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.experiments
def test_the_smoke_preset_learns_and_a_killed_run_goes_on_to_the_same(tmp_path, monkeypatch):
    append, out = RunFolder.append_metrics, tmp_path / "whole"

    def die(self, record):
        append(self, record)
        if "0-5" in self.path.name and record["step"] == 120:
            raise KeyboardInterrupt

    summary = slow_puddle.EXPERIMENT.run(SMOKE, out, progress=False)
    # Killed in the second training, as after the same first one.
    killed = shutil.copytree(out, tmp_path / "killed")
    (killed / "summary.json").unlink()
    first, *others = map(in_path, (contender.name for contender in SMOKE.contenders))
    assert sorted(path.name for path in (killed / "runs").iterdir()) == sorted([first, *others])
    for name in others:
        shutil.rmtree(killed / "runs" / name)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append_metrics", die)
        with pytest.raises(KeyboardInterrupt):
            slow_puddle.EXPERIMENT.run(SMOKE, killed, progress=False)
    resumed = slow_puddle.EXPERIMENT.run(SMOKE, killed, progress=False)
    for left, right in zip(summary["contenders"], resumed["contenders"], strict=True):
        assert left["per_seed"] == right["per_seed"]
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 4
    truth = np.asarray(summary["eigenvalues"])
    curves = json.loads((out / "results" / "distance_by_update.json").read_text())
    assert len(curves) == 3 * 2 * 11 * 2
    for each in summary["contenders"]:
        assert (each["diverged"], each["runs"]) == (0, 2)
        for seed, (eigenvalues, distances) in enumerate(
            zip(each["per_seed"]["eigenvalues"], each["per_seed"]["subspace_distance"], strict=True)
        ):
            # No learned functions are slower together than the true ones.
            assert np.sum(eigenvalues) > truth[:4].sum() * (1.0 - 1e-6)
            (*_, last) = (
                row["subspace_distance"]
                for row in curves
                if (row["contender"], row["d"], row["seed"]) == (each["name"], 2, seed)
            )
            assert last == pytest.approx(distances[1], rel=1e-3, abs=1e-5)
    winner = summary["contenders"][0]["subspace_distance"]
    first = np.mean([row["subspace_distance"] for row in curves[:2]])
    assert winner["2"]["mean"] < 0.1 * first
    assert winner["4"]["mean"] < 0.05
    figures = sorted(file.stem for file in (out / "figures").iterdir())
    assert figures == sorted(file.stem for file in (out / "results").glob("*.csv"))
    assert len(figures) == 7
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 7
    other = dataclasses.replace(SMOKE, num_seeds=3)
    with pytest.raises(InputError, match="expected num_seeds=2, got 3"):
        slow_puddle.EXPERIMENT.run(other, out, progress=False)
