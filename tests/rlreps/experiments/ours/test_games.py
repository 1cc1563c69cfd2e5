"""Agents in enumerated worlds: boards, what is measured, verdicts; the smoke preset."""

import csv
import itertools
import json

import jax
import numpy as np
import pytest

from rlreps.agents import CompiledProgram, make_agent, observed_rows
from rlreps.config import as_json
from rlreps.errors import InputError, TrainingDivergedError
from rlreps.experiments.ours import games_report, games_runs
from rlreps.experiments.ours.games import EXPERIMENT, LAPTOP, PRESETS
from rlreps.experiments.ours.games_report import ASIDE, FEWEST, MAIN, correlate_ranks
from rlreps.experiments.ours.games_runs import (
    ARMS,
    CONTROL,
    EXACT,
    FAMILIES,
    FITTED,
    JOINT,
    MEASURES,
    RANDOM,
    SCRATCH,
    WIDER,
    agents_of,
    explained_share,
    load_board,
    released_labels,
    with_objective,
)
from rlreps.experiments.ours.released import read_released
from rlreps.study import Run, replace_nested

NAMES = tuple(f"{family}-{number}" for family in FAMILIES[:10] for number in (1, 2))
KEPT = tuple(f"{family}-0" for family in FAMILIES[10:])
CONFIG = replace_nested(LAPTOP, worlds=NAMES, aside=KEPT)


def test_boards_of_a_world_without_pictures_show_the_place():
    boards = load_board("frozenlake-8x8-sure").observations
    assert boards.shape == (64, 8, 8, 1)
    assert boards.dtype == np.uint8
    flat = boards.reshape(64, 64)
    np.testing.assert_array_equal(flat.max(axis=1), 255)
    np.testing.assert_array_equal(np.sum(flat > 0, axis=1), 1)
    assert len(np.unique(flat.argmax(axis=1))) == 64


def test_boards_of_codes_have_a_plane_for_each_code_that_moves():
    pytest.importorskip("minigrid")
    world = load_board("minigrid-lavagaps5")
    boards = world.observations
    assert len(np.unique(boards.reshape(len(boards), -1), axis=0)) == world.num_states
    assert set(np.unique(boards)) == {0, 255}
    assert np.all(np.any(boards != boards[:1], axis=(0, 1, 2)))


@pytest.mark.parametrize("seed", range(3))
def test_correlate_ranks_is_the_partial_correlation_of_ranks(seed):
    rng = np.random.default_rng(seed)
    x, y, z = rng.permuted(np.tile(np.arange(30.0), (3, 1)), axis=1)
    xy, xz, yz = (np.corrcoef(a, b)[0, 1] for a, b in ((x, y), (x, z), (y, z)))
    expected = (xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2))
    np.testing.assert_allclose(correlate_ranks(np.exp(x / 9), y**3, [z]), expected)
    np.testing.assert_allclose(correlate_ranks(x, y, []), xy)
    assert np.isnan(correlate_ranks(x, np.ones(30), [z]))
    assert np.isnan(correlate_ranks(x, z, [z]))


def test_explained_share_is_the_r2_of_a_regression_with_an_intercept():
    rng = np.random.default_rng(0)
    features, values = rng.normal(size=(40, 5)), rng.normal(size=40)
    left = np.concatenate([np.ones((40, 1)), features], axis=1)
    residual = values - left @ np.linalg.lstsq(left, values)[0]
    expected = 1.0 - np.sum(residual**2) / np.sum((values - values.mean()) ** 2)
    twice = np.concatenate([features, features], axis=1) + 7.0
    np.testing.assert_allclose(explained_share(twice, values), expected, rtol=1e-5)
    assert explained_share(np.ones((40, 3)), values) == pytest.approx(0.0, abs=1e-6)
    # Features of float32 far from zero, whose mean float32 rounds.
    far = (1e4 + features).astype(np.float32)
    left = np.concatenate([np.ones((40, 1)), far], axis=1)
    residual = values - left @ np.linalg.lstsq(left, values)[0]
    expected = 1.0 - np.sum(residual**2) / np.sum((values - values.mean()) ** 2)
    np.testing.assert_allclose(explained_share(far, values), expected, rtol=1e-9)


def made(*, cause=0.0, talent=0.0, gains=None, links=0.0):
    """Rows of agents whose later success depends on closeness, on talent, or on chance.

    Args:
        cause: Effect of closeness on later success.
        talent: Effect of an agent's talent on closeness, early and late success, and steps; the R²
            of the optimal values shows it. Arms do not differ in talent.
        gains: Arm → gain in mean success over scratch. Families differ by noise alone.
        links: Effect of a joint loss's gain in closeness, by family, on the steps that it saves.
    """
    rng, rows, shifts = np.random.default_rng(0), [], {}
    for world, (label, arm) in itertools.product((*NAMES, *KEPT), ARMS.items()):
        family = world.split("-")[0]
        shift = shifts.setdefault((family, label), links * rng.normal() if label in JOINT else 0.0)
        gain = (gains or {}).get(label, 0.0) + rng.normal(0.0, 0.01)
        for seed in range(6):
            able, close, chance, luck = rng.normal(size=4)
            close += talent * able
            early = talent * able + luck > 0.0
            later = talent * able + cause * close + chance > 0.0
            measures = dict.fromkeys(MEASURES, np.nan if arm.counted else close)
            measures["value_r2"] = able + 0.1 * rng.normal()
            first = dict.fromkeys(MEASURES, 0.3 * close + shift)
            steps = 20.0 - shift - talent * able + rng.normal()
            about = {"world": world, "family": family, "arm": label, "seed": seed}
            about |= {"group": ASIDE if world in KEPT else MAIN}
            about |= {"mean_success": 0.5 + gain, "steps_to": steps}
            for step, success, found in (
                (0, 0.0, dict.fromkeys(MEASURES, np.nan)),
                (16_000, 0.0, first),
                (32_000, float(early), measures),
                (64_000, float(later), measures),
            ):
                rows.append({**about, "step": step, "success": success, **found})
    return rows


@pytest.fixture
def verdicts(judge, monkeypatch):
    """Judge rows; worlds have any sizes."""
    rng = np.random.default_rng(1)
    about = {
        name: {"states": rng.integers(20, 900), "horizon": rng.uniform(4, 20)}
        for name in (*NAMES, *KEPT)
    }
    monkeypatch.setattr(games_report, "describe_worlds", lambda _: about)
    monkeypatch.setattr(games_report, "RESAMPLES", 200)

    def judged(**options):
        return {
            claim.statement: claim.holds for claim in judge(EXPERIMENT, CONFIG, made(**options))
        }

    return judged


PREDICTION = "prediction: closeness at half of the run predicts later success"
GAIN = "gain: a joint loss's gain in closeness predicts its gain in steps, across families"
ARMS_RAISE = "arms: some joint loss raises mean success"
FITTED_RAISES = "arms: features fitted to replay raise mean success"
JOINT_ASIDE = "kept aside: the best joint loss raises mean success"
FITTED_ASIDE = "kept aside: fitted features raise mean success"
EXACT_RAISES = "bound: exact components raise mean success"
BOUND = "bound: no joint loss raises mean success by more than exact components"


def test_without_effects_every_claim_fails_or_cannot_be_told(verdicts):
    found = verdicts()
    assert True not in found.values()
    assert found[PREDICTION] is False
    assert [found[each] for each in (ARMS_RAISE, FITTED_RAISES, EXACT_RAISES)] == [False] * 3


def test_every_claim_can_hold_but_those_on_four_worlds(verdicts):
    gains = {JOINT[2]: 0.2, FITTED: 0.3, EXACT: 0.4, WIDER: 0.05}
    found = verdicts(cause=2.0, gains=gains, links=1.0)
    assert {found.pop(each) for each in (JOINT_ASIDE, FITTED_ASIDE)} == {None}
    assert set(found.values()) == {True}
    found = verdicts(gains=dict.fromkeys((*JOINT, FITTED), -0.2))
    assert {found[each] for each in (JOINT_ASIDE, FITTED_ASIDE)} == {False}


def test_talent_alone_makes_neither_a_prediction_nor_a_gain(verdicts):
    found = verdicts(talent=2.0)
    assert found[PREDICTION] is not True
    assert found[GAIN] is not True


def test_a_mean_of_correlations_that_do_not_exist_decides_no_gain(verdicts, judge):
    rng = np.random.default_rng(0)
    gains = {arm: rng.normal(size=(4, 10)) for arm in JOINT}
    assert games_report.gain_interval(gains).low < games_report.gain_interval(gains).high
    gains[JOINT[0]][1] = 0.0  # It saves no steps in any family.
    assert np.isnan(games_report.gain_interval(gains)).all()
    never = [{**row, "steps_to": 64_000.0} for row in made(links=1.0)]
    [gain] = [each for each in judge(EXPERIMENT, CONFIG, never) if each.statement == GAIN]
    assert gain.holds is None


def test_rivals_of_an_arm_count(verdicts):
    found = verdicts(gains={JOINT[0]: 0.2, WIDER: 0.2, FITTED: 0.2, RANDOM: 0.2, EXACT: 0.2})
    assert found[ARMS_RAISE] is False
    assert found[FITTED_RAISES] is False
    assert found[EXACT_RAISES] is False
    assert found[BOUND] is not True


def test_verdicts_need_families(verdicts, monkeypatch):
    for group in (MAIN, ASIDE):
        monkeypatch.setitem(FEWEST, group, 11)
    found = verdicts(cause=2.0, gains={JOINT[0]: 0.2, FITTED: 0.2, EXACT: 0.4}, links=1.0)
    assert {found[name] for name in found if not name.endswith("raise mean success")} <= {
        None,
        True,
    }
    assert [found[each] for each in (PREDICTION, GAIN, ARMS_RAISE, EXACT_RAISES, BOUND)] == [
        None
    ] * 5


OWN = "rlreps.losses:SpectralContrastive"
TITLE = "spectral contrastive"


@pytest.fixture
def release(monkeypatch):
    """Release another mean success of every arm in every world."""
    names = EXPERIMENT.cells(Run(LAPTOP, None))
    marks = {name: (number + 1) / 1_000 for number, name in enumerate(names)}
    rest = {name: np.zeros((10, 4)).tolist() for name in MEASURES}
    cells = {name: {"success": np.full((10, 33), m).tolist(), **rest} for name, m in marks.items()}
    found = {"config": as_json(LAPTOP), "cells": cells}
    monkeypatch.setattr(games_runs, "read_released", lambda _: found)
    return marks


def test_the_release_is_that_of_the_laptop_preset():
    found = read_released("games")
    assert found["config"] == as_json(LAPTOP)
    assert {*found["cells"]} == {*EXPERIMENT.cells(Run(LAPTOP, None))}


def test_an_objective_of_one_s_own_stands_beside_the_released_arms(release):
    alone = with_objective(LAPTOP, OWN)
    run = Run(alone, None)
    cells = EXPERIMENT.cells(run)
    assert {cell["arm"] for cell in cells.values()} == {TITLE, *ARMS}
    for name, cell in cells.items():
        if cell["arm"] != TITLE:
            found = EXPERIMENT.measure(run, name, cell)
            assert set(EXPERIMENT.frame(run, cell, found)["success"]) == {release[name]}
    task = agents_of(alone, "frozenlake-8x8-sure", TITLE).auxiliary
    assert (task.weight, task.pair_discount) == (LAPTOP.weight, LAPTOP.base.dqn.discount)
    assert as_json(alone)["labels"][0]["name"] == "spectral_contrastive"


@pytest.mark.parametrize("preset", ["smoke", "paper"])
def test_with_other_settings_all_arms_are_trained(preset, release):
    other = with_objective(PRESETS[preset], OWN)
    arms = {cell["arm"] for cell in EXPERIMENT.cells(Run(other, None)).values()}
    assert arms == {*PRESETS[preset].labels, TITLE}
    assert not released_labels(other)


def test_an_arm_of_one_s_own_changes_no_other_row_and_no_verdict(verdicts, results_of):
    rows = made(cause=2.0, links=1.0)
    own = [
        {**row, "arm": TITLE, "mean_success": row["mean_success"] + 0.2}
        for row in rows
        if row["arm"] == SCRATCH
    ]
    with_own = replace_nested(CONFIG, labels=(*ARMS, *with_objective(CONFIG, OWN).labels[-1:]))
    results = results_of(EXPERIMENT, with_own, [*rows, *own])
    before = results_of(EXPERIMENT, CONFIG, rows)
    assert [row["arm"] for row in games_report.tabulate_gains(results)] == [
        *(TITLE, CONTROL, *JOINT),
        "mean",
    ]
    *gains, mean = games_report.tabulate_gains(results)
    joint = [row["correlation"] for row in gains if row["arm"] in JOINT]
    assert mean["correlation"] == pytest.approx(np.mean(np.nan_to_num(joint)))
    assert mean["correlation"] != pytest.approx(np.mean([row["correlation"] for row in gains]))
    compared = games_report.tabulate_arms(results)
    [row] = [row for row in compared if (row["arm"], row["against"]) == (TITLE, SCRATCH)]
    assert row["difference"] == pytest.approx(0.2)
    assert row["p_value"] < 0.05
    assert [row for row in compared if row["arm"] != TITLE] == games_report.tabulate_arms(before)
    judged = {claim.statement: claim.holds for claim in EXPERIMENT.judged(results)}
    assert judged == verdicts(cause=2.0, links=1.0)


@pytest.mark.integration
def test_an_objective_of_one_s_own_that_diverges_never_succeeds_and_the_report_says_so(
    tmp_path, monkeypatch
):
    smoke = replace_nested(
        PRESETS["smoke"], worlds=("frozenlake-8x8-sure",), labels=(SCRATCH, JOINT[3])
    )
    advance = CompiledProgram.advance

    def diverging(program, *given):
        if program.agent.auxiliary_options.objective.title == TITLE:
            raise TrainingDivergedError("became NaN")
        return advance(program, *given)

    monkeypatch.setattr(CompiledProgram, "advance", diverging)
    summary = EXPERIMENT.run(with_objective(smoke, OWN), tmp_path / "run")
    [row] = summary["worlds"]
    assert row[TITLE] == 0.0
    assert [each["arm"] for each in summary["gains"]] == [JOINT[3], "mean"]
    page = (tmp_path / "run/report.html").read_text("utf-8")
    assert "frozenlake-8x8-sure-spectral-contrastive: became NaN" in page


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nothing", "MODULE:NAME"),
        ("rlreps.losses:OBJECTIVES", "expected an Objective at"),
        ("rlreps.losses:TDLowRank", "a title that no arm has"),
        ("rlreps.losses:Oracle", "needs no exact expectations"),
    ],
)
def test_what_agents_cannot_learn_is_refused(place, said):
    with pytest.raises(InputError, match=said):
        with_objective(LAPTOP, place)


@pytest.mark.parametrize(
    "label",
    [CONTROL, *(pytest.param(label, marks=pytest.mark.integration) for label in JOINT)],
)
def test_the_gradient_of_a_joint_loss_reaches_the_torso(label):
    boards = load_board("frozenlake-8x8-sure").observations
    config = replace_nested(CONFIG, num_seeds=1)
    agents = agents_of(config, "frozenlake-8x8-sure", label)
    agent = make_agent(agents, boards.shape[1:], 4, observation_dtype=np.uint8)
    task, network = agent.auxiliary, agent.network
    params, state = network.init(jax.random.key(0)), task.init(jax.random.key(1))
    starts = np.random.default_rng(0).integers(64, size=(task.sequences, 1))
    numbers = (starts + np.arange(task.length)) % 64
    never = np.zeros(numbers.shape, bool)
    rows = observed_rows(boards[numbers], never, never)
    step = jax.jit(lambda state, key: task.gradient(network, params, params, rows, state, key))
    for number in range(3):
        side = step(state, jax.random.key(number))
        state = side.state
    sizes = [float(np.abs(leaf).max()) for leaf in jax.tree.leaves(side.gradients["torso"])]
    assert max(sizes) > 1e-4


@pytest.mark.experiments
def test_the_smoke_preset_gives_exact_components_from_the_start(smoke):
    pytest.importorskip("minigrid")
    _, out = smoke("games")
    with (out / "results" / "predictors.csv").open(encoding="utf-8", newline="") as lines:
        assert {row["measure"] for row in csv.DictReader(lines)} == set(MEASURES)
    with (out / "results" / "worlds.csv").open(encoding="utf-8", newline="") as lines:
        worlds = {row["world"]: row for row in csv.DictReader(lines)}
    assert worlds["minigrid-lavagaps5"]["states"] == "20"
    found = {
        arm: json.loads((out / f"parts/minigrid-lavagaps5-{name}.json").read_text())
        for arm, name in ((SCRATCH, "from-scratch"), (EXACT, "exact-components"))
    }
    closeness = {arm: np.asarray(part["closeness"])[:, 0] for arm, part in found.items()}
    assert np.all(closeness[EXACT] > closeness[SCRATCH])
