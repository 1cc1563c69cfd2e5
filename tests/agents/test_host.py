"""The loop over environments on the host: against the compiled one, across checkpoints, at work."""

import dataclasses
import functools
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig, ReplayConfig, host
from rlreps.agents.compiled import CompiledTrainer
from rlreps.agents.dqn import make_agent
from rlreps.agents.environments import describe, make_host_environments
from rlreps.agents.host import HostTrainer
from rlreps.encoders import MLP
from rlreps.envs.core import TimeStep
from rlreps.envs.dm_env_adapter import JaxDmEnv
from rlreps.errors import InputError
from rlreps.losses import LargeBatch


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Line:
    """Places 0 ... 4 in a row, without chance: from 1 to the reward at 4, in 6 steps at most."""

    num_actions = 2

    def reset(self, key):
        return jnp.ones((), jnp.int32), jnp.zeros((), jnp.int32)

    def observe(self, state):
        return jnp.stack(state).astype(jnp.float32) / jnp.array([4.0, 6.0], jnp.float32)

    def step(self, key, state, action):
        place = jnp.clip(state[0] + 2 * jnp.asarray(action, jnp.int32) - 1, 0, 4)
        state = (place, state[1] + 1)
        return TimeStep(
            state=state,
            observation=self.observe(state),
            reward=jnp.where(place == 4, 1.0, -0.125).astype(jnp.float32),
            terminated=place == 4,
            truncated=(place != 4) & (state[1] >= 6),
        )


def make_line(seed=0):
    return JaxDmEnv(
        Line(), seed, "place", "direction", draw=lambda *_: np.zeros((1, 1, 3), np.uint8)
    )


class Chain(gymnasium.Env):
    """Reward 1 for action 1 first and action 0 second; episodes of two steps."""

    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action):
        before, self.state = self.state, (1 + action if self.state == 0 else 3)
        return self.state, float(before == 2 and action == 0), before != 0, False, {}


class Endless(gymnasium.vector.VectorEnv):
    """A vector entry point that does not keep its own limit."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    single_observation_space, single_action_space = spaces.Discrete(4), spaces.Discrete(2)

    def __init__(self, num_envs, max_episode_steps):
        self.num_envs = num_envs

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.num_envs, np.int64), {}

    def step(self, actions):
        flags = np.zeros(self.num_envs, np.bool_)
        return np.zeros(self.num_envs, np.int64), np.zeros(self.num_envs), flags, flags, {}


@pytest.fixture(autouse=True)
def environments(monkeypatch):
    """Makes this file's environments known by their names."""
    monkeypatch.setitem(sys.modules, "of_this_test", sys.modules[__name__])
    gymnasium.register(id="Chain-v0", entry_point=Chain)
    gymnasium.register(
        id="Endless-v0", entry_point=Chain, vector_entry_point=Endless, max_episode_steps=7
    )
    yield
    del gymnasium.registry["Chain-v0"], gymnasium.registry["Endless-v0"]


def config_for(name, **changes):
    settings = {
        "environment": name,
        "encoder": MLP(hidden=(16,)),
        "num_features": 8,
        "num_envs": 2,
        "max_episode_steps": 20,
        "dqn": DQNConfig(batch_size=8, warmup=48, epsilon_steps=200, target_every=20),
        "replay": ReplayConfig(capacity=400),
        "steps": 400,
        "evaluate_every": 40,
        "checkpoint_every": 200,
        "evaluation_episodes": 3,
        "seed": 4,
        "num_seeds": 2,
    }
    return AgentConfig(**{**settings, **changes})


def make_trainer(config):
    seen = describe(config.environment)
    agent = make_agent(config, seen.observation_shape, seen.num_actions)
    make = functools.partial(
        make_host_environments, config.environment, max_episode_steps=config.max_episode_steps
    )
    return HostTrainer(config, make, agent)


@functools.cache
def shared_loop(config):
    """A loop that several tests compile once; every run in it begins with its environments anew."""
    return make_trainer(config)


def run(loop, *, chunk, stop, start=0, state=None):
    """The state after some steps, in chunks, and the chunks' metrics."""
    state = loop.init() if state is None else state
    metrics = []
    for step in range(start, stop, chunk):
        state, found = loop.advance(state, step, chunk)
        metrics.append(found)
    return jax.device_get(state), metrics


def assert_identical(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


LINE = "dm_env:of_this_test:make_line"
PLAIN = {}
EVERYTHING = {
    "replay": ReplayConfig(capacity=120, prioritised=True),
    "auxiliary": AuxiliaryConfig(
        objective=LargeBatch(),
        weight=0.1,
        num_tasks=4,
        horizon=5,
        sequences=16,
    ),
}


@pytest.mark.parametrize(
    "changes", [pytest.param(PLAIN, marks=pytest.mark.integration), EVERYTHING]
)
def test_without_chance_and_checkpoints_it_does_what_the_compiled_loop_does(changes):
    config = config_for(LINE, checkpoint_every=400, **changes)
    loop = make_trainer(config)
    found, metrics = run(loop, chunk=40, stop=400)
    compiled = CompiledTrainer(config, Line(), make_agent(config, (2,), 2))
    state = compiled.init()
    for chunk, step in enumerate(range(0, 400, 40)):
        state, expected = compiled.advance(state, step, 40)
        assert set(metrics[chunk]) == set(expected)
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5),
            metrics[chunk],
            expected,
        )
    for name in ("action", "reward", "terminated", "last"):
        ours, theirs = (
            getattr(memory.replay.rows, name) for memory in (found.memory, state.memory)
        )
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4),
        found.memory.learner,
        jax.device_get(state.memory.learner),
    )
    np.testing.assert_array_equal(found.acting.ended, state.acting.ended)
    returns = loop.evaluate(found, 400)
    np.testing.assert_allclose(returns, compiled.evaluate(state, 400), atol=1e-6)
    assert found.memory.learner.updates.tolist() == [(400 - 48) // 4] * 2


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("CartPole-v1", EVERYTHING),
        ("LunarLander-v3", PLAIN),
        ("rlreps/PuddleWorld-v0", PLAIN),
        ("dm_env:rlreps.envs:PuddleWorldDmEnv", PLAIN),
    ],
)
def test_a_run_that_goes_on_from_a_checkpoint_is_bit_identical(name, changes):
    config = config_for(name, checkpoint_every=80, **changes)
    loop, fresh = make_trainer(config), make_trainer(config)
    at_checkpoint, _ = run(loop, chunk=40, stop=80)
    kept = jax.tree.map(np.copy, at_checkpoint)
    whole, metrics = run(loop, chunk=40, start=80, stop=240, state=at_checkpoint)
    again, metrics_again = run(fresh, chunk=40, start=80, stop=240, state=kept)
    assert_identical(again, whole)
    assert_identical(metrics_again, metrics)
    np.testing.assert_array_equal(fresh.evaluate(again, 240), loop.evaluate(whole, 240))
    loop.close()
    fresh.close()


@pytest.mark.integration
@pytest.mark.parametrize("chunk", [4, 200])
def test_chunks_change_nothing(chunk):
    loop = shared_loop(config_for("CartPole-v1", checkpoint_every=120))
    assert_identical(run(loop, chunk=chunk, stop=200)[0], run(loop, chunk=40, stop=200)[0])


@pytest.mark.integration
def test_evaluations_change_no_training_and_repeat_themselves():
    loop = shared_loop(config_for("CartPole-v1", checkpoint_every=120))
    state, _ = loop.advance(loop.init(), 0, 80)
    first = np.asarray(loop.evaluate(state, 80))
    np.testing.assert_array_equal(loop.evaluate(state, 80), first)
    assert np.any(np.asarray(loop.evaluate(state, 120)) != first)
    assert len(np.unique(first[0])) > 1
    state, _ = loop.advance(state, 80, 80)
    assert_identical(jax.device_get(state), run(loop, chunk=160, stop=160)[0])


@pytest.mark.integration
def test_agents_and_their_environments_meet_different_episodes():
    first, other = (
        make_trainer(config_for("CartPole-v1", seed=seed)).init().acting.observations
        for seed in (4, 9)
    )
    assert len(np.unique(np.concatenate([first, other]).reshape(8, -1), axis=0)) == 8


@pytest.mark.integration
@pytest.mark.parametrize("name", ["CartPole-v1", "rlreps/PuddleWorld-v0"])
def test_an_agent_is_the_same_alone_and_in_company(name):
    company = make_trainer(config_for(name, num_seeds=3, checkpoint_every=120))
    single = make_trainer(config_for(name, num_seeds=1, seed=6, checkpoint_every=120))
    # Beyond the warm-up and a checkpoint.
    together, alone = (run(loop, chunk=40, stop=160)[0] for loop in (company, single))
    for part in ("action", "last"):
        np.testing.assert_array_equal(
            getattr(alone.memory.replay.rows, part)[0],
            getattr(together.memory.replay.rows, part)[2],
        )
    jax.tree.map(
        lambda one, three: np.testing.assert_allclose(one[0], three[2], rtol=1e-4, atol=1e-5),
        alone.memory.learner.params,
        together.memory.learner.params,
    )
    evaluated = np.asarray(company.evaluate(together, 160))
    np.testing.assert_allclose(single.evaluate(alone, 160)[0], evaluated[2], rtol=1e-4)
    company.close()
    single.close()


@pytest.mark.integration
def test_rounds_of_an_evaluation_change_none_of_its_episodes(monkeypatch):
    config = config_for("CartPole-v1", evaluation_episodes=7)
    whole = shared_loop(config)
    state = whole.init()
    expected = np.asarray(whole.evaluate(state, 40))
    assert len(np.unique(expected[0])) > 1
    monkeypatch.setattr(host, "MOST_COPIES", 3)
    parted = make_trainer(config)
    np.testing.assert_array_equal(parted.evaluate(state, 40), expected)
    # Three rounds of three, and not of seven.
    assert parted._evaluation.num_envs == 2 * 3
    # Fewer episodes are the first ones.
    fewer = make_trainer(config_for("CartPole-v1", evaluation_episodes=2))
    np.testing.assert_array_equal(fewer.evaluate(state, 40), expected[:, :2])
    parted.close()
    fewer.close()


def test_an_environment_that_ends_no_episode_is_refused():
    loop = make_trainer(config_for("Endless-v0"))
    with pytest.raises(InputError, match="every episode of Endless-v0 to end within 7 steps"):
        loop.evaluate(loop.init(), 0)


def line_loop():
    return shared_loop(config_for(LINE, checkpoint_every=80))


def test_a_checkpoint_cuts_episodes_by_a_row_that_is_last_and_no_termination():
    state, metrics = run(line_loop(), chunk=80, stop=160)
    rows = state.memory.replay.rows
    # 160 steps of two environments are 80 rows each; the checkpoint after 80 steps is at row 40.
    boundary = jax.tree.map(lambda leaf: leaf[:, 39:42], rows)
    assert np.all(boundary.last[:, 1])
    assert not np.all(boundary.last[:, 0] | boundary.terminated[:, 0])
    np.testing.assert_array_equal(boundary.reward[:, 1], 0.0)
    assert not np.any(boundary.terminated[:, 1])
    np.testing.assert_array_equal(boundary.observation[:, 2], np.full((2, 2, 2), [0.25, 0.0]))
    # What the row before led to is seen in it: one more step of the episode, unless it was the end.
    times = 6 * boundary.observation[..., 1]
    np.testing.assert_allclose(times[:, 1], np.where(boundary.last[:, 0], 0, times[:, 0] + 1))
    # An episode that the checkpoint cut is counted nowhere.
    ends = rows.last[:, 41:80].sum(axis=(1, 2)) + state.acting.ended.sum(axis=1)
    np.testing.assert_array_equal(metrics[1]["episodes"], ends)


def test_training_returns_are_means_over_episodes_that_ended():
    state, (metrics,) = run(line_loop(), chunk=40, stop=40)
    rows = state.memory.replay.rows
    for seed in range(2):
        returns = []
        for environment in range(2):
            ended = [*rows.last[seed, 1:20, environment], state.acting.ended[seed, environment]]
            taken = ~rows.last[seed, :20, environment]
            sums = np.cumsum(np.where(taken, rows.reward[seed, :20, environment], 0.0))
            returns.extend(np.diff(sums[np.array(ended)], prepend=0.0))
        assert metrics["episodes"][seed] == len(returns) >= 4
        np.testing.assert_allclose(metrics["training_return"][seed], np.mean(returns), rtol=1e-6)
    # There is no update before the warm-up's end, hence no loss.
    assert set(metrics) == {"episodes", "training_return"}


def test_where_no_episode_ended_there_is_no_training_return():
    loop = line_loop()
    _, metrics = loop.advance(loop.init(), 0, 4)
    assert metrics["episodes"].tolist() == [0.0, 0.0]
    assert np.all(np.isnan(metrics["training_return"]))


def test_a_run_whose_environments_are_elsewhere_goes_on_by_cutting_episodes():
    loop = line_loop()
    state, _ = run(loop, chunk=20, stop=20)
    kept = jax.tree.map(np.copy, state)
    run(loop, chunk=20, start=20, stop=40, state=state)
    state, _ = run(loop, chunk=20, start=20, stop=40, state=kept)
    rows = state.memory.replay.rows
    assert np.all(rows.last[:, 10])
    np.testing.assert_array_equal(rows.observation[:, 11], np.full((2, 2, 2), [0.25, 0.0]))


@pytest.mark.integration
def test_environments_that_are_elsewhere_are_brought_to_the_first_step():
    loop = line_loop()
    begun = jax.device_get(loop.init())
    kept = jax.tree.map(np.copy, begun)
    expected, _ = run(loop, chunk=20, stop=20, state=begun)
    again, _ = run(loop, chunk=20, stop=20, state=kept)
    assert_identical(again, expected)
    assert not np.any(again.memory.replay.rows.last[:, 0])


@pytest.mark.integration
def test_it_learns_a_users_own_environment_of_two_steps():
    config = config_for(
        "Chain-v0",
        dqn=DQNConfig(
            batch_size=16, warmup=48, epsilon_steps=400, target_every=10, learning_rate=1e-2
        ),
        replay=ReplayConfig(capacity=1000),
        steps=1200,
        checkpoint_every=400,
        num_seeds=3,
    )
    loop = make_trainer(config)
    state = loop.init()
    before = np.asarray(loop.evaluate(state, 0))
    for step in range(0, 1200, 400):
        state, metrics = loop.advance(state, step, 400)
    after = np.asarray(loop.evaluate(state, 1200))
    loop.close()
    assert before.shape == (3, 3)
    assert before.mean() < 1.0
    np.testing.assert_array_equal(after, np.ones((3, 3)))
    # With 5 % random actions.
    assert np.all(np.asarray(metrics["training_return"]) > 0.8)


@pytest.mark.integration
def test_nothing_is_compiled_anew_from_chunk_to_chunk():
    loop = shared_loop(config_for("CartPole-v1", checkpoint_every=120))
    compiled = [*loop._advance_row.values(), loop._greedy]
    state, _ = loop.advance(loop.init(), 0, 80)
    loop.evaluate(state, 80)
    before = [function._cache_size() for function in compiled]
    for step in (80, 120, 160):
        state, _ = loop.advance(state, step, 40)
        loop.evaluate(state, step + 40)
    assert [function._cache_size() for function in compiled] == before
