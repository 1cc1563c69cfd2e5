"""The compiled loop: what it remembers is what happened, and neither chunks nor company matter."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig, ReplayConfig
from rlreps.agents.compiled import CompiledTrainer, TrainerState
from rlreps.agents.dqn import Use, agent_keys, keys_for, make_agent
from rlreps.encoders import MLP
from rlreps.envs import load_arena
from rlreps.envs.puddle_world import GOAL_SUM
from rlreps.losses import OBJECTIVES

CONFIG = AgentConfig(
    encoder=MLP(hidden=(8,)),
    num_features=4,
    dqn=DQNConfig(batch_size=8, warmup=80, steps_per_update=4, epsilon_steps=100),
    replay=ReplayConfig(capacity=400),
    num_envs=2,
    max_episode_steps=15,
    steps=400,
    evaluate_every=80,
    evaluation_episodes=3,
    checkpoint_every=80,
    num_seeds=2,
)


def make(
    config: AgentConfig = CONFIG, arena: str = "sutton", noise: float = 0.01
) -> CompiledTrainer:
    world = load_arena(arena).with_task()
    world = dataclasses.replace(world, max_steps=config.max_episode_steps, noise=noise)
    return CompiledTrainer(config, world, make_agent(config, (2,), world.num_actions))


def trained(loop: CompiledTrainer, chunks: list[int]) -> TrainerState:
    state, step = loop.init(), 0
    for chunk in chunks:
        state, _ = loop.advance(state, step, chunk)
        step += chunk
    return state


@pytest.fixture(scope="module")
def loop() -> CompiledTrainer:
    return make()


def test_chunks_of_any_length_give_the_same_bits(loop: CompiledTrainer) -> None:
    whole, parts = trained(loop, [240]), trained(loop, [40, 80, 4, 116])
    jax.tree.map(np.testing.assert_array_equal, whole, parts)


def test_nothing_is_learned_before_the_warm_up_is_over(loop: CompiledTrainer) -> None:
    start = jax.device_get(loop.init().memory.learner)
    warm = trained(loop, [80]).memory.learner
    jax.tree.map(np.testing.assert_array_equal, start, warm)
    later = trained(loop, [84]).memory.learner
    np.testing.assert_array_equal(later.updates, [1, 1])


def test_rows_in_memory_are_the_steps_of_puddle_world(loop: CompiledTrainer) -> None:
    rows = jax.device_get(trained(loop, [400]).memory.replay.rows)
    # 200 rows of each environment in 200 slots: in order of time.
    seen, last = np.asarray(rows.observation), np.asarray(rows.last)
    moved = np.linalg.norm(seen[:, 1:] - seen[:, :-1], axis=-1)
    assert moved[~last[:, :-1]].max() < 0.05 + 6 * 0.01
    # Starts are anywhere in the square.
    assert moved[last[:, :-1]].mean() > 0.2
    reached = seen[:, 1:].sum(axis=-1) >= GOAL_SUM
    np.testing.assert_array_equal(rows.terminated[:, :-1][~last[:, :-1]], reached[~last[:, :-1]])
    assert (rows.reward[~last] <= -1.0).all()
    assert (rows.reward[last] == 0.0).all()
    for seed in range(2):
        for environment in range(2):
            ends = np.flatnonzero(last[seed, :, environment])
            lengths = np.diff(np.concatenate([[-1], ends])) - 1
            assert lengths.max() == CONFIG.max_episode_steps
            for end, length in zip(ends, lengths, strict=True):
                ended = bool(rows.terminated[seed, end - 1, environment])
                assert ended or length == CONFIG.max_episode_steps


@pytest.mark.integration
def test_an_agent_is_the_same_alone_and_in_company() -> None:
    alone = trained(make(dataclasses.replace(CONFIG, seed=1, num_seeds=1)), [120])
    together = trained(make(), [120])
    np.testing.assert_array_equal(
        alone.memory.replay.rows.action[0], together.memory.replay.rows.action[1]
    )
    jax.tree.map(
        lambda one, two: np.testing.assert_allclose(one[0], two[1], rtol=1e-4, atol=1e-5),
        alone.memory.learner.params,
        together.memory.learner.params,
    )


def test_acting_moving_and_learning_draw_from_keys_of_their_own(
    loop: CompiledTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, uses = loop.init(), []

    def recorded(keys: jax.Array, use: Use, count: jax.Array) -> jax.Array:
        uses.append(use)
        return keys_for(keys, use, count)

    monkeypatch.setattr("rlreps.agents.compiled.keys_for", recorded)
    keys, span = agent_keys(CONFIG), jax.ShapeDtypeStruct((2,), jnp.int32)
    jax.eval_shape(make()._chunk(True), state, span, keys, keys)
    assert set(uses) == {Use.ACT, Use.STEP, Use.LEARN}


def test_training_returns_are_the_sums_of_rewards_between_ends(loop: CompiledTrainer) -> None:
    state, metrics = loop.advance(loop.init(), 0, 400)
    rows = jax.device_get(state.memory.replay.rows)
    acting = jax.device_get(state.acting)
    for seed in range(2):
        returns = []
        for environment in range(2):
            total = 0.0
            for t in range(200):
                if rows.last[seed, t, environment]:
                    returns.append(total)
                    total = 0.0
                else:
                    total += float(rows.reward[seed, t, environment])
            if acting.ended[seed, environment]:
                returns.append(total)
        assert int(metrics["episodes"][seed]) == len(returns)
        np.testing.assert_allclose(metrics["training_return"][seed], np.mean(returns), rtol=1e-4)


def test_evaluation_is_repeatable_apart_and_changes_nothing(loop: CompiledTrainer) -> None:
    state = trained(loop, [80])
    before = jax.device_get(state)
    first, again = loop.evaluate(state, 80), loop.evaluate(state, 80)
    assert first.shape == (2, 3)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, loop.evaluate(state, 160))
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(state))


def test_evaluation_keeps_to_the_limit_and_counts_every_step_before_it() -> None:
    loop = make(arena="empty")
    returns = loop.evaluate(loop.init(), 0)
    # Each step costs 1, and there is nothing else to pay; hardly anyone is at the goal by chance.
    assert (returns <= -1.0).all()
    assert (returns >= -CONFIG.max_episode_steps).all()
    assert (returns == -CONFIG.max_episode_steps).any()


def test_evaluation_ends_at_the_goal() -> None:
    # Noise throws the agent to a uniform corner in nearly every step: one in four is the goal.
    loop = make(dataclasses.replace(CONFIG, evaluation_episodes=64), "empty", noise=100.0)
    returns = loop.evaluate(loop.init(), 0)
    shares = np.mean(np.asarray(returns)[..., None] == -np.arange(1.0, 5.0), axis=(0, 1))
    np.testing.assert_allclose(shares, 0.25 * 0.75 ** np.arange(4), atol=0.12)


@pytest.mark.integration
@pytest.mark.parametrize("method", ["large_batch", "explicit", "danskin_lissa", "spin"])
def test_every_objective_learns_on_the_side_without_a_second_compilation(method: str) -> None:
    config = dataclasses.replace(
        CONFIG,
        auxiliary=AuxiliaryConfig(
            objective=OBJECTIVES[method](), weight=0.1, num_tasks=4, horizon=4, sequences=16
        ),
        replay=ReplayConfig(capacity=400, prioritised=True),
    )
    # JAX's caches are shared by all functions: full, as in a long session, they forget at once.
    jax.clear_caches()
    loop = make(config)
    state, _ = loop.advance(loop.init(), 0, 160)
    state, metrics = loop.advance(state, 160, 240)
    assert np.isfinite(metrics["auxiliary_loss"]).all()
    assert np.isfinite(metrics["value_loss"]).all()
    # However many updates a chunk has: the first had half as many after the warm-up.
    assert loop._advance_chunk[True]._cache_size() == 1
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(state.memory.learner))


@pytest.mark.integration
def test_agents_learn_to_reach_the_goal_of_an_empty_world() -> None:
    config = dataclasses.replace(
        CONFIG,
        encoder=MLP(hidden=(32, 32)),
        num_features=16,
        dqn=DQNConfig(
            batch_size=32,
            warmup=400,
            n_step=3,
            discount=0.95,
            reward_scale=0.1,
            target_every=50,
            epsilon_steps=5_000,
            epsilon_end=0.1,
        ),
        replay=ReplayConfig(capacity=12_000),
        max_episode_steps=100,
        steps=12_000,
        evaluate_every=12_000,
        checkpoint_every=12_000,
        evaluation_episodes=16,
        num_seeds=4,
    )
    loop = make(config, "empty")
    before = loop.evaluate(loop.init(), 0).mean(axis=1)
    after = loop.evaluate(trained(loop, [12_000]), 12_000).mean(axis=1)
    # From a uniform start the goal is 18 steps away on average; random walks seldom find it, so
    # that one agent may have seen too little of it.
    assert np.median(before) < -70.0
    assert np.median(after) > -30.0
