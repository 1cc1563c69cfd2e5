"""Programs of agents: compiled, and over environments on the host, alone and compared."""

import dataclasses
import functools
import sys
from contextlib import closing

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlreps.agents import (
    AgentConfig,
    AuxiliaryConfig,
    CompiledProgram,
    DQNConfig,
    ReplayConfig,
    make_agent,
    make_program,
)
from rlreps.agents.auxiliary import AuxiliaryTask
from rlreps.agents.config import load_puddle_world
from rlreps.agents.host_environments import HostEnvironments
from rlreps.agents.keys import Use, evaluation_seeds, key_for
from rlreps.encoders import MLP, FunctionEncoder
from rlreps.envs import (
    Code,
    Position,
    PuddleWorldDmEnv,
    PuddleWorldEnv,
    ShapedEnvironment,
    load_arena,
)
from rlreps.envs.core import TimeStep
from rlreps.envs.puddle_world import GOAL_SUM
from rlreps.errors import InputError
from rlreps.losses import OBJECTIVES, LargeBatch

CONFIG = AgentConfig(
    encoder=MLP(hidden=(8,)),
    num_features=4,
    dqn=DQNConfig(batch_size=8, warmup=48, epsilon_steps=200, target_every=20),
    replay=ReplayConfig(capacity=400),
    num_envs=2,
    max_episode_steps=15,
    steps=400,
    evaluate_every=40,
    evaluation_episodes=3,
    checkpoint_every=80,
    seed=4,
    num_seeds=2,
)
EVERYTHING = {
    "replay": ReplayConfig(capacity=120),
    "auxiliary": AuxiliaryConfig(
        objective=LargeBatch(), weight=0.1, num_tasks=4, horizon=5, sequences=16
    ),
}


def config_for(environment, **changes):
    return dataclasses.replace(CONFIG, environment=environment, **changes)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Line:
    """Places 0 ... 4 in a row, without chance: from 1 to the reward at 4, in 6 steps at most."""

    num_actions = 2
    observation = Position()

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


class LineEnv(PuddleWorldEnv):
    make = staticmethod(lambda arena: Line())


class LineDmEnv(PuddleWorldDmEnv):
    interface = LineEnv


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


@pytest.fixture(autouse=True)
def environments(monkeypatch):
    """Makes this file's environments known by their names."""
    monkeypatch.setitem(sys.modules, "of_this_test", sys.modules[__name__])
    gymnasium.register(id="Chain-v0", entry_point=Chain)
    yield
    del gymnasium.registry["Chain-v0"]


LINE = "dm_env:of_this_test:LineDmEnv"


def compiled(config=CONFIG, arena="sutton", **changes):
    world = load_arena(arena).with_task()
    world = dataclasses.replace(world, max_steps=config.max_episode_steps, **changes)
    return CompiledProgram(config, world, make_agent(config, (2,), world.num_actions))


def run(program, chunks, *, start=0, state=None):
    """The state after some chunks of steps, and the chunks' metrics."""
    state = program.init() if state is None else state
    metrics = []
    for chunk in chunks:
        state, found = program.advance(state, start, chunk)
        metrics.append(jax.device_get(found))
        start += chunk
    return jax.device_get(state), metrics


def copied(state):
    """A state that can be used up while the one given stays."""
    return jax.tree.map(np.copy, state)


def assert_identical(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


@pytest.fixture(scope="module")
def program():
    return compiled()


@pytest.fixture(scope="module")
def played(program):
    """A state after 400 steps, which fill the memory in order of time, and their metrics."""
    state, (metrics,) = run(program, [400])
    return state, metrics


def test_chunks_of_any_length_give_the_same_bits(program, played):
    assert_identical(run(program, [40, 80, 4, 276])[0], played[0])


def test_a_chunk_uses_its_memory_up_and_transfers_nothing_by_accident(
    program, played, forbid_transfers
):
    state, _ = program.advance(program.init(), 0, 200)
    forbid_transfers()
    after, _ = program.advance(state, 200, 200)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.replay))
    assert_identical(jax.device_get(after), played[0])


def test_nothing_is_learned_before_the_warm_up_is_over(program):
    start = jax.device_get(program.init().learner)
    assert_identical(run(program, [48])[0].learner, start)
    assert run(program, [52])[0].learner.updates.tolist() == [1, 1]


def test_rows_in_memory_are_the_steps_of_puddle_world(played):
    rows = played[0].replay
    seen, last = rows.observation, rows.last
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


def test_training_returns_are_the_sums_of_rewards_between_ends(played):
    state, metrics = played
    rows, ended = state.replay, state.acting.ended
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
            if ended[seed, environment]:
                returns.append(total)
        assert metrics["episodes"][seed] == len(returns) >= 4
        np.testing.assert_allclose(metrics["training_return"][seed], np.mean(returns), rtol=1e-4)


def test_acting_moving_and_learning_draw_from_keys_of_their_own(program, monkeypatch):
    state, uses = program.init(), []

    def recorded(key, use, count):
        uses.append(use)
        return key_for(key, use, count)

    for module in ("dqn", "compiled_program"):
        monkeypatch.setattr(f"rlreps.agents.{module}.key_for", recorded)
    jax.eval_shape(lambda state: compiled().train(state, 0, 80), state)
    assert set(uses) == {Use.ACT, Use.STEP, Use.LEARN}


def test_evaluation_is_repeatable_apart_and_changes_nothing(program, played):
    state = program.put(copied(played[0]))
    first = program.play(state, 80)
    np.testing.assert_array_equal(first, program.play(state, 80))
    assert not np.array_equal(first, program.play(state, 160))
    assert_identical(jax.device_get(state), played[0])


def test_evaluation_ends_at_the_goal_and_at_the_limit_and_counts_every_step_before():
    # Noise throws the agent to a uniform corner in nearly every step: one in four is the goal.
    config = dataclasses.replace(CONFIG, evaluation_episodes=64, max_episode_steps=6)
    program = compiled(config, "empty", noise=100.0)
    returns = np.asarray(program.play(program.init(), 0))
    shares = np.mean(returns[..., None] == -np.arange(1.0, 7.0), axis=(0, 1))
    expected = [*(0.25 * 0.75 ** np.arange(4)), 0.25 * 0.75**4, 0.75**5]
    np.testing.assert_allclose(shares, expected, atol=0.12)
    assert shares.sum() == pytest.approx(1.0)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["after"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Ends:
    """A task that ends after a number of steps, each with a reward of 1, and has no limit."""

    after: jax.Array

    num_actions = 2

    def reset(self, key):
        return jnp.int32(0)

    def step(self, key, state, action):
        state, never = state + 1, jnp.array(False)
        return TimeStep(state, self.observe(state), jnp.float32(1.0), state >= self.after, never)

    def observe(self, state):
        return jnp.stack([state, state]).astype(jnp.float32)


def test_evaluations_go_on_until_the_last_agent_ends_or_meets_the_limit():
    config = dataclasses.replace(CONFIG, num_seeds=3, evaluation_episodes=2, max_episode_steps=6)
    worlds, agent = Ends(jnp.array([1, 4, 100])), make_agent(config, (2,), 2)
    program = CompiledProgram(config, worlds, agent, own_environments=True)
    returns = program.play(program.init(), 0)
    np.testing.assert_array_equal(returns, [[1.0] * 2, [4.0] * 2, [6.0] * 2])


@pytest.mark.integration
def test_without_chance_and_checkpoints_the_host_does_what_the_compiled_loop_does():
    config = config_for(LINE, checkpoint_every=400, **EVERYTHING)
    program = make_program(config)
    other = CompiledProgram(config, Line(), make_agent(config, (2,), 2))
    (state, metrics), (expected, expected_metrics) = (run(of, [40] * 10) for of in (program, other))
    for found, wanted in zip(metrics, expected_metrics, strict=True):
        assert set(found) == set(wanted)
        for name in found:
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-3, atol=1e-5)
    rows, expected_rows = (each.replay for each in (state, expected))
    for name in ("action", "reward", "terminated", "last"):
        assert_identical(getattr(rows, name), getattr(expected_rows, name))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4)
    jax.tree.map(close, state.learner, expected.learner)
    assert_identical(state.acting.ended, expected.acting.ended)
    returns = program.play(state, 400)
    np.testing.assert_allclose(returns, other.play(expected, 400), atol=1e-6)


@pytest.mark.integration
def test_a_run_that_goes_on_from_a_checkpoint_is_bit_identical():
    """Tests of jobs kill a run in CartPole and one in PuddleWorld."""
    config = config_for("dm_env:rlreps.envs:PuddleWorldDmEnv")
    with closing(make_program(config)) as program, closing(make_program(config)) as fresh:
        at_checkpoint, _ = run(program, [40, 40])
        kept = copied(at_checkpoint)
        whole, metrics = run(program, [40] * 3, start=80, state=at_checkpoint)
        again, metrics_again = run(fresh, [40] * 3, start=80, state=kept)
        assert_identical(again, whole)
        assert_identical(metrics_again, metrics)
        assert_identical(fresh.play(again, 200), program.play(whole, 200))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "objective"), [("puddle-world:empty", "spin"), ("CartPole-v1", "danskin_lissa")]
)
def test_an_agent_is_the_same_alone_and_in_company(name, objective, caplog):
    rows = {"num_tasks": 4, "horizon": 4, "sequences": 32}
    auxiliary = AuxiliaryConfig(objective=OBJECTIVES[objective](), weight=0.1, **rows)
    # Large errors would make rounding grow.
    given = {"auxiliary": auxiliary, "dqn": dataclasses.replace(CONFIG.dqn, huber_delta=1.0)}
    company = make_program(config_for(name, **given, num_seeds=3))
    single = make_program(config_for(name, **given, num_seeds=1, seed=6))
    before = jax.device_get(company.init().learner.params)
    # Beyond the warm-up and a checkpoint.
    (together, metrics), (alone, _) = (run(program, [60, 60]) for program in (company, single))
    assert np.isfinite(metrics[1]["auxiliary_loss"]).all()
    np.testing.assert_array_equal(alone.replay.action[0], together.replay.action[2])
    params = together.learner.params
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(lambda one, three: close(one[0], three[2]), alone.learner.params, params)
    moved = jax.tree.map(lambda one, other: bool(np.any(one != other)), before, params)
    assert all(jax.tree.leaves(moved))
    # With the same parameters: those above differ in rounding, which an episode may magnify.
    third = jax.tree.map(lambda leaf: leaf[2:], together)
    close(single.play(third, 120)[0], company.play(together, 120)[2])
    state = company.put(together)
    with jax.log_compiles():
        run(company, [20, 40], start=120, state=state)
    assert "Compiling" not in caplog.text
    company.close()
    single.close()


@pytest.mark.integration
def test_rounds_of_an_evaluation_change_none_of_its_episodes(monkeypatch):
    config = config_for("CartPole-v1", evaluation_episodes=7)
    with closing(make_program(config)) as whole:
        state = whole.init()
        expected = np.asarray(whole.play(state, 40))
    assert len(np.unique(expected[0])) > 1
    params, starts = state.learner.params, evaluation_seeds(config.seed, 40, 7)
    params = jax.tree.map(lambda leaf: leaf[0], params)
    with closing(HostEnvironments("CartPole-v1", 7)) as copies:
        act = functools.partial(whole.agent.act, params, epsilon=0.0, key=jax.random.key(0))
        np.testing.assert_array_equal(copies.play(act, starts, 500), expected[0])
    monkeypatch.setattr("rlreps.agents.host_program.MOST_COPIES", 3)
    with closing(make_program(config)) as parted:
        np.testing.assert_array_equal(parted.play(state, 40), expected)


@pytest.mark.integration
def test_an_environment_that_ends_no_episode_is_refused(monkeypatch):
    step, never = HostEnvironments.step, np.zeros(6, np.bool_)
    monkeypatch.setattr(
        HostEnvironments,
        "step",
        lambda self, actions: step(self, actions)._replace(terminated=never, truncated=never),
    )
    with (
        closing(make_program(config_for("Chain-v0"))) as program,
        pytest.raises(InputError, match="every episode of Chain-v0 to end within 15 steps"),
    ):
        program.play(program.init(), 0)


def test_a_checkpoint_cuts_episodes_by_a_row_that_is_last_and_no_termination():
    # Without learning, which would take a program of its own.
    program = make_program(config_for(LINE, dqn=DQNConfig(warmup=360, epsilon_steps=200)))
    state, metrics = run(program, [4, 76, 80])
    # No episode has ended, so there is no return. Learning has not begun, so there is no loss.
    assert metrics[0]["episodes"].tolist() == [0.0, 0.0]
    assert np.all(np.isnan(metrics[0]["training_return"]))
    assert set(metrics[0]) == {"episodes", "training_return"}
    rows = state.replay
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
    np.testing.assert_array_equal(metrics[2]["episodes"], ends)


def test_the_host_gives_compiled_calls_its_outcomes_alone(forbid_transfers):
    """What agents are stays on the device; environments' outcomes and counts are not there."""
    program = make_program(config_for("Chain-v0", dqn=DQNConfig(warmup=360)))
    explore, remember = program._explore, program._advance[False]
    program._explore = lambda params, seen, count, keys: explore(
        params, *jax.device_put((seen, count)), keys
    )
    program._advance[False] = lambda state, rows, count, keys: remember(
        state, *jax.device_put((rows, count)), keys
    )
    state, _ = program.advance(program.init(), 0, 40)
    forbid_transfers()
    program.advance(state, 40, 40)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.replay))


@pytest.mark.experiments
def test_agents_of_the_default_configuration_keep_what_they_learned():
    """One-step agents at a constant learning rate fell from 417 to 171 in as many steps."""
    config = AgentConfig(
        environment="CartPole-v1", steps=20_000, evaluation_episodes=6, num_seeds=6
    )
    with closing(make_program(config)) as program:
        state, returns = program.init(), []
        for step in (0, 10_000):
            state, _ = program.advance(state, step, 10_000)
            returns.append(program.play(state, step + 10_000).mean())
    assert returns[0] > 400.0
    assert returns[1] > 425.0


class SmallFeatures(AuxiliaryTask):
    """A task of a user's own."""

    def init(self, key):
        return ()

    def loss(self, params, target_params, encode, rows, state, key):
        return jnp.mean(encode(params, rows.observation[:, 0]) ** 2), (state, {})


def test_a_users_own_torso_and_task_take_the_configured_ones_places():
    config = config_for("Chain-v0", auxiliary=AuxiliaryConfig(weight=1.0, horizon=3))
    torso = FunctionEncoder(
        lambda key: {"w": jax.random.normal(key, (4, 4))},
        lambda params, observations: (observations @ params["w"]) ** 2,
    )
    own = {"torso": torso, "auxiliary": SmallFeatures(sequences=4, length=3)}
    with closing(make_program(config, **own)) as program:
        assert program.agent.network.torso is torso
        assert program.agent.auxiliary is own["auxiliary"]
    short = dataclasses.replace(
        config,
        dqn=dataclasses.replace(config.dqn, n_step=1),
        auxiliary=AuxiliaryConfig(weight=1.0, horizon=2),
    )
    with pytest.raises(InputError, match=r"an auxiliary task of at most 2 rows a sequence .*got 3"):
        make_program(short, **own)


def test_puddle_world_comes_with_its_task_the_arena_and_the_limit():
    assert load_puddle_world(config_for("CartPole-v1")) is None
    assert load_puddle_world(config_for("dm_env:rlreps.envs:PuddleWorldDmEnv")) is None
    for name, arena in (("puddle-world", "sutton"), ("puddle-world:two_room", "two_room")):
        world = load_puddle_world(config_for(name))
        assert world == dataclasses.replace(load_arena(arena).with_task(), max_steps=15)
    seen = config_for("puddle-world:spiral", observation=Code(bins=7), goal=(0.1, 0.5, 0.05))
    expected = load_arena("spiral", observation=Code(bins=7), goal=(0.1, 0.5, 0.05), max_steps=15)
    assert load_puddle_world(seen) == expected.with_task()


def test_an_arena_files_own_limit_of_steps_counts(tmp_path):
    arena = tmp_path / "pond.toml"
    arena.write_text("max_steps = 1000\n", encoding="utf-8")
    assert load_puddle_world(config_for(f"puddle-world:{arena}")).max_steps == 1_000


def test_unknown_arenas_and_checkpoints_that_would_leave_no_whole_sequence_are_refused():
    with pytest.raises(InputError, match=r"expected an arena .*, got 'nowhere'"):
        make_program(config_for("puddle-world:nowhere"))
    config = config_for("Chain-v0", evaluate_every=4, checkpoint_every=12)
    with pytest.raises(InputError, match=r"checkpoint_every >= 32 for Chain-v0, whose .*, got 12"):
        make_program(config)


def place_in(table, state):
    return table[state[0]]


@pytest.mark.integration
def test_agents_in_environments_of_their_own_learn_as_alone_and_are_evaluated_unshaped():
    tables = jnp.array([[0.0, 0.0, 0.0, 0.0, 0.0], [9.0, 5.0, -7.0, 3.0, 4.0]])
    agent = make_agent(CONFIG, (2,), 2)

    def shaped(table):
        potential = jax.tree_util.Partial(place_in, table)
        return ShapedEnvironment(Line(), potential, jnp.float32(CONFIG.dqn.discount))

    def run(config, environment, **options):
        program = CompiledProgram(config, environment, agent, evaluation=Line(), **options)
        state, _ = program.advance(program.init(), 0, CONFIG.steps)
        return state.learner.params, np.asarray(program.play(state, CONFIG.steps))

    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(shaped, tables))
    params, returns = run(CONFIG, both, own_environments=True, seeds=[4, 4])
    # Shaping by nothing is no shaping.
    alone = dataclasses.replace(CONFIG, num_seeds=1)
    for index, environment in enumerate((Line(), shaped(tables[1]))):
        expected, earned = run(alone, environment)
        for own, other in zip(*map(jax.tree.leaves, (params, expected)), strict=True):
            np.testing.assert_allclose(own[index], other[0], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(returns[index], earned[0], atol=1e-5)
    # Of Line's own rewards: at most 1 - 2 / 8, and at least six steps of -1/8.
    assert ((returns >= -0.75) & (returns <= 0.75)).all()
    with pytest.raises(InputError, match="expected 2 seeds, got 3"):
        CompiledProgram(CONFIG, both, agent, own_environments=True, seeds=[1, 2, 3])
