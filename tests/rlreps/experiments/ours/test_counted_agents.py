"""Agents that count: plans against exact optimal values, steps read from memory."""

import dataclasses

import jax
import numpy as np
import pytest

from rlreps.agents import AgentConfig, DQNConfig
from rlreps.agents.replay import Rows
from rlreps.envs import Code
from rlreps.errors import InputError
from rlreps.experiments.ours.counted_agents import new_steps, planned, train_counted
from rlreps.successor.tabular import counted

STATES, ACTIONS, DISCOUNT = 6, 2, 0.9


def walk(seed, count):
    """Random steps on a circle whose last state ends the task; arriving there pays 2."""
    generator = np.random.default_rng(seed)
    before = generator.integers(STATES - 1, size=count)
    action = generator.integers(ACTIONS, size=count)
    after = (before + np.where(generator.random(count) < 0.8, 2 * action - 1, 0)) % STATES
    ends = after == STATES - 1
    # States are numbered as observations are, by numbers that are not indices.
    columns = 10 * before + 3, action, np.where(ends, 2.0, -0.5), ends, 10 * after + 3
    return np.stack(columns, axis=1).astype(np.float64)


def test_plans_have_the_optimal_values_of_the_counted_model():
    steps = walk(0, 400)
    plan = planned(steps, 8, ACTIONS, DISCOUNT, best=2.0)
    before, after = ((steps[:, column] // 10).astype(int) for column in (0, 4))
    model = counted(before, steps[:, 1].astype(int), after, (ACTIONS, STATES))
    # The end is absorbing there, with rewards on arrival from other states alone.
    ends = np.eye(STATES)[STATES - 1]
    values = np.zeros(STATES)
    for _ in range(500):
        reached = np.where(ends > 0, 2.0, -0.5 + DISCOUNT * values)
        exact = np.einsum("ast,t->sa", model.to, reached)
        values = exact.max(axis=1)
    found = plan["weights"][:STATES] + 2.0
    np.testing.assert_allclose(found[:-1], exact[:-1], atol=2e-3)
    assert found[-1] == pytest.approx(2.0)  # The last state has no tried action.


def test_actions_that_were_not_tried_and_states_that_were_not_seen_have_the_best_value():
    steps = walk(1, 400)
    steps = steps[~((steps[:, 0] == 23) & (steps[:, 1] == 1))]
    plan = planned(steps, 8, ACTIONS, DISCOUNT, best=2.0)
    assert plan["weights"][2, 1] == 0.0
    assert plan["weights"][2, 0] < 0.0
    # States 0 and 7 are unused rows.
    assert not plan["weights"][STATES:].any()
    with pytest.raises(InputError, match="at most 5 observations to count"):
        planned(steps, 5, ACTIONS, DISCOUNT, best=2.0)


def test_new_steps_join_without_gaps_and_leave_out_ends_of_episodes():
    generator, shape = np.random.default_rng(2), (2, 12, 3)
    rows = Rows(
        observation=generator.integers(5, size=(*shape, 2)).astype(np.float32),
        action=generator.integers(ACTIONS, size=shape).astype(np.int32),
        reward=generator.normal(size=shape).astype(np.float32),
        terminated=generator.random(shape) < 0.2,
        last=generator.random(shape) < 0.2,
    )
    whole = new_steps(rows, 12, 12)
    parts = [new_steps(rows, count, 4) for count in (4, 8, 12)]
    for agent in range(2):
        joined = np.concatenate([part[agent] for part in parts])
        np.testing.assert_array_equal(joined, whole[agent])
        assert len(joined) == np.sum(~rows.last[agent, :-1])
    # A memory of eight slots holds the last rows in another order.
    slots = np.arange(4, 12)
    ring = jax.tree.map(lambda leaf: leaf[:, slots[np.argsort(slots % 8)]], rows)
    for found, expected in zip(new_steps(ring, 12, 4), parts[-1], strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.integration
def test_agents_that_count_cross_a_maze_in_few_steps():
    config = AgentConfig(
        environment="puddle-world:two_room",
        observation=Code(bins=10),
        goal=(0.9, 0.9, 0.08),
        dqn=DQNConfig(epsilon_steps=4_000),
        max_episode_steps=100,
        steps=12_000,
        evaluate_every=2_000,
        num_seeds=2,
    )
    returns = train_counted(config, 0.0)
    assert returns.shape == (2, 7)
    assert (returns[:, 0] < -80.0).all()
    assert (returns[:, -1] > -40.0).all()
    few = dataclasses.replace(config.features, basis_size=20)
    with pytest.raises(InputError, match="at most 20 observations"):
        train_counted(dataclasses.replace(config, features=few), 0.0)
