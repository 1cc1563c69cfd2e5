"""Runs of one compiled program that differ in seeds, numbers and sources."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array

from rlreps.config import with_sizes
from rlreps.encoders import MLP, Tabular
from rlreps.errors import TrainingDivergedError
from rlreps.losses import OBJECTIVES, DanskinLissa, LargeBatch
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.sources.matrix import matrix_source
from rlreps.subspace import subspace_distance
from rlreps.training import train, train_members
from rlreps.training.population import Members, Population
from rlreps.training.update import Learner

pytestmark = pytest.mark.usefixtures("compilation_cache")

NUM_STATES, NUM_TASKS, FEATURES = 12, 9, 2
ROLES = {"gradient_rows": 4, "weight_rows": 3, "covariance_rows": 3}
BASIS = np.eye(NUM_STATES, FEATURES, dtype=np.float32)
HUGE = 1e30
"""A learning rate that no run survives."""


class Numbers(NamedTuple):
    """What members are built from."""

    kappa0: Array
    rate: Array


def numbers(*pairs):
    return Numbers(*(jnp.asarray(column, jnp.float32) for column in zip(*pairs, strict=True)))


def learner(kappa0, rate, *, resets=True):
    return Learner(
        encoder=Tabular(FEATURES, num_states=NUM_STATES),
        objective=DanskinLissa(FEATURES, **ROLES, kappa0=kappa0),
        optimizer=optax.sgd(rate),
        rows=16,
        tasks=2,
        resets_diverged=resets,
    )


def members(*, own_sources=False, resets=True):
    return Members(lambda each: learner(*each, resets=resets), own_sources=own_sources)


def matrix(seed):
    return np.random.default_rng(seed).standard_normal((NUM_STATES, NUM_TASKS)).astype(np.float32)


def own_source(*seeds):
    """A source with a matrix for each of the seeds."""
    each = [matrix_source(matrix(seed)) for seed in seeds]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


def distance(params, _):
    return {"subspace_distance": subspace_distance(params, BASIS)}


SHORT = {"steps": 12, "evaluate_every": 4, "checkpoint_every": 4, "progress": False}


def params_of(result):
    return np.asarray(result.state.params)


def column(history, name, member):
    return [record[name][member] for record in history if name in record]


# Each member differs from the first in one thing: the seed, κ0, the learning rate, the matrix.
DIFFERENT = [
    (3, (1.9, 0.1), 0),
    (7, (1.9, 0.1), 0),
    (3, (0.5, 0.1), 0),
    (3, (1.9, 0.02), 0),
    (3, (1.9, 0.1), 1),
]
SEEDS, PAIRS, MATRICES = ([row[part] for row in DIFFERENT] for part in range(3))


def trained(pairs, folder=None):
    """Members that differ as in ``DIFFERENT``, but for the numbers given."""
    return train_members(
        members(own_sources=True),
        own_source(*MATRICES),
        numbers(*pairs),
        seeds=SEEDS,
        evaluate=distance,
        folder=folder,
        **SHORT,
    )


@pytest.fixture(scope="module")
def programs():
    """The length of every chunk compiled by the first run of all members."""
    return []


@pytest.fixture(scope="module")
def together(compilation_cache, programs):
    """All of ``DIFFERENT`` in one program."""
    prepare = Population.prepare

    def counted(self, state, count):
        programs.append(count)
        prepare(self, state, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Population, "prepare", counted)
        return trained(PAIRS)


UPSET = 1
"""The member that is given a learning rate it does not survive."""


@pytest.fixture(scope="module")
def upset(compilation_cache):
    """The same, but one member diverges."""
    return trained([(1.9, HUGE) if index == UPSET else pair for index, pair in enumerate(PAIRS)])


@pytest.mark.parametrize("index", [1, 3, 4])
def test_a_member_ends_as_the_same_run_would_alone(together, index):
    alone = train_members(
        members(own_sources=True),
        own_source(MATRICES[index]),
        numbers(PAIRS[index]),
        seeds=[SEEDS[index]],
        evaluate=distance,
        **SHORT,
    )
    np.testing.assert_allclose(params_of(together)[index], params_of(alone)[0], atol=2e-5)
    for name in ("loss", "subspace_distance"):
        np.testing.assert_allclose(
            column(together.history, name, index), column(alone.history, name, 0), rtol=1e-4
        )
    assert together.seeds[index] == alone.seeds[0]


def test_a_member_ends_as_an_ordinary_run_with_its_numbers_written_in(together):
    kappa0, rate = PAIRS[2]
    plain = train(
        Tabular(FEATURES, num_states=NUM_STATES),
        DanskinLissa(FEATURES, **ROLES, kappa0=kappa0),
        matrix_source(matrix(MATRICES[2])),
        optimizer=optax.sgd(rate),
        rows=16,
        tasks=2,
        seeds=[SEEDS[2]],
        **SHORT,
    )
    np.testing.assert_allclose(params_of(together)[2], params_of(plain)[0], atol=2e-5)


def test_whatever_members_differ_in_makes_their_results_differ(together):
    ends = params_of(together)
    gaps = [np.abs(ends[index] - ends[0]).max() for index in range(1, len(DIFFERENT))]
    assert min(gaps) > 1e-2
    # The four that share a seed start from one table.
    distances = together.history[0]["subspace_distance"]
    assert distances[0] == distances[2] == distances[3] == distances[4] != distances[1]


def test_members_of_one_source_are_those_that_each_have_a_copy_of_it(together):
    shared = train_members(
        members(), matrix_source(matrix(0)), numbers(*PAIRS), seeds=SEEDS, **SHORT
    )
    assert MATRICES[:4] == [0] * 4
    np.testing.assert_allclose(params_of(shared)[:4], params_of(together)[:4], atol=2e-5)
    np.testing.assert_allclose(params_of(shared)[4], params_of(together)[0], atol=2e-5)


def test_a_member_that_diverges_is_zero_and_marked_from_then_on(upset):
    assert column(upset.history, "diverged", UPSET) == [False, True, True, True]
    np.testing.assert_array_equal(params_of(upset)[UPSET], 0.0)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(upset.state))
    distances = column(upset.history, "subspace_distance", UPSET)
    assert distances[0] < 1.0
    assert distances[1:] == [1.0] * 3


def test_a_member_that_diverges_does_not_change_a_bit_of_the_others(together, upset):
    for member in set(range(len(DIFFERENT))) - {UPSET}:
        np.testing.assert_array_equal(params_of(upset)[member], params_of(together)[member])
        for name in ("loss", "subspace_distance"):
            assert column(upset.history, name, member) == column(together.history, name, member)
        assert not any(column(upset.history, "diverged", member))
    np.testing.assert_array_equal(np.asarray(upset.state.step), SHORT["steps"])


def test_a_run_without_resets_stops_at_the_first_member_that_diverges(tmp_path):
    folder = RunFolder.create_or_resume(tmp_path, kind="test", config={}, provenance={})
    with pytest.raises(TrainingDivergedError, match=r"at step [0-3] of seed 8; no checkpoint"):
        train_members(
            members(resets=False),
            matrix_source(matrix(0)),
            numbers((1.9, 0.1), (1.9, HUGE)),
            seeds=[5, 8],
            folder=folder,
            **SHORT,
        )
    assert [record["step"] for record in folder.read_metrics()] == [0]
    assert "diverged" not in folder.read_metrics()[0]


# The others solve for their weights as ``danskin_empirical`` or ``large_batch`` do.
@pytest.mark.parametrize("name", ["danskin_lissa", "danskin_empirical", "explicit", "large_batch"])
def test_what_was_set_to_zero_stays_there_whatever_the_objective(name):
    sizes = {"num_tasks": NUM_TASKS, "encoder_learning_rate": 0.1}
    one = Learner(
        encoder=Tabular(FEATURES, num_states=NUM_STATES),
        objective=with_sizes(OBJECTIVES[name](FEATURES), **sizes),
        optimizer=optax.adam(0.1),
        rows=10,
        tasks=2,
        resets_diverged=True,
    )
    source = matrix_source(matrix(0))
    state = one.init(jnp.uint32(0))
    state = state._replace(params=state.params.at[0, 0].set(jnp.nan))
    chunk = jax.jit(one.chunk, static_argnums=0)
    for _ in range(3):
        state, _ = chunk(1, state, source, jnp.uint32(0))
        np.testing.assert_array_equal(state.params, 0.0)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))
    assert int(state.step) == 3


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


class Dying(RunFolder):
    """A folder whose process is killed when it is about to log step 8."""

    def append_metrics(self, record):
        if record["step"] == 8:
            raise Killed
        super().append_metrics(record)


def test_an_interrupted_run_of_members_ends_bit_for_bit_as_one_that_never_was(upset, tmp_path):
    def run(kind):
        folder = kind.create_or_resume(tmp_path, kind="test", config={}, provenance={})
        pairs = [(1.9, HUGE) if index == UPSET else pair for index, pair in enumerate(PAIRS)]
        return trained(pairs, folder)

    with pytest.raises(Killed):
        run(Dying)
    assert Checkpoints(tmp_path / "checkpoints").latest_step() == 4
    resumed = run(RunFolder)
    for one, other in zip(
        jax.tree.leaves(resumed.state), jax.tree.leaves(upset.state), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    for name in ("subspace_distance", "diverged"):
        assert [record[name] for record in resumed.history] == [
            record[name] for record in upset.history
        ]


def test_one_program_serves_all_members_and_is_traced_no_oftener_for_more(together, programs):
    assert programs == [4]
    traces = {}
    for size in (2, 6):
        seen = []

        def build(each, seen=seen):
            seen.append(None)
            return learner(*each)

        several = Members(build, own_sources=True)
        settings = numbers(*((0.2 + 0.2 * index, 0.01 * index) for index in range(size)))
        seeds = jnp.arange(size, dtype=jnp.uint32)
        states = jax.eval_shape(several.init, seeds, settings)
        jax.eval_shape(
            functools.partial(several.chunk, 4), states, own_source(*range(size)), seeds, settings
        )
        traces[size] = len(seen)
    assert traces[2] == traces[6] > 0


def test_features_too_large_for_numbers_are_a_divergence_even_of_finite_parameters():
    def build(rate):
        return Learner(
            encoder=MLP(FEATURES, num_inputs=2, hidden=(8, 8)),
            objective=LargeBatch(),
            optimizer=optax.adam(rate),
            rows=8,
            tasks=4,
            resets_diverged=True,
        )

    inputs = np.random.default_rng(0).random((NUM_STATES, 2)).astype(np.float32)

    def measure(params, _):
        features = MLP(FEATURES, num_inputs=2, hidden=(8, 8)).apply(params, jnp.asarray(inputs))
        return {"subspace_distance": subspace_distance(features, BASIS)}

    result = train_members(
        Members(build),
        matrix_source(matrix(0), inputs),
        jnp.asarray([1e-3, HUGE], jnp.float32),
        seeds=[0, 0],
        evaluate=measure,
        steps=1,
        evaluate_every=1,
        checkpoint_every=1,
        progress=False,
    )
    last = result.history[-1]
    assert last["diverged"] == [False, True]
    assert last["subspace_distance"][1] == pytest.approx(1.0)
    assert 0.0 < last["subspace_distance"][0] < 1.0
    assert all(not np.any(leaf[1]) for leaf in jax.tree.leaves(result.state.params))
