"""One suite for every registered objective, with its options, at one and at several tasks."""

import functools
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import Tabular
from rlreps.errors import InputError
from rlreps.losses import (
    OBJECTIVES,
    DanskinChunked,
    DanskinEmpirical,
    DanskinLissa,
    Explicit,
    LargeBatch,
    Naive,
    Oracle,
    Roles,
    Spin,
    make_objective,
)
from rlreps.losses.registry import Problem
from rlreps.sources.matrix import matrix_source
from rlreps.training.hyperparameters import Hyperparameters
from rlreps.workflows.train import TrainingConfig

NUM_STATES, NUM_TASKS, NUM_FEATURES, NUM_ROWS = 24, 7, 4, 21
ROLES = {"gradient_rows": 5, "weight_rows": 3, "covariance_rows": 5}

CONFIGS = [
    DanskinChunked(),
    DanskinChunked(groups=4, chunks=2, chunk_step=0.7, gauge=0.1),
    DanskinLissa(),
    DanskinLissa(whitening=True, permutations=3, **ROLES),
    DanskinLissa(whitening=True, feature_norm="running"),
    DanskinEmpirical(),
    DanskinEmpirical(whitening=True, permutations=2, **ROLES),
    Explicit(weight_learning_rate=0.1),
    LargeBatch(),
    LargeBatch(precondition=0.01, leave_one_out=True),
    Naive(),
    Naive(permutations=2, whitening=True),
    Oracle(),
    Spin(),
    Spin(averaging_rate=0.2),
]


def _label(config):
    default = ObjectiveConfig(name=config.name)
    changed = [key for key in vars(config) if getattr(config, key) != getattr(default, key)]
    return "-".join([config.name, *changed])


every_objective = pytest.mark.parametrize("config", CONFIGS, ids=_label)
every_task_count = pytest.mark.parametrize("num_tasks", [1, 3])


class _Setup:
    """An objective with an encoder and a source, and one step of descent as a function."""

    def __init__(self, config, num_tasks, num_rows=NUM_ROWS, dtype=np.float32):
        rng = np.random.default_rng(0)
        self.encoder = Tabular(NUM_FEATURES, num_states=NUM_STATES)
        shapes = jax.eval_shape(self.encoder.init, jax.random.key(0))
        self.objective = make_objective(
            config, Problem(NUM_FEATURES, NUM_TASKS, Hyperparameters.of(config, 1e-2), shapes)
        )
        self.source = matrix_source(
            rng.normal(size=(NUM_STATES, NUM_TASKS)).astype(dtype), with_population=True
        )
        self.num_rows, self.num_tasks = num_rows, num_tasks
        self.traces = 0

    def init(self, key):
        return self.encoder.init(key), self.objective.init(jax.random.fold_in(key, 1))

    def gradient(self, params, state, key):
        self.traces += 1
        batch = self.source.sample(key, self.num_rows, self.num_tasks)
        (value, (state, metrics)), gradient = jax.value_and_grad(self.objective.loss, has_aux=True)(
            params, self.encoder.apply, batch, state, jax.random.fold_in(key, 1)
        )
        return value, gradient, state, metrics

    def step(self, carry, key):
        params, state = carry
        value, gradient, state, _ = self.gradient(params, state, key)
        params = jax.tree.map(lambda leaf, slope: leaf - 0.01 * slope, params, gradient)
        return (params, state), value


def _assert_close(tree, other, rtol=1e-4, atol=1e-5):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    for leaf, expected in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=rtol, atol=atol)


def test_every_registered_objective_is_in_this_suite():
    assert {config.name for config in CONFIGS} == set(OBJECTIVES)


def test_the_registry_holds_exactly_the_names_of_the_configuration():
    assert set(OBJECTIVES) == set(get_args(MethodName))


def test_an_unknown_method_is_refused_with_the_list_of_names():
    names = (
        "danskin_chunked, danskin_empirical, danskin_lissa, explicit, large_batch, naive, "
        "oracle, spin"
    )
    with pytest.raises(InputError, match=f"expected method to be one of {names}, got 'pca'"):
        ObjectiveConfig(name="pca")


def test_weights_cannot_be_stored_for_a_source_without_task_columns():
    live = Problem(NUM_FEATURES, None, Hyperparameters(1e-2, 1.9, 1e-2))
    with pytest.raises(InputError, match=r"expected a matrix with task columns .* a live source"):
        make_objective(Explicit(), live)
    for name in set(OBJECTIVES) - {"explicit"}:
        make_objective(ObjectiveConfig(name=name), live)


@every_task_count
@every_objective
def test_jitted_mapped_and_eager_evaluations_agree(config, num_tasks):
    setup = _Setup(config, num_tasks)
    inits = [setup.init(jax.random.key(seed)) for seed in range(3)]
    keys = jax.random.split(jax.random.key(7), 3)
    jitted = jax.jit(setup.gradient)
    results = [jitted(*init, key) for init, key in zip(inits, keys, strict=True)]
    assert setup.traces == 1
    if num_tasks > 1:  # Eager calls compile operation by operation: once is enough.
        _assert_close(setup.gradient(*inits[0], keys[0]), results[0])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *inits)
    mapped = jax.jit(jax.vmap(setup.gradient))(*stacked, keys)
    for index, result in enumerate(results):
        _assert_close(jax.tree.map(lambda leaf, index=index: leaf[index], mapped), result)


@every_task_count
@every_objective
def test_scanned_updates_equal_a_loop_that_compiles_once(config, num_tasks):
    setup = _Setup(config, num_tasks)
    start = setup.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(3), 4)
    step = jax.jit(setup.step)
    carry, values = start, []
    for key in keys:
        carry, value = step(carry, key)
        values.append(value)
    assert setup.traces == 1
    scanned, scanned_values = jax.jit(functools.partial(jax.lax.scan, setup.step))(start, keys)
    _assert_close(carry, scanned)
    np.testing.assert_allclose(values, scanned_values, rtol=1e-4)


@every_objective
def test_state_keeps_its_structure_shapes_and_dtypes(config):
    setup = _Setup(config, 3)
    params, state = setup.init(jax.random.key(0))
    value, gradient, new_state, metrics = jax.eval_shape(
        setup.gradient, params, state, jax.random.key(1)
    )
    assert value.shape == ()
    assert all(metric.shape in ((), (NUM_FEATURES,)) for metric in metrics.values())
    assert jax.tree.structure(new_state) == jax.tree.structure(state)
    assert jax.tree.structure(gradient) == jax.tree.structure(params)
    for new, old in zip(
        jax.tree.leaves((new_state, gradient)), jax.tree.leaves((state, params)), strict=True
    ):
        assert (new.shape, new.dtype, new.weak_type) == (old.shape, old.dtype, old.weak_type)


@every_objective
@pytest.mark.parametrize("x64", [False, True])
def test_everything_is_finite_and_of_the_inputs_precision(config, x64):
    with jax.enable_x64(x64):
        dtype = np.float64 if x64 else np.float32
        setup = _Setup(config, 3, dtype=dtype)
        carry, step = setup.init(jax.random.key(0)), jax.jit(setup.step)
        for seed in range(2):
            carry, value = step(carry, jax.random.key(seed))
        for leaf in jax.tree.leaves((carry, value)):
            assert np.all(np.isfinite(leaf))
            assert leaf.dtype in (dtype, np.int32)
            assert value.dtype == dtype


@every_objective
def test_gradients_of_dead_and_of_dependent_features_are_finite(config):
    setup = _Setup(config, 3)
    params, state = setup.init(jax.random.key(0))
    dead = jnp.zeros_like(params)
    dependent = params.at[:, 1:].set(params[:, :1])
    tiny, huge = 1e-12 * params, 1e8 * params
    evaluate = jax.jit(setup.gradient)
    for features in (dead, dependent, tiny, huge):
        current = state
        for seed in range(3):
            value, gradient, current, _ = evaluate(features, current, jax.random.key(seed))
            assert np.isfinite(value)
            assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_descent_lowers_the_representation_loss(name):
    setup = _Setup(ObjectiveConfig(name=name), NUM_TASKS, num_rows=100)
    matrix = np.asarray(setup.source.matrix, np.float64)

    def representation_loss(params):
        table = np.asarray(params, np.float64)
        weights, *_ = np.linalg.lstsq(table, matrix, rcond=None)
        return np.mean((table @ weights - matrix) ** 2)

    def body(carry, key):
        params, state = carry
        _, gradient, state, _ = setup.gradient(params, state, key)
        # Steps of a fixed relative length, so that one rate serves every objective.
        length = 0.003 * jnp.linalg.norm(params)
        return (params - length * gradient / (jnp.linalg.norm(gradient) + 1e-12), state), None

    (start, state) = setup.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 2_000)
    (end, _), _ = jax.jit(functools.partial(jax.lax.scan, body))((start, state), keys)
    singular_values = np.linalg.svd(matrix, compute_uv=False)
    best = np.sum(singular_values[NUM_FEATURES:] ** 2) / matrix.size
    # Steps of fixed length end in a ball around the optimum; naive's bias keeps it further off.
    gained = representation_loss(start) - representation_loss(end)
    assert gained > (0.4 if name == "naive" else 0.8) * (representation_loss(start) - best)


@pytest.mark.parametrize("name", ["danskin_empirical", "danskin_lissa", "naive"])
def test_the_configuration_and_the_objective_agree_on_the_rows_of_a_batch(name):
    config = ObjectiveConfig(name=name, **ROLES)
    estimates = 1 if name == "naive" else 2
    rows = Roles(*ROLES.values()).rows(estimates)
    TrainingConfig(objective=config, rows=rows)
    objective = make_objective(
        config, Problem(NUM_FEATURES, NUM_TASKS, Hyperparameters.of(config, 1e-2))
    )
    setup = _Setup(config, 1)
    params, state = setup.init(jax.random.key(0))
    batch = setup.source.sample(jax.random.key(0), rows, 1)
    objective.loss(params, setup.encoder.apply, batch, state, jax.random.key(0))
    with pytest.raises(InputError, match=rf"expected rows = {rows}.*, got {rows + 1}"):
        TrainingConfig(objective=config, rows=rows + 1)
    least = 1 + 2 * estimates
    TrainingConfig(objective=ObjectiveConfig(name=name), rows=least)
    with pytest.raises(InputError, match=rf"expected rows >= {least}.*, got {least - 1}"):
        TrainingConfig(objective=ObjectiveConfig(name=name), rows=least - 1)
