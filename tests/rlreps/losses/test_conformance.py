"""One suite for every objective, with its options, in one compiled program each."""

import dataclasses
import functools
import json
from operator import getitem

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.config import as_json, from_json, with_sizes
from rlreps.encoders import Tabular, TwoTowers
from rlreps.errors import InputError
from rlreps.losses import (
    OBJECTIVES,
    PAIR_OBJECTIVES,
    BarlowTwins,
    Batch,
    Clip,
    DanskinChunked,
    DanskinEmpirical,
    DanskinLissa,
    Explicit,
    InfoNCE,
    LargeBatch,
    Naive,
    NestedLora,
    Oracle,
    OrbitalMinimization,
    Population,
    SelfPrediction,
    SpectralContrastive,
    Spin,
    TDInfoNCE,
    TDLowRank,
)
from rlreps.sources.matrix import matrix_source

NUM_STATES, NUM_TASKS, NUM_FEATURES, NUM_ROWS = 24, 7, 4, 100
ROLES = {"gradient_rows": 20, "weight_rows": 20, "covariance_rows": 20}
ENCODER = Tabular(NUM_FEATURES, num_states=NUM_STATES)

PLAIN = [cls() for cls in OBJECTIVES.values()]
WITH_OPTIONS = [
    DanskinChunked(groups=4, chunks=2, chunk_step=0.7, gauge=0.1, chunked_ridge=0.1),
    DanskinLissa(whitening=True, permutations=3, feature_norm="running", **ROLES),
    DanskinLissa(whitening=True, feature_norm="population"),
    DanskinLissa(feature_norm="running_maximum"),
    DanskinEmpirical(whitening=True, permutations=2, **ROLES),
    Explicit(weight_learning_rate=0.1),
    Explicit(weight_start=1.0, dense_optimizer=True),
    LargeBatch(precondition=0.01, leave_one_out=True),
    LargeBatch(weight_rows="all"),
    LargeBatch(weight_rows=60, precondition=0.01),
    Naive(permutations=2, whitening=True),
    Spin(averaging_rate=0.2, jacobian_rows_at_once=3),
    Spin(averaging_rate=0.2, masked=False, shifted=False, starts_at_identity=True),
]

PAIRS = [
    *(cls() for cls in PAIR_OBJECTIVES.values()),
    BarlowTwins(redundancy=0.1),
    NestedLora(nesting="sequential"),
    OrbitalMinimization(nested=False),
    SelfPrediction(averaging_rate=0.1),
    TDLowRank(orthonormality=1.0),
]
OF_TWO = (SpectralContrastive, NestedLora, TDLowRank, InfoNCE, TDInfoNCE)


def _label(objective):
    defaults = vars(type(objective)())
    return "-".join([objective.name, *(k for k, v in vars(objective).items() if v != defaults[k])])


def of_every(with_options=pytest.mark.integration):
    """Parametrise by every objective, those with options under a mark."""
    rest = [pytest.param(each, marks=with_options) for each in WITH_OPTIONS]
    return pytest.mark.parametrize("objective", [*PLAIN, *rest], ids=_label)


@dataclasses.dataclass(frozen=True)
class Indicators:
    """The indicator of each state, as cumulants of state indices."""

    def init(self, key, num_tasks):
        return jnp.eye(num_tasks)

    def apply(self, params, positions):
        return params[positions]


def sized(objective, encoder):
    sizes = {"num_features": NUM_FEATURES, "num_tasks": NUM_TASKS, "encoder_learning_rate": 1e-2}
    return with_sizes(objective, encoder=encoder, cumulants=Indicators(), **sizes)


def in_parts(given):
    """A batch or population whose inputs are states with an image each."""
    states = given.inputs
    return given._replace(inputs={"image": jnp.zeros((len(states), 2, 2)), "state": states})


class Setup:
    """An objective with an encoder and a source, and one update as a function."""

    def __init__(self, objective, num_tasks=NUM_TASKS):
        self.encoder = TwoTowers(ENCODER, ENCODER) if isinstance(objective, OF_TWO) else ENCODER
        self.objective = sized(objective, self.encoder)
        matrix = np.random.default_rng(0).normal(size=(NUM_STATES, NUM_TASKS)).astype(np.float32)
        self.source = matrix_source(matrix, with_population=True)
        self.num_tasks, self.traces = num_tasks, 0

    def init(self, key):
        return self.encoder.init(key), self.objective.init(jax.random.fold_in(key, 1))

    def gradient(self, params, state, key, dtype=jnp.float32):
        """Value, gradient, state and metrics; inputs of single states have two parts."""
        self.traces += 1
        if self.objective.needs_clips:
            states = jax.random.randint(key, (2, NUM_ROWS), 0, NUM_STATES)
            batch = Batch(Clip(tuple(states)), jnp.zeros((NUM_ROWS, 0)))
        else:
            batch = in_parts(self.source.sample(key, NUM_ROWS, self.num_tasks))
            batch = batch._replace(population=in_parts(batch.population))

        def encode(params, inputs):
            states = inputs if self.objective.needs_clips else inputs["state"]
            return self.encoder.apply(params, states).astype(dtype)

        (value, (state, metrics)), gradient = jax.value_and_grad(self.objective.loss, has_aux=True)(
            params, encode, batch, state, jax.random.fold_in(key, 1)
        )
        return value, gradient, state, metrics

    def update(self, carry, key, length):
        """Step by a length relative to the parameters', so that one rate serves all objectives."""
        params, (value, gradient, state, _) = carry[0], self.gradient(*carry, key)
        length = length * jnp.linalg.norm(params)
        params = params - length * gradient / (jnp.linalg.norm(gradient) + 1e-12)
        return (params, state), jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))

    def descend(self, params, state, count):
        """Parameters after updates of falling length, and whether all that came up was finite."""

        def update(index, carry):
            carry, good = carry
            key = jax.random.fold_in(jax.random.key(1), index)
            left = 1.0 - index.astype(jnp.float32) / count.astype(jnp.float32)
            carry, finite = self.update(carry, key, 0.02 * left)
            return carry, good & finite

        start = ((params, state), jnp.asarray(True))
        (params, _), good = jax.lax.fori_loop(jnp.int32(0), count, update, start)
        return params, good


@of_every()
def test_descent_lowers_the_loss_and_degenerate_features_have_finite_gradients(objective):
    setup = Setup(objective)
    matrix = np.asarray(setup.source.matrix, np.float64)

    def representation_loss(table):
        table = np.asarray(table, np.float64)
        weights, *_ = np.linalg.lstsq(table, matrix, rcond=None)
        return np.mean((table @ weights - matrix) ** 2)

    descend = jax.jit(setup.descend)
    params, state = jax.jit(setup.init)(jax.random.key(0))
    end, finite = descend(params, state, 2_000)
    assert finite
    singular_values = np.linalg.svd(matrix, compute_uv=False)
    best = np.sum(singular_values[NUM_FEATURES:] ** 2) / matrix.size
    # Naive's bias keeps it further off.
    share = 0.4 if objective.name == "naive" else 0.8
    gained = representation_loss(params) - representation_loss(end)
    assert gained > share * (representation_loss(params) - best)
    table = np.asarray(params)
    repeated = np.repeat(table[:, :1], NUM_FEATURES, axis=1)
    for features in (np.zeros_like(table), repeated, 1e-12 * table, 1e8 * table):
        assert descend(features.astype(np.float32), state, 3)[1]
    assert setup.traces == 1


@pytest.mark.parametrize("objective", PAIRS[: len(PAIR_OBJECTIVES)], ids=_label)
def test_degenerate_features_of_pairs_have_finite_gradients(objective):
    setup = Setup(objective)
    params, state = setup.init(jax.random.key(0))
    gradient = jax.jit(setup.gradient)
    for change in (
        jnp.zeros_like,
        jnp.ones_like,
        lambda table: jnp.repeat(table[:, :1], NUM_FEATURES, axis=1),
        lambda table: 1e-12 * table,
        lambda table: 1e6 * table,
    ):
        found = gradient(jax.tree.map(change, params), state, jax.random.key(1))
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(found))


@pytest.mark.parametrize("objective", [*PLAIN, *WITH_OPTIONS, *PAIRS], ids=_label)
def test_an_objective_survives_json_and_tracing_and_keeps_shapes_and_types(objective):
    stored = json.loads(json.dumps(as_json(objective), allow_nan=False))
    classes = OBJECTIVES | PAIR_OBJECTIVES
    assert classes[stored.pop("name")] is type(objective)
    assert from_json(type(objective), stored) == objective
    assert hash(objective) == hash(dataclasses.replace(objective))
    leaves, structure = jax.tree.flatten(objective)
    assert structure.unflatten(leaves) == objective
    setup = Setup(objective, num_tasks=1)

    def update(traced, key, dtype):
        setup.objective = traced
        return setup.init(key), setup.gradient(*setup.init(key), key, dtype)

    # Every number that is a leaf may be traced: shapes are found, nothing is compiled.
    for dtype in (jnp.float32, jnp.bfloat16):
        traced = functools.partial(update, dtype=dtype)
        before, after = jax.eval_shape(traced, setup.objective, jax.random.key(0))
        value, gradient, state, metrics = after
        assert (value.shape, value.dtype) == ((), jnp.float32)
        assert all(metric.shape in ((), (NUM_FEATURES,)) for metric in metrics.values())
        assert jax.tree.structure((gradient, state)) == jax.tree.structure(before)
        kept = zip(jax.tree.leaves((gradient, state)), jax.tree.leaves(before), strict=True)
        for new, old in kept:
            assert (new.shape, new.dtype, new.weak_type) == (old.shape, old.dtype, old.weak_type)


def loss_of(objective, rows=30, features=NUM_FEATURES, **batch):
    """Evaluate a loss by shapes alone; batch arguments replace the default's."""

    def evaluate(key):
        states = jnp.arange(rows) % NUM_STATES
        of_pairs = {"inputs": Clip((states, states)), "targets": jnp.zeros((rows, 0))}
        of_entries = {"inputs": states, "targets": jnp.ones((rows, 2))}
        given = of_pairs if objective.needs_clips else of_entries
        given = given | {"tasks": None if objective.needs_clips else jnp.zeros(2, jnp.int32)}
        table = jnp.ones((NUM_STATES, features))
        state = objective.init(key)
        return objective.loss(table, getitem, Batch(**(given | batch)), state, key)[0]

    return jax.eval_shape(evaluate, jax.random.key(0))


@pytest.mark.parametrize("objective", PAIRS, ids=_label)
def test_pairs_and_features_that_do_not_fit_are_refused(objective):
    assert loss_of(sized(objective, ENCODER)).shape == ()
    for options, message in (
        ({"inputs": jnp.zeros(30, jnp.int32)}, "rows that are pairs of states.* 'single states"),
        ({"rows": 1}, f"rows >= 2, for independent .* {objective.name}\\), got 1"),
        # A single encoder of twice the features is not two functions.
        ({"features": 2 * NUM_FEATURES}, rf"encoder of 4 features.*, got .*{2 * NUM_FEATURES}\)"),
    ):
        encoder = Tabular(options.get("features", NUM_FEATURES), num_states=NUM_STATES)
        with pytest.raises(InputError, match="expected .*" + message):
            loss_of(sized(objective, encoder), **options)


SIZED = {"num_tasks": NUM_TASKS, "weight_learning_rate": 0.1}
POPULATION = Population(jnp.arange(24), jnp.ones((24, 3)))
REFUSALS = [
    (lambda: Naive(gradient_rows=5), r"all given or all None, got \(5, None, None\)"),
    (lambda: loss_of(DanskinLissa(5)), r"features of shape \(30, 5\), got"),
    (lambda: loss_of(DanskinEmpirical(**ROLES)), r"rows = \d+, the sum over .*, got 30"),
    (lambda: DanskinLissa().require_rows(4), "rows >= 5, one for each role of danskin_lissa"),
    (lambda: LargeBatch(weight_rows=9).require_rows(9), "rows > 9, the number of rows that fit"),
    (
        lambda: LargeBatch(weight_rows="all", leave_one_out=True),
        "leave_one_out=False with weight_rows='all', .* rows fit no weights, got True",
    ),
    (lambda: loss_of(DanskinChunked(4), rows=11), "rows >= 12, one for each chunk"),
    (
        lambda: loss_of(Explicit(4, weight_learning_rate=0.1)),
        "num_tasks, the columns .*, got None",
    ),
    (lambda: loss_of(Explicit(4, **SIZED), tasks=None), "that names its tasks, got tasks=None"),
    (lambda: loss_of(Oracle(4)), "a batch with its population, got population=None"),
    (lambda: loss_of(TDLowRank()), "an encoder for the averages of td_low_rank, got None"),
    (lambda: Spin(operator=None), "operator to be of type Operator, got None"),
    (
        lambda: loss_of(Spin(4, averaging_rate=0.5, separate=True, encoder=ENCODER)),
        r"parameters of 4 separate features, leaves \[d, ...\], got \[\(24, 4\)\]",
    ),
    (lambda: loss_of(Spin(4), rows=3), "rows >= 4, as many as features, for averaging_rate = 1"),
    (
        lambda: loss_of(LargeBatch(4), inputs=(jnp.zeros(30), jnp.zeros(29))),
        r"same number of rows, got \[29, 30\]",
    ),
    (lambda: loss_of(LargeBatch(4), rows=0), "a batch of at least one row, got 0"),
    (
        lambda: loss_of(LargeBatch(4), targets=jnp.ones(30)),
        r"targets \[b, t\] for 30 rows of inputs, got \(30,\)",
    ),
    (
        lambda: loss_of(LargeBatch(4), population=POPULATION),
        r"a population's targets \(24, 2\), got \(24, 3\)",
    ),
]


@pytest.mark.parametrize("case", range(len(REFUSALS)))
def test_what_cannot_be_is_refused_with_what_was_expected(case):
    build, message = REFUSALS[case]
    with pytest.raises(InputError, match="expected .*" + message):
        build()


@pytest.mark.parametrize("objective", [DanskinLissa(2), DanskinEmpirical(2), Naive(2)])
def test_batches_may_be_arrays_of_numpy(objective):
    inputs, targets = np.random.default_rng(0).normal(size=(2, 12, 2)).astype(np.float32)
    params, key = jnp.eye(2), jax.random.key(0)

    def loss(*batch):
        state = objective.init(key)
        return objective.loss(params, lambda p, x: x @ p, Batch(*batch), state, key)[0]

    given = loss(inputs, targets, np.arange(2))
    assert given == loss(jnp.asarray(inputs), jnp.asarray(targets), jnp.arange(2))


def test_rows_are_shared_among_the_roles():
    """N + 2M + 2J; naive N + M + J."""
    assert DanskinLissa().roles(252) == (52, 50, 50)
    assert Naive().roles(3) == (1, 1, 1)
