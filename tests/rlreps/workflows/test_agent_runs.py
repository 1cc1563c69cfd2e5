"""Runs of agents in folders: killed and resumed, finished, refused, diverged, of a user's own."""

import contextlib
import dataclasses
import functools
import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig, ReplayConfig
from rlreps.agents.auxiliary import AuxiliaryTask
from rlreps.agents.dqn import make_torso
from rlreps.agents.measures import make_measurement
from rlreps.config import as_json, from_json
from rlreps.encoders import MLP
from rlreps.errors import InputError, TrainingDivergedError
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.workflows import agents as agent_runs
from rlreps.workflows.agents import (
    OwnParts,
    StartingTorsos,
    history,
    load_agent_config,
    load_agents,
    run_agents,
)

pytestmark = pytest.mark.usefixtures("compilation_cache")

CONFIG = AgentConfig(
    environment="CartPole-v1",
    encoder=MLP(hidden=(16,)),
    num_features=8,
    dqn=DQNConfig(batch_size=8, warmup=80, epsilon_steps=200, target_every=20),
    replay=ReplayConfig(capacity=200, prioritised=True),
    auxiliary=AuxiliaryConfig(weight=0.1, num_tasks=4, horizon=5, sequences=16),
    num_envs=2,
    max_episode_steps=30,
    steps=400,
    evaluate_every=100,
    evaluation_episodes=3,
    checkpoint_every=200,
    seed=4,
    num_seeds=2,
)


@pytest.fixture(autouse=True)
def measurements(monkeypatch):
    """Makes what torsos are measured on once for each configuration."""
    monkeypatch.setattr(agent_runs, "make_measurement", cached_measurement)


cached_measurement = functools.cache(make_measurement)


class Killed(BaseException):
    """Stands in for a kill, which nothing catches."""


def without_times(record):
    return {name: record[name] for name in record if name not in ("seconds", "steps_per_second")}


def assert_same_run(first, second):
    """Same metrics and summary but for times, and the same last checkpoint, bit for bit."""
    folders = RunFolder(first), RunFolder(second)
    lines = [[without_times(line) for line in folder.read_metrics()] for folder in folders]
    assert json.dumps(lines[0]) == json.dumps(lines[1])  # as text, where NaN is equal to NaN
    summaries = [without_times(folder.read_summary()) for folder in folders]
    assert summaries[0] == summaries[1]
    states = []
    for folder in folders:
        loop, state, step = load_agents(folder, load_agent_config(folder))
        loop.close()
        assert step == CONFIG.steps
        states.append(jax.device_get(state))
    jax.tree.map(np.testing.assert_array_equal, *states)


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    """A run in CartPole; tests change nothing in it."""
    out = tmp_path_factory.mktemp("agents") / "run"
    run_agents(CONFIG, out, progress=False)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["CartPole-v1", "puddle-world"])
def test_a_killed_run_goes_on_to_what_it_would_have_been(
    environment, finished, monkeypatch, tmp_path
):
    config = dataclasses.replace(CONFIG, environment=environment)
    whole = finished
    if environment != CONFIG.environment:
        whole = tmp_path / "whole"
        run_agents(config, whole, progress=False)
    append = RunFolder.append_metrics

    def append_until_killed(folder, record):
        append(folder, record)
        if record["step"] == 300:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "append_metrics", append_until_killed)
        with pytest.raises(Killed):
            run_agents(config, tmp_path / "killed", progress=False)
    folder = RunFolder(tmp_path / "killed")
    assert [line["step"] for line in folder.read_metrics()] == [0, 100, 200, 300]
    with contextlib.closing(Checkpoints(folder.path / "checkpoints")) as checkpoints:
        assert checkpoints.latest_step() == 200
    assert folder.read_summary() is None
    run_agents(config, folder.path, progress=False)
    assert_same_run(whole, folder.path)


def test_a_run_leaves_its_configuration_its_curves_and_a_summary(finished):
    folder = RunFolder(finished)
    assert load_agent_config(folder) == CONFIG
    stored = {name: value for name, value in folder.config.items() if name in as_json(CONFIG)}
    assert from_json(AgentConfig, stored) == CONFIG
    steps, returns = history(folder, "returns")
    assert steps.tolist() == [0, 100, 200, 300, 400]
    assert returns.shape == (2, 5)
    assert np.all((returns >= 1.0) & (returns <= 500.0))
    losses = history(folder, "value_loss")[1]
    assert np.isnan(losses[:, 0]).all()  # before the first update
    assert np.isfinite(losses[:, 1:]).all()
    summary = folder.read_summary()
    assert summary["final_returns"] == returns[:, -1].tolist()
    assert summary["mean_return"]["mean"] == pytest.approx(returns[:, 1:].mean())
    assert summary["auxiliary"] == "large_batch"
    assert (summary["agents"], summary["steps"]) == (2, 400)
    assert summary["steps_per_second"] == pytest.approx(800 / summary["seconds"])
    for name in ("effective_rank", "dormant_share", "probe_error"):
        assert len(summary[name]) == 2
    # CartPole has no ground truth.
    assert "subspace_distance" not in summary


def test_a_finished_run_is_not_run_again(finished, monkeypatch, files_below):
    before = files_below(finished)
    monkeypatch.setattr(agent_runs, "make_trainer", None)
    assert run_agents(CONFIG, finished, progress=False) == RunFolder(finished).read_summary()
    assert files_below(finished) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 5}, "holds another run: expected seed=4, got 5"),
        (
            {"dqn": dataclasses.replace(CONFIG.dqn, n_step=3)},
            "holds another run: expected dqn.n_step=1, got 3",
        ),
    ],
)
def test_a_folder_of_another_configuration_is_refused(finished, files_below, changes, message):
    before = files_below(finished)
    with pytest.raises(InputError, match=message):
        run_agents(dataclasses.replace(CONFIG, **changes), finished, progress=False)
    assert files_below(finished) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environment": "Pendulum-v1"}, "to have discrete actions"),
        ({"environment": "rlreps/BouncingBalls-v0"}, "observations that are vectors"),
        ({"environment": "Nowhere-v0"}, "an environment that can be made"),
        (
            {"auxiliary": dataclasses.replace(CONFIG.auxiliary, tasks="cells")},
            "observations that are vectors of at most 3 coordinates",
        ),
    ],
)
def test_what_cannot_run_leaves_no_folder(tmp_path, changes, message):
    with pytest.raises(InputError, match=f"expected .*{message}"):
        run_agents(dataclasses.replace(CONFIG, **changes), tmp_path / "run", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_training_that_diverges_stops_with_the_step(tmp_path):
    config = dataclasses.replace(
        CONFIG,
        dqn=dataclasses.replace(CONFIG.dqn, learning_rate=1e30),
        auxiliary=AuxiliaryConfig(),
    )
    with pytest.raises(
        TrainingDivergedError,
        match=r"the losses or parameters of seeds 4, 5 became NaN or infinite before step \d00; "
        "the last good checkpoint: none was made yet; try a smaller --learning-rate",
    ):
        run_agents(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "summary.json").exists()


def test_parts_of_ones_own_must_have_a_name_and_a_weight(tmp_path):
    task = infinite_after(40)
    for own, weight, message in (
        (OwnParts(auxiliary=task), 0.1, "a name for parts of your own"),
        (OwnParts(auxiliary=task, name="mine"), 0.0, "an auxiliary weight > 0"),
    ):
        auxiliary = dataclasses.replace(CONFIG.auxiliary, weight=weight)
        config = dataclasses.replace(CONFIG, auxiliary=auxiliary)
        with pytest.raises(InputError, match=f"expected {message}"):
            run_agents(config, tmp_path / "run", own=own, progress=False)
    assert list(tmp_path.iterdir()) == []


def infinite_after(updates):
    """An auxiliary task of a user's own, whose state counts updates and whose loss ends badly."""

    def loss(params, target_params, encode, rows, state, key):
        value = jnp.mean(encode(params, rows.observation[:, 0]) ** 2)
        return jnp.where(state < updates, value, jnp.inf), (state + 1, {})

    return AuxiliaryTask(lambda key: jnp.zeros((), jnp.int32), loss, sequences=4, length=2)


def test_divergence_leaves_the_last_good_checkpoint_and_own_parts_are_named(tmp_path):
    # Updates begin at step 80, one in 4 steps: the 40th is at step 240.
    own = OwnParts(auxiliary=infinite_after(40), name="infinite after 40 updates")
    with pytest.raises(TrainingDivergedError, match=r"before step 300; .*: of step 200;"):
        run_agents(CONFIG, tmp_path / "run", own=own, progress=False)
    folder = RunFolder(tmp_path / "run")
    assert [line["step"] for line in folder.read_metrics()] == [0, 100, 200]
    with contextlib.closing(Checkpoints(folder.path / "checkpoints")) as checkpoints:
        assert checkpoints.latest_step() == 200
    with pytest.raises(InputError, match="agents that their configuration describes, got 'infin"):
        load_agent_config(folder)
    with pytest.raises(InputError, match="holds another run: expected own="):
        run_agents(CONFIG, folder.path, progress=False)


def test_agents_start_from_torsos_that_they_are_given(tmp_path):
    config = dataclasses.replace(
        CONFIG,
        auxiliary=AuxiliaryConfig(),
        dqn=dataclasses.replace(CONFIG.dqn, freeze_torso=True),
        steps=100,
        checkpoint_every=100,
    )
    torso = make_torso(config, (4,))
    params = jax.vmap(torso.init)(jax.random.split(jax.random.key(99), 2))
    start = StartingTorsos(params, "key 99")
    run_agents(config, tmp_path / "run", start=start, progress=False)
    folder = RunFolder(tmp_path / "run")
    assert folder.config["start"] == "key 99"
    loop, state, _ = load_agents(folder, load_agent_config(folder))
    loop.close()
    # Frozen: as they were given. The read-out has learned.
    learner = state.memory.learner
    jax.tree.map(np.testing.assert_array_equal, learner.params["torso"], params)
    jax.tree.map(np.testing.assert_array_equal, learner.target_params["torso"], params)
    assert np.abs(np.asarray(learner.params["head"]["biases"])).min() > 0.0


class Corridor(gymnasium.Env):
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(0.0, 0.9)
        return np.float32([self.place]), {}

    def step(self, action):
        self.place = np.clip(self.place + (0.1 if action else -0.1), 0.0, 1.0)
        return np.float32([self.place]), -1.0, bool(self.place >= 0.99), False, {}


def test_a_users_own_environment_of_ten_lines_is_trained_in(tmp_path):
    gymnasium.register(id="Corridor-v0", entry_point=Corridor)
    try:
        config = dataclasses.replace(
            CONFIG,
            environment="Corridor-v0",
            dqn=dataclasses.replace(CONFIG.dqn, learning_rate=1e-2, reward_scale=0.1),
            replay=ReplayConfig(capacity=1000),
            steps=1600,
            evaluate_every=800,
            checkpoint_every=800,
            num_seeds=4,
        )
        run_agents(config, tmp_path / "run", progress=False)
    finally:
        del gymnasium.registry["Corridor-v0"]
    returns = history(RunFolder(tmp_path / "run"), "returns")[1]
    # Ten steps at most by the way to the right; some that know nothing take all 30.
    assert np.median(returns[:, -1]) >= -10.0
    assert np.any(returns[:, 0] < -10.0)


def test_without_a_checkpoint_there_is_nothing_to_load(finished, tmp_path):
    folder = RunFolder.create_or_resume(
        tmp_path / "run", kind="agent", config=RunFolder(finished).config, provenance={}
    )
    with pytest.raises(InputError, match=r"expected a checkpoint in .*, got none"):
        load_agents(folder, CONFIG)
    other = RunFolder.create_or_resume(tmp_path / "other", kind="train", config={}, provenance={})
    with pytest.raises(InputError, match=r"expected a run of agents in .*, got \"kind 'train'"):
        load_agent_config(other)
