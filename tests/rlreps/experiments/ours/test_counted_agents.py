"""Agents that count: plans against exact optimal values, steps read from memory."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from rlreps.agents import AgentConfig, CompiledProgram, DQNConfig
from rlreps.agents.features import UNUSED, fitted_features, number_observations
from rlreps.agents.replay import ReplayRows
from rlreps.envs import Code
from rlreps.errors import InputError
from rlreps.experiments.ours import counted_agents
from rlreps.experiments.ours.counted_agents import CountedModel, new_steps, train_counted
from rlreps.experiments.ours.tabular import count_world, expected_next

STATES, ACTIONS, DISCOUNT = 6, 2, 0.9
SEEN = np.eye(STATES + 1, dtype=np.float32)
NUMBERS = number_observations(SEEN)


def walk(seed, count):
    """Random steps on a circle whose last state ends the task; arriving there pays 2."""
    generator = np.random.default_rng(seed)
    before = generator.integers(STATES - 1, size=count)
    action = generator.integers(ACTIONS, size=count)
    after = (before + np.where(generator.random(count) < 0.8, 2 * action - 1, 0)) % STATES
    ends = after == STATES - 1
    columns = NUMBERS[before], action, np.where(ends, 2.0, -0.5), ends, NUMBERS[after]
    return np.stack(columns, axis=1).astype(np.float64)


def counts_of(steps, size=8, parts=3):
    model = CountedModel(size, ACTIONS)
    for part in np.array_split(steps, parts):
        model.add(part)
    return model


def test_plans_have_the_optimal_values_of_the_counted_model():
    steps = walk(0, 400)
    model = counts_of(steps)
    before, after = (np.argmax(steps[:, [column]] == NUMBERS, axis=1) for column in (0, 4))
    exact = count_world(before, steps[:, 1].astype(int), after, (STATES, ACTIONS))
    values = np.zeros(STATES)
    for _ in range(500):
        reached = np.where(np.arange(STATES) == STATES - 1, 2.0, -0.5 + DISCOUNT * values)
        by_hand = expected_next(exact, reached)
        values = by_hand.max(axis=1)
    found = dict(zip(model.states, model.action_values(DISCOUNT, 2.0), strict=True))
    for state in range(STATES - 1):
        np.testing.assert_allclose(found[NUMBERS[state]], by_hand[state], atol=1e-3)
    np.testing.assert_allclose(found[NUMBERS[STATES - 1]], 2.0)  # No step starts at the end.


def test_actions_that_were_not_tried_have_the_best_value_or_the_worst():
    steps = walk(1, 400)
    model = counts_of(steps[~((steps[:, 0] == NUMBERS[2]) & (steps[:, 1] == 1))])
    for bound, expected in ((2.0, 2.0), (None, -0.5 / (1.0 - DISCOUNT))):
        values = dict(zip(model.states, model.action_values(DISCOUNT, bound), strict=True))
        assert values[NUMBERS[2]][1] == pytest.approx(expected)
        table = {name: np.float32(x) for name, x in model.table(DISCOUNT, 2.0, bound).items()}
        # Agents look their observations up; the last one was never seen.
        found = np.asarray(fitted_features(table, SEEN))
        for state in range(STATES):
            np.testing.assert_allclose(found[state], values[NUMBERS[state]] - 2.0, atol=1e-4)
        assert not found[STATES].any()
    with pytest.raises(InputError, match="at most 5 observations to count"):
        counts_of(steps, size=5)


def test_new_steps_are_those_between_rows_without_gaps_or_ends_of_episodes():
    generator, shape = np.random.default_rng(2), (2, 12, 3)
    rows = ReplayRows(
        observation=generator.integers(5, size=(*shape, 2)).astype(np.float32),
        action=generator.integers(ACTIONS, size=shape).astype(np.int32),
        reward=generator.normal(size=shape).astype(np.float32),
        terminated=generator.random(shape) < 0.2,
        last=generator.random(shape) < 0.2,
    )
    # A memory of eight slots holds the last rows in another order.
    slots = np.arange(4, 12)
    ring = jax.tree.map(lambda leaf: leaf[:, slots[np.argsort(slots % 8)]], rows)
    parts = [new_steps(rows, 4, 4), new_steps(rows, 8, 4), new_steps(ring, 12, 4)]
    for agent in range(2):
        numbers = number_observations(rows.observation[agent].reshape(-1, 2)).reshape(shape[1:])
        expected = [
            (
                numbers[t, e],
                rows.action[agent, t, e],
                rows.reward[agent, t, e],
                rows.terminated[agent, t, e],
                numbers[t + 1, e],
            )
            for t, e in itertools.product(range(11), range(3))
            if not rows.last[agent, t, e]
        ]
        found = np.concatenate([part[agent] for part in parts])
        np.testing.assert_array_equal(found, np.asarray(expected, np.float64))


@pytest.mark.integration
def test_agents_that_count_cross_a_maze_in_few_steps(monkeypatch):
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
    used = []

    def table_of(state):
        part = jax.device_get(state.learner.params["prior"].parts[0])
        return part["weights"][part["states"] != UNUSED]

    class Recorded(CompiledProgram):
        """A program that keeps its agent and the tables with which it acts."""

        def advance(self, state, step, steps):
            used.append(("acts", step, table_of(state)))
            return super().advance(state, step, steps)

        def evaluate(self, state, step):
            used.append((self.agent, step, table_of(state)))
            return super().evaluate(state, step)

    monkeypatch.setattr(counted_agents, "CompiledProgram", Recorded)
    returns = train_counted(config, 0.0, plan_every=400)
    # Agents explore as others do, and act and are evaluated with tables of their own.
    agents = {each.options for each, *_ in used if each != "acts"}
    assert agents == {config.dqn}
    acting = [table for what, step, table in used if what == "acts" and step > 0]
    evaluated = [table for what, step, table in used if what != "acts" and step > 0]
    assert (len(acting), len(evaluated)) == (29, 6)
    assert all(table.max() == 0.0 and table.min() > -90.0 for table in acting[:3])
    assert evaluated[0].min() == pytest.approx(-100.0)  # A step costs 1, and γ is 0.99.
    assert returns.shape == (2, 7)
    assert (returns[:, 0] < -80.0).all()
    assert (returns[:, -1] > -40.0).all()
    few = dataclasses.replace(config.features, basis_size=20)
    with pytest.raises(InputError, match="at most 20 observations"):
        train_counted(dataclasses.replace(config, features=few), 0.0, plan_every=400)
