"""Deep Q-networks against Q-learning by hand, and against the exact values of a small problem."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import DQN, AgentConfig, AuxiliaryConfig, AuxiliaryTask, DQNConfig, QNetwork
from rlreps.agents.replay import Rows
from rlreps.encoders import MLP, FunctionEncoder

STATES, ACTIONS = 5, 2
PERCEPTRON = MLP(4, num_inputs=STATES, hidden=(8,))
# Values that are free for every state and action: features are one-hot observations.
FREE = QNetwork(
    FunctionEncoder(lambda key: jnp.ones((1, 1)), lambda params, inputs: inputs * params),
    STATES,
    ACTIONS,
)


def agent_of(network: QNetwork = FREE, task: AuxiliaryTask | None = None, **options) -> DQN:
    return DQN(
        config=AgentConfig(dqn=DQNConfig(**options)),
        network=network,
        observation=jax.ShapeDtypeStruct((STATES,), jnp.float32),
        auxiliary=task,
    )


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
    network = QNetwork(PERCEPTRON, 4, ACTIONS)
    agent = agent_of(network, double=double, discount=0.8, reward_scale=2.0)
    params, other = (network.init(jax.random.key(seed)) for seed in (0, 1))
    rows = walk(0, 50, 2)
    errors = agent.errors(params, other, rows)
    online = np.asarray(network.values(params, rows.observation[:, 1]))
    target = np.asarray(network.values(other, rows.observation[:, 1]))
    now = np.asarray(network.values(params, rows.observation[:, 0]))
    each = np.arange(50)
    best = target[each, online.argmax(axis=1)] if double else target.max(axis=1)
    worth = np.where(rows.terminated[:, 0], 0.0, 0.8)
    expected = 2.0 * np.asarray(rows.reward[:, 0]) + worth * best
    expected -= now[each, np.asarray(rows.action[:, 0])]
    np.testing.assert_allclose(errors, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("double", [False, True])
def test_free_values_reach_those_of_value_iteration(double: bool) -> None:
    agent = agent_of(double=double, discount=0.8, learning_rate=3e-2, target_every=20)

    @jax.jit
    def train(state, rows, key):
        def step(state, key):
            chosen = jax.random.randint(key, (64,), 0, rows.action.shape[0])
            drawn = jax.tree.map(lambda leaf: leaf[chosen], rows)
            state, _, _ = agent.update(state, drawn, jnp.ones(64), None, key)
            return state, None

        return jax.lax.scan(step, state, jax.random.split(key, 3_000))[0]

    rows = walk(1, 2_000, 2)
    state = train(agent.init(jax.random.key(0)).learner, rows, jax.random.key(1))
    found = FREE.values(state.params, jnp.eye(STATES)[:-1])
    np.testing.assert_allclose(found, exact_values(0.8), atol=0.02)


def test_the_target_network_is_replaced_every_so_many_updates_and_never_between() -> None:
    agent = agent_of(target_every=3)
    state = agent.init(jax.random.key(0)).learner
    rows = walk(2, 16, 2)
    update = jax.jit(agent.update)
    for number in range(1, 7):
        before = state.target_params
        state, _, _ = update(state, rows, jnp.ones(16), None, jax.random.key(number))
        expected = state.params if number % 3 == 0 else before
        jax.tree.map(np.testing.assert_array_equal, state.target_params, expected)
    assert int(state.updates) == 6


def test_a_frozen_torso_stays_as_it_is_while_values_learn() -> None:
    agent = agent_of(QNetwork(PERCEPTRON, 4, ACTIONS), freeze_torso=True)
    start = agent.init(jax.random.key(0)).learner
    state, _, _ = agent.update(start, walk(3, 16, 2), jnp.ones(16), None, jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, state.params["torso"], start.params["torso"])
    assert not np.array_equal(state.params["head"]["weights"], start.params["head"]["weights"])


def test_the_joint_gradient_is_that_of_values_plus_the_weighted_auxiliary_loss() -> None:
    network = QNetwork(PERCEPTRON, 4, ACTIONS)
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
    config = AgentConfig(auxiliary=AuxiliaryConfig(weight=3.0))
    agent = dataclasses.replace(agent_of(network, task), config=config)
    state = agent.init(jax.random.key(0)).learner
    weights = jnp.linspace(0.0, 2.0, 16)
    gradient, (_, after, metrics) = jax.grad(agent.loss, has_aux=True)(
        state.params, state, rows, weights, side, jax.random.key(1)
    )
    assert float(after) == 1.0
    assert set(metrics) == {"value_loss", "auxiliary_loss"}

    def by_hand(params):
        """Huber loss of errors against held targets, each with its weight."""
        best = network.values(state.target_params, rows.observation[:, 1])
        chosen = jnp.argmax(network.values(state.params, rows.observation[:, 1]), axis=1)
        values = jnp.take_along_axis(best, chosen[:, None], axis=1)[:, 0]
        targets = rows.reward[:, 0] + jnp.where(rows.terminated[:, 0], 0.0, 0.99) * values
        now = network.values(params, rows.observation[:, 0])
        error = targets - jnp.take_along_axis(now, rows.action[:, :1], axis=1)[:, 0]
        size = jnp.abs(error)
        huber = jnp.where(size <= 1.0, 0.5 * size**2, size - 0.5)
        features = network.features(params["torso"], side.observation[:, 0])
        return jnp.mean(weights * huber) + 3.0 * jnp.sum(features)

    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5),
        gradient,
        jax.grad(by_hand)(state.params),
    )
    assert float(jnp.abs(gradient["head"]["weights"]).max()) > 0.0


def test_actions_are_greedy_at_epsilon_zero_and_uniform_at_one() -> None:
    network = QNetwork(PERCEPTRON, 4, 3)
    agent, params = agent_of(network), network.init(jax.random.key(0))
    seen = jax.random.normal(jax.random.key(1), (3_000, STATES))
    greedy = agent.act(params, seen, jnp.zeros(()), jax.random.key(2))
    np.testing.assert_array_equal(greedy, jnp.argmax(network.values(params, seen), axis=1))
    counts = np.bincount(agent.act(params, seen, jnp.ones(()), jax.random.key(3)), minlength=3)
    # 1,000 expected of each, standard deviation 26.
    assert np.abs(counts - 1_000).max() < 5 * 26
    some = agent.act(params, seen, jnp.full((), 0.3), jax.random.key(4))
    # A random action is the greedy one in a third of the cases.
    assert float(jnp.mean(some == greedy)) == pytest.approx(0.8, abs=0.04)


def test_exploration_is_full_until_learning_starts_and_then_falls_linearly() -> None:
    # Four environments: 250 rows of each are the warm-up's 1,000 steps.
    agent = agent_of(warmup=1_000, epsilon_steps=2_000, epsilon_start=0.9, epsilon_end=0.1)
    found = [float(agent.epsilon(jnp.int32(count))) for count in (0, 100, 250, 500, 750, 9_000)]
    np.testing.assert_allclose(found, [0.9, 0.9, 0.9, 0.5, 0.1, 0.1], rtol=1e-6)
