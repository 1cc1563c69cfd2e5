import dataclasses
import json
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array

from rlreps.encoders import MLP, FourierMLP, Tabular
from rlreps.errors import InputError, TrainingDivergedError
from rlreps.losses import Batch, DanskinLissa, Explicit, LargeBatch, Objective, Oracle
from rlreps.runs import metrics_log
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.sources.matrix import matrix_source
from rlreps.training import train
from rlreps.training.evaluation import distance_evaluation
from rlreps.training.population import Population
from rlreps.training.update import Learner

pytestmark = pytest.mark.usefixtures("compilation_cache")

NUM_STATES, NUM_TASKS, RANK = 60, 40, 3
BASIS = np.linalg.qr(np.random.default_rng(0).standard_normal((NUM_STATES, RANK)))[0]


@dataclasses.dataclass(frozen=True)
class Made(Objective):
    """An objective made of functions."""

    functions: tuple = ()

    def init(self, key):
        return self.functions[0](key)

    def loss(self, *arguments):
        return self.functions[1](*arguments)


def planted_matrix():
    """Singular values 3, 2, 1 on a known orthonormal basis, scaled to entries of order one."""
    right = np.linalg.qr(np.random.default_rng(1).standard_normal((NUM_TASKS, RANK)))[0]
    return jnp.asarray(20.0 * BASIS * [3.0, 2.0, 1.0] @ right.T, jnp.float32)


class NoiseState(NamedTuple):
    """A state with a typed shape, a count and a running average."""

    updates: Array
    average: Array


def noise_objective():
    """Pulls features towards noise: quick to compile, with a state and a key that matter."""

    def init(key):
        return NoiseState(jnp.zeros((), jnp.int32), jax.random.normal(key, (RANK,)))

    def loss(params, encode, batch, state, key):
        features = encode(params, batch.inputs)
        goal = jax.random.normal(key, (RANK,)) + state.average
        value = jnp.mean(jnp.square(features - goal[None, :]))
        average = 0.9 * state.average + 0.1 * jax.lax.stop_gradient(features).mean(axis=0)
        return value, (NoiseState(state.updates + 1, average), {})

    return Made(RANK, (init, loss))


OBJECTIVES = {
    "noise": noise_objective(),
    "large_batch": LargeBatch(),
    "explicit": Explicit(RANK, num_tasks=NUM_TASKS, weight_learning_rate=1e-2),
    "danskin_lissa": DanskinLissa(
        RANK, permutations=2, whitening=True, feature_norm="running", kappa0=1.0
    ),
}


def mean_square(params):
    return {"mean_square": jnp.mean(jnp.square(params))}


def problem(objective="noise", **changes):
    """Arguments of a tiny run: 24 updates, logged every 4th, checkpoints every 8th."""
    arguments = {
        "encoder": Tabular(RANK, num_states=NUM_STATES),
        "objective": OBJECTIVES[objective] if isinstance(objective, str) else objective,
        "source": matrix_source(planted_matrix()),
        "optimizer": optax.adam(1e-2),
        "steps": 24,
        "rows": 20,
        "tasks": 8,
        "seeds": (3, 4),
        "evaluate": mean_square,
        "evaluate_every": 4,
        "checkpoint_every": 8,
        "progress": False,
    }
    return arguments | changes


def planted_problem(objective, **changes):
    """Arguments of a run that has to find the planted subspace, evaluated at both ends."""
    distance = distance_evaluation(
        Tabular(RANK, num_states=NUM_STATES), jnp.arange(NUM_STATES), BASIS.astype(np.float32)
    )
    schedule = optax.cosine_decay_schedule(0.1, 400)
    ends = {"steps": 400, "evaluate_every": 400, "checkpoint_every": 400, "evaluate": distance}
    batch = {"rows": 50, "tasks": 20, "optimizer": optax.adam(schedule)}
    return problem(objective, **(batch | ends | changes))


def run_folder(path, kind=RunFolder):
    return kind.create_or_resume(path, kind="test", config={}, provenance={})


def assert_identical(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def without_times(records):
    return [
        {name: value for name, value in record.items() if name != "seconds"} for record in records
    ]


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def folder_that_dies_at(step):
    class Dying(RunFolder):
        def append_metrics(self, record):
            if record["step"] == step:
                raise Killed
            super().append_metrics(record)

    return Dying


@pytest.mark.parametrize(
    ("objective", "deaths"),
    [
        ("noise", (4, 12, 20)),  # Before the first checkpoint, after it, and after the second.
        ("large_batch", (12,)),
        ("explicit", (12,)),
        ("danskin_lissa", (12,)),
    ],
)
def test_an_interrupted_run_ends_bit_for_bit_as_one_that_never_was(tmp_path, objective, deaths):
    whole = train(**problem(objective))
    for step in deaths:
        with pytest.raises(Killed):
            train(**problem(objective), folder=run_folder(tmp_path, folder_that_dies_at(step)))
    folder = run_folder(tmp_path)
    resumed = train(**problem(objective), folder=folder)
    assert_identical(resumed.state, whole.state)
    assert int(whole.state.step[0]) == 24
    assert without_times(resumed.history) == without_times(whole.history)
    assert without_times(folder.read_metrics()) == without_times(whole.history)
    assert [record["step"] for record in resumed.history] == [0, 4, 8, 12, 16, 20, 24]


def test_a_last_chunk_that_is_shorter_is_logged_and_kept(tmp_path):
    result = train(**problem(steps=21), folder=run_folder(tmp_path))
    assert [record["step"] for record in result.history] == [0, 4, 8, 12, 16, 20, 21]
    assert Checkpoints(tmp_path / "checkpoints").latest_step() == 21


def test_a_finished_run_is_restored_without_another_update(tmp_path):
    first = train(**problem(), folder=run_folder(tmp_path))
    content = (tmp_path / "metrics.jsonl").read_bytes()
    again = train(**problem(), folder=run_folder(tmp_path))
    assert_identical(again.state, first.state)
    assert again.history == first.history
    assert again.seconds == first.history[-1]["seconds"]
    assert again.compile_seconds == 0.0
    assert (tmp_path / "metrics.jsonl").read_bytes() == content


def test_seconds_grow_along_the_history_and_go_on_after_a_resume(tmp_path):
    with pytest.raises(Killed):
        train(**problem(), folder=run_folder(tmp_path, folder_that_dies_at(20)))
    before = run_folder(tmp_path).read_metrics()
    resumed = train(**problem(), folder=run_folder(tmp_path))
    seconds = [record["seconds"] for record in resumed.history]
    assert seconds == sorted(seconds)
    assert seconds[:5] == [record["seconds"] for record in before][:5]
    assert resumed.seconds >= before[-1]["seconds"] > 0.0


def test_a_metrics_line_cut_short_by_a_kill_is_written_again(tmp_path):
    with pytest.raises(Killed):
        train(**problem(), folder=run_folder(tmp_path, folder_that_dies_at(12)))
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes() + b'{"step": 12, "secon')
    resumed = train(**problem(), folder=run_folder(tmp_path))
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 4, 8, 12, 16, 20, 24]
    assert lines == resumed.history


def test_metrics_that_do_not_reach_the_checkpoint_are_said_to_be_missing(tmp_path):
    with pytest.raises(Killed):
        train(**problem(), folder=run_folder(tmp_path, folder_that_dies_at(12)))
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(InputError, match=r"up to the checkpoint's step 8, got step 4 as the last"):
        train(**problem(), folder=run_folder(tmp_path))
    metrics.unlink()
    with pytest.raises(InputError, match="got step None as the last"):
        train(**problem(), folder=run_folder(tmp_path))


def test_tensorboard_gets_the_same_figures_where_it_is_installed(tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX")
    train(**problem(), folder=run_folder(tmp_path / "with"))
    (events,) = (tmp_path / "with" / "tensorboard").iterdir()
    for name in (b"mean_square", b"loss", b"seconds"):
        assert events.read_bytes().count(name) == (6 if name == b"loss" else 7)
    monkeypatch.setattr(metrics_log.importlib.util, "find_spec", lambda name: None)
    train(**problem(), folder=run_folder(tmp_path / "without"))
    assert not (tmp_path / "without" / "tensorboard").exists()


def test_a_folder_with_more_steps_than_asked_for_is_refused(tmp_path):
    train(**problem(), folder=run_folder(tmp_path))
    with pytest.raises(InputError, match="at least its checkpoint's 24 steps, got 20"):
        train(**problem(steps=20), folder=run_folder(tmp_path))
    assert Checkpoints(tmp_path / "checkpoints").latest_step() == 24


def test_a_damaged_checkpoint_stops_the_run_and_deleting_it_ends_with_the_same_parameters(tmp_path):
    whole = train(**problem(), folder=run_folder(tmp_path))
    newest = tmp_path / "checkpoints" / "24"
    for file in (newest / "default" / "ocdbt.process_0" / "d").iterdir():
        file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(InputError, match=r"checkpoints/24, got .* to resume from step 16$"):
        train(**problem(), folder=run_folder(tmp_path))
    assert newest.is_dir()
    for file in sorted(newest.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    newest.rmdir()
    assert_identical(train(**problem(), folder=run_folder(tmp_path)).state, whole.state)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_seeds_trained_together_equal_each_one_trained_alone(objective):
    together = train(**problem(objective, seeds=(5, 6)))
    alone = train(**problem(objective, seeds=(6,)))
    np.testing.assert_allclose(together.params(1), alone.params(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(together.params(0), together.params(1))
    for record, expected in zip(together.history, alone.history, strict=True):
        np.testing.assert_allclose(record["mean_square"][1], expected["mean_square"][0], rtol=1e-4)


@pytest.mark.parametrize(("encoder", "objective"), [("tabular", "noise"), ("mlp", "large_batch")])
def test_the_length_of_chunks_does_not_change_a_bit(encoder, objective):
    changes = {"evaluate": None}
    if encoder == "mlp":
        positions = jnp.linspace(0.0, 1.0, NUM_STATES)[:, None]
        changes["source"] = matrix_source(planted_matrix(), positions)
        changes["encoder"] = MLP(RANK, num_inputs=1, hidden=(16,))
    whole, *others = [
        train(**problem(objective, evaluate_every=length, checkpoint_every=length, **changes))
        for length in (24, 8)
    ]
    for other in others:
        assert_identical(other.state, whole.state)


def test_an_update_depends_on_its_seed_and_step_alone():
    learner = Learner(
        **{name: problem()[name] for name in ("encoder", "objective", "optimizer", "rows", "tasks")}
    )
    source, seed = problem()["source"], jnp.asarray(3, jnp.uint32)
    state = learner.init(seed)
    for _ in range(3):
        state, _ = learner.update(state, source, seed)
    scanned, report = learner.chunk(3, learner.init(seed), source, seed)
    assert int(report.bad_step) == -1
    np.testing.assert_allclose(scanned.params, state.params, rtol=1e-5, atol=1e-6)


def traced_objective(traces):
    inner = OBJECTIVES["noise"]

    def loss(*arguments):
        traces.append(None)
        return inner.loss(*arguments)

    return Made(RANK, (inner.init, loss))


def test_each_length_of_chunk_is_compiled_once_and_python_runs_no_update():
    counts = {}
    for steps in (8, 80, 82):
        traces = []
        train(**problem(traced_objective(traces), steps=steps))
        counts[steps] = len(traces)
    assert counts[80] == counts[8] > 0
    assert counts[82] == 2 * counts[8]  # Its shorter last chunk is another program.


def test_a_chunk_makes_one_call_and_never_goes_back_to_the_host(monkeypatch):
    calls, programs = [], []
    prepare = Population.prepare

    def counted(self, state, count):
        prepare(self, state, count)
        compiled = self.compiled[count]
        programs.append(compiled.as_text())

        def call(*arguments):
            calls.append(count)
            with jax.transfer_guard("disallow"):
                return compiled(*arguments)

        self.compiled[count] = call

    monkeypatch.setattr(Population, "prepare", counted)
    train(**problem("large_batch", steps=22))
    assert calls == [4, 4, 4, 4, 4, 2]
    assert len(programs) == 2
    for text in programs:
        assert "while" in text
        for word in ("callback", "infeed", "outfeed", "host_compute"):
            assert word not in text.lower()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SpoiltSource:
    """Entries of a matrix one of whose rows is infinite: sooner or later a batch holds it."""

    matrix: Array

    @property
    def num_tasks(self):
        return self.matrix.shape[1]

    def sample(self, key, num_rows, num_tasks):
        rows = jax.random.randint(key, (num_rows,), 0, self.matrix.shape[0])
        return Batch(rows, self.matrix[rows, :num_tasks], jnp.arange(num_tasks))


def checkpoint_bytes(path):
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


def test_infinite_targets_stop_the_run_with_step_seed_checkpoint_and_hint(tmp_path):
    healthy = train(**problem("large_batch", steps=8), folder=run_folder(tmp_path))
    before = checkpoint_bytes(tmp_path / "checkpoints")
    metrics = (tmp_path / "metrics.jsonl").read_bytes()
    source = SpoiltSource(planted_matrix().at[7].set(jnp.inf))
    first = [
        next(
            step
            for step in range(8, 400)
            if 7 in source.sample(sample_key(seed, step), 4, 8).inputs
        )
        for seed in (3, 4)
    ]
    with pytest.raises(TrainingDivergedError) as caught:
        train(
            **problem("large_batch", source=source, rows=4, steps=400), folder=run_folder(tmp_path)
        )
    stopped_in = 8 + 4 * ((min(first) - 8) // 4)
    index = next(i for i, step in enumerate(first) if step < stopped_in + 4)
    message = str(caught.value)
    assert f"at step {first[index]} of seed {3 + index}" in message
    assert "the checkpoint of step" in message
    assert "untouched" in message
    assert "smaller learning rate" in message
    kept = checkpoint_bytes(tmp_path / "checkpoints")
    assert {name: kept[name] for name in before} == before
    assert (tmp_path / "metrics.jsonl").read_bytes().startswith(metrics)
    assert not (tmp_path / "summary.json").exists()
    assert np.all(np.isfinite(healthy.params()))


def sample_key(seed, step):
    """The key that update ``step`` of a seed draws its batch with."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(jnp.uint32(seed)), 1), step)


def test_a_huge_learning_rate_is_reported_before_any_checkpoint():
    encoder = MLP(RANK, num_inputs=1, hidden=(16,))
    positions = jnp.linspace(0.0, 1.0, NUM_STATES)[:, None]
    with pytest.raises(TrainingDivergedError, match=r"of seed [34]; no checkpoint was made; try"):
        train(
            **problem(
                encoder=encoder,
                source=matrix_source(planted_matrix(), positions),
                optimizer=optax.sgd(1e30),
                evaluate=None,
            )
        )


def test_only_the_seed_that_went_wrong_is_named():
    def init(key):
        # 1 for one of the two seeds and 0 for the other, by the first bit that tells them apart.
        return jax.random.uniform(key) * 1.0

    def draw(seed):
        learner = Learner(
            encoder=Tabular(1, num_states=2),
            objective=objective,
            optimizer=optax.sgd(1.0),
            rows=1,
            tasks=1,
        )
        return float(learner.init(jnp.uint32(seed)).objective)

    inner = LargeBatch()

    def loss(params, encode, batch, state, key):
        value, (_, metrics) = inner.loss(params, encode, batch, (), key)
        return jnp.where(state > threshold, jnp.nan, value), (state, metrics)

    objective = Made(RANK, (init, loss))
    draws = {seed: draw(seed) for seed in (3, 4)}
    threshold = sum(draws.values()) / 2
    culprit = max(draws, key=draws.get)
    with pytest.raises(TrainingDivergedError, match=f"at step 0 of seed {culprit};"):
        train(**problem(objective))


def test_a_state_that_would_spoil_the_next_update_never_reaches_a_checkpoint(tmp_path):
    inner = LargeBatch()

    def loss(params, encode, batch, state, key):
        value, (_, metrics) = inner.loss(params, encode, batch, (), key)
        return value, (state * 1e10, metrics)  # Infinite in float32 after four updates.

    objective = Made(RANK, (lambda key: jnp.ones(())), loss)
    with pytest.raises(TrainingDivergedError, match="at step 3 of seed 3; no checkpoint"):
        train(**problem(objective), folder=run_folder(tmp_path))
    assert Checkpoints(tmp_path / "checkpoints").latest_step() is None


def test_figures_without_a_value_are_null_on_disk_and_nan_in_memory(tmp_path):
    def evaluate(params):
        return {"ratio": jnp.where(jnp.sum(params) > -1e9, jnp.nan, 1.0)}

    result = train(**problem(evaluate=evaluate), folder=run_folder(tmp_path))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1], parse_constant=pytest.fail)["ratio"] == [None, None]
    assert np.all(np.isnan([record["ratio"] for record in result.history]))
    again = train(**problem(evaluate=evaluate), folder=run_folder(tmp_path))
    assert np.all(np.isnan([record["ratio"] for record in again.history]))


@pytest.mark.parametrize(
    ("objective", "most"),
    [
        (LargeBatch(), 1e-2),
        (Oracle(), 1e-2),
        (DanskinLissa(RANK, permutations=4, whitening=True), 0.45),
    ],
    ids=["large_batch", "oracle", "danskin_lissa"],
)
def test_a_planted_subspace_is_found(objective, most):
    source = matrix_source(planted_matrix(), with_population=True)
    result = train(**planted_problem(objective, source=source))
    first, last = (np.asarray(record["subspace_distance"]) for record in result.history)
    assert np.all(first > 0.5)
    assert np.all(last < most)


def test_a_loss_serves_in_a_training_step_of_ones_own():
    source = matrix_source(planted_matrix())
    encoder, objective, optimizer = (
        Tabular(RANK, num_states=NUM_STATES),
        LargeBatch(),
        optax.adam(3e-2),
    )

    @jax.jit
    def step(params, moments, state, key):
        sample_key, loss_key = jax.random.split(key)
        batch = source.sample(sample_key, 50, 20)
        (loss, (state, _)), gradients = jax.value_and_grad(objective.loss, has_aux=True)(
            params, encoder.apply, batch, state, loss_key
        )
        with jax.numpy_dtype_promotion("standard"):
            updates, moments = optimizer.update(gradients, moments)
        return optax.apply_updates(params, updates), moments, state, loss

    params, state = encoder.init(jax.random.key(0)), objective.init(jax.random.key(1))
    moments = optimizer.init(params)
    for index in range(600):
        params, moments, state, loss = step(params, moments, state, jax.random.key(index))
    figures = distance_evaluation(encoder, jnp.arange(NUM_STATES), BASIS.astype(np.float32))(params)
    assert float(figures["subspace_distance"]) < 1e-2
    assert float(loss) < 1.0


def test_a_users_matrix_trains_an_encoder_on_coordinates_without_folder_or_evaluation():
    positions = np.random.default_rng(2).random((80, 2)).astype(np.float32)
    targets = np.cos(np.pi * positions) @ np.random.default_rng(3).standard_normal((2, 30))
    result = train(
        FourierMLP(2, num_inputs=2, hidden=(32,)),
        LargeBatch(),
        matrix_source(targets.astype(np.float32), positions),
        optimizer=optax.adam(1e-2),
        steps=200,
        tasks=10,
        progress=False,
    )
    losses = [record["loss"][0] for record in result.history[1:]]
    assert losses[-1] < 0.05 * float(np.mean(np.square(targets))) / 2
    assert jax.tree.leaves(result.params())[0].ndim <= 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "expected steps >= 1, got 0"),
        ({"rows": 0}, "expected rows >= 1, got 0"),
        ({"tasks": -1}, "expected tasks >= 1, got -1"),
        ({"evaluate_every": 0}, "expected evaluate_every >= 1, got 0"),
        ({"checkpoint_every": 6}, r"multiple of evaluate_every \(4\), got 6"),
        ({"checkpoint_every": 0}, r"multiple of evaluate_every \(4\), got 0"),
        ({"seeds": ()}, r"at least one seed, .*, got \(\)"),
        ({"seeds": (-1,)}, r"each in \[0, 2\*\*32\), got \(-1,\)"),
        ({"seeds": (2**32,)}, "got \\(4294967296,\\)"),
    ],
)
def test_counts_and_seeds_out_of_range_are_refused_before_anything_is_written(
    tmp_path, changes, message
):
    folder = run_folder(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=message):
        train(**problem(**changes), folder=folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_progress_bar_shows_rate_and_latest_distance_on_standard_error(capsys):
    result = train(
        **planted_problem(
            LargeBatch(), steps=40, evaluate_every=20, checkpoint_every=20, progress=True
        )
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    words = " ".join(captured.err.split())
    assert "40/40" in words
    assert "steps/s" in words
    last = np.mean(result.history[-1]["subspace_distance"])
    assert f"distance {last:.3g}" in words
