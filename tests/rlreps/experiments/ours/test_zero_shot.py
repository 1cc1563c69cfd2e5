"""Policies for rewards named afterwards: gains, controls, verdicts, presets; its smoke preset."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.experiments.ours import mazes, zero_shot
from rlreps.experiments.ours.mazes import CONTROL_ARENA, MAZES, AtCells
from rlreps.experiments.ours.tabular import count_world
from rlreps.experiments.ours.zero_shot import (
    DISCS,
    DQN,
    EXPERIMENT,
    LEARNED,
    SMOOTH,
    Config,
    Problem,
    greedy,
)
from rlreps.study import replace_nested
from rlreps.successor.fitting.fit import fit
from rlreps.successor.fitting.transitions import Transitions
from rlreps.worlds import World

CODES = mazes.observation_of("spiral").table()[:6]


@pytest.fixture
def line():
    """Six cells in a line, two actions that go left and right with a slip; codes are seen."""
    size, to = 6, np.zeros((2, 6, 6))
    for action, move in enumerate((-1, 1)):
        for cell in range(size):
            to[action, cell, np.clip(cell + move, 0, size - 1)] += 0.9
            to[action, cell, cell] += 0.1
    return World.from_arrays(
        probabilities=to, rewards=np.zeros((6, 2)), observations=CODES, about={"name": "spiral"}
    )


@pytest.fixture
def problem(line):
    return Problem(line, np.random.default_rng(0).normal(size=(6, 4)), 0.9)


def chances_of(world):
    """Probabilities of next states, [n, A, n]."""
    return world.transitions.toarray().reshape(*world.rewards.shape, world.num_states)


def walk(world, steps, seed=0):
    """Transitions of the random policy on a world's cells, as agents see them."""
    rng, chances = np.random.default_rng(seed), chances_of(world)
    cells, actions = [0], rng.integers(2, size=steps)
    for action in actions:
        cells.append(int(rng.choice(world.num_states, p=chances[cells[-1], action])))
    seen = world.observations[cells]
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
    best = greedy(problem.optimal)
    np.testing.assert_allclose(problem.gains(best), 1.0)
    uniform, left = np.full((6, 2), 0.5), np.eye(2)[np.zeros(6, int)]
    np.testing.assert_allclose(problem.gains([uniform] * 4), 0.0, atol=1e-12)
    # V = (I - γP)⁻¹ P r, as rewards are paid on arrival.
    sums = []
    for policy in (left, uniform, best[0]):
        chain = np.einsum("sa,sat->st", policy, chances_of(problem.world))
        values = np.linalg.solve(np.eye(6) - 0.9 * chain, chain @ problem.rewards[:, 0])
        sums.append(values.mean())
    expected = (sums[0] - sums[1]) / (sums[2] - sums[1])
    np.testing.assert_allclose(problem.gains([left] * 4)[0], expected)


def test_a_counted_model_is_the_frequencies_and_its_policies_are_optimal_in_the_end(problem):
    world = problem.world
    data = walk(world, 4_000)
    seen = data.observation, data.next_observation
    before, after = (mazes.cells_of(world, each) for each in seen)
    estimate = chances_of(count_world(before, data.action, after, (6, 2)))
    # Three standard errors of 4,000 / 12 tries or so.
    assert np.abs(estimate - chances_of(world)).max() < 3 * 0.3 / np.sqrt(250)
    policies = zero_shot.tabular_policies(data, problem)
    np.testing.assert_allclose(problem.gains(policies), 1.0, atol=1e-3)


def test_learned_policies_are_greedy_on_values_of_the_random_policy_and_optimal_in_the_end(problem):
    world, data = problem.world, walk(problem.world, 20_000)
    table, codes = data.numbered()
    places = np.argmax((world.observations[:, None] == codes[None]).all(axis=2), axis=1)
    represented = fit(table, behaviour="uniform", discount=0.9, num_features=6)
    rep = AtCells(represented, table, world, places, np.ones(6, np.bool_))
    reached = mazes.cells_of(world, data.next_observation)
    once = zero_shot.learned_policies(rep, reached, problem, 1)
    following = problem.rewards + 0.9 * problem.random
    values = np.einsum("sat,tm->sam", chances_of(world), following)
    np.testing.assert_allclose(problem.gains(once), problem.gains(greedy(values)), atol=0.01)
    assert problem.gains(once).min() < 0.99
    more = zero_shot.learned_policies(rep, reached, problem, 5)
    np.testing.assert_allclose(problem.gains(more), 1.0, atol=0.01)


@pytest.mark.integration
def test_rewards_of_agents_are_those_of_the_cell_reached_and_only_the_cap_ends():
    world = mazes.world_of("four_rooms")
    rewards = jnp.arange(mazes.BINS**2, dtype=jnp.float32)
    environment = zero_shot.Rewarded.of(world, rewards)
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


def rows(arena, learned, *, kind=SMOOTH, agents=(0.0, 0.2, 0.5, 0.95)):
    """Gains of learned policies and of agents about their means."""
    noise = 0.01 * np.linspace(-1.0, 1.0, 50)
    arms = [
        (LEARNED, 5, 30_000, learned + noise),
        *((DQN, None, *each) for each in zip(Config().dqn_steps, agents, strict=True)),
    ]
    common = {"arena": arena, "rewards": kind}
    return [
        {**common, "arm": arm, "improvements": improvements, "steps": steps, "reward": index}
        | {"gain": gain}
        for arm, improvements, steps, mean in arms
        for index, gain in enumerate(np.broadcast_to(mean, 50 if arm == LEARNED else 5))
    ]


@pytest.mark.parametrize(
    ("smooth", "discs", "agents", "verdicts"),
    [
        (0.96, 0.91, (0.0, 0.2, 0.5, 0.99), [True, True, True, False]),
        (0.94, 0.91, (0.0, 0.2, 0.97, 0.97), [False, True, False, True]),
        (0.96, 0.9, (0.0, 0.2, 0.9508, 0.99), [True, None, None, None]),
    ],
)
def test_goals_are_19_and_18_twentieths_and_agents_have_at_most_the_free_steps(
    judge, smooth, discs, agents, verdicts
):
    given = [
        row
        for arena in (*MAZES, CONTROL_ARENA)
        for kind, gain in ((SMOOTH, smooth), (DISCS, discs))
        for row in rows(arena, gain, kind=kind, agents=agents)
    ]
    assert [claim.holds for claim in judge(EXPERIMENT, Config(), given)] == verdicts
    few = [row for row in given if row["reward"] < (4 if row["arm"] == DQN else 19)]
    assert {claim.holds for claim in judge(EXPERIMENT, Config(), few)} == {None}
    # Fewer than five agents for each reward do not decide what agents reach.
    fewer = replace_nested(Config(), num_seeds=4)
    assert [claim.holds for claim in judge(EXPERIMENT, fewer, given)][2:] == [None, None]


@pytest.mark.parametrize(
    ("agents", "steps"),
    [
        ((0.0, 0.2, 0.5, 0.95), 60_000),
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
