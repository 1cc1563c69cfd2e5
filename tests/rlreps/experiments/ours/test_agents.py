"""Agents in mazes: features in front of networks, budgets, verdicts; the smoke preset."""

import dataclasses

import jax
import numpy as np
import pytest

from rlreps.experiments.ours import agents, mazes
from rlreps.experiments.ours.agent_arms import (
    CONTROL,
    COSINES,
    COUNTED,
    EXACT,
    EXPLICIT,
    FITTED,
    GAMES,
    IMAGES,
    LARGE_BATCH,
    LEARNED,
    SCRATCH,
    WAYS,
    WIDER,
    exact_table,
    learned_table,
    mean_of_budget,
    of_code,
    optimal_return,
)
from rlreps.experiments.ours.agents import EXPERIMENT, PRESETS, SHARE
from rlreps.experiments.ours.mazes import CONTROL_ARENA, MAZES
from rlreps.successor.measure.grids import Grid

LAPTOP = PRESETS["laptop"]
CODES = mazes.observation_of("spiral").table()


def test_a_code_finds_its_cell():
    cells, weights = jax.jit(of_code)(CODES)
    np.testing.assert_array_equal(cells[:, 0], np.arange(len(CODES)))
    np.testing.assert_array_equal(weights, 1.0)


def test_all_arms_have_the_same_number_of_steps_with_and_without_rewards():
    steps = {label: LAPTOP.agents("spiral", label).steps for label in WAYS}
    spared = {label for label, count in steps.items() if count == LAPTOP.base.steps}
    assert spared == {LEARNED, EXACT}
    assert {*steps.values()} == {LAPTOP.base.steps, LAPTOP.base.steps + LAPTOP.free_steps}


@pytest.mark.parametrize("label", [EXPLICIT, LARGE_BATCH, CONTROL])
def test_sums_of_joint_losses_are_cut_by_little_and_the_controls_have_one_row(label):
    task = LAPTOP.agents("spiral", label).auxiliary
    assert task.weight == LAPTOP.weight
    assert task.discount_high**task.length <= 0.05
    assert (task.length == 1) == (label == CONTROL)


def test_mean_returns_are_over_all_steps_and_free_ones_count_as_never_arriving():
    base = dataclasses.replace(LAPTOP.base, steps=8_000, evaluate_every=2_000)
    assert base.dqn.warmup < 2_000
    curves = 2_000.0 * np.arange(5), np.array([[-290.0, -200.0, -100.0, -50.0, -40.0]])
    assert mean_of_budget(base, curves, 0) == pytest.approx(-97.5)
    # Evaluations at 2,000 and 4,000 free steps; those at 6,000 and later are the agent's own.
    assert mean_of_budget(base, curves, 6_000) == pytest.approx((-600.0 - 680.0) / 7)


def rows(
    learned=(20, 20, 20),
    scratch=(0, 0, 0),
    *,
    control=0,
    null=(20, 20),
    seeds=20,
    without=None,
    gains=({},) * 3,
    pictured=({},) * 3,
    games=({},) * 3,
):
    """Agents of all arms: how many reach the threshold, the first ones, and mean returns.

    Gains are over -100 in each maze, with codes and with images, and in games, and noise differs by
    arm and agent. Of agents that see images, none reaches the threshold. An arm or a maze is left
    out.
    """
    noise, found = np.random.default_rng(0), []
    settings = (*MAZES, CONTROL_ARENA, *(maze + IMAGES for maze in MAZES), *GAMES)
    counts_of = (*learned, null[0], *(0,) * 6), (*scratch, null[1], *(0,) * 6)
    for arena, ours, theirs, gained in zip(
        settings, *counts_of, (*gains, {}, *pictured, *games), strict=True
    ):
        counts = {**dict.fromkeys(WAYS, control), LEARNED: ours, SCRATCH: theirs}
        if IMAGES in arena or arena in GAMES:
            counts = dict.fromkeys(LAPTOP.settings[arena], 0)
        found += [
            {
                "arena": arena,
                "arm": arm,
                "seed": seed,
                "reached": float(seed < count),
                "mean_return": -100.0 + 5 * seed + gained.get(arm, 0.0) + noise.normal(),
            }
            for arm, count in counts.items()
            for seed in range(seeds)
            if without not in (arena, arm)
        ]
    return found


(
    OVER_NETWORKS,
    OVER_DATA_FREE,
    JOINT,
    NULL,
    FIT,
    FIT_EVERYWHERE,
    FIT_ASIDE,
    ROOMS,
    MINATAR,
    PLANS,
) = range(10)
"""Places of the claims."""

GAINED, PLANNED, NOT = {FITTED: 20.0}, {COUNTED: 20.0}, dict[str, float]()
EFFECT = SHARE * 28.0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # Learned components have to bring more agents in two mazes of three.
        (
            {"learned": (20, 20, 5), "scratch": (0, 2, 5)},
            {OVER_NETWORKS: True, OVER_DATA_FREE: True, NULL: True},
        ),
        # 60 points may be 50, and one maze does not do.
        ({"learned": (12, 12, 20)}, {OVER_NETWORKS: None, OVER_DATA_FREE: True}),
        ({"learned": (5, 5, 20)}, {OVER_NETWORKS: False, OVER_DATA_FREE: None}),
        # What needs no data does as well, and so does a wider network.
        ({"control": 20}, {OVER_NETWORKS: False, OVER_DATA_FREE: None}),
        ({"null": (20, 0)}, {NULL: False}),
        (
            {"learned": (19,) * 3, "seeds": 19},
            {OVER_NETWORKS: None, OVER_DATA_FREE: None, NULL: None},
        ),
        # Without one of the data-free arms nobody can tell what helps.
        ({"without": COSINES}, {OVER_NETWORKS: True, OVER_DATA_FREE: None}),
        ({"without": "spiral"}, {OVER_NETWORKS: None, OVER_DATA_FREE: None}),
        # One joint loss has to gain a share of the gap over both others.
        ({"gains": ({EXPLICIT: 20.0}, {EXPLICIT: 20.0}, {})}, {JOINT: True}),
        ({"gains": ({EXPLICIT: 20.0}, {EXPLICIT: 20.0}, {}), "seeds": 19}, {JOINT: None}),
        ({"gains": ({EXPLICIT: 20.0}, {}, {})}, {JOINT: False}),
        # Another loss in another maze is not one loss in two.
        ({"gains": ({EXPLICIT: 20.0}, {LARGE_BATCH: 20.0}, {})}, {JOINT: False}),
        # Less than a quarter of the gap, and no more than what a task without dynamics does.
        ({"gains": ({EXPLICIT: 1.0},) * 3}, {JOINT: False}),
        ({"gains": ({EXPLICIT: 20.0, CONTROL: 19.0},) * 3}, {JOINT: False}),
        ({"gains": ({EXPLICIT: EFFECT},) * 3}, {JOINT: None}),
        # Fitted features have to beat both networks in most settings, and aside.
        (
            {"gains": (GAINED,) * 3, "pictured": (GAINED,) * 3},
            {FIT: True, FIT_EVERYWHERE: True, FIT_ASIDE: True},
        ),
        (
            {"gains": (GAINED,) * 3, "pictured": (NOT,) * 3},
            {FIT: True, FIT_EVERYWHERE: False, FIT_ASIDE: False},
        ),
        # Two mazes of three with codes and four settings of six.
        (
            {"gains": (GAINED, NOT, GAINED), "pictured": (NOT, GAINED, GAINED)},
            {FIT: True, FIT_EVERYWHERE: True, FIT_ASIDE: False},
        ),
        (
            {"gains": (GAINED, GAINED, NOT), "pictured": (NOT, GAINED, NOT)},
            {FIT: True, FIT_EVERYWHERE: False, FIT_ASIDE: True},
        ),
        # A wider network does as well.
        ({"gains": ({FITTED: 20.0, WIDER: 19.0},) * 3}, {FIT: False}),
        ({"gains": ({FITTED: EFFECT},) * 3}, {FIT: None}),
        # Games need a share of the gap or, in MinAtar, any gain over both networks.
        ({"games": (GAINED,) * 3}, {ROOMS: True, MINATAR: True}),
        ({"games": (NOT, GAINED, GAINED)}, {ROOMS: False, MINATAR: True}),
        # One game alone decides nothing: the other may have a gain too small to see.
        ({"games": (GAINED, GAINED, NOT)}, {ROOMS: True, MINATAR: None}),
        ({"games": ({FITTED: 2.0},) * 3}, {ROOMS: False, MINATAR: True}),
        ({"games": ({FITTED: 20.0, WIDER: 25.0},) * 3}, {ROOMS: False, MINATAR: False}),
        # Counted models have to gain over fitted features wherever states can be counted.
        ({"gains": (PLANNED,) * 3, "games": (PLANNED, NOT, NOT)}, {PLANS: True}),
        ({"gains": (PLANNED,) * 3}, {PLANS: None}),
        ({"gains": (PLANNED, PLANNED, GAINED), "games": (PLANNED, NOT, NOT)}, {PLANS: False}),
    ],
)
def test_claims_are_judged_by_pairs_of_agents(results_of, monkeypatch, given, expected):
    # The best return is 28 above the mean from scratch.
    monkeypatch.setattr(agents, "best_return", lambda setting: -100.0 + 5 * 9.5 + 28.0)
    results = results_of(EXPERIMENT, LAPTOP, rows(**given))
    claims = [*EXPERIMENT.claims(results)]
    found = {place: claims[place].judged(results, decided=True).holds for place in expected}
    assert found == expected


@pytest.mark.parametrize("maze", MAZES)
def test_the_images_of_all_cells_differ(maze):
    world = mazes.world_of(maze, observation=LAPTOP.agents(maze + IMAGES, SCRATCH).observation)
    seen = Grid(mazes.BINS).observations(world)
    assert len(np.unique(seen.reshape(len(seen), -1), axis=0)) == len(seen) == mazes.BINS**2


@pytest.mark.integration
def test_thresholds_and_components_are_those_of_the_arenas_exact_model():
    model, width, discount = mazes.cell_world("five_corridors"), 16, 0.95
    moves = model.transitions.toarray().reshape(model.num_states, 4, model.num_states)
    goal = mazes.discs(model, mazes.GOALS[:1])[:, 0]
    steps = np.zeros(model.num_states)
    for _ in range(1_000):
        steps = 1.0 + np.einsum("sat,t->sa", moves, (1.0 - goal) * steps).min(axis=1)
    assert optimal_return("five_corridors") == pytest.approx(-steps[goal == 0.0].mean(), rel=0.03)
    exact = exact_table("five_corridors", width, discount)[mazes.places_of(model)].astype(
        np.float64
    )
    sizes = np.diag(exact.T @ exact)
    np.testing.assert_allclose(exact.T @ exact, np.diag(sizes), atol=1e-3 * sizes[0])
    assert np.mean(np.square(exact)) == pytest.approx(1.0)
    # The fit of one agent spans most of what counts: of the measure, its projection's square.
    chain = moves.mean(axis=1)
    measure = np.linalg.inv(np.eye(len(chain)) - discount * chain) @ chain
    learned = learned_table("five_corridors", 30_000, width, discount, 1_000)
    basis, _ = np.linalg.qr(learned[mazes.places_of(model)])
    best_share = np.sum(np.linalg.svd(measure, compute_uv=False)[:width] ** 2)
    assert np.sum(np.square(basis.T @ measure)) > 0.9 * best_share


@pytest.mark.experiments
def test_games_are_played_by_networks_and_by_counted_models(tmp_path):
    pytest.importorskip("gymnax")
    config = dataclasses.replace(
        PRESETS["smoke"],
        arenas=(),
        pictured=(),
        game_steps=400,
        picture_every=200,
    )
    # gymnax mixes types, which tests of our own code must not.
    with jax.numpy_dtype_promotion("standard"):
        chosen = dataclasses.replace(config, games=("FourRooms",), game_labels=(SCRATCH,))
        summary = EXPERIMENT.run(chosen, tmp_path / "run")
    assert [(row["arm"], row["reached"] is None) for row in summary["arms"]] == [
        (label, False) for label in (SCRATCH, COUNTED)
    ]
    assert {row["arena"] for row in summary["gains"]} == {"FourRooms"}


def test_agents_in_the_maze_kept_aside_have_seeds_of_their_own():
    inside, outside = (set(LAPTOP.agents(maze, FITTED).seeds) for maze in ("spiral", "four_rooms"))
    assert not inside & outside
    assert LAPTOP.agents("spiral", FITTED).features.kind == "fitted"
    assert LAPTOP.agents("spiral", SCRATCH).features.kind == "none"
