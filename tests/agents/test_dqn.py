"""Deep Q-networks against Q-learning by hand, and against the exact values of a small problem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents.auxiliary import AuxiliaryTask
from rlreps.agents.config import DQNConfig
from rlreps.agents.dqn import DQN
from rlreps.agents.networks import QNetwork, make_network
from rlreps.agents.rows import Rows
from rlreps.encoders import MLP, FunctionEncoder

STATES, ACTIONS = 5, 2


def one_hot_network() -> QNetwork:
    """Values that are free for every state and action: features are one-hot observations."""
    torso = FunctionEncoder(lambda key: jnp.ones((1, 1)), lambda params, inputs: inputs * params)
    return make_network(torso, STATES, ACTIONS)


def walk(seed: int, count: int, length: int) -> Rows:
    """Random steps on a line; the right end pays 1 and ends the task, every step costs 0.1."""
    generator = np.random.default_rng(seed)
    places = np.zeros((count, length), int)
    actions = generator.integers(ACTIONS, size=(count, length))
    reward = np.full((count, length), -0.1, np.float32)
    terminated, last = np.zeros((2, count, length), bool)
    places[:, 0] = generator.integers(STATES - 1, size=count)
    for i in range(length - 1):
        step = np.where(actions[:, i] == 1, 1, -1)
        places[:, i + 1] = np.clip(places[:, i] + step, 0, STATES - 1)
        terminated[:, i] = (places[:, i + 1] == STATES - 1) & ~last[:, i]
        reward[terminated[:, i], i] += 1.0
        last[:, i + 1] = terminated[:, i]
    return Rows(
        observation=jnp.asarray(np.eye(STATES, dtype=np.float32)[places]),
        action=jnp.asarray(actions, jnp.int32),
        reward=jnp.asarray(reward),
        terminated=jnp.asarray(terminated),
        last=jnp.asarray(last),
    )


def exact_values(discount: float) -> np.ndarray:
    """Q* of the line by value iteration, [states - 1, actions]."""
    values = np.zeros((STATES, ACTIONS))
    for _ in range(2_000):
        best = values.max(axis=1)
        best[-1] = 0.0
        for s in range(STATES - 1):
            for a, move in enumerate((-1, 1)):
                to = min(max(s + move, 0), STATES - 1)
                values[s, a] = -0.1 + (to == STATES - 1) + discount * best[to]
    return values[:-1]


@pytest.mark.parametrize("double", [False, True])
def test_errors_are_those_of_q_learning_by_hand(double: bool) -> None:
    network = make_network(MLP(4, num_inputs=STATES, hidden=(8,)), 4, ACTIONS)
    agent = DQN(config=DQNConfig(double=double, discount=0.8, reward_scale=2.0), network=network)
    state = agent.init(jax.random.key(0))
    other = network.init(jax.random.key(1))
    state = state._replace(target_params=other)
    rows = walk(0, 50, 2)
    _, errors, _ = agent.update(state, rows, jnp.ones(50), None, jax.random.key(2))
    online = np.asarray(network.values(state.params, rows.observation[:, 1]))
    target = np.asarray(network.values(other, rows.observation[:, 1]))
    now = np.asarray(network.values(state.params, rows.observation[:, 0]))
    each = np.arange(50)
    best = target[each, online.argmax(axis=1)] if double else target.max(axis=1)
    worth = np.where(rows.terminated[:, 0], 0.0, 0.8)
    expected = 2.0 * np.asarray(rows.reward[:, 0]) + worth * best
    expected -= now[each, np.asarray(rows.action[:, 0])]
    np.testing.assert_allclose(errors, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("double", [False, True])
def test_free_values_reach_those_of_value_iteration(double: bool) -> None:
    config = DQNConfig(double=double, discount=0.8, learning_rate=3e-2, target_every=20)
    network = one_hot_network()
    agent = DQN(config=config, network=network)

    @jax.jit
    def train(state, rows, key):
        def step(state, key):
            chosen = jax.random.randint(key, (64,), 0, rows.action.shape[0])
            drawn = jax.tree.map(lambda leaf: leaf[chosen], rows)
            state, errors, _ = agent.update(state, drawn, jnp.ones(64), None, key)
            return state, jnp.mean(jnp.abs(errors))

        return jax.lax.scan(step, state, jax.random.split(key, 3_000))

    rows = walk(1, 2_000, 2)
    state, _ = train(agent.init(jax.random.key(0)), rows, jax.random.key(1))
    found = network.values(state.params, jnp.eye(STATES)[:-1])
    np.testing.assert_allclose(found, exact_values(0.8), atol=0.02)


def test_the_target_network_is_replaced_every_so_many_updates_and_never_between() -> None:
    agent = DQN(config=DQNConfig(target_every=3), network=one_hot_network())
    state = agent.init(jax.random.key(0))
    rows = walk(2, 16, 2)
    update = jax.jit(agent.update)
    for number in range(1, 7):
        before = state.target_params
        state, _, _ = update(state, rows, jnp.ones(16), None, jax.random.key(number))
        expected = state.params if number % 3 == 0 else before
        jax.tree.map(np.testing.assert_array_equal, state.target_params, expected)
    assert int(state.updates) == 6


def test_a_frozen_torso_stays_as_it_is_while_values_learn() -> None:
    network = make_network(MLP(4, num_inputs=STATES, hidden=(8,)), 4, ACTIONS)
    agent = DQN(config=DQNConfig(freeze_torso=True), network=network)
    start = agent.init(jax.random.key(0))
    state, _, _ = agent.update(start, walk(3, 16, 2), jnp.ones(16), None, jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, state.params["torso"], start.params["torso"])
    assert not np.array_equal(state.params["head"]["weights"], start.params["head"]["weights"])


def test_an_auxiliary_loss_moves_the_torso_by_its_weight_and_never_the_head() -> None:
    network = make_network(MLP(4, num_inputs=STATES, hidden=(8,)), 4, ACTIONS)
    task = AuxiliaryTask(
        init=lambda key: jnp.zeros(()),
        loss=lambda params, target, encode, rows, state, key: (
            jnp.sum(encode(params, rows.observation[:, 0])),
            (state + 1.0, {}),
        ),
        sequences=4,
        length=1,
    )
    rows, side = walk(4, 16, 2), walk(5, 4, 1)
    moved = {}
    for weight in (0.0, 1e4):
        # Zero weights leave the auxiliary loss alone to move anything.
        config = DQNConfig(max_gradient_norm=1e9, adam_epsilon=1.0, learning_rate=1.0)
        agent = DQN(config=config, network=network, auxiliary=task, auxiliary_weight=weight)
        start = agent.init(jax.random.key(0))
        state, _, metrics = agent.update(start, rows, jnp.zeros(16), side, jax.random.key(1))
        moved[weight] = jax.tree.map(
            lambda new, old: float(jnp.max(jnp.abs(new - old))), state.params, start.params
        )
        assert float(state.auxiliary) == 1.0
        assert set(metrics) == {"value_loss", "auxiliary_loss"}
    assert max(jax.tree.leaves(moved[0.0])) == 0.0
    assert max(jax.tree.leaves(moved[1e4]["torso"])) > 0.1
    assert max(jax.tree.leaves(moved[1e4]["head"])) == 0.0


def test_actions_are_greedy_at_epsilon_zero_and_uniform_at_one() -> None:
    network = make_network(MLP(4, num_inputs=STATES, hidden=(8,)), 4, 3)
    agent = DQN(config=DQNConfig(), network=network)
    params = agent.init(jax.random.key(0)).params
    seen = jax.random.normal(jax.random.key(1), (3_000, STATES))
    greedy = agent.act(params, seen, jnp.zeros(()), jax.random.key(2))
    np.testing.assert_array_equal(greedy, jnp.argmax(network.values(params, seen), axis=1))
    counts = np.bincount(agent.act(params, seen, jnp.ones(()), jax.random.key(3)), minlength=3)
    # 1,000 expected of each, standard deviation 26.
    assert np.abs(counts - 1_000).max() < 5 * 26
    some = agent.act(params, seen, jnp.full((), 0.3), jax.random.key(4))
    # A random action is the greedy one in a third of the cases.
    assert float(jnp.mean(some == greedy)) == pytest.approx(0.8, abs=0.04)


def test_importance_weights_scale_each_transitions_part() -> None:
    agent = DQN(config=DQNConfig(adam_epsilon=1.0, learning_rate=1.0), network=one_hot_network())
    start = agent.init(jax.random.key(0))
    rows = walk(6, 2, 2)
    whole, _, _ = agent.update(start, rows, jnp.asarray([2.0, 0.0]), None, jax.random.key(1))
    first = jax.tree.map(lambda leaf: leaf[:1], rows)
    alone, _, _ = agent.update(start, first, jnp.ones(1), None, jax.random.key(1))
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7),
        whole.params,
        alone.params,
    )
