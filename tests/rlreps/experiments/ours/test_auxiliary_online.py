"""Auxiliary tasks online: verdicts on made-up returns with known effects, and the smoke preset."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from rlreps.experiments.ours import agent_arms, auxiliary_online
from rlreps.experiments.ours.agent_arms import NO_TASK, ArmRuns
from rlreps.experiments.ours.auxiliary_online import (
    CONTROL,
    EXPERIMENT,
    FIXED,
    FOLLOWING,
    PRESETS,
    SHARE,
    WIDER,
)
from rlreps.experiments.ours.mazes import MAZES, NULL
from rlreps.runs.intervals import holm, sign_flip_p_value, smallest_detectable

BEST = -20.0


def rows(gains, *, agents=20, noise=1.0):
    """Returns of agents: gains [environments][labels] over −100, and noise by arm and agent."""
    generator = np.random.default_rng(0)
    easy = generator.normal(scale=30.0, size=agents)
    return [
        {"environment": name, "arm": label, "seed": seed, "mean_return": value}
        for name, arms in gains.items()
        for label, gain in {NO_TASK: 0.0, **arms}.items()
        for seed, value in enumerate(
            -100.0 + easy - easy.mean() + gain + noise * generator.normal(size=agents)
        )
    ]


@pytest.fixture
def found_of(results_of):
    """Make results of returns, in settings whose best return is known."""

    def made(given, best=BEST):
        names = list(dict.fromkeys(row["environment"] for row in given))
        settings = [SimpleNamespace(name=name, best=lambda: best) for name in names]
        return results_of(EXPERIMENT, SimpleNamespace(settings=settings), given)

    return made


def test_effects_are_paired_corrected_for_all_and_beside_what_could_be_seen(found_of):
    given = rows({"spiral": {FOLLOWING: 32.0, CONTROL: 10.0, WIDER: -5.0}})
    results = found_of(given)
    found = auxiliary_online.rows(results)
    pairs = [(each["arm"], each["against"]) for each in found]
    assert pairs == [
        (FOLLOWING, NO_TASK),
        (FOLLOWING, CONTROL),
        (CONTROL, NO_TASK),
        (WIDER, NO_TASK),
    ]
    arms = {
        arm: np.array([row["mean_return"] for row in given if row["arm"] == arm])
        for arm in (NO_TASK, FOLLOWING, CONTROL, WIDER)
    }
    p_values = holm([sign_flip_p_value(arms[one], arms[other]) for one, other in pairs])
    gap = BEST - arms[NO_TASK].mean()
    for each, p in zip(found, p_values, strict=True):
        differences = arms[each["arm"]] - arms[each["against"]]
        assert each["difference"] == pytest.approx(differences.mean())
        assert each["p_value"] == p
        assert each["share_of_gap"] == pytest.approx(differences.mean() / gap)
        detectable = smallest_detectable(differences, 0.05 / 4)
        assert each["detectable"] == pytest.approx(detectable)
        # What seeds do to both arms alike hides nothing.
        assert each["detectable_share"] == pytest.approx(detectable / gap)
        assert each["detectable_share"] < SHARE
    # Of a gap of 80, 32 and 22 are beyond a quarter; 10 is not, and nothing is below 0.
    verdicts = [each.holds for each in auxiliary_online.judged(results).values()]
    assert verdicts == [True, True, False, False]
    assert auxiliary_online.met(results, "spiral")[FOLLOWING].holds is True


@pytest.mark.parametrize(
    ("gains", "options", "goal", "seen"),
    [
        ([{FOLLOWING: 30.0}] * 3, {}, True, True),
        ([{FOLLOWING: 30.0}, {FOLLOWING: 30.0}, {}], {}, True, True),
        ([{FOLLOWING: 30.0}, {}, {}], {}, False, True),
        # Another objective in another maze is not one objective in two.
        ([{FOLLOWING: 30.0}, {FIXED: 30.0}, {}], {}, False, True),
        ([{FOLLOWING: 10.0}] * 3, {}, False, True),
        ([{FOLLOWING: -30.0}] * 3, {}, False, True),
        # What a task without dynamics does as well is no effect of the representation.
        ([{FOLLOWING: 30.0, CONTROL: 29.0}] * 3, {}, False, True),
        # What could not be seen is not refuted.
        ([{}] * 3, {"noise": 60.0}, None, False),
        ([{FOLLOWING: 30.0}] * 3, {"agents": 19}, None, None),
    ],
)
def test_the_goal_is_one_objective_over_both_others_in_two_mazes(
    found_of, gains, options, goal, seen
):
    idle = {FOLLOWING: 0.0, FIXED: 0.0, CONTROL: 0.0}
    made = {maze: {**idle, **arms} for maze, arms in zip(MAZES, gains, strict=True)}
    claims = EXPERIMENT.judged(found_of(rows(made, **options)))
    assert [claim.holds for claim in claims] == [goal, seen]
    assert "adjusted for 15 comparisons (Holm)" in claims[0].stated


@pytest.mark.parametrize(
    ("gain", "noise", "null", "control"),
    [
        (0.0, 1.0, True, False),
        (30.0, 1.0, False, True),
        # Half of what counts, and significant.
        (10.0, 1.0, False, False),
        (0.0, 60.0, None, None),
    ],
)
def test_other_settings_have_claims_of_their_own(found_of, gain, noise, null, control):
    arms = {FOLLOWING: gain, CONTROL: 0.0}
    claims = EXPERIMENT.judged(found_of(rows({NULL: arms, "Acrobot-v1": arms}, noise=noise)))
    assert [claim.holds for claim in claims] == [control, null]
    assert [claim.statement.partition(":")[0].partition(",")[0] for claim in claims] == [
        "Acrobot-v1",
        NULL,
    ]


def met(found_of, arms):
    """Judge the objective in one maze by the returns of its arms."""
    given = [
        {"environment": "spiral", "arm": arm, "seed": seed, "mean_return": value}
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    ]
    return auxiliary_online.met(found_of(given), "spiral")[FOLLOWING].holds


def test_an_objective_fails_in_a_maze_by_one_interval_that_excludes_what_counts(found_of):
    generator = np.random.default_rng(0)
    base = np.full(20, -100.0)
    noisy = generator.normal(scale=100.0, size=20)
    noisy += -80.0 - noisy.mean()  # 20 above, which is 25 % of the gap.
    alike = noisy + generator.normal(scale=0.1, size=20)
    assert met(found_of, {NO_TASK: base, FOLLOWING: noisy, CONTROL: alike}) is False
    assert met(found_of, {NO_TASK: base, FOLLOWING: noisy, CONTROL: base}) is None


def test_a_true_effect_of_what_counts_is_seldom_refuted_and_a_smaller_one_often(found_of):
    def refuted(gain):
        generator, verdicts = np.random.default_rng(3), []
        for _ in range(60):
            base = -100.0 + generator.normal(size=20)
            arms = {NO_TASK: base, CONTROL: base + generator.normal(size=20)}
            arms[FOLLOWING] = base + gain + 4.0 * generator.normal(size=20)
            verdicts.append(met(found_of, arms))
        return np.mean([verdict is False for verdict in verdicts])

    # Of a gap of 80, 25 % are 20; each of two one-sided tests errs with 2.5 %.
    assert refuted(20.0) <= 0.12
    assert refuted(14.0) >= 0.9


def test_a_baseline_that_is_better_than_solved_has_no_gap_and_no_share(found_of):
    results = found_of(rows({"Acrobot-v1": {FOLLOWING: 30.0, CONTROL: 0.0}}), best=-200.0)
    assert {each.holds for each in auxiliary_online.judged(results).values()} == {None}
    assert all(np.isnan(row["share_of_gap"]) for row in auxiliary_online.rows(results))
    assert auxiliary_online.rows(results)[0]["p_value"] < 0.05


def test_presets_compare_twenty_agents_or_more_and_choose_weights_by_others():
    for name in ("laptop", "paper"):
        config = PRESETS[name]
        assert [each.name for each in config.settings][:4] == [*MAZES, NULL]
        for setting in config.settings:
            assert setting.base.num_seeds >= 20
            arms = setting.arms(dict.fromkeys(setting.tasks, 1.0))
            assert next(iter(arms)) == NO_TASK
            assert all(arm.config.seed == setting.base.seed for arm in arms.values())
            assert all(arm.config.steps == setting.base.steps for arm in arms.values())
            for arm in arms.values():
                task = arm.config.auxiliary
                if task.weight:
                    # No sum is cut by more than 5 %, and the control's is of one row.
                    assert task.discount_high**task.length <= 0.05
                    assert (task.length == 1) == (arm.label == CONTROL)
            assert setting.base.seed + setting.base.num_seeds <= config.tuning_seed


@pytest.mark.experiments
def test_the_smoke_preset_tunes_compares_and_resumes(tmp_path, monkeypatch, files_below):
    out, config = tmp_path / "run", PRESETS["smoke"]
    summary = EXPERIMENT.run(config, out, progress=False)
    assert summary["weights"] == {FOLLOWING: 1.0, FIXED: 1.0, CONTROL: 1.0}
    arms = [NO_TASK, FOLLOWING, CONTROL]
    assert [row["arm"] for row in summary["comparisons"]] == arms
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 2
    tuning = json.loads((out / "results" / "tuning.json").read_text())
    assert [len(row["agents"]) for row in tuning] == [2, 2]
    effects = json.loads((out / "results" / "effects.json").read_text())
    assert len(effects) == 3
    assert -20.0 <= effects[0]["best"] < -10.0
    report = (out / "report.html").read_text()
    assert "data-free control" in report
    assert "detectable" in report
    # Nothing is trained again.
    monkeypatch.setattr(agent_arms, "run_agents", None)
    before = files_below(out)
    assert EXPERIMENT.run(config, out, progress=False) == summary
    assert files_below(out) == before


@pytest.mark.integration
def test_a_report_has_effects_tuning_and_every_setting(tmp_path, monkeypatch):
    """Made-up agents of the laptop preset's arms: nothing is trained."""
    config = PRESETS["laptop"]
    generator = np.random.default_rng(0)

    def train(run, name, arm):
        steps = np.arange(0, arm.config.steps + 1, arm.config.evaluate_every, dtype=float)
        weight = arm.config.auxiliary.weight
        shape = arm.config.num_seeds, len(steps)
        returns = -250.0 + 50.0 * (weight == 0.3) + generator.normal(size=shape)
        measures = {"effective_rank": generator.uniform(1.0, 16.0, size=shape)}
        return ArmRuns(
            **vars(arm), folder=None, steps=steps, returns=returns, measures=measures, seconds=1.0
        )

    monkeypatch.setattr(auxiliary_online, "train_arm", train)
    monkeypatch.setattr(agent_arms, "_RESAMPLES", 200)
    summary = EXPERIMENT.run(config, tmp_path / "run", progress=False)
    assert set(summary["weights"].values()) == {0.3}
    assert len(summary["effects"]) == 3 * 10 + 7 + 2 * 3
    # Every task gains as much as the control does: no effect of what it teaches.
    goal, seen, acrobot, car, null = (claim["holds"] for claim in summary["claims"])
    assert (goal, seen, acrobot, car, null) == (False, True, False, False, True)
    assert all(-300.0 < row["best"] < 0.0 for row in summary["effects"])
    tuning = json.loads((tmp_path / "run" / "results" / "tuning.json").read_text())
    assert len(tuning) == 4 * 3
