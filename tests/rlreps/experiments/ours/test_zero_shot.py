"""Policies for rewards named afterwards: gains, controls, verdicts, presets; its smoke preset."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.experiments.ours import mazes, zero_shot
from rlreps.experiments.ours.mazes import MAZES, NULL, AtCells, CellModel
from rlreps.experiments.ours.zero_shot import (
    DISCS,
    DQN,
    EXPERIMENT,
    KINDS,
    LEARNED,
    REFERENCE,
    SMOOTH,
    TABULAR,
    Config,
)
from rlreps.successor.data import Transitions
from rlreps.successor.fitting import fit
from rlreps.successor.tabular import TabularProblem, counted, greedy

CODES = mazes.observation_of("spiral").table()[:6]


@pytest.fixture
def line():
    """Six cells in a line, two actions that go left and right with a slip; codes are seen."""
    size, to = 6, np.zeros((2, 6, 6))
    for action, move in enumerate((-1, 1)):
        for cell in range(size):
            to[action, cell, np.clip(cell + move, 0, size - 1)] += 0.9
            to[action, cell, cell] += 0.1
    places = np.column_stack([np.arange(size) / 5, np.zeros(size)]).astype(np.float32)
    return CellModel(to, "spiral", np.arange(size), places, CODES)


@pytest.fixture
def problem(line):
    return TabularProblem(line, np.random.default_rng(0).normal(size=(6, 4)), 0.9)


def walk(model, steps, seed=0):
    """Transitions of the random policy on a model's cells, as agents see them."""
    rng = np.random.default_rng(seed)
    cells, actions = [0], rng.integers(2, size=steps)
    for action in actions:
        cells.append(int(rng.choice(model.num_states, p=model.to[action, cells[-1]])))
    seen = model.observations[cells]
    nothing = np.zeros(steps, np.bool_)
    return Transitions(
        observation=seen[:-1],
        action=actions,
        next_observation=seen[1:],
        terminated=nothing,
        truncated=nothing,
        num_actions=2,
    )


def test_gains_are_one_of_optimal_policies_nought_of_random_ones_and_mean_values_between(problem):
    model = problem.model
    best = greedy(model.optimal_action_values(problem.rewards, 0.9))
    np.testing.assert_allclose(problem.gains(best), 1.0)
    np.testing.assert_allclose(problem.gains([model.uniform] * 4), 0.0, atol=1e-12)
    left = problem.gains([np.zeros(6, int)])
    sums = [
        model.policy_values(policy, problem.rewards[:, [0]], 0.9).mean()
        for policy in (np.zeros(6, int), model.uniform, best[0])
    ]
    np.testing.assert_allclose(left, (sums[0] - sums[1]) / (sums[2] - sums[1]))
    np.testing.assert_allclose(problem.chosen([2]).gains(best[2:3]), 1.0)


def test_a_counted_model_is_the_frequencies_and_its_policies_are_optimal_in_the_end(problem):
    model = problem.model
    data = walk(model, 4_000)
    cells = (model.cells_of(each) for each in (data.observation, data.next_observation))
    before, after = cells
    estimate = counted(before, data.action, after, (2, 6))
    # Three standard errors of 4,000 / 12 tries or so.
    assert np.abs(estimate.to - model.to).max() < 3 * 0.3 / np.sqrt(250)
    np.testing.assert_allclose(estimate.to.sum(axis=2), 1.0)
    policies = zero_shot.tabular_policies(model, data, problem)
    np.testing.assert_allclose(problem.gains(policies), 1.0, atol=1e-3)
    # Of few steps from one end on the other end is not known: uniform there.
    short = walk(model, 4)
    unknown = ~np.isin(np.arange(6), model.cells_of(short.observation))
    assert unknown.any()
    few = zero_shot.tabular_policies(model, short, problem)
    np.testing.assert_allclose(few[0][unknown], 0.5)


def test_learned_policies_are_greedy_on_values_of_the_random_policy_and_optimal_in_the_end(problem):
    model, data = problem.model, walk(problem.model, 20_000)
    table, codes = mazes.numbered(data)
    places = np.argmax((model.observations[:, None] == codes[None]).all(axis=2), axis=1)
    represented = fit(table, behaviour="uniform", discount=0.9, num_features=6)
    rep = AtCells(represented, table, model, places, np.ones(6, np.bool_))
    reached = model.cells_of(data.next_observation)
    once = zero_shot.learned_policies(rep, reached, problem, 1)
    values = np.einsum("ast,tm->sam", model.to, problem.rewards + 0.9 * problem.random)
    np.testing.assert_allclose(problem.gains(once), problem.gains(greedy(values)), atol=0.01)
    assert problem.gains(once).min() < 0.99
    more = zero_shot.learned_policies(rep, reached, problem, 5)
    np.testing.assert_allclose(problem.gains(more), 1.0, atol=0.01)


@pytest.mark.integration
def test_rewards_of_agents_are_those_of_the_cell_reached_and_only_the_cap_ends():
    world = mazes.world_of("four_rooms")
    rewards = jnp.arange(mazes.BINS**2, dtype=jnp.float32)
    environment = zero_shot.Rewarded(world, rewards)
    state = environment.reset(jax.random.key(0))
    step = jax.jit(environment.step)
    for index in range(mazes.CAP):
        taken = step(jax.random.key(index), state, jnp.int32(index % 4))
        column, row = np.minimum(np.asarray(taken.state.position) * mazes.BINS, 19.5).astype(int)
        inside = np.asarray(taken.state.position) * mazes.BINS % 1.0
        if np.all((inside > 0.1) & (inside < 0.9)):
            assert float(taken.reward) == row * mazes.BINS + column
        assert not taken.terminated
        assert bool(taken.truncated) == (index == mazes.CAP - 1)
        state = taken.state
    np.testing.assert_array_equal(environment.observe(state), world.observe(state))


def rows(arena, learned, *, kind=SMOOTH, agents=(0.0, 0.2, 0.5, 0.95), count=50, spread=0.01):
    """Gains of each arm about its mean; those of agents may be given for rewards, [4, 5]."""
    config, noise = Config(), spread * np.linspace(-1.0, 1.0, count)
    learning = np.broadcast_to(np.transpose(agents), (5, 4)).T + noise[:5] * (np.ndim(agents) == 1)
    arms = [
        *((LEARNED, *fit.values(), learned + noise) for fit in config.fits),
        *((TABULAR, None, steps, 0.99 + noise) for steps in config.steps),
        (REFERENCE, None, 0, 0.95 + noise),
        *((DQN, None, *each) for each in zip(config.dqn_steps, learning, strict=True)),
    ]
    return [
        {
            "arena": arena,
            "rewards": kind,
            "arm": arm,
            "improvements": improvements,
            "steps": steps,
            "reward": index,
            "gain": gain,
        }
        for arm, improvements, steps, gains in arms
        for index, gain in enumerate(gains)
    ]


def both(arena, learned, **options):
    return [row for kind in KINDS for row in rows(arena, learned, kind=kind, **options)]


@pytest.mark.parametrize(
    ("smooth", "discs", "verdicts"),
    [
        ((0.98, 0.97, 0.96), (0.93, 0.92, 0.91), [True, True]),
        ((0.98, 0.97, 0.94), (0.93, 0.95, 0.9), [False, None]),
        ((0.98, 0.95, 0.97), (0.93, 0.9, 0.7), [None, False]),
    ],
)
def test_the_goals_are_intervals_above_19_and_18_twentieths_in_all_mazes(
    judge, smooth, discs, verdicts
):
    def holds(found, arenas=(*MAZES, NULL)):
        return [claim.holds for claim in judge(EXPERIMENT, Config(arenas=arenas), found)]

    found = [
        row
        for kind, gains in ((SMOOTH, smooth), (DISCS, discs))
        for arena, gain in zip(MAZES, gains, strict=True)
        for row in rows(arena, gain, kind=kind)
    ]
    assert holds([*found, *both(NULL, 0.93)]) == [*verdicts, True, False]
    ahead = (0.0, 0.9, 0.99, 0.99)
    low = [row for arena in MAZES for row in both(arena, 0.8, agents=ahead)]
    assert holds([*low, *both(NULL, 0.5, agents=ahead)]) == [False, False, False, True]
    few = [row for arena in MAZES for row in both(arena, 1.0, count=19)]
    assert holds([*few, *both(NULL, 0.9)])[:2] == [None, None]
    # Too few rewards that agents learn, or gains of agents that differ too much.
    four = [row for row in both(NULL, 0.5) if row["arm"] != DQN or row["reward"] < 4]
    wide = both(NULL, 0.9, agents=np.full((4, 5), 0.9) + np.linspace(-0.5, 0.5, 5))
    assert [holds([*found, *null])[-1] for null in (four, wide)] == [None, None]


@pytest.mark.parametrize(
    ("even", "free", "said"),
    [
        (0, 30_000, "never"),
        (5_000, 30_000, "6"),
        (None, 30_000, "1"),
        (None, 100_000, "at most 2"),
    ],
)
def test_free_steps_are_repaid_by_as_many_rewards_as_take_dqn_so_many_steps(even, free, said):
    assert zero_shot.repaid(Config(main=(5, free)), even) == said


@pytest.mark.parametrize(
    ("agents", "steps"),
    [
        ((0.0, 0.2, 0.5, 0.95), 60_000),
        ((0.0, 0.95, 0.95, 0.95), 5_000),
        # Agents forget: what they lose again was not reached.
        ((0.0, 0.95, 0.5, 0.95), 60_000),
        ((0.0, 0.2, 0.5, 0.7), None),
        ((0.95, 0.95, 0.95, 0.95), 0),
    ],
)
def test_break_even_is_the_first_snapshot_from_which_on_agents_gain_as_much(
    results_of, agents, steps
):
    results = results_of(EXPERIMENT, Config(), rows("spiral", 0.9, agents=agents))
    assert zero_shot.break_even(results, "spiral", SMOOTH) == steps


# Few steps: fits warn.
@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")
@pytest.mark.experiments
def test_the_smoke_preset_measures_every_arm(smoke):
    _, out = smoke("zero-shot")
    rows = json.loads((out / "results" / "gains.json").read_text())
    assert {row["arm"] for row in rows} == {LEARNED, TABULAR, REFERENCE, DQN}
    gains = {(row["rewards"], row["arm"], row["steps"]): row["mean"] for row in rows}
    assert max(gains.values()) <= 1.0 + 1e-9
    assert gains[SMOOTH, REFERENCE, 0] > 0.7
    assert gains[SMOOTH, TABULAR, 3_000] > 0.3
