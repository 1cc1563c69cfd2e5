"""Agents whose goal changes: relabelled memories, priors, verdicts; the smoke preset."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import ReplayRows
from rlreps.agents.config import load_puddle_world
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.goal_change_runs import (
    ARMS,
    FIXED,
    OVER,
    TUNED,
    ZERO_SHOT,
    frame,
    goal_cells,
    with_goal,
)
from rlreps.experiments.ours.goal_changes import EXPERIMENT, PRESETS
from rlreps.study import Run

LAPTOP = PRESETS["laptop"]


@pytest.mark.integration  # The models of the mazes take seconds each.
@pytest.mark.parametrize("arena", mazes.MAZES)
def test_told_cells_lie_within_the_goal_and_the_goal_is_outside_the_walls(arena):
    centres = mazes.cell_world(arena).coordinates
    for goal in LAPTOP.goals:
        inside = goal_cells(arena, goal)
        assert inside.sum() == 4
        corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) / (2 * mazes.BINS)
        far = np.linalg.norm(centres[inside][:, None] + corners - np.array(goal[:2]), axis=2)
        assert far.max() <= goal[2]
        world = load_puddle_world(dataclasses.replace(LAPTOP.first(arena), goal=goal))
        assert all(bool(world._is_free(jnp.asarray(centre))) for centre in centres[inside])


def test_episodes_of_a_memory_end_in_the_new_goal_alone():
    # One agent, one environment: the first goal is cell 9, the new one is cell 5.
    cells = np.array([0, 4, 5, 6, 9, 1, 5, 5, 2])
    last = np.array([0, 0, 0, 0, 1, 0, 0, 0, 0], np.bool_)
    terminated = np.zeros(12, np.bool_)
    terminated[3] = True
    held = np.pad(last, (0, 3))
    rows = ReplayRows(None, None, None, terminated[None, :, None], held[None, :, None])
    inside = np.arange(10) == 5
    found = with_goal(rows, cells[None, :, None], inside)
    expected = np.zeros(12, np.bool_)
    expected[[1, 5, 6]] = True
    np.testing.assert_array_equal(found.terminated[0, :, 0], expected)
    expected = held.copy()
    expected[[2, 6, 7]] = True
    np.testing.assert_array_equal(found.last[0, :, 0], expected)
    assert rows.terminated[0, 3, 0]
    assert rows.last.sum() == 1


def rows(needed, returns, *, seeds=20, skipped=()):
    """Agents of all arms: steps to the threshold by arm, and returns by arm."""
    noise = np.random.default_rng(0)
    return [
        {
            "arena": maze,
            "arm": arm,
            "goal": goal,
            "seed": seed,
            "step": LAPTOP.budget,
            "needed": needed[arm] + noise.normal(),
            "mean_return": returns[arm] + noise.normal(),
            "return": returns[arm] + noise.normal(),
        }
        for maze in mazes.MAZES
        if maze not in skipped
        for arm in ARMS
        for goal in ("a", "b")
        for seed in range(seeds)
    ]


STEPS = {ZERO_SHOT: 2_000.0, FIXED: 2_000.0, TUNED: 9_000.0, OVER: 12_000.0}
RETURNS = {ZERO_SHOT: -60.0, FIXED: -80.0, TUNED: -150.0, OVER: -160.0}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (rows(STEPS, RETURNS), [True, True, True, True]),
        (rows({**STEPS, TUNED: 3_000.0}, RETURNS), [False, False, True, True]),
        (rows({**STEPS, OVER: 3_900.0}, RETURNS), [False, False, True, True]),
        (rows(STEPS, {**RETURNS, TUNED: -50.0}), [True, True, False, True]),
        (rows(STEPS, {**RETURNS, FIXED: -50.0}), [True, True, True, False]),
        (rows(STEPS, RETURNS, seeds=19), [None] * 4),
        (rows(STEPS, RETURNS, skipped=("spiral",)), [None] * 4),
    ],
)
def test_the_zero_shot_start_has_to_halve_the_steps_of_both_others(judge, given, expected):
    assert [claim.holds for claim in judge(EXPERIMENT, LAPTOP, given)] == expected


def test_steps_are_cut_at_the_budget():
    config = dataclasses.replace(
        PRESETS["smoke"], budget=800, goals=LAPTOP.goals[:1], threshold=2.0
    )
    # Twice the optimal return lies between -400 and -10.
    returns = {arm: [[[-400.0] * 5, [-400.0, -10.0, -400.0, -10.0, -400.0]]] for arm in ARMS}
    returns[FIXED] = [[[-10.0, -10.0, -40.0, -400.0, -400.0], [-400.0] * 5]]
    found = frame(Run(config, None), {"arena": "five_corridors"}, returns)
    ends = found.where(step=800)
    for arm, needed, reached in ((TUNED, [800, 600], [0, 1]), (FIXED, [200, 800], [1, 0])):
        rows_of = ends.where(arm=arm)
        assert rows_of["needed"].tolist() == needed
        assert rows_of["reached"].tolist() == reached
    assert found.where(arm=FIXED, seed=0)["mean_return"][0] == -172.0


def test_mazes_share_no_agents_with_the_one_kept_aside():
    inside, outside = (set(LAPTOP.first(maze).seeds) for maze in ("spiral", "four_rooms"))
    assert not inside & outside
