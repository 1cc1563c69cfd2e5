"""Experiments with agents: findings on made-up runs with known answers, and smoke presets."""

import contextlib
import csv
import dataclasses
import json
import math
import re

import jax
import numpy as np
import pytest

from rlreps.agents import AgentConfig, AuxiliaryConfig
from rlreps.encoders import MLP, Cosine, FourierMLP
from rlreps.errors import InputError
from rlreps.experiments import EXPERIMENTS
from rlreps.experiments.harness import in_path
from rlreps.experiments.ours import agent_arms, agent_control, agent_puddle_world
from rlreps.experiments.ours import representation_transfer as transfer
from rlreps.experiments.ours.agent_arms import (
    NO_TASK,
    ArmRuns,
    ComparedAgents,
    Comparison,
    advantage,
    draw_returns,
    improvement_claims,
    improvements,
    interquartile_curve,
    overall_improvement,
)
from rlreps.losses import Explicit, Spin
from rlreps.runs.folder import RunFolder
from rlreps.subspace import PrincipalSubspace, subspace_distance
from rlreps.workflows.agents import load_agents
from rlreps.workflows.evaluate import load_encoder
from rlreps.workflows.ground_truths import STORE
from rlreps.workflows.train import ground_truth_for

STEPS = 10_000.0 * np.arange(6)


def runs(label, level, *, seeds=10, seed=0, distance=0.3, probe=0.2):
    """Agents whose returns stand near a level from step 10,000 on, and never do better before."""
    levels = level + np.random.default_rng(seed).normal(size=(seeds, 1))
    spread = np.linspace(-0.01, 0.01, seeds)[:, None] * np.ones((1, 6))
    return ArmRuns(
        label=label,
        config=AgentConfig(steps=50_000),
        folder=None,
        steps=STEPS,
        returns=np.concatenate([np.full((seeds, 1), -500.0), np.tile(levels, (1, 5))], axis=1),
        measures={"leading_distance": distance + spread, "probe_error": probe + spread},
        seconds=1.0,
    )


def compared(*arms, environment="Maze"):
    return Comparison(environment=environment, threshold=-25.0, runs=arms)


def test_an_arm_that_is_better_by_far_has_the_advantage_in_return_and_samples():
    none, better = runs("none", -30.0), runs("better", -20.0, seed=1)
    # The evaluation before training counts in no mean.
    np.testing.assert_allclose(none.mean_returns, none.returns[:, -1])
    comparison = compared(none, better)
    found, back = comparison.advantages["better"], advantage(none, better, -25.0)
    assert found.probability.value == 1.0
    assert found.mean_return.value == pytest.approx(10.0, abs=1.0)
    # Reached at the second evaluation at or above, of steps 10,000 and 20,000.
    assert found.samples.value == 20_000 - 50_000
    assert (found.better_return, found.fewer_samples) == (True, True)
    assert (back.better_return, back.fewer_samples) == (False, False)
    first, second = comparison.summary()["arms"]
    assert (first["samples"], second["samples"]) == ([math.inf] * 10, [20_000.0] * 10)
    assert first["against_first"] is None
    assert second["against_first"]["mean_return"]["value"] == found.mean_return.value
    assert second["against_first"]["samples"]["high"] == found.samples.high


@pytest.mark.parametrize(
    ("level", "seeds", "holds"),
    [
        (-20.0, 10, [True, True]),
        (-28.0, 10, [True, False]),
        (-30.0, 10, [False] * 2),
        (-40.0, 10, [False] * 2),
        (-20.0, 9, [None] * 2),
    ],
)
def test_one_better_arm_of_several_is_enough_but_fewer_than_ten_agents_are_not(level, seeds, holds):
    arms = [
        runs("none", -30.0, seeds=seeds),
        runs("same", -30.0, seeds=seeds),
        runs("other", level, seeds=seeds, seed=1 if level != -30.0 else 0),
    ]
    claims = improvement_claims(compared(*arms), subject="auxiliary objective")
    assert [claim.holds for claim in claims] == holds
    assert all(claim.statement.startswith("Maze: at least one auxiliary") for claim in claims)
    assert all("adjusted for 4 comparisons (Holm)" in claim.stated for claim in claims)
    only_same = improvement_claims(compared(*arms), subject="objective", labels=["same"])
    assert [claim.holds for claim in only_same] == [None if seeds < 10 else False] * 2


def test_what_seeds_have_in_common_widens_no_difference_and_its_number_counts_against_it():
    """Agents whose seeds decide far more than their arms do: 9 of 10 are better by a little."""
    none, easy = runs("none", -30.0), np.linspace(-20.0, 20.0, 10)[:, None]
    none = dataclasses.replace(none, returns=none.returns + easy)
    gain = np.where(np.arange(10) == 3, -0.5, np.linspace(0.5, 1.5, 10))[:, None]

    def claimed(count):
        arms = [
            dataclasses.replace(none, label=str(index), returns=none.returns + gain)
            for index in range(count)
        ]
        comparison = compared(none, *arms)
        return comparison, improvement_claims(comparison, subject="objective")[0]

    comparison, claim = claimed(1)
    assert claim.holds is True
    found = comparison.advantages["0"].mean_return
    assert 0.0 < found.low < found.value < found.high < 2.0
    # Two of 1,024 flips of signs have so large a mean, and two more its negative.
    p = comparison.adjusted["0"].mean_return
    assert p == pytest.approx(2 * 4 / 1024, abs=4 / 1024)
    comparison, claim = claimed(8)
    assert comparison.adjusted["0"].mean_return == pytest.approx(min(1.0, 16 * p / 2))
    assert claim.holds is False
    other = dataclasses.replace(none, config=dataclasses.replace(none.config, seed=7))
    with pytest.raises(InputError, match=r"agents of the seeds of none, range\(0, 10\)"):
        advantage(other, none, -25.0)


def test_improvement_over_all_environments_is_the_mean_over_those_that_have_the_arm():
    first = compared(runs("none", -30.0), runs("a", -20.0), runs("b", -20.0), environment="One")
    second = compared(runs("none", -30.0), runs("a", -40.0), environment="Two")
    assert set(overall_improvement([first, second])) == {"a"}
    rows = improvements([first, second])
    assert list(rows) == ["a, One", "b, One", "a, Two", "a, all environments"]
    assert [rows["a, One"].value, rows["a, Two"].value] == [1.0, 0.0]
    assert rows["a, all environments"].value == pytest.approx(0.5)
    assert list(improvements([first])) == ["a", "b"]


def test_curves_and_axes_leave_out_missing_points_and_untrained_networks():
    curve = interquartile_curve(np.array([[1.0, math.nan, 3.0], [1.0, 2.0, 5.0]]))
    np.testing.assert_array_equal(curve.value, [1.0, math.nan, 4.0])
    assert curve.low[2] < 4.0 < curve.high[2]
    assert math.isnan(curve.low[1])
    low, high = draw_returns(compared(runs("none", -30.0), runs("a", -20.0))).axes[0].get_ylim()
    assert -40.0 < low < -30.0
    assert -20.0 < high < -15.0


def test_names_become_plain_folders():
    assert in_path("ALE/Breakout-v5") == "ALE-Breakout-v5"
    assert in_path("PuddleWorld (β = 1)") == "PuddleWorld-1"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (runs("taught", -30.0, distance=0.1, probe=0.1), "No difference in returns was found"),
        (runs("taught", -20.0, distance=0.1, probe=0.1), "Returns are better with taught"),
        (runs("idle", -30.0), "No auxiliary task left torsos"),
        # One of the two is not enough.
        (runs("half", -30.0, distance=0.1), "No auxiliary task left torsos"),
        (runs("few", -30.0, distance=0.1, probe=0.1, seeds=9), "too few agents to tell"),
    ],
)
def test_returns_are_related_to_torsos_as_the_intervals_say(other, said):
    comparison = compared(runs("none", -30.0, seeds=len(other.returns)), other)
    changes = agent_puddle_world.torso_changes(comparison)
    assert said in agent_puddle_world.reasons(comparison, changes)
    (change,) = changes.values()
    distance, probe = (other.measures[name][0, -1] for name in change._fields[:2])
    if len(other.returns) == 10:
        assert change.leading_distance.value == pytest.approx(distance - 0.29)
        assert change.probe_error.value == pytest.approx(probe - 0.19)


def test_closer_torsos_that_always_earn_more_have_a_rank_correlation_of_minus_one():
    arms = [runs("none", 0.0), runs("taught", 0.0, distance=0.1)]
    for arm in arms:
        arm.returns[:] = -arm.measures["leading_distance"]
    assert agent_puddle_world.rank_correlation(compared(*arms)) == pytest.approx(-1.0)
    control = runs(agent_puddle_world.COSINES, -900.0, distance=0.0)
    assert agent_puddle_world.rank_correlation(compared(*arms, control)) == pytest.approx(-1.0)


def test_fixed_cosines_are_a_control_that_no_claim_counts():
    better, control = runs("taught", -30.0), runs(agent_puddle_world.COSINES, -10.0, probe=0.05)
    comparison = compared(runs("none", -30.0), better, control)
    changes = agent_puddle_world.torso_changes(comparison)
    said = agent_puddle_world.reasons(comparison, changes)
    assert "No auxiliary task left torsos" in said
    assert "As many fixed cosines are at distance 0.300 [" in said
    assert "with probe error 0.0500 [" in said


def test_the_cosines_are_those_of_the_lowest_frequencies():
    config, start = agent_puddle_world.cosines(AgentConfig(num_features=7, num_seeds=2))
    assert config.dqn.freeze_torso
    states = np.random.default_rng(0).uniform(size=(50, 2)).astype(np.float32)
    encoder = dataclasses.replace(config.encoder, num_features=7)
    features = np.asarray(encoder.apply(start.params[1], states))
    pairs = [(0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1)]
    waves = np.stack([np.prod(np.cos(np.pi * states * pair), axis=1) for pair in pairs], axis=1)
    correlations = np.abs(np.corrcoef(features.T, waves.T)[:7, 7:])
    np.testing.assert_allclose(correlations.max(axis=1), 1.0, atol=1e-4)
    np.testing.assert_allclose(correlations.max(axis=0), 1.0, atol=1e-4)


def plain(last, *, best=500.0, seeds=10, steps=100_000):
    """Agents that once were good, of which this many are still good in the end."""
    returns = np.full((seeds, 5), best)
    returns[last:, -1] = 100.0
    steps = np.linspace(0.0, steps, 5)
    return dataclasses.replace(runs("none", 0.0), steps=steps, returns=returns)


@pytest.mark.parametrize(
    ("agents", "reached", "stayed"),
    [
        (plain(10), True, True),
        (plain(9), True, True),
        (plain(8), True, False),
        (plain(8, best=300.0), False, False),
        (plain(9, seeds=9), None, None),
        (plain(10, steps=50_000), True, None),
        (plain(10, steps=50_000, best=300.0), None, None),
        # All were good within 100,000 of 200,000 steps.
        (plain(0, steps=200_000), True, True),
    ],
)
def test_agents_are_judged_by_reaching_the_bar_and_staying_there(agents, reached, stayed):
    claims = agent_control.bar_claims(agent_control.Bar(), agents)
    assert [claim.holds for claim in claims] == [reached, stayed]
    assert all(f" of {len(agents.returns)}" in claim.found for claim in claims)


@pytest.fixture(scope="module")
def networks():
    """Two perceptrons, the second of which lacks a direction, and their features at 300 states."""
    encoder = FourierMLP(4, num_inputs=2, hidden=(16,), frequencies=2)
    states = np.random.default_rng(0).uniform(size=(300, 2)).astype(np.float32)
    params = jax.jit(jax.vmap(encoder.init))(jax.random.split(jax.random.key(1), 2))
    kernel = np.array(params[-1]["kernel"])
    kernel[1, :, 3] = kernel[1, :, 0]
    params = [*params[:-1], {**params[-1], "kernel": kernel}]
    encode = jax.jit(jax.vmap(encoder.apply, in_axes=(0, None)))
    return params, lambda of: np.asarray(encode(of, states), np.float64)


def measure_with(basis, values):
    return PrincipalSubspace(
        basis=basis,
        singular_values=np.asarray(values),
        total_energy=float(np.sum(np.square(values))),
        method="exact",
        settings={"rank": len(values)},
    )


@pytest.mark.parametrize("scaling", ["singular", "white", "none"])
def test_scaling_keeps_the_span_and_the_layers_below(networks, scaling):
    params, features = networks
    noise = np.random.default_rng(2).normal(size=(300, 6))
    principal = measure_with(np.linalg.qr(noise - noise.mean(axis=0))[0], [9.0, 5, 4, 3, 2, 1])
    copies, before = jax.tree.map(np.array, params), features(params)
    found = transfer.rescaled(params, before, scaling, principal)
    jax.tree.map(np.testing.assert_array_equal, params, copies)
    jax.tree.map(np.testing.assert_array_equal, found[0], copies[0])
    ours, lacking = features(found)
    basis = np.linalg.svd(before[0] - before[0].mean(axis=0), full_matrices=False)[0]
    centred = (ours - ours.mean(axis=0)).astype(np.float32)
    assert subspace_distance(centred, basis.astype(np.float32)) < 1e-4
    if scaling == "none":
        np.testing.assert_array_equal(ours, before[0])
        return
    np.testing.assert_allclose(ours.mean(axis=0), 0.0, atol=1e-4)
    covariance = ours.T @ ours / len(ours)
    values = np.linalg.svd(lacking, compute_uv=False) / np.sqrt(len(lacking))
    assert values[3] < 1e-3
    if scaling == "white":
        np.testing.assert_allclose(covariance, np.eye(4), atol=1e-3)
        np.testing.assert_allclose(values[:3], 1.0, atol=1e-3)
    else:
        # The measure's own projection on the span, by its singular values.
        projected = basis.T @ (principal.basis * principal.singular_values)
        sizes = np.linalg.svd(projected, compute_uv=False)
        expected = np.diag(sizes**2) * 4 / np.sum(sizes**2)
        np.testing.assert_allclose(covariance, expected, atol=1e-3)


def test_singular_scaling_of_features_that_span_the_components_is_their_own(networks):
    """Whatever invertible map training left: distances are those of the measure."""
    params, features = networks
    params = jax.tree.map(lambda leaf: leaf[:1], params)
    before = features(params)
    frame, _, _ = np.linalg.svd(before[0] - before[0].mean(axis=0), full_matrices=False)
    principal = measure_with(frame[:, [2, 0, 1, 3]], [8.0, 4.0, 2.0, 1.0])
    found = features(transfer.rescaled(params, before, "singular", principal))[0]
    expected = principal.basis * principal.singular_values
    expected *= np.sqrt(expected.size / np.sum(expected**2))
    signs = np.sign(np.sum(found * expected, axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=2e-3)


EXPLICIT = AuxiliaryConfig(objective=Explicit(), weight=0.5, num_tasks=7)
COMPARED = ComparedAgents(
    base=AgentConfig(auxiliary=AuxiliaryConfig(weight=3.0, num_tasks=9)),
    tasks=(EXPLICIT, AuxiliaryConfig(objective=Spin(), weight=0.1)),
    threshold=-1.0,
)
CONTROL, PUDDLES, TRANSFER = (
    module.PRESETS["smoke"] for module in (agent_control, agent_puddle_world, transfer)
)
(CARTPOLE,) = CONTROL.environments


def base(config, **changes):
    return {"base": dataclasses.replace(config.base, **changes)}


MOUNTAIN_CAR, UNKNOWN = (
    dataclasses.replace(CARTPOLE, **base(CARTPOLE, environment=name))
    for name in ("MountainCar-v0", "NoSuchThing-v0")
)


def test_arms_differ_in_what_is_compared_alone():
    arms = COMPARED.arms()
    assert list(arms) == [NO_TASK, "explicit", "spin"]
    assert arms[NO_TASK].auxiliary.weight == 0.0
    assert arms["explicit"].auxiliary == EXPLICIT
    for config in arms.values():
        assert dataclasses.replace(config, auxiliary=COMPARED.base.auxiliary) == COMPARED.base
    frozen = [config.dqn.freeze_torso for config in TRANSFER.arms().values()]
    assert frozen == [False, False, True, True]
    for name in ("laptop", "paper"):
        preset = agent_puddle_world.PRESETS[name]
        labels = [NO_TASK, "large batch", "Danskin-LISSA", "explicit", "spin"]
        assert list(preset.arms()) == labels
        assert preset.base.num_seeds >= 10


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (COMPARED, {"tasks": ()}, "at least one auxiliary task"),
        (COMPARED, {"tasks": (EXPLICIT, EXPLICIT)}, "different objectives"),
        (COMPARED, {"tasks": (dataclasses.replace(EXPLICIT, weight=0.0),)}, "auxiliary weight > 0"),
        (COMPARED, {"tasks": (dataclasses.replace(EXPLICIT, horizon=5_000),)}, "capacity|warmup"),
        (COMPARED, {"threshold": math.nan}, "finite threshold"),
        (PUDDLES, base(PUDDLES, environment="CartPole-v1"), "puddle-world"),
        (PUDDLES, {"components": 0}, "components >= 1"),
        (CONTROL, {"environments": ()}, "at least one environment"),
        (CONTROL, {"environments": (CARTPOLE, CARTPOLE)}, "different environments"),
        (CONTROL, {"environments": (MOUNTAIN_CAR,)}, "CartPole-v1, of the sanity bar"),
        (TRANSFER, {"scaling": "tall"}, "scaling to be one of none, singular, white"),
        (TRANSFER, base(TRANSFER, environment="CartPole-v1"), "environment puddle-world"),
        (TRANSFER, base(TRANSFER, environment="puddle-world:empty"), "a successor measure of"),
        (TRANSFER, base(TRANSFER, num_seeds=3), "pretraining.num_seeds = 3"),
        (TRANSFER, base(TRANSFER, num_features=5), "pretraining.num_features = 5"),
        (TRANSFER, base(TRANSFER, encoder=Cosine()), "one of the encoders fourier_mlp, mlp"),
        (TRANSFER, base(TRANSFER, encoder=MLP()), "pretraining.encoder"),
        (TRANSFER, {"base": TRANSFER.arms()[transfer.FROZEN]}, "agents that learn their torso"),
        (TRANSFER, base(TRANSFER, auxiliary=EXPLICIT), "agents without an auxiliary task"),
    ],
)
def test_configurations_that_make_no_sense_are_refused(config, changes, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(config, **changes)


def test_an_environment_that_cannot_be_made_is_refused_before_the_first_is_learned(tmp_path):
    config = agent_control.Config(environments=(CARTPOLE, UNKNOWN))
    with pytest.raises(InputError, match="NoSuchThing"):
        agent_control.EXPERIMENT.run(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


MEASURES = ["dormant_share", "effective_rank", "probe_error"]
TASKS = ["no-auxiliary-task", "large-batch", "explicit"]
ARMS = ["learning-from-scratch", "pre-trained-fine-tuned", "pre-trained-frozen", "random-frozen"]


def metric(out, arm, name):
    """Return a measure at every evaluation of an arm, [points, seeds]."""
    records = RunFolder(out / "runs" / arm).read_metrics()
    return np.asarray([record[name] for record in records])


def maps(*arms):
    return {f"{kind}_{arm}" for kind in ("components", "policy") for arm in arms}


def check_puddle_world(out, summary):
    # Updates begin after the second evaluation.
    none, large = (metric(out, arm, "returns") for arm in TASKS[:2])
    np.testing.assert_array_equal(none[:2], large[:2])
    none, large = (metric(out, arm, "leading_distance") for arm in TASKS[:2])
    assert np.all(none[-1] != large[-1])
    (file,) = (out / "results").glob("components_l*.json")
    for name in ("torso", "successor_measure"):
        rows = json.loads(file.read_text())
        columns = np.array([[row[f"{name}_{index}"] for index in (1, 2, 3)] for row in rows])
        np.testing.assert_allclose(columns.T @ columns, np.eye(3), atol=1e-4)
        np.testing.assert_allclose(columns.sum(axis=0), 0.0, atol=0.05)
    for row in json.loads((out / "results" / "returns.json").read_text()):
        assert row["return"] == pytest.approx((row["seed_0"] + row["seed_1"]) / 2)
        assert row["low"] <= row["return"] <= row["high"]
    agents = json.loads((out / "results" / "agents.json").read_text())
    assert [(in_path(row["arm"]), row["seed"]) for row in agents] == [
        (arm, seed) for arm in (*TASKS, "fixed-cosines") for seed in (0, 1)
    ]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("cannot be told from this run") == 2
    _, *others, _ = (arm["mean_return"] for arm in summary["comparisons"][0]["arms"])
    best = np.argmax([each["interquartile_mean"] for each in others])
    return {"returns", "leading_distance", "subspace_distance"} | maps(TASKS[0], TASKS[1 + best])


def check_control(out, summary):
    rows = json.loads((out / "results" / "improvement.json").read_text())
    names = ["CartPole-v1", "MountainCar-v0", "all environments"]
    assert [row["arm"] for row in rows] == [f"large batch, {name}" for name in names]
    assert rows[2]["value"] == pytest.approx((rows[0]["value"] + rows[1]["value"]) / 2)
    assert list(summary["overall"]) == ["large batch"]
    assert [each["environment"] for each in summary["comparisons"]] == names[:2]
    return {"returns_CartPole-v1", "returns_MountainCar-v0"}


def check_transfer(out, summary):
    assert len(summary["pretraining"]["per_seed"]) == 2
    scratch, tuned, frozen, random = (metric(out, arm, "leading_distance") for arm in ARMS)
    np.testing.assert_array_equal(tuned[0], frozen[0])
    # Scaling keeps the span.
    np.testing.assert_allclose(scratch[0], random[0], atol=1e-3)
    assert np.all(frozen[0] < 0.8 * random[0])
    for kept in (frozen, random):
        np.testing.assert_allclose(kept, np.tile(kept[0], (len(kept), 1)), atol=1e-6)
    for learned in (tuned, scratch):
        assert np.all(learned[-1] != learned[0])
    truth = ground_truth_for(out / STORE, TRANSFER.base.num_features)
    encoders = load_encoder(RunFolder(out / "pretraining"), truth).params
    trained = load_agents(RunFolder(out / "runs" / ARMS[2]), TRANSFER.arms()[transfer.FROZEN])
    with contextlib.closing(trained[0]) as trainer:
        torsos = trained[1].memory.learner.params["torso"]
        np.testing.assert_array_equal(torsos[0]["kernel"], encoders[0]["kernel"])
        encode = jax.jit(jax.vmap(trainer.agent.network.features, in_axes=(0, None)))
        for table in np.asarray(encode(torsos, truth.coordinates), np.float64):
            covariance = table.T @ table / len(table)
            sizes = np.diag(covariance)
            np.testing.assert_allclose(covariance, np.diag(sizes), atol=1e-2 * sizes[0])
            assert np.all(np.diff(sizes) < 1e-2 * sizes[0])
            assert sizes.mean() == pytest.approx(1.0, abs=1e-2)
    return {"returns", "leading_distance", "subspace_distance"} | maps(*ARMS[:3])


@pytest.mark.experiments
@pytest.mark.parametrize(
    ("name", "config", "arms", "claims", "check"),
    [
        (
            "agent-puddle-world",
            PUDDLES,
            [*TASKS, "fixed-cosines"],
            2,
            check_puddle_world,
        ),
        (
            "agent-control",
            agent_control.Config(environments=(CARTPOLE, MOUNTAIN_CAR)),
            [f"{env}/{arm}" for env in ("CartPole-v1", "MountainCar-v0") for arm in TASKS[:2]],
            2,
            check_control,
        ),
        ("representation-transfer", TRANSFER, ARMS, 3, check_transfer),
    ],
)
def test_smoke_presets_leave_figures_tables_and_claims_and_resume(
    name, config, arms, claims, check, tmp_path, monkeypatch, files_below, written
):
    experiment, out = EXPERIMENTS[name].load(), tmp_path / "run"
    train, kept = agent_arms.run_agents, out / "runs" / arms[0]

    def die(agents, home, **options):
        if home == out / "runs" / arms[-1]:
            raise KeyboardInterrupt
        return train(agents, home, **options)

    # A run that was killed before its last arm trains that one alone; a finished one trains none.
    monkeypatch.setattr(agent_arms, "run_agents", die)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(config, out, progress=False)
    before = files_below(kept)
    monkeypatch.setattr(agent_arms, "run_agents", train)
    summary = experiment.run(config, out, progress=False)
    assert files_below(kept) == before
    monkeypatch.setattr(agent_arms, "run_agents", None)
    before = files_below(out)
    assert experiment.run(config, out, progress=False) == summary
    assert files_below(out) == before

    assert json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail) == written(
        summary
    )
    # Two agents an arm give no verdict.
    assert [claim["holds"] for claim in summary["claims"]] == [None] * claims
    trained = [arm for each in summary["comparisons"] for arm in each["arms"]]
    for arm, found in zip(arms, trained, strict=True):
        assert in_path(found["arm"]) == arm.rpartition("/")[2]
        assert found["final_returns"] == metric(out, arm, "returns")[-1].tolist()
    drawn = {file.stem for file in (out / "figures").iterdir()}
    assert drawn == {"improvement", *MEASURES} | check(out, summary)
    for each in [*drawn, "agents", "differences"]:
        rows = json.loads((out / "results" / f"{each}.json").read_text())
        with (out / "results" / f"{each}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows) > 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == len(drawn)
    assert not re.search(r'(href|src)="(https?:|//|\./|/)', page)
    assert "our goal" in page.lower()
