"""Runs of agents in folders: killed and resumed, refused, diverged, of a user's own; pictures."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import (
    AgentConfig,
    AuxiliaryConfig,
    AuxiliaryTask,
    DQNConfig,
    FeatureConfig,
    ReplayConfig,
    make_agent,
)
from rlreps.agents.config import load_puddle_world, make_torso
from rlreps.agents.prior import Prior, make_value_table
from rlreps.app.agent_pictures import TrainedAgent, map_of_values
from rlreps.app.agent_report import history
from rlreps.app.job import Context, run_job
from rlreps.app.jobs.agents import (
    CustomParts,
    TrainAgents,
    load_agent_config,
    load_agents,
    mean_returns,
)
from rlreps.encoders import MLP
from rlreps.errors import InputError, TrainingDivergedError
from rlreps.losses import CumulantDifferences, TDLowRank
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.study.compare import compare
from rlreps.successor.measure.grids import Grid

CONFIG = AgentConfig(
    environment="CartPole-v1",
    encoder=MLP(hidden=(16,)),
    num_features=8,
    dqn=DQNConfig(batch_size=8, warmup=80, epsilon_steps=200, target_every=20),
    replay=ReplayConfig(capacity=200),
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
PUDDLE_WORLD = dataclasses.replace(CONFIG, environment="puddle-world", evaluation_episodes=32)


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
        program, state, step = load_agents(folder, load_agent_config(folder))
        program.close()
        assert step == CONFIG.steps
        states.append(jax.device_get(state))
    jax.tree.map(np.testing.assert_array_equal, *states)


def assert_left(folder, steps):
    """Check which evaluations are there, and that the checkpoint of step 200 is the newest."""
    assert [line["step"] for line in folder.read_metrics()] == steps
    assert Checkpoints(folder.path / "checkpoints").latest_step() == 200


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run in CartPole; tests change nothing in it."""
    out = tmp_path_factory.mktemp("agents") / "run"
    run_job(TrainAgents(config=CONFIG, page=False), out)
    return out


@pytest.fixture(scope="module")
def in_puddle_world(tmp_path_factory):
    """A run in PuddleWorld; tests change nothing in it."""
    out = tmp_path_factory.mktemp("agents") / "puddle_world"
    run_job(TrainAgents(config=PUDDLE_WORLD, page=False), out)
    return out


@pytest.mark.integration
@pytest.mark.parametrize(
    ("config", "run"), [(CONFIG, "finished"), (PUDDLE_WORLD, "in_puddle_world")]
)
def test_a_killed_run_goes_on_to_what_it_would_have_been(
    config, run, request, killed_when_logging, tmp_path
):
    whole = request.getfixturevalue(run)
    folder = tmp_path / "killed"
    killed_when_logging(300, run_job, TrainAgents(config=config), folder)
    assert_left(RunFolder(folder), [0, 100, 200])
    assert RunFolder(folder).read_summary() is None
    run_job(TrainAgents(config=config, page=False), folder)
    assert_same_run(whole, folder)


def test_a_run_whose_steps_are_no_multiple_of_evaluate_every_ends_with_an_evaluation(tmp_path):
    run_job(
        TrainAgents(config=dataclasses.replace(CONFIG, steps=240), page=False), tmp_path / "run"
    )
    folder = RunFolder(tmp_path / "run")
    assert history(folder, "returns")[0].tolist() == [0, 100, 200, 240]
    assert Checkpoints(folder.path / "checkpoints").latest_step() == 240


def test_a_run_leaves_its_configuration_its_curves_and_a_summary(finished):
    folder = RunFolder(finished)
    assert load_agent_config(folder) == CONFIG
    steps, returns = history(folder, "returns")
    assert steps.tolist() == [0, 100, 200, 300, 400]
    assert returns.shape == (2, 5)
    summary = folder.read_summary()
    assert summary["final_returns"] == returns[:, -1].tolist()
    assert summary["mean_return"]["mean"] == pytest.approx(returns[:, 1:].mean())
    # The first 100 steps of both agents hold the compilation; the rate is that of the middle one of
    # the other hundreds.
    seconds = [record["seconds"] for record in folder.read_metrics()]
    middle = sorted(np.diff(seconds[1:]))[1]
    assert summary["steps_per_second"] == pytest.approx(200 / max(middle, 1e-3))
    assert summary["seconds"] == seconds[-1]
    # CartPole has no ground truth.
    assert not {"leading_distance", "subspace_distance"} & set(summary)


def test_agents_are_compared_by_their_last_returns(finished, tmp_path):
    other, elsewhere = (shutil.copytree(finished, tmp_path / name) for name in "ab")
    summary = json.loads((other / "summary.json").read_text())
    summary["final_returns"] = [
        value + gain for value, gain in zip(summary["final_returns"], (4.0, 8.0), strict=True)
    ]
    (other / "summary.json").write_text(json.dumps(summary))
    record = (elsewhere / "config.json").read_text()
    (elsewhere / "config.json").write_text(record.replace("CartPole-v1", "Acrobot-v1"))
    rows = compare({"one": finished, "other": other, "elsewhere": elsewhere}).rows
    assert {row["measure"] for row in rows} == {"return"}
    assert (rows[1]["pairs"], rows[1]["difference"]) == (2, pytest.approx(6.0))
    # Returns in another environment are listed, and not subtracted.
    assert "difference" not in rows[2]


def test_parts_of_ones_own_must_have_a_name(tmp_path):
    job = TrainAgents(config=CONFIG, own=CustomParts(auxiliary=InfiniteAfter(updates=40)))
    with pytest.raises(InputError, match="expected a name for your own parts"):
        run_job(job, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@dataclasses.dataclass(frozen=True, kw_only=True)
class InfiniteAfter(AuxiliaryTask):
    """An auxiliary task of a user's own, whose state counts updates and whose loss ends badly."""

    sequences: int = 4
    length: int = 2
    updates: int

    def init(self, key):
        return jnp.zeros((), jnp.int32)

    def loss(self, params, target_params, encode, rows, state, key):
        value = jnp.mean(encode(params, rows.observation[:, 0]) ** 2)
        return jnp.where(state < self.updates, value, jnp.inf), (state + 1, {})


@pytest.mark.integration
def test_divergence_leaves_the_last_good_checkpoint_and_own_parts_are_named(tmp_path):
    # Updates begin at step 80, one in 4 steps: the 40th is at step 240.
    own = CustomParts(auxiliary=InfiniteAfter(updates=40), name="infinite after 40 updates")
    with pytest.raises(
        TrainingDivergedError, match=r"before step 300; .*the checkpoint of step 200 is untouched"
    ):
        run_job(TrainAgents(config=CONFIG, own=own, page=False), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert_left(folder, [0, 100, 200])
    with pytest.raises(InputError, match="agents that their configuration describes, got 'infin"):
        load_agent_config(folder)
    with pytest.raises(InputError, match="holds another run: expected own="):
        run_job(TrainAgents(config=CONFIG, page=False), folder.path)


@pytest.mark.integration
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
    own = CustomParts(start=params, name="key 99")
    run_job(TrainAgents(config=config, own=own, page=False), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert folder.config["own"] == "key 99"
    program, state, _ = load_agents(folder, config)
    program.close()
    # Frozen: as they were given. The read-out has learned.
    learner = state.learner
    jax.tree.map(np.testing.assert_array_equal, learner.params["torso"], params)
    jax.tree.map(np.testing.assert_array_equal, learner.target_params["torso"], params)
    assert np.abs(np.asarray(learner.params["head"]["biases"])).min() > 0.0


def test_the_mean_return_leaves_out_every_evaluation_before_the_first_update():
    steps = np.array([0.0, 80.0, 100.0, 200.0])
    returns = np.array([[1e6, 1e6, 1.0, 3.0], [-1e6, -1e6, 5.0, 6.0]])
    # The warm-up is 80 steps: the evaluation there is of fresh networks, too.
    np.testing.assert_array_equal(mean_returns(CONFIG, steps, returns), [2.0, 5.5])


def test_values_are_in_the_rewards_unit_and_missing_inside_walls():
    dqn = dataclasses.replace(CONFIG.dqn, reward_scale=0.5)
    config = dataclasses.replace(CONFIG, environment="puddle-world:two_room", dqn=dqn)
    untrained = make_agent(config, (2,), 4)
    params = jax.jit(untrained.network.init)(jax.random.key(0))
    agent, world = TrainedAgent(untrained, config, 0, params), load_puddle_world(config)
    found = np.asarray(map_of_values(agent, world, 20))
    centres = Grid(20).centres()
    x, y = centres.T
    walls = (x > 0.4) & (x < 0.6) & ((y > 0.6) | (y < 0.4))
    np.testing.assert_array_equal(np.isnan(found), np.tile(walls[:, None], (1, 4)))
    expected = 2.0 * np.asarray(agent.agent.network.values(agent.params, centres))
    np.testing.assert_allclose(found[~walls], expected[~walls], rtol=1e-5)


LOW_RANK = AuxiliaryConfig(weight=0.1, objective=TDLowRank(), sequences=16)
FITTED = FeatureConfig(kind="fitted", basis_size=32, num_components=4)
ONCE = dataclasses.replace(FITTED, kind="fitted_once")


@pytest.mark.parametrize(
    ("part", "name", "value", "said"),
    [
        (LOW_RANK, "horizon", 5, "td_low_rank, which sees pairs of states that follow each other"),
        (LOW_RANK, "num_tasks", 4, "td_low_rank, which sees pairs of states"),
        (LOW_RANK, "discount_high", 0.95, "td_low_rank, which sees pairs of states"),
        (CONFIG.auxiliary, "pair_discount", 0.5, "large_batch, which sees no pairs"),
        (ONCE, "refit_at", (200,), "features that are fitted once"),
        (FITTED, "refit_at", (50, 200), "a step after the run's 100"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_options_without_an_effect_are_refused(part, name, value, said, tmp_path):
    field = "features" if isinstance(part, FeatureConfig) else "auxiliary"
    changed = dataclasses.replace(part, **{name: value})
    config = dataclasses.replace(CONFIG, auxiliary=AuxiliaryConfig(), steps=100)
    with pytest.raises(InputError, match=f"no {name} for {said}, got"):
        run_job(TrainAgents(config=dataclasses.replace(config, **{field: changed})), tmp_path / "a")
    assert not (tmp_path / "a").exists()
    drawn = AuxiliaryConfig(weight=0.1, objective=CumulantDifferences(), num_tasks=4, sequences=16)
    config = dataclasses.replace(config, auxiliary=drawn)
    TrainAgents(config=config).check(Context())


def test_another_prior_of_the_same_name_is_another_run():
    table = make_value_table(np.arange(3, dtype=np.uint32), np.ones((3, 2), np.float32))
    told = []
    for shift in (0.0, 0.0, 1.0):
        prior = Prior((table,), np.float32(shift), np.float32(0.99))
        own = CustomParts(prior=prior, name="mine")
        told.append(TrainAgents(config=CONFIG, own=own).describe()["prior"])
    assert told[0] == told[1] != told[2]
