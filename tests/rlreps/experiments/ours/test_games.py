"""Agents in enumerated worlds: boards, what is measured, verdicts; the smoke preset."""

import csv
import itertools
import json

import numpy as np
import pytest

from rlreps.experiments.ours import games_report
from rlreps.experiments.ours.games import EXPERIMENT, LAPTOP
from rlreps.experiments.ours.games_report import ASIDE, FEWEST, MAIN, correlate_ranks
from rlreps.experiments.ours.games_runs import (
    ARMS,
    EXACT,
    FITTED,
    JOINT,
    MEASURES,
    SCRATCH,
    WIDER,
    captured_share,
    load_board,
)
from rlreps.study import replace_nested

NAMES = tuple(f"game-{number}" for number in range(12))
KEPT = ("other-0", "other-1", "other-2", "other-3")
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


def test_captured_share_is_the_r2_of_a_regression_with_an_intercept():
    rng = np.random.default_rng(0)
    features, other = rng.normal(size=(40, 5)), rng.normal(size=(40, 1))
    left = np.concatenate([np.ones((40, 1)), features], axis=1)
    residual = other - left @ np.linalg.lstsq(left, other)[0]
    expected = 1.0 - np.sum(residual**2) / np.sum((other - other.mean()) ** 2)
    twice = np.concatenate([features, features], axis=1) + 7.0
    np.testing.assert_allclose(captured_share(twice, other), expected)
    assert captured_share(np.ones((40, 3)), other) == pytest.approx(0.0, abs=1e-9)


def made(*, cause=0.0, confounded=False, gains=None, links=False):
    """Rows of agents whose later success depends on closeness, on early success, or on chance.

    Args:
        cause: Effect of closeness on later success.
        confounded: Whether closeness and later success both follow early success.
        gains: Arm → gain in success over scratch, the same in all worlds but for noise.
        links: Whether worlds in which a joint loss gains closeness are those where it saves steps.
    """
    rng, rows = np.random.default_rng(0), []
    seeds = range(5)
    for world, (label, arm) in itertools.product((*NAMES, *KEPT), ARMS.items()):
        gain = (gains or {}).get(label, 0.0) + rng.normal(0.0, 0.01)
        shift = rng.normal() if label in JOINT else 0.0
        for seed in seeds:
            early, close = rng.random(2)
            close = 0.9 * early + 0.1 * close if confounded else close
            later = 0.5 * early + cause * close + 0.3 * rng.random() + gain
            measures = dict.fromkeys(MEASURES, np.nan if arm.counted else close)
            end = dict.fromkeys(MEASURES, np.nan if arm.counted else 0.01 * close + shift)
            saved = shift if links else rng.normal()
            about = {"world": world, "group": ASIDE if world in KEPT else MAIN, "arm": label}
            about |= {"seed": seed, "mean_success": 0.5 + gain, "steps_to": 20.0 - saved}
            for step, success, found in (
                (0, 0.0, dict.fromkeys(MEASURES, np.nan)),
                (32_000, early, measures),
                (64_000, later, end),
            ):
                rows.append({**about, "step": step, "success": success, **found})
    return rows


@pytest.fixture
def verdicts(judge, monkeypatch):
    """Judge rows; worlds have any sizes."""
    rng = np.random.default_rng(1)
    about = {
        name: {"states": rng.integers(20, 900), "actions": 4, "horizon": rng.uniform(4, 20)}
        for name in (*NAMES, *KEPT)
    }
    monkeypatch.setattr(games_report, "describe_worlds", lambda _: about)
    monkeypatch.setattr(games_report, "RESAMPLES", 200)

    def judged(**options):
        return {
            claim.statement: claim.holds for claim in judge(EXPERIMENT, CONFIG, made(**options))
        }

    return judged


def test_no_claim_holds_by_chance_and_each_can_hold(verdicts):
    null = verdicts()
    assert True not in {holds for name, holds in null.items() if "no joint loss" not in name}
    assert null["prediction: closeness at half of the run predicts later success"] is False
    planted = verdicts(
        cause=0.5, gains={JOINT[2]: 0.2, FITTED: 0.3, EXACT: 0.4, WIDER: 0.05}, links=True
    )
    open_ = [name for name, holds in planted.items() if holds is not True]
    # Four worlds are too few for any adjusted p-value.
    assert all("kept aside" in name and "arms" in name for name in open_)


def test_prediction_is_not_what_early_success_explains(verdicts):
    found = verdicts(confounded=True)
    assert found["prediction: closeness at half of the run predicts later success"] is not True


def test_a_joint_loss_must_beat_the_wider_network_and_not_the_exact_components(verdicts):
    found = verdicts(gains={JOINT[0]: 0.2, WIDER: 0.2, EXACT: 0.1})
    assert found["arms: some joint loss raises mean success"] is not True
    bound = "bound: no joint loss raises mean success by more than exact components"
    assert found[bound] is False


def test_verdicts_need_worlds(verdicts, monkeypatch):
    monkeypatch.setitem(FEWEST, MAIN, 13)
    held = {name for name, holds in verdicts(cause=0.5, links=True).items() if holds}
    assert all("kept aside" in name or "bound" in name for name in held)


@pytest.mark.experiments
def test_the_smoke_preset_gives_exact_components_from_the_start(smoke):
    pytest.importorskip("minigrid")
    _, out = smoke("games")
    with (out / "results" / "predictors.csv").open(encoding="utf-8", newline="") as lines:
        assert {row["measure"] for row in csv.DictReader(lines)} == set(MEASURES)
    with (out / "results" / "worlds.csv").open(encoding="utf-8", newline="") as lines:
        worlds = {row["world"]: row for row in csv.DictReader(lines)}
    assert worlds["minigrid-lavagaps5"]["states"] == "20"
    # 32 features of 20 states hold everything; those of two channels and eight units do not.
    found = {
        arm: json.loads((out / f"parts/minigrid-lavagaps5-{name}.json").read_text())
        for arm, name in ((SCRATCH, "from-scratch"), (EXACT, "exact-components"))
    }
    closeness = {arm: np.asarray(part["closeness"])[:, 0] for arm, part in found.items()}
    assert np.all(closeness[EXACT] > closeness[SCRATCH])
