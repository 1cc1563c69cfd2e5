"""Auxiliary tasks online: verdicts on made-up returns with known effects, and the smoke preset."""

import dataclasses
import json

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.ours import agent_arms, auxiliary_online
from rlreps.experiments.ours.agent_arms import NO_TASK, ArmRuns
from rlreps.experiments.ours.auxiliary_online import (
    CONTROL,
    EXPERIMENT,
    FIXED,
    FOLLOWING,
    PRESETS,
    WIDER,
    best_return,
    claims_of,
    effects_of,
    met,
    met_in,
)
from rlreps.experiments.ours.mazes import MAZES, NULL
from rlreps.runs.intervals import holm, sign_flip_p_value, smallest_detectable


def test_the_best_return_counts_the_steps_to_the_goal_up_to_the_cap():
    left, right = np.eye(5)[[0, 0, 1, 2, 3]], np.eye(5)[[1, 2, 3, 4, 4]]
    goal = np.arange(5) == 4
    assert best_return([left, right], goal, 100) == pytest.approx(-np.mean([4, 3, 2, 1]))
    assert best_return([left, right], goal, 2) == pytest.approx(-np.mean([2, 2, 2, 1]))
    # Half of the moves to the right stay: twice the steps, of an optimal policy.
    slow = 0.5 * right + 0.5 * np.eye(5)
    assert best_return([left, slow], goal, 2_000) == pytest.approx(-2 * np.mean([4, 3, 2, 1]))


def returns(gains, *, agents=20, noise=1.0):
    """Setting → label → returns: gains [settings][labels] over −100, and noise by arm and agent."""
    generator = np.random.default_rng(0)
    easy = generator.normal(scale=30.0, size=agents)
    return {
        setting: {
            label: -100.0 + easy - easy.mean() + gain + noise * generator.normal(size=agents)
            for label, gain in {NO_TASK: 0.0, **arms}.items()
        }
        for setting, arms in gains.items()
    }


BEST = dict.fromkeys((*MAZES, NULL, "Acrobot-v1"), -20.0)


def test_effects_are_paired_corrected_for_all_and_beside_what_could_be_seen():
    found = returns({"spiral": {FOLLOWING: 32.0, CONTROL: 10.0, WIDER: -5.0}})
    effects = effects_of(found, BEST)
    pairs = [(each.arm, each.against) for each in effects]
    assert pairs == [
        (FOLLOWING, NO_TASK),
        (FOLLOWING, CONTROL),
        (CONTROL, NO_TASK),
        (WIDER, NO_TASK),
    ]
    arms = found["spiral"]
    p_values = holm([sign_flip_p_value(arms[one], arms[other]) for one, other in pairs])
    gap = -20.0 - arms[NO_TASK].mean()
    for each, p in zip(effects, p_values, strict=True):
        differences = arms[each.arm] - arms[each.against]
        assert each.difference.value == pytest.approx(differences.mean())
        assert each.p == p
        assert each.gap == pytest.approx(gap)
        assert each.share == pytest.approx(differences.mean() / gap)
        assert each.detectable == smallest_detectable(differences, 0.05 / 4)
        # What seeds do to both arms alike hides nothing.
        assert each.seen
    # Of a gap of 80, 32 and 22 are at least a quarter; 10 is not, and nothing is below 0.
    assert [each.large for each in effects] == [True, True, False, False]
    assert [each.significant for each in effects] == [True, True, True, False]
    assert met_in(effects, FOLLOWING) == ["spiral"]
    assert met_in(effects, FOLLOWING, "significant") == ["spiral"]


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
def test_the_goal_is_one_objective_over_both_others_in_two_mazes(gains, options, goal, seen):
    idle = {FOLLOWING: 0.0, FIXED: 0.0, CONTROL: 0.0}
    made = {maze: {**idle, **arms} for maze, arms in zip(MAZES, gains, strict=True)}
    effects = effects_of(returns(made, **options), BEST)
    claims = claims_of(effects, options.get("agents", 20))
    assert [claim.holds for claim in claims] == [goal, seen]
    assert "adjusted for 15 comparisons (Holm)" in claims[0].stated


@pytest.mark.parametrize(
    ("gain", "noise", "null", "control"),
    [(0.0, 1.0, True, False), (30.0, 1.0, False, True), (0.0, 60.0, None, None)],
)
def test_other_settings_have_claims_of_their_own(gain, noise, null, control):
    arms = {FOLLOWING: gain, CONTROL: 0.0}
    effects = effects_of(returns({NULL: arms, "Acrobot-v1": arms}, noise=noise), BEST)
    claims = claims_of(effects, 20)
    assert [claim.holds for claim in claims] == [control, null]
    assert [claim.statement.partition(":")[0].partition(",")[0] for claim in claims] == [
        "Acrobot-v1",
        NULL,
    ]


def test_an_objective_fails_in_a_maze_by_one_interval_that_excludes_what_counts():
    generator = np.random.default_rng(0)
    base = np.full(20, -100.0)
    noisy = generator.normal(scale=100.0, size=20)
    noisy += -80.0 - noisy.mean()  # 20 above, which is 25 % of the gap.
    alike = noisy + generator.normal(scale=0.1, size=20)
    effects = effects_of({"spiral": {NO_TASK: base, FOLLOWING: noisy, CONTROL: alike}}, BEST)
    assert [each.excluded for each in effects] == [False, True, False]
    assert met(effects, FOLLOWING, "spiral") is False
    effects = effects_of({"spiral": {NO_TASK: base, FOLLOWING: noisy, CONTROL: base}}, BEST)
    assert met(effects, FOLLOWING, "spiral") is None


def test_a_true_effect_of_what_counts_is_seldom_refuted_and_a_smaller_one_often():
    def refuted(gain):
        generator, verdicts = np.random.default_rng(3), []
        for _ in range(60):
            base = -100.0 + generator.normal(size=20)
            arms = {NO_TASK: base, CONTROL: base + generator.normal(size=20)}
            arms[FOLLOWING] = base + gain + 4.0 * generator.normal(size=20)
            verdicts.append(met(effects_of({"spiral": arms}, BEST), FOLLOWING, "spiral"))
        return np.mean([verdict is False for verdict in verdicts])

    # Of a gap of 80, 25 % are 20; each of two one-sided tests errs with 2.5 %.
    assert refuted(20.0) <= 0.12
    assert refuted(14.0) >= 0.9


def test_a_baseline_that_is_better_than_solved_has_no_gap_and_no_share():
    arms = {FOLLOWING: 30.0, CONTROL: 0.0}
    effects = effects_of(returns({"Acrobot-v1": arms}), {"Acrobot-v1": -200.0})
    assert not any(each.large or each.seen for each in effects)
    assert effects[0].significant


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
    with pytest.raises(InputError, match="seeds of agents below the tuning seed"):
        dataclasses.replace(PRESETS["laptop"], tuning_seed=19)


@pytest.mark.experiments
def test_the_smoke_preset_tunes_compares_and_resumes(tmp_path, monkeypatch, files_below):
    out, config = tmp_path / "run", PRESETS["smoke"]
    summary = EXPERIMENT.run(config, out, progress=False)
    assert summary["weights"] == {FOLLOWING: 1.0, FIXED: 1.0, CONTROL: 1.0}
    arms = [NO_TASK, FOLLOWING, CONTROL]
    assert [arm["arm"] for arm in summary["comparisons"][0]["arms"]] == arms
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
    made = dataclasses.replace(EXPERIMENT, measure=train)
    summary = made.run(config, tmp_path / "run", progress=False)
    assert set(summary["weights"].values()) == {0.3}
    assert len(summary["effects"]) == 3 * 10 + 7 + 2 * 3
    # Every task gains as much as the control does: no effect of what it teaches.
    goal, seen, acrobot, car, null = (claim["holds"] for claim in summary["claims"])
    assert (goal, seen, acrobot, car, null) == (False, True, False, False, True)
    assert all(-300.0 < row["best"] < 0.0 for row in summary["effects"])
    tuning = json.loads((tmp_path / "run" / "results" / "tuning.json").read_text())
    assert len(tuning) == 4 * 3
