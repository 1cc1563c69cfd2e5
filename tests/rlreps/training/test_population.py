"""Training: one seed, several, and populations that differ in numbers and sources."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array

from rlreps.config import configurable
from rlreps.cumulants import Discs
from rlreps.encoders import MLP, Tabular
from rlreps.envs import load_arena
from rlreps.errors import TrainingDivergedError
from rlreps.losses import DanskinLissa, Explicit, LargeBatch, Objective
from rlreps.numerics import compile_once
from rlreps.runs.checkpoints import Checkpoints
from rlreps.sources import matrix_source, puddle_world_source
from rlreps.sources.store import streamed_source
from rlreps.subspace import subspace_distance
from rlreps.training import Learner, Optimizer, population, stack, train, train_population
from rlreps.training.devices import Placement
from rlreps.training.population import Members

NUM_STATES, NUM_TASKS, RANK = 60, 40, 3
RNG = np.random.default_rng(0)
BASIS = np.linalg.qr(RNG.standard_normal((NUM_STATES, RANK)))[0].astype(np.float32)


def planted_matrix():
    """Singular values 3, 2, 1 on a known orthonormal basis, scaled to entries of order one."""
    right = np.linalg.qr(np.random.default_rng(1).standard_normal((NUM_TASKS, RANK)))[0]
    return jnp.asarray(20.0 * BASIS * [3.0, 2.0, 1.0] @ right.T, jnp.float32)


class NoiseState(NamedTuple):
    """A state with a typed shape, a count and a running average."""

    updates: Array
    average: Array


@configurable
@dataclasses.dataclass(frozen=True)
class Noise(Objective):
    """Pulls features towards noise: quick to compile, with a state and a key that matter."""

    spoils_after: int = 10**6

    def init(self, key):
        return NoiseState(jnp.zeros((), jnp.int32), jax.random.normal(key, (RANK,)))

    def loss(self, params, encode, batch, state, key):
        features = encode(params, batch.inputs)
        goal = jax.random.normal(key, (RANK,)) + state.average
        value = jnp.mean(jnp.square(features - goal[None, :])) + jnp.mean(batch.targets)
        average = 0.9 * state.average + 0.1 * jax.lax.stop_gradient(features).mean(axis=0)
        average = jnp.where(state.updates >= self.spoils_after, jnp.inf, average)
        metrics = {"updates": state.updates, "goal": goal, "tasks": batch.targets.shape[1]}
        return value, (NoiseState(state.updates + 1, average), metrics)


def mean_square(params):
    return {"mean_square": jnp.mean(jnp.square(params))}


def problem(objective=None, **changes):
    """Arguments of a tiny run: 12 updates, logged every 4th, checkpoints every 4th."""
    arguments = {
        "encoder": Tabular(RANK, num_states=NUM_STATES),
        "objective": objective or Noise(RANK),
        "source": matrix_source(planted_matrix()),
        "optimizer": optax.adam(1e-2),
        "steps": 12,
        "rows": 20,
        "tasks": 8,
        "seeds": (3, 4),
        "evaluate": mean_square,
        "evaluate_every": 4,
        "checkpoint_every": 4,
    }
    return arguments | changes


def assert_identical(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


OTHERS = [
    DanskinLissa(RANK, permutations=2, whitening=True, feature_norm="running", kappa0=1.0),
]


@pytest.mark.parametrize(
    "objective",
    [Noise(RANK), *(pytest.param(each, marks=pytest.mark.integration) for each in OTHERS)],
    ids=lambda objective: objective.name,
)
def test_neither_a_kill_nor_company_nor_the_length_of_chunks_changes_a_seeds_run(
    tmp_path, run_folder, die_at, objective
):
    whole = train(**problem(objective))
    short = problem(objective, evaluate_every=2)
    die_at(8, lambda folder: train(**short, folder=folder))
    assert Checkpoints(tmp_path / "checkpoints").latest_step() == 4
    resumed = train(**short, folder=run_folder())
    assert_identical(resumed.state, whole.state)
    assert int(whole.state.step[0]) == 12
    if isinstance(objective, Noise):  # What is logged is the loop's, whatever the objective.
        for mine, other in zip(resumed.history, train(**short).history, strict=True):
            assert {**mine, "seconds": 0} == {**other, "seconds": 0}
    for mine, other in zip(resumed.history[::2], whole.history, strict=True):
        assert (mine["step"], mine["mean_square"]) == (other["step"], other["mean_square"])
    alone = train(**problem(objective, seeds=(4,), evaluate_every=12, checkpoint_every=12))
    np.testing.assert_allclose(whole.params(1), alone.params(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(whole.params(0), whole.params(1))
    arguments = problem(objective)
    parts = {name: arguments[name] for name in ("encoder", "objective", "optimizer")}
    one = Learner(**parts, rows=20, tasks=8)
    update, seed = jax.jit(one.update), jnp.uint32(4)
    state = jax.jit(one.init)(seed)
    for _ in range(12):
        state, _ = update(state, arguments["source"], seed)
    np.testing.assert_allclose(state.params, alone.params(), rtol=1e-4, atol=1e-5)


def test_batches_and_losses_are_keyed_by_seed_and_step():
    """The numbers of a seed are pinned: key (seed, 1) draws batches, (seed, 2) is the loss's."""

    @configurable
    @dataclasses.dataclass(frozen=True)
    class Recording(Objective):
        def init(self, key):
            return jnp.zeros((3, 2), jnp.uint32), jnp.zeros((3, 2), jnp.int32), jnp.int32(0)

        def loss(self, params, encode, batch, state, key):
            keys, rows, count = state
            keys = keys.at[count].set(jax.random.key_data(key))
            rows = rows.at[count].set(batch.inputs)
            return jnp.sum(encode(params, batch.inputs)), ((keys, rows, count + 1), {})

    source = matrix_source(planted_matrix())
    result = train(**problem(Recording(), rows=2, seeds=(9,), steps=3, evaluate=None))
    keys, rows, _ = jax.tree.map(lambda leaf: leaf[0], result.state.objective)
    root = jax.random.key(jnp.uint32(9), impl="threefry2x32")
    for step in range(3):
        expected = jax.random.fold_in(jax.random.fold_in(root, 2), step)
        np.testing.assert_array_equal(keys[step], jax.random.key_data(expected))
        draw = jax.random.fold_in(jax.random.fold_in(root, 1), step)
        np.testing.assert_array_equal(rows[step], source.sample(draw, 2, 8).inputs)
    encoder_key, _ = jax.random.split(jax.random.fold_in(root, 0))
    start = Tabular(RANK, num_states=NUM_STATES).init(encoder_key)
    untouched = np.setdiff1d(np.arange(NUM_STATES), rows)
    np.testing.assert_array_equal(result.params()[untouched], start[untouched])


def test_records_hold_the_means_of_an_objectives_metrics_and_no_numbers_of_diverged_runs(
    run_folder,
):
    folder = run_folder()
    result = train(**problem(seeds=(3, 4, 5), steps=8), folder=folder)
    assert "updates" not in result.history[0]
    assert [record["updates"] for record in result.history[1:]] == [[1.5] * 3, [5.5] * 3]
    assert [record["tasks"] for record in result.history[1:]] == [[8.0] * 3] * 2
    assert np.shape(result.history[-1]["goal"]) == (3, RANK)
    assert folder.read_metrics() == result.history
    result = train(**problem(Noise(RANK, spoils_after=2), resets_diverged=True, steps=16))
    assert [record["diverged"] for record in result.history[1:]] == [[True, True]] * 4


def test_explicit_weights_are_as_many_as_the_sources_columns():
    objective = Explicit(RANK, weight_learning_rate=1e-2)
    result = train(**problem(objective, steps=4, seeds=(0,), evaluate=None))
    assert result.state.objective.weights.shape == (1, NUM_TASKS, RANK)


def test_optimizers_that_take_further_arguments_get_the_loss():
    def update(updates, state, params=None, *, value, **others):
        return updates, state + value

    told = optax.GradientTransformationExtraArgs(lambda params: jnp.zeros(()), update)
    result = train(**problem(optimizer=optax.chain(told, optax.sgd(0.1))))
    total = 4.0 * np.sum([record["loss"] for record in result.history[1:]], axis=0)
    np.testing.assert_allclose(result.state.optimizer[0], total, rtol=1e-5)


def test_a_run_that_becomes_infinite_stops_with_step_seed_and_hint(tmp_path, run_folder):
    """A state that would spoil the next update never reaches a checkpoint."""
    with pytest.raises(
        TrainingDivergedError,
        match=r"at step 7 of seed 3; try a smaller learning rate or kappa0; the checkpoint of "
        r"step 4 is untouched",
    ):
        train(**problem(Noise(RANK, spoils_after=7)), folder=run_folder())
    assert Checkpoints(tmp_path / "checkpoints").latest_step() == 4


# Populations: each member differs from the first in one thing (the seed, κ0, the learning rate, the
# matrix), and the last in all.
HUGE = 1e30
"""A learning rate that no run survives."""

DIFFERENT = [
    (3, (1.9, 0.1), 0),
    (7, (1.9, 0.1), 0),
    (3, (0.5, 0.1), 0),
    (3, (1.9, 0.02), 0),
    (3, (1.9, 0.1), 1),
    (7, (0.5, 0.02), 1),
]
SEEDS, PAIRS, MATRICES = ([row[part] for row in DIFFERENT] for part in range(3))
UPSET = 1
"""The member that is given a learning rate it does not survive."""

STATES, TASKS, FEATURES = 12, 9, 2


def learner(kappa0, rate, *, resets=True):
    return Learner(
        encoder=Tabular(FEATURES, num_states=STATES),
        objective=DanskinLissa(
            num_features=FEATURES, gradient_rows=4, weight_rows=3, covariance_rows=3, kappa0=kappa0
        ),
        optimizer=Optimizer(name="sgd", learning_rate=rate, schedule="constant"),
        rows=16,
        tasks=2,
        resets_diverged=resets,
    )


def own_source(*seeds):
    """A source with a matrix for each of the seeds."""
    each = [
        matrix_source(np.random.default_rng(seed).normal(size=(STATES, TASKS)).astype(np.float32))
        for seed in seeds
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


def source_of(seed):
    return jax.tree.map(lambda leaf: leaf[0], own_source(seed))


def trained(pairs, **options):
    """Members that differ as in ``DIFFERENT``, but for their numbers."""
    return train_population(
        stack([learner(*pair) for pair in pairs]),
        own_source(*MATRICES),
        own_sources=True,
        seeds=SEEDS,
        evaluate=lambda params, basis: {"subspace_distance": subspace_distance(params, basis)},
        measured=np.stack([np.eye(STATES, FEATURES, dtype=np.float32)] * len(SEEDS)),
        steps=12,
        evaluate_every=4,
        **options,
    )


@pytest.fixture(scope="module")
def together():
    """All of ``DIFFERENT`` in one program."""
    return trained(PAIRS)


@pytest.fixture(scope="module")
def upset():
    """The same, but one member diverges."""
    return trained([(1.9, HUGE) if index == UPSET else pair for index, pair in enumerate(PAIRS)])


def params_of(result):
    return jax.device_get(result.state.params)


def column(history, name, member):
    return [record[name][member] for record in history if name in record]


def test_members_end_as_ordinary_runs_with_their_numbers_written_in(together):
    kappa0, rate = PAIRS[-1]
    plain = train(
        Tabular(FEATURES, num_states=STATES),
        learner(kappa0, rate).objective,
        source_of(MATRICES[-1]),
        optimizer=optax.sgd(rate),
        rows=16,
        tasks=2,
        seeds=[SEEDS[-1]],
        steps=12,
    )
    np.testing.assert_allclose(params_of(together)[-1], params_of(plain)[0], atol=2e-5)
    ends = params_of(together)
    assert min(np.abs(ends[index] - ends[0]).max() for index in range(1, 6)) > 1e-2
    # The four that share a seed start from one table.
    distances = together.history[0]["subspace_distance"]
    assert distances[0] == distances[2] == distances[3] == distances[4] != distances[1]
    # A source that all share is the same as a copy for each.
    learners = stack([learner(*pair) for pair in PAIRS[:4]])
    shared = train_population(learners, source_of(0), seeds=SEEDS[:4], steps=12)
    np.testing.assert_allclose(params_of(shared), ends[:4], atol=2e-5)


def test_a_run_transfers_nothing_by_accident_once_all_is_compiled(forbid_transfers, together):
    steps = []

    def observe(step, params):
        steps.append(step)
        if step == 4:
            forbid_transfers()

    np.testing.assert_array_equal(params_of(trained(PAIRS, observe=observe)), params_of(together))
    assert steps == [0, 4, 8, 12]


class Table:
    """A matrix that the host reads."""

    shape = STATES, TASKS

    def entries(self, rows, columns):
        return (rows[:, None] - columns).astype(np.float32)


NETWORK = MLP(FEATURES, num_inputs=2, hidden=(4,))
PLACES = np.random.default_rng(2).random((STATES, 2), np.float32)
LIVE = {"horizon": 2, "discount": 0.9}


@pytest.mark.parametrize(
    ("source", "objective", "seeds"),
    [
        (
            streamed_source(Table(), PLACES),
            Explicit(FEATURES, num_tasks=TASKS, weight_learning_rate=0.1),
            [3, 4],
        ),
        (puddle_world_source(load_arena("empty"), Discs(), **LIVE), LargeBatch(FEATURES), [3]),
    ],
    ids=["streamed", "live"],
)
def test_a_chunk_uses_its_state_up_and_transfers_nothing(
    source, objective, seeds, forbid_transfers
):
    encoder = getattr(objective, "encoder", NETWORK)
    parts = {"encoder": encoder, "objective": objective, "optimizer": optax.adam(0.1)}
    program = Members(Learner(**parts, rows=16, tasks=TASKS), source, seeds, Placement())
    state = program.init()
    program.prepare(state, 2)
    forbid_transfers()
    after, _ = program.advance(state, 0, 2)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert jax.device_get(after.step).tolist() == [2] * len(seeds)


def test_a_member_that_diverges_is_zero_from_then_on_and_changes_no_bit_of_the_others(
    together, upset
):
    assert column(upset.history, "diverged", UPSET) == [False, True, True, True]
    assert column(upset.history, "subspace_distance", UPSET)[1:] == pytest.approx([1.0] * 3)
    np.testing.assert_array_equal(params_of(upset)[UPSET], 0.0)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(upset.state))
    for member in set(range(len(DIFFERENT))) - {UPSET}:
        np.testing.assert_array_equal(params_of(upset)[member], params_of(together)[member])
        for name in ("loss", "subspace_distance"):
            assert column(upset.history, name, member) == column(together.history, name, member)
        assert not any(column(upset.history, "diverged", member))
    np.testing.assert_array_equal(np.asarray(upset.state.step), 12)


def test_a_population_without_resets_stops_at_the_first_member_that_diverges(run_folder):
    learners = stack([learner(1.9, rate, resets=False) for rate in (0.1, HUGE)])
    folder, source = run_folder(), source_of(0)
    with pytest.raises(TrainingDivergedError, match=r"at step [0-3] of seed 8; .*; no checkpoint"):
        train_population(learners, source, seeds=[5, 8], steps=12, folder=folder)
    assert [record["step"] for record in folder.read_metrics()] == [0]
    assert "diverged" not in folder.read_metrics()[0]


def test_features_too_large_for_numbers_are_a_divergence_even_of_finite_parameters():
    encoder = MLP(FEATURES, hidden=(8, 8))
    inputs = jnp.asarray(np.random.default_rng(0).random((NUM_STATES, 2)), jnp.float32)
    basis = np.eye(NUM_STATES, FEATURES)

    def measure(params):
        return {"subspace_distance": subspace_distance(encoder.apply(params, inputs), basis)}

    changes = {"encoder": encoder, "source": matrix_source(planted_matrix(), inputs)}
    changes |= {"seeds": (0,), "steps": 1, "evaluate": measure, "resets_diverged": True}
    for rate in (1e-3, HUGE):
        optimizer = Optimizer(learning_rate=rate, schedule="constant")
        result = train(**problem(LargeBatch(FEATURES), optimizer=optimizer, **changes))
        (distance,), large = result.history[-1]["subspace_distance"], rate == HUGE
        assert result.history[-1]["diverged"] == [large]
        assert distance == pytest.approx(1.0) if large else 0.0 < distance < 1.0
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(result.params())) == large


def test_seeds_are_evaluated_without_batched_decompositions_which_can_block_each_other(monkeypatch):
    programs = []

    def kept(function, *arguments, **options):
        traced = jax.jit(function).trace(*arguments)
        programs.append(traced.lower(lowering_platforms=("cpu",)).as_text())
        return compile_once(function, *arguments, **options)

    monkeypatch.setattr(population, "compile_once", kept)

    def measure(params):
        return {"one": subspace_distance(params, BASIS), "two": subspace_distance(-params, BASIS)}

    train(**problem(seeds=(0, 1, 2), evaluate=measure))
    calls = [line for text in programs for line in text.splitlines() if "geqrf" in line]
    states = f"{NUM_STATES}x{RANK}xf32>"
    assert any(f"tensor<{states}" in line for line in calls)
    assert not any(f"tensor<3x{states}" in line for line in calls)


@pytest.mark.integration
def test_training_without_jit_makes_the_updates_of_compiled_training():
    given = problem(seeds=(0,), steps=1)
    compiled = train(**given)
    with jax.disable_jit():
        plain = train(**given)
    np.testing.assert_allclose(plain.params(), compiled.params(), rtol=1e-5)
