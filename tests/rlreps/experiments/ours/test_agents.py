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
from rlreps.stats import contrasts, sign_flip_p_value
from rlreps.successor.measure.grids import Grid

LAPTOP = PRESETS["laptop"]
CODES = mazes.observation_of("spiral").table()


@pytest.fixture(autouse=True, scope="module")
def p_values_are_computed_once():
    """Keep p-values: the cases below repeat most of their pairs, at 16,384 sign flips each."""
    found = {}

    def kept(x, y, largest=None):
        key = np.asarray(x).tobytes(), np.asarray(y).tobytes()
        return (
            found[key] if key in found else found.setdefault(key, sign_flip_p_value(x, y, largest))
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contrasts, "sign_flip_p_value", kept)
        yield


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
    learned,
    scratch,
    *,
    control=0,
    null=(20, 20),
    seeds=20,
    arms=(*WAYS,),
    gains=({},) * 3,
    pictured=({},) * 3,
    games=({},) * 3,
):
    """Agents of all arms: how many reach the threshold, the first ones, and mean returns.

    Gains are over -100 in each maze, with codes and with images, and in games, and noise differs by
    arm and agent. Of agents that see images, none reaches the threshold.
    """
    noise, found = np.random.default_rng(0), []
    settings = (*MAZES, CONTROL_ARENA, *(maze + IMAGES for maze in MAZES), *GAMES)
    counts_of = (*learned, null[0], *(0,) * 6), (*scratch, null[1], *(0,) * 6)
    for arena, ours, theirs, gained in zip(
        settings, *counts_of, (*gains, {}, *pictured, *games), strict=True
    ):
        counts = {**dict.fromkeys(arms, control), LEARNED: ours, SCRATCH: theirs}
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
        ]
    return found


@pytest.fixture
def verdicts(judge, monkeypatch):
    """Judge the claims by rows, where the best return is 28 above the mean from scratch."""
    monkeypatch.setattr(agents, "best_return", lambda setting: -100.0 + 5 * 9.5 + 28.0)
    return lambda given: [claim.holds for claim in judge(EXPERIMENT, LAPTOP, given)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (rows((20, 20, 5), (0, 2, 5)), [True, True, True]),
        # 60 points may be 50, and one maze does not do.
        (rows((12, 12, 20), (0, 0, 0)), [None, True, True]),
        (rows((5, 5, 20), (0, 0, 0)), [False, None, True]),
        # What needs no data does as well, and so does a wider network.
        (rows((20, 20, 20), (0, 0, 0), control=20), [False, None, True]),
        (rows((20, 20, 20), (0, 0, 0), null=(20, 0)), [True, True, False]),
        (rows((19, 19, 19), (0, 0, 0), seeds=19), [None, None, None]),
        # Without one of the data-free arms nobody can tell what helps.
        (
            rows((20, 20, 20), (0, 0, 0), arms=[each for each in WAYS if each != COSINES]),
            [True, None, True],
        ),
        # Of two mazes.
        (
            [row for row in rows((20, 20, 20), (0, 0, 0)) if row["arena"] != "spiral"],
            [None, None, True],
        ),
    ],
)
def test_learned_components_have_to_bring_more_agents_in_two_mazes_of_three(
    verdicts, given, expected
):
    found = verdicts(given)
    assert [found[0], found[1], found[3]] == expected


@pytest.mark.parametrize(
    ("gains", "holds"),
    [
        (({EXPLICIT: 20.0}, {EXPLICIT: 20.0}, {}), True),
        (({EXPLICIT: 20.0}, {}, {}), False),
        # Another loss in another maze is not one loss in two.
        (({EXPLICIT: 20.0}, {LARGE_BATCH: 20.0}, {}), False),
        # Less than a quarter of the gap, and no more than what a task without dynamics does.
        (({EXPLICIT: 1.0},) * 3, False),
        (({EXPLICIT: 20.0, CONTROL: 19.0},) * 3, False),
        (({EXPLICIT: SHARE * 28.0},) * 3, None),
    ],
)
def test_one_joint_loss_has_to_gain_a_share_of_the_gap_over_both_others(verdicts, gains, holds):
    assert verdicts(rows((20,) * 3, (0,) * 3, gains=gains))[2] is holds
    assert verdicts(rows((20,) * 3, (0,) * 3, gains=gains, seeds=19))[2] is None


GAINED, NOT = {FITTED: 20.0}, dict[str, float]()


@pytest.mark.parametrize(
    ("gains", "pictured", "expected"),
    [
        ((GAINED,) * 3, (GAINED,) * 3, [True, True, True]),
        ((GAINED,) * 3, (NOT,) * 3, [True, False, False]),
        # Two mazes of three with codes and four settings of six.
        ((GAINED, NOT, GAINED), (NOT, GAINED, GAINED), [True, True, False]),
        ((GAINED, GAINED, NOT), (NOT, GAINED, NOT), [True, False, True]),
        # A wider network does as well.
        (({FITTED: 20.0, WIDER: 19.0},) * 3, (GAINED,) * 3, [False, False, False]),
        (({FITTED: SHARE * 28.0},) * 3, (GAINED,) * 3, [None, None, None]),
    ],
)
def test_features_fitted_to_replay_have_to_beat_both_networks_in_most_settings_and_aside(
    verdicts, gains, pictured, expected
):
    given = rows((20,) * 3, (0,) * 3, gains=gains, pictured=pictured)
    assert verdicts(given)[4:7] == expected


@pytest.mark.parametrize(
    ("games", "expected"),
    [
        ((GAINED,) * 3, [True, True]),
        ((NOT, GAINED, GAINED), [False, True]),
        # One game alone decides nothing: the other may have a gain too small to see.
        ((GAINED, GAINED, NOT), [True, None]),
        # Less than a quarter of the gap, but more than nothing.
        (({FITTED: 2.0},) * 3, [False, True]),
        # A wider network does as well.
        (({FITTED: 20.0, WIDER: 25.0},) * 3, [False, False]),
    ],
)
def test_games_need_a_share_of_the_gap_or_in_minatar_any_gain_over_both_networks(
    verdicts, games, expected
):
    found = verdicts(rows((20,) * 3, (0,) * 3, games=games))
    assert found[7:9] == expected


PLANNED = {COUNTED: 20.0}


@pytest.mark.parametrize(
    ("gains", "games", "holds"),
    [
        ((PLANNED,) * 3, (PLANNED, NOT, NOT), True),
        ((PLANNED,) * 3, (NOT,) * 3, None),
        ((PLANNED, PLANNED, {FITTED: 20.0}), (PLANNED, NOT, NOT), False),
    ],
)
def test_counted_models_have_to_gain_over_fitted_features_wherever_states_can_be_counted(
    verdicts, gains, games, holds
):
    assert verdicts(rows((20,) * 3, (0,) * 3, gains=gains, games=games))[9] is holds


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


@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")
@pytest.mark.experiments
def test_games_are_played_by_networks_with_and_without_fits_and_by_counted_models(tmp_path):
    pytest.importorskip("gymnax")
    config = dataclasses.replace(
        PRESETS["smoke"],
        arenas=(),
        pictured=(),
        game_steps=400,
        picture_every=200,
        fourier_size=24,
    )
    # gymnax mixes types, which tests of our own code must not.
    with jax.numpy_dtype_promotion("standard"):
        chosen = dataclasses.replace(config, games=("FourRooms",), game_labels=(SCRATCH, FITTED))
        summary = EXPERIMENT.run(chosen, tmp_path / "run")
    assert [(row["arm"], row["reached"] is None) for row in summary["arms"]] == [
        (label, False) for label in (SCRATCH, FITTED, COUNTED)
    ]
    assert {row["arena"] for row in summary["gains"]} == {"FourRooms"}


def test_agents_in_the_maze_kept_aside_have_seeds_of_their_own():
    inside, outside = (set(LAPTOP.agents(maze, FITTED).seeds) for maze in ("spiral", "four_rooms"))
    assert not inside & outside
    assert LAPTOP.agents("spiral", FITTED).features.kind == "fitted"
    assert LAPTOP.agents("spiral", SCRATCH).features.kind == "none"
