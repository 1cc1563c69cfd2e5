"""Shaping: distances and scales with known answers, verdicts on made-up runs, the smoke preset."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.ours import shaping
from rlreps.experiments.ours.mazes import MAZES, NULL, CellModel
from rlreps.experiments.ours.shaping import (
    ARMS,
    EUCLIDEAN,
    EXPERIMENT,
    LEARNED,
    NONE,
    PRESETS,
    RANDOM,
    WHITENED,
    Arena,
    claims_of,
    goals_to_repay,
    p_values,
    scaled,
    steps_to_goals,
    won,
)
from rlreps.runs.intervals import Interval

LAPTOP, SMOKE = PRESETS["laptop"], PRESETS["smoke"]
PAIRS = LAPTOP.num_pairs


def corridor(slip):
    """Five cells in a row: actions left and right, which fail with a probability."""
    to = np.zeros((2, 5, 5))
    for cell in range(5):
        for action, ahead in enumerate((max(cell - 1, 0), min(cell + 1, 4))):
            to[action, cell, ahead] += 1.0 - slip
            to[action, cell, cell] += slip
    centres = np.stack([np.linspace(0.1, 0.9, 5), np.full(5, 0.5)], axis=1).astype(np.float32)
    return CellModel(to, "corridor", np.arange(5), centres, centres)


@pytest.mark.parametrize("slip", [0.0, 0.2])
def test_steps_to_a_goal_in_a_corridor_are_cells_to_pass_divided_by_the_chance_to_move(slip):
    found = steps_to_goals(corridor(slip), [(0.9, 0.5, 0.01), (0.3, 0.5, 0.25)])
    expected = np.array([[4, 3, 2, 1, 0], [0, 0, 0, 1, 2]]).T / (1.0 - slip)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_goals_out_of_reach_are_refused():
    model = corridor(0.0)
    model.to[:, 0] = np.eye(5)[0]
    with pytest.raises(InputError, match="goals that can be reached from every cell"):
        steps_to_goals(model, [(0.9, 0.5, 0.01)])


def test_potentials_have_one_spread_and_are_nothing_at_the_goal():
    distances = np.array([3.0, 1.0, 0.0, 2.0, 7.0])
    found = scaled(distances, 2, 16.0)
    assert found.std() == pytest.approx(16.0)
    assert found[2] == 0.0
    # The nearer, the greater.
    np.testing.assert_array_equal(np.argsort(found), np.argsort(-distances))
    np.testing.assert_allclose(scaled(100.0 * distances, 2, 16.0), found)
    np.testing.assert_array_equal(scaled(np.ones(4), 1, 16.0), 0.0)


@pytest.mark.parametrize(
    ("saved", "goals"),
    [
        (Interval(10_000.0, 5_000.0, 15_000.0), (3.0, 2.0, 6.0)),
        (Interval(10_000.0, -1.0, 15_000.0), (3.0, 2.0, math.inf)),
        (Interval(-2.0, -9.0, -1.0), (math.inf, math.inf, math.inf)),
    ],
)
def test_free_steps_are_repaid_after_as_many_goals_as_save_them(saved, goals):
    assert goals_to_repay(30_000, saved) == goals


def arena(name, gains, *, ordered=0.9):
    """Agents of which each arm is better than none by so much in return, and its shift in steps."""
    rng = np.random.default_rng(0)
    steps = 2_000.0 * np.arange(21)
    level = rng.normal(-150.0, 20.0, size=(PAIRS, 1))
    noise = {arm: rng.normal(0.0, 2.0, size=(PAIRS, 1)) for arm in ARMS}
    found = {
        "steps": steps,
        "optimal_steps": [40.0] * PAIRS,
        "returns": {arm: np.tile(level + gains.get(arm, 0.0) + noise[arm], 21) for arm in ARMS},
        "rank_correlation": {
            arm: np.full(PAIRS, ordered if arm == LEARNED else 0.3) for arm in ARMS[1:]
        },
    }
    return Arena.of(name, found, LAPTOP)


GOOD, USELESS = {LEARNED: 30.0}, {}
BEHIND_EUCLIDEAN = {LEARNED: 30.0, EUCLIDEAN: 30.0}


@pytest.mark.parametrize(
    ("gains", "beaten", "holds"),
    [
        ((GOOD, GOOD, GOOD), 3, True),
        ((GOOD, GOOD, USELESS), 2, True),
        ((GOOD, GOOD, BEHIND_EUCLIDEAN), 2, True),
        ((GOOD, BEHIND_EUCLIDEAN, USELESS), 1, False),
        # Worse, and significantly so, is no gain.
        (({LEARNED: -30.0},) * 3, 0, False),
    ],
)
def test_learned_potentials_have_to_beat_both_others_in_two_mazes(gains, beaten, holds):
    arenas = [arena(name, each) for name, each in zip(MAZES, gains, strict=True)]
    arenas.append(arena(NULL, USELESS))
    tests = p_values(arenas)
    assert set(tests) == {(name, other) for name in MAZES for other in (NONE, EUCLIDEAN)}
    assert len(won(arenas, tests)) == beaten
    claims = claims_of(LAPTOP, arenas)
    assert [claim.holds for claim in claims] == [holds, True, True]
    for few in ({"agents": 2}, {"fits": 5}):
        smaller = dataclasses.replace(LAPTOP, **few)
        assert [claim.holds for claim in claims_of(smaller, arenas)] == [None] * 3
    assert [claim.holds for claim in claims_of(LAPTOP, arenas[1:])] == [None] * 3


def test_a_gain_in_the_null_arena_and_features_that_do_not_order_refute_the_other_claims():
    arenas = [arena(name, GOOD, ordered=0.2) for name in MAZES] + [arena(NULL, GOOD)]
    assert [claim.holds for claim in claims_of(LAPTOP, arenas)] == [True, False, False]


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([-3.0, 1.0, 2.0, 0.0, -1.0] * 2, True),
        # Significant, however small.
        (np.linspace(1.0, 2.0, 10), False),
        ([-60.0, 40.0, 20.0, 0.0, -10.0] * 2, None),
    ],
)
def test_that_there_is_no_gain_needs_an_interval_without_one(differences, expected):
    assert shaping.no_gain(np.asarray(differences)) is expected


def test_an_order_that_differs_from_fit_to_fit_cannot_be_told():
    arenas = [arena(name, GOOD) for name in MAZES]
    arenas[1].rank_correlation[LEARNED][::2] = 0.1
    assert [claim.holds for claim in claims_of(LAPTOP, arenas)] == [True, None]


def test_reports_say_what_random_features_are_of():
    assert (
        shaping.label_of(RANDOM, MAZES[0]) == shaping.label_of(RANDOM) == "random features of codes"
    )
    assert shaping.label_of(RANDOM, NULL) == "random features of positions"
    assert shaping.label_of(LEARNED, NULL) == LEARNED


def test_means_leave_out_what_was_before_learning_and_thresholds_are_each_goal_s_own():
    steps = [0, 2_000, 4_000, 6_000]
    found = {
        "steps": steps,
        "optimal_steps": [20.0, 60.0],
        "returns": {
            NONE: [[-300.0, -100.0, -100.0, -100.0]] * 2,
            LEARNED: [[-300.0, -30.0, -30.0, -30.0]] * 2,
        },
        "rank_correlation": {LEARNED: [1.0, 1.0]},
    }
    base = dataclasses.replace(LAPTOP.base, steps=6_000, evaluate_every=2_000)
    config = dataclasses.replace(SMOKE, base=base)
    read = Arena.of("spiral", found, config)
    np.testing.assert_array_equal(read.means[NONE], [-100.0, -100.0])
    # Thresholds -40 and -120, reached at the second evaluation in a row.
    np.testing.assert_array_equal(read.samples[NONE], [math.inf, 4_000.0])
    np.testing.assert_array_equal(read.samples[LEARNED], [4_000.0, 4_000.0])
    # One that never gets there counts with the 6,000 steps of training.
    assert read.saved(LEARNED).value == 1_000.0
    assert read.saved(LEARNED, LEARNED).value == 0.0
    np.testing.assert_array_equal(read.difference(LEARNED, NONE), [70.0])


def test_pairs_that_share_a_representation_count_once():
    read = arena("spiral", USELESS)
    values = np.arange(20.0)
    # Pairs i and i + 10 share one.
    np.testing.assert_array_equal(read.by_fit(values), np.arange(10.0) + 5.0)
    curves = values[:, None] + [0.0, 100.0]
    np.testing.assert_array_equal(read.by_fit(curves)[:, 1], np.arange(10.0) + 105.0)
    assert len(read.difference(LEARNED, NONE)) == LAPTOP.fits == shaping.FEWEST_FITS


def test_pairs_take_goals_in_turn_and_presets_are_as_registered():
    assert [LAPTOP.goal(pair) for pair in (0, 4, 5)] == [LAPTOP.goals[i] for i in (0, 4, 0)]
    assert len(LAPTOP.seeds) == PAIRS == 20 >= shaping.FEWEST_PAIRS
    assert LAPTOP.seeds[-1] < 1_000
    for change, said in (
        ({"spread": 0.0}, r"spread in \(0, inf\), got 0.0"),
        ({"arenas": (NULL,)}, "a maze among them"),
        ({"fits": 3}, "a number of fits that divides the 20 pairs, got 3"),
    ):
        with pytest.raises(InputError, match=said):
            dataclasses.replace(LAPTOP, **change)


# Few steps: fits warn.
@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")
@pytest.mark.experiments
def test_smoke_preset_leaves_figures_tables_and_claims_and_resumes(tmp_path, files_below):
    out = tmp_path / "run"
    summary = EXPERIMENT.run(SMOKE, out, progress=False)
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 2
    assert {path.stem for path in (out / "parts").iterdir()} == {*SMOKE.arenas}
    for name in SMOKE.arenas:
        found = json.loads((out / "parts" / f"{name}.json").read_text())
        assert np.shape(found["returns"][LEARNED]) == (SMOKE.num_pairs, 3)
        # Agents of all arms start from the same networks.
        starts = [values[0][0] for values in found["returns"].values()]
        assert starts == starts[:1] * len(ARMS)
        assert all(np.std(values) == pytest.approx(16.0) for values in found["potentials"].values())
    for name in ("arms", "tests", "returns", *(f"potentials_{name}" for name in SMOKE.arenas)):
        rows = json.loads((out / "results" / f"{name}.json").read_text())
        with (out / "results" / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows) > 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 2
    assert WHITENED in page
    before = files_below(out)
    assert EXPERIMENT.run(SMOKE, out, progress=False) == summary
    assert files_below(out) == before
