"""Deep Q-networks against Q-learning by hand and exact values; configurations and refusals."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import (
    DQN,
    AgentConfig,
    AuxiliaryConfig,
    AuxiliaryTask,
    DQNConfig,
    QNetwork,
    ReplayConfig,
    ReplayRows,
    transitions,
)
from rlreps.agents.auxiliary import GradientNorms
from rlreps.cumulants import Cells
from rlreps.encoders import MLP, Tabular
from rlreps.errors import InputError
from rlreps.losses import Oracle, Spin

STATES, ACTIONS = 5, 2
NETWORK = QNetwork(MLP(4, num_inputs=STATES, hidden=(8,)), 4, ACTIONS)
values_of = jax.jit(NETWORK.values)
initialised = jax.jit(DQN.init, static_argnums=0)


def agent_of(network=NETWORK, task=None, auxiliary=None, **options):
    config = AgentConfig(dqn=DQNConfig(**options))
    return DQN(
        options=config.dqn,
        network=network,
        observation=jax.ShapeDtypeStruct((STATES,), jnp.float32),
        replay=config.replay,
        num_envs=config.num_envs,
        num_updates=config.num_updates,
        auxiliary=task,
        auxiliary_options=auxiliary or AuxiliaryConfig(),
    )


def started(agent, seed=0):
    """What an agent has learned before its first step."""
    return initialised(agent, jax.random.key(seed)).learner


def side_of(agent, state, rows, key=0):
    """What an agent's auxiliary task adds to an update."""
    targets, key = agent.target_params(state), jax.random.key(key)
    arguments = state.params, targets, rows, state.auxiliary, key
    return agent.auxiliary.gradient(agent.network, *arguments)


def joint_gradients(agent, state, drawn, rows):
    return agent.gradients(state, drawn, side_of(agent, state, rows))


def joint_update(agent, state, drawn, rows):
    return agent.update(state, drawn, side_of(agent, state, rows))


def walk(seed, count, length):
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
    seen = np.eye(STATES, dtype=np.float32)[places]
    return ReplayRows(seen, actions.astype(np.int32), reward, terminated, last)


def stepped(seed, discount=0.99):
    """Sixteen one-step transitions of such walks."""
    return transitions(walk(seed, 16, 2), discount)


def test_the_target_network_follows_every_so_many_updates_and_never_between():
    agent = agent_of(target_every=3, target_rate=0.25)

    def mix(share, new, old):
        return share * new + (1 - share) * old

    state, drawn, update = started(agent), stepped(2), jax.jit(agent.update)
    for number in range(1, 7):
        before = state.target_params
        state, _ = update(state, drawn)
        share = np.float32(0.25 if number % 3 == 0 else 0.0)
        mixed = jax.tree.map(partial(mix, share), state.params, before)
        same = np.testing.assert_allclose if share else np.testing.assert_array_equal
        jax.tree.map(same, state.target_params, mixed)
    assert int(state.updates) == 6


def test_a_learning_rate_that_falls_ends_at_zero_with_the_run():
    # (100,000 - 99,980) / 4 updates.
    agent = agent_of(warmup=99_980, schedule="linear")
    state, drawn, update = started(agent), stepped(2), jax.jit(agent.update)
    moves = []
    for _ in range(7):
        before = state.params["head"]["weights"]
        state, _ = update(state, drawn)
        moves.append(float(np.abs(state.params["head"]["weights"] - before).max()))
    assert moves[0] == pytest.approx(1e-3, rel=0.1)  # Adam's first step is its learning rate.
    assert moves[4] > 0.0
    assert moves[5:] == [0.0, 0.0]


@pytest.mark.parametrize(("options", "expected"), [({}, -2.5), ({"huber_delta": 0.1}, 0.0)])
def test_values_are_means_of_large_rewards_and_medians_only_where_a_user_asks(options, expected):
    agent, rows = agent_of(discount=0.0, **options), walk(3, 8, 2)
    # One episode of eight fails: the mean reward is −20 / 8, the median 0.
    rows = rows._replace(reward=np.zeros((8, 2), np.float32), terminated=np.ones((8, 2), bool))
    rows.reward[0] = -20.0
    drawn = transitions(rows._replace(observation=0 * rows.observation + 1.0), 0.0)

    def update(state, _):
        return agent.update(state, drawn)[0], None

    state, _ = jax.jit(lambda state: jax.lax.scan(update, state, length=2_000))(started(agent))
    taken = values_of(state.params, drawn.observation)[np.arange(8), drawn.action]
    np.testing.assert_allclose(np.mean(taken), expected, atol=0.1)


def test_a_frozen_torso_stays_as_it_is_while_values_learn():
    agent = agent_of(freeze_torso=True)
    start = started(agent)
    state, _ = jax.jit(agent.update)(start, stepped(3))
    jax.tree.map(np.testing.assert_array_equal, state.params["torso"], start.params["torso"])
    assert not np.array_equal(state.params["head"]["weights"], start.params["head"]["weights"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumOfFeatures(AuxiliaryTask):
    """Multiples of the sum of all features, from an update on; the state counts updates."""

    sequences: int = 4
    length: int = 1
    factor: float = 1.0
    first: float = 0.0

    def init(self, key):
        return jnp.zeros(())

    def loss(self, params, target_params, encode, rows, state, key):
        total = jnp.sum(encode(params, rows.observation[:, 0]))
        value = jnp.where(state < self.first, 0.0, self.factor) * total
        return value, (state + 1.0, {"rows": len(rows.observation)})


@pytest.mark.parametrize("double", [False, True])
def test_the_joint_gradient_is_that_of_values_plus_the_weighted_auxiliary_loss(double):
    rows, side = walk(4, 16, 2), walk(5, 4, 1)
    options = AuxiliaryConfig(weight=3.0, relative=False)
    values = {"double": double, "discount": 0.8, "reward_scale": 2.0, "huber_delta": 1.0}
    agent = agent_of(task=SumOfFeatures(), auxiliary=options, **values)
    state = started(agent)._replace(target_params=started(agent, 1).params)
    drawn = stepped(4, 0.8)
    gradient, _, metrics = jax.jit(partial(joint_gradients, agent))(state, drawn, side)
    assert float(jax.jit(partial(side_of, agent))(state, side).state) == 1.0
    assert set(metrics) == {"value_loss", "auxiliary_loss", "auxiliary_rows", "gradient_ratio"}
    assert float(metrics["auxiliary_rows"]) == 4.0

    @jax.jit
    @jax.grad
    def by_hand(params):
        """Huber loss of errors against held targets."""
        best = NETWORK.values(state.target_params, rows.observation[:, 1])
        online = NETWORK.values(state.params, rows.observation[:, 1])
        chosen = jnp.argmax(online if double else best, axis=1)
        values = jnp.take_along_axis(best, chosen[:, None], axis=1)[:, 0]
        targets = 2.0 * rows.reward[:, 0] + jnp.where(rows.terminated[:, 0], 0.0, 0.8) * values
        now = NETWORK.values(params, rows.observation[:, 0])
        error = targets - jnp.take_along_axis(now, rows.action[:, :1], axis=1)[:, 0]
        size = jnp.abs(error)
        huber = jnp.where(size <= 1.0, 0.5 * size**2, size - 0.5)
        features = NETWORK.features(params["torso"], side.observation[:, 0])
        return jnp.mean(huber) + 3.0 * jnp.sum(features)

    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, gradient, by_hand(state.params))
    assert np.abs(gradient["head"]["weights"]).max() > 0.0


def norm_of(tree):
    return float(
        np.sqrt(sum(np.sum(np.square(leaf, dtype=float)) for leaf in jax.tree.leaves(tree)))
    )


def test_one_weight_means_the_same_for_an_auxiliary_loss_of_any_scale():
    def agent_with(factor):
        return agent_of(task=SumOfFeatures(factor=factor), auxiliary=AuxiliaryConfig(weight=0.5))

    learned, alone = [], jax.jit(agent_of().gradients)
    gradients = jax.jit(lambda factor, *arguments: joint_gradients(agent_with(factor), *arguments))
    update = jax.jit(lambda factor, *arguments: joint_update(agent_with(factor), *arguments))
    for factor in (1.0, 1e-4, 1e5):
        state = started(agent_with(1.0))
        for number in range(5):
            arguments = stepped(number), walk(9, 4, 1)
            joint, _, _ = gradients(factor, state, *arguments)
            own, _, _ = alone(state, arguments[0])
            added = jax.tree.map(np.subtract, joint["torso"], own["torso"])
            if number == 0:
                # Half of the norm that the temporal-difference loss's gradient has.
                assert norm_of(added) == pytest.approx(0.5 * norm_of(own["torso"]), rel=1e-3)
            np.testing.assert_array_equal(joint["head"]["weights"], own["head"]["weights"])
            state, _ = update(factor, state, *arguments)
        learned.append(state.params)
    close = partial(np.testing.assert_allclose, rtol=1e-2, atol=1e-5)
    for params in learned[1:]:
        jax.tree.map(close, params, learned[0])


def test_an_auxiliary_head_of_its_own_learns_beside_the_torso_and_values_ignore_it():
    head = MLP(4, num_inputs=4, hidden=(6,))
    network = dataclasses.replace(NETWORK, auxiliary_head=head)
    agent = agent_of(network, task=SumOfFeatures(), auxiliary=AuxiliaryConfig(weight=1.0))
    start = started(agent)
    rows, side = walk(4, 16, 2), walk(5, 4, 1)
    after, _ = jax.jit(partial(joint_update, agent))(start, stepped(4), side)
    moved = [
        norm_of(jax.tree.map(np.subtract, after.params[n], start.params[n])) for n in start.params
    ]
    assert min(moved) > 0.0
    without = {name: part for name, part in start.params.items() if name != "auxiliary_head"}
    seen = rows.observation[:, 0]
    np.testing.assert_array_equal(NETWORK.values(without, seen), network.values(start.params, seen))


def test_actions_are_greedy_at_epsilon_zero_and_uniform_at_one():
    agent = agent_of()
    params, act = started(agent).params, jax.jit(agent.act)
    seen = np.random.default_rng(1).normal(size=(3_000, STATES)).astype(np.float32)
    greedy, anything, some = (
        np.asarray(act(params, seen, jnp.float32(epsilon), jax.random.key(2)))
        for epsilon in (0.0, 1.0, 0.3)
    )
    np.testing.assert_array_equal(greedy, values_of(params, seen).argmax(axis=1))
    # 1,500 expected of each, standard deviation 27.
    assert np.abs(np.bincount(anything, minlength=2) - 1_500).max() < 5 * 27
    # A random action is the greedy one in half the cases.
    assert np.mean(some == greedy) == pytest.approx(0.85, abs=0.04)


def test_exploration_is_full_until_learning_starts_and_then_falls_linearly():
    # Four environments: 250 rows of each are the warm-up's 1,000 steps.
    agent = agent_of(warmup=1_000, epsilon_steps=2_000, epsilon_start=0.9, epsilon_end=0.1)
    counts = np.array([0, 100, 250, 500, 750, 9_000], np.int32)
    found = jax.jit(jax.vmap(agent.epsilon))(counts)
    np.testing.assert_allclose(found, [0.9, 0.9, 0.9, 0.5, 0.1, 0.1], rtol=1e-6)


LEARNED = AuxiliaryConfig(weight=0.1)
BAD_VALUES = [
    (AuxiliaryConfig, {"weight": -0.1}, r"auxiliary weight in \[0, inf\)"),
    (AuxiliaryConfig, {"head": (8, 0)}, "units >= 1 in a head's layers"),
    (AuxiliaryConfig, {"tasks": Cells(), "num_tasks": 64}, "no num_tasks for cells"),
    (AuxiliaryConfig, {"discount_high": 0.8}, "discounts 0 <= discount_low <= disc"),
    (AuxiliaryConfig, {"weight": 0.1, "objective": Oracle()}, "an auxiliary objective that needs"),
    (AuxiliaryConfig, {"weight": 0.1, "objective": Spin(), "sequences": 1}, "rows >= 2"),
    (AgentConfig, {"encoder": Tabular()}, "a torso of observ"),
    (AgentConfig, {"num_envs": 3}, "steps_per_update to be a multiple of num_envs=3"),
    (AgentConfig, {"steps": 7_503}, "steps to be a multiple of steps_per_update="),
    (AgentConfig, {"evaluate_every": 10, "steps": 100}, "evaluate_every to be a multiple of step"),
    (AgentConfig, {"checkpoint_every": 0}, "checkpoint_every to be a multiple of evaluate_every"),
    (AgentConfig, {"replay": ReplayConfig(capacity=7)}, "capacity of at least 20 rows, a sequence"),
    (AgentConfig, {"dqn": DQNConfig(warmup=128), "auxiliary": LEARNED}, "a warmup of at least 132"),
    (AgentConfig, {"dqn": DQNConfig(freeze_torso=True), "auxiliary": LEARNED}, "no auxiliary task"),
]


@pytest.mark.parametrize(("kind", "changes", "expected"), BAD_VALUES)
def test_a_value_that_cannot_be_used_is_refused_in_words(kind, changes, expected):
    with pytest.raises(InputError, match=f"^expected .*{expected}.*, got ") as error:
        kind(**changes)
    assert "\n" not in str(error.value)


def test_sequences_are_as_long_as_what_needs_the_longest_ones():
    for n_step, weight, horizon, length in ((1, 0.0, 32, 2), (3, 0.5, 2, 4), (3, 0.5, 20, 20)):
        auxiliary = AuxiliaryConfig(weight=weight, horizon=horizon)
        config = AgentConfig(dqn=DQNConfig(n_step=n_step), auxiliary=auxiliary)
        assert config.sequence_length == length
    # A task without weight asks for nothing.
    unused = AuxiliaryConfig(objective=Oracle(), horizon=10_000, sequences=1)
    assert AgentConfig(auxiliary=unused, replay=ReplayConfig(capacity=20)).sequence_length == 4


@pytest.mark.parametrize(
    ("steps", "every", "expected"),
    # The last has no multiple of evaluate_every within a quarter.
    [(100_000, 5_000, 25_000), (70_000, 10_000, 10_000), (20_000, 10_000, 10_000)],
)
def test_checkpoints_are_made_at_least_every_quarter_of_a_run(steps, every, expected):
    config = AgentConfig(steps=steps, evaluate_every=every)
    assert config.checkpoint_period == expected
    assert dataclasses.replace(config, checkpoint_every=steps).checkpoint_period == steps


def test_a_task_whose_gradient_starts_at_zero_leaves_finite_updates():
    """Explicit weights start at 0: 0 times a weight divided by a ratio of 0 would be NaN."""
    norms = GradientNorms(*map(jnp.float32, (1e6, 0.0)))
    factor = 1.0 / jax.jit(lambda of: of.auxiliary_to_values)(norms)
    assert np.isfinite(factor)


def test_a_task_that_begins_to_teach_late_is_not_multiplied_without_bound():
    task = SumOfFeatures(first=3.0)
    agent = agent_of(task=task, auxiliary=AuxiliaryConfig(weight=1.0), max_gradient_norm=1e9)
    state, update = started(agent), jax.jit(partial(joint_update, agent))
    gradients, alone = jax.jit(partial(joint_gradients, agent)), jax.jit(agent_of().gradients)
    for number in range(6):
        drawn, side = stepped(number), walk(9, 4, 1)
        joint, _, _ = gradients(state, drawn, side)
        own, _, _ = alone(state, drawn)
        assert norm_of(joint["torso"]) <= 30.0 * norm_of(own["torso"])
        state, _ = update(state, drawn, side)
