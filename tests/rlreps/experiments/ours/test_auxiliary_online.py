"""Auxiliary tasks online: verdicts on made-up returns with known effects, and the smoke preset."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from rlreps.experiments.ours import auxiliary_online
from rlreps.experiments.ours.agent_arms import NO_TASK
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


def test_an_objective_fails_in_a_maze_by_one_interval_that_excludes_what_counts(found_of):
    def met(arms):
        given = [
            {"environment": "spiral", "arm": arm, "seed": seed, "mean_return": value}
            for arm, values in arms.items()
            for seed, value in enumerate(values)
        ]
        return auxiliary_online.met(found_of(given), "spiral")[FOLLOWING].holds

    generator = np.random.default_rng(0)
    base = np.full(20, -100.0)
    noisy = generator.normal(scale=100.0, size=20)
    noisy += -80.0 - noisy.mean()  # 20 above, which is 25 % of the gap.
    alike = noisy + generator.normal(scale=0.1, size=20)
    assert met({NO_TASK: base, FOLLOWING: noisy, CONTROL: alike}) is False
    assert met({NO_TASK: base, FOLLOWING: noisy, CONTROL: base}) is None


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
            assert setting.base.seed + setting.base.num_seeds <= config.tuning_seed
            for arm in setting.arms(dict.fromkeys(setting.tasks, 1.0)).values():
                assert arm.config.seed == setting.base.seed
                assert arm.config.steps == setting.base.steps
                task = arm.config.auxiliary
                if task.weight:
                    # No sum is cut by more than 5 %, and the control's is of one row.
                    assert task.discount_high**task.length <= 0.05
                    assert (task.length == 1) == (arm.label == CONTROL)


@pytest.mark.experiments
def test_the_smoke_preset_tunes_and_compares(smoke):
    summary, out = smoke("auxiliary-online")
    assert summary["weights"] == {FOLLOWING: 1.0, FIXED: 1.0, CONTROL: 1.0}
    assert [row["arm"] for row in summary["comparisons"]] == [NO_TASK, FOLLOWING, CONTROL]
    tuning = json.loads((out / "results" / "tuning.json").read_text())
    assert [len(row["agents"]) for row in tuning] == [2, 2]
    effects = json.loads((out / "results" / "effects.json").read_text())
    assert len(effects) == 3
    assert -20.0 <= effects[0]["best"] < -10.0
