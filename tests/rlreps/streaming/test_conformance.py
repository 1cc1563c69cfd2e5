"""What every registered streaming rule has in common."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from rlreps.errors import InputError
from rlreps.streaming.registry import RULES, make_rule
from rlreps.subspace import subspace_distance

FEATURES, COMPONENTS, WORKERS = 10, 4, 3
VARIANCES = np.asarray([9.0, 6.0, 4.0, 2.5] + [0.2] * (FEATURES - COMPONENTS))

LEARNING = {
    "capped_msg": (0.02, 1),
    "eigengame": (0.03, 64),
    "explicit_krasulina": (0.1, 1),
    "implicit_krasulina": (0.1, 1),
    "incremental_msg": (0.02, 1),
    "incremental_pca": (0.1, 8),
    "krasulina": (0.02, 1),
    "mu_eigengame": (0.02, 4),
    "oja": (0.02, 1),
    "sanger": (0.01, 1),
}
"""A suitable learning rate and rows of an update."""

every_rule = pytest.mark.parametrize("name", sorted(RULES))


@functools.cache
def planted(rows=4000, seed=0):
    """Rows of a known covariance, in a random orientation, [rows, features]."""
    generator = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(generator.normal(size=(FEATURES, FEATURES)))
    data = generator.normal(size=(rows, FEATURES)) * np.sqrt(VARIANCES) @ rotation.T
    return (data - data.mean(axis=0)).astype(np.float32)


def batch_of(size, seed=1):
    return jnp.asarray(planted(200, seed)[:size])


@functools.cache
def rule_of(name):
    return make_rule(name, FEATURES, COMPONENTS, learning_rate=LEARNING[name][0])


@functools.cache
def jitted(name, function):
    return jax.jit(getattr(rule_of(name), function))


@functools.cache
def start_and_learn(name):
    """The compiled function from a key to a state that has learned a little."""
    rule = rule_of(name)
    batches = jnp.asarray(planted(640).reshape(40, 16, FEATURES))

    def run(key):
        body = lambda state, batch: (rule.update(state, batch), None)  # noqa: E731
        return lax.scan(body, rule.init(key), batches)[0]

    return jax.jit(run)


@functools.cache
def trained(name, key=0):
    """A state of which all numbers count."""
    return start_and_learn(name)(jax.random.key(key))


def span_distance(found, expected):
    return float(subspace_distance(jnp.asarray(found), jnp.asarray(expected)))


def model(state):
    """What a state stands for: eigenvectors of equal eigenvalues are no part of it."""
    values = getattr(state, "eigenvalues", getattr(state, "energies", None))
    if values is None:
        return state
    rows = np.asarray(state.rows)
    return state.step, values, (rows.T * np.asarray(values)) @ rows


def assert_same(found, expected, atol=2e-5):
    """Equal states but for rounding, which is relative to the size of each leaf."""
    pairs = zip(jax.tree.leaves(model(found)), jax.tree.leaves(model(expected)), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, atol=atol * max(1.0, float(np.abs(other).max())))


def test_the_table_of_learning_rates_covers_the_registry():
    assert set(LEARNING) == set(RULES)


@every_rule
@pytest.mark.parametrize("size", [1, 7])
def test_a_compiled_update_is_the_eager_one(name, size):
    state, batch = trained(name), batch_of(size)
    assert_same(jitted(name, "update")(state, batch), rule_of(name).update(state, batch))


@every_rule
@pytest.mark.parametrize("size", [1, 7])
def test_states_side_by_side_are_updated_as_each_on_its_own(name, size):
    states = [trained(name, key) for key in range(3)]
    batches = jnp.asarray(planted(3 * size, seed=2).reshape(3, size, FEATURES))
    together = jax.jit(jax.vmap(rule_of(name).update))(stacked(states), batches)
    for index, (state, batch) in enumerate(zip(states, batches, strict=True)):
        one = jax.tree.map(lambda leaf: leaf[index], together)  # noqa: B023
        assert_same(one, jitted(name, "update")(state, batch))


@every_rule
@pytest.mark.parametrize("size", [1, 3, 7, 64])
def test_batches_of_any_size_move_a_fresh_state_to_a_finite_one(name, size):
    start = rule_of(name).init(jax.random.key(1))
    after = jitted(name, "update")(start, batch_of(size))
    assert jax.tree.structure(after) == jax.tree.structure(start)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    assert int(after.step) == 1
    assert not np.array_equal(after.rows, start.rows)


@every_rule
def test_updates_on_each_row_are_updates_on_batches_of_one(name):
    rows, state = batch_of(70), trained(name)
    update = jitted(name, "update")
    for row in rows:
        state = update(state, row[None, :])
    together = jitted(name, "update_each")(trained(name), rows)
    assert int(together.step) == int(state.step) == int(trained(name).step) + 70
    assert_same(together, state, atol=1e-4)


@every_rule
def test_one_compilation_serves_all_states_and_batches_of_a_shape(name):
    traces = []

    def update(state, batch):
        traces.append(batch.shape)
        return rule_of(name).update(state, batch)

    compiled, state = jax.jit(update), rule_of(name).init(jax.random.key(0))
    for seed in range(3):
        state = compiled(state, batch_of(7, seed))
    assert traces == [(7, FEATURES)]


@every_rule
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_states_keep_the_precision_they_start_with(name, dtype):
    with jax.enable_x64(dtype == jnp.float64):
        rule = make_rule(name, FEATURES, COMPONENTS, learning_rate=LEARNING[name][0])
        shapes = jax.eval_shape(rule.init, jax.random.key(0))
        rows = jax.ShapeDtypeStruct((70, FEATURES), dtype)
        row = jax.ShapeDtypeStruct((1, FEATURES), dtype)
        workers = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((WORKERS, *leaf.shape), leaf.dtype), shapes
        )
        outcomes = [
            jax.eval_shape(rule.update, shapes, rows),
            jax.eval_shape(rule.update, shapes, row),
            jax.eval_shape(rule.update_each, shapes, rows),
            jax.eval_shape(rule.combine, workers, jax.ShapeDtypeStruct((WORKERS,), dtype)),
        ]
        components = jax.eval_shape(rule.components, shapes)
    described = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(shapes)]
    for outcome in outcomes:
        assert [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(outcome)] == described
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {
        jnp.dtype(dtype),
        jnp.dtype("int32"),
    }
    assert components.dtype == dtype


@every_rule
def test_components_are_unit_columns(name):
    for state in (rule_of(name).init(jax.random.key(0)), trained(name)):
        components = rule_of(name).components(state)
        assert components.shape == (FEATURES, COMPONENTS)
        np.testing.assert_allclose(np.linalg.norm(components, axis=0), 1.0, atol=1e-5)


@every_rule
def test_a_stream_leads_to_the_principal_subspace(name):
    rule, (_, size) = rule_of(name), LEARNING[name]
    data, start = planted(), rule.init(jax.random.key(3))
    batches = jnp.asarray(data[: len(data) - len(data) % size].reshape(-1, size, FEATURES))

    @jax.jit
    def run(state):
        if size == 1:
            return rule.update_each(state, batches[:, 0])
        return lax.scan(lambda state, rows: (rule.update(state, rows), None), state, batches)[0]

    exact = np.linalg.eigh(data.T.astype(np.float64) @ data)[1][:, ::-1][:, :COMPONENTS]
    exact = exact.astype(np.float32)
    assert span_distance(rule.components(start), exact) > 0.3
    assert span_distance(rule.components(run(start)), exact) < 0.03


@every_rule
@pytest.mark.parametrize("size", [1, 7])
def test_rotated_observations_lead_to_rotated_components(name, size):
    rule, update = rule_of(name), jitted(name, "update")
    rotation = np.linalg.qr(np.random.default_rng(5).normal(size=(FEATURES, FEATURES)))[0]
    rotation = jnp.asarray(rotation, jnp.float32)
    state, rows = trained(name), jnp.asarray(planted(6 * size, seed=6))
    rotated = state._replace(rows=state.rows @ rotation)
    for batch in rows.reshape(6, size, FEATURES):
        state, rotated = update(state, batch), update(rotated, batch @ rotation)
    found, expected = rule.components(rotated), rotation.T @ rule.components(state)
    if not RULES[name].orders_components:
        found, expected = found @ found.T, expected @ expected.T
    np.testing.assert_allclose(found, expected, atol=2e-4)


@every_rule
@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("fresh", [True, False])
def test_rows_of_zeros_leave_the_span_as_it_is(name, size, fresh):
    rule = rule_of(name)
    state = rule.init(jax.random.key(0)) if fresh else trained(name)
    after = jitted(name, "update")(state, jnp.zeros((size, FEATURES)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    assert span_distance(rule.components(after), rule.components(state)) < 1e-6


def stacked(states):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


@functools.cache
def workers(name):
    """States of workers that went on from a common one, on rows and updates of their own."""
    update = jitted(name, "update")
    states = [update(trained(name), batch_of(7, seed)) for seed in range(10, 10 + WORKERS)]
    return [*states[:-1], update(states[-1], batch_of(7, 20))]


def combined(name, states, weights):
    return jitted(name, "combine")(stacked(states), jnp.asarray(weights, jnp.float32))


@every_rule
@pytest.mark.parametrize("fresh", [True, False])
def test_models_that_agree_combine_to_themselves(name, fresh):
    rule = rule_of(name)
    state = rule.init(jax.random.key(0)) if fresh else trained(name)
    merged = combined(name, [state] * WORKERS, [1.0, 2.0, 0.5])
    assert jax.tree.structure(merged) == jax.tree.structure(state)
    assert span_distance(rule.components(merged), rule.components(state)) < 1e-5
    assert int(merged.step) == int(state.step)


@every_rule
def test_the_order_of_workers_does_not_matter(name):
    rule, states = rule_of(name), workers(name)
    one = rule.components(combined(name, states, [1.0, 2.0, 3.0]))
    other = rule.components(combined(name, states[::-1], [3.0, 2.0, 1.0]))
    assert span_distance(one, other) < 1e-5
    first = combined(name, states, [1.0, 1.0, 1.0])
    assert int(first.step) == int(states[-1].step) == int(states[0].step) + 1


@every_rule
def test_a_worker_that_alone_has_weight_is_what_is_combined(name):
    rule, states = rule_of(name), workers(name)
    merged = rule.components(combined(name, states, [1.0, 0.0, 0.0]))
    assert span_distance(merged, rule.components(states[0])) < 1e-5
    assert span_distance(merged, rule.components(states[1])) > 1e-4


@every_rule
def test_a_combined_model_lies_between_those_of_its_workers(name):
    rule, states = rule_of(name), workers(name)
    merged = rule.components(combined(name, states, [1.0, 1.0, 1.0]))
    apart = [span_distance(rule.components(state), merged) for state in states]
    between = [
        span_distance(rule.components(one), rule.components(other))
        for one, other in zip(states, states[1:] + states[:1], strict=True)
    ]
    assert max(apart) < max(between)


@every_rule
def test_a_combined_model_goes_on_learning(name):
    merged = combined(name, workers(name), [1.0, 1.0, 1.0])
    after = jitted(name, "update")(merged, batch_of(7))
    assert int(after.step) == int(merged.step) + 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))


@every_rule
@pytest.mark.parametrize("components", [0, FEATURES + 1])
def test_more_components_than_features_and_none_are_refused(name, components):
    message = f"expected 1 <= num_components <= {FEATURES}, .*, got {components}"
    with pytest.raises(InputError, match=message):
        make_rule(name, FEATURES, components, learning_rate=0.1)


@every_rule
@pytest.mark.parametrize("rate", [0.0, -0.1, float("nan")])
def test_learning_rates_that_are_not_positive_are_refused_where_there_is_one(name, rate):
    if not RULES[name].needs_learning_rate:
        make_rule(name, FEATURES, COMPONENTS, learning_rate=rate)
        return
    with pytest.raises(InputError, match=f"expected learning_rate > 0, got {rate}"):
        make_rule(name, FEATURES, COMPONENTS, learning_rate=rate)


@every_rule
@pytest.mark.parametrize("shape", [(5, FEATURES + 1), (0, FEATURES), (FEATURES,)])
def test_batches_of_another_width_or_without_rows_are_refused(name, shape):
    message = rf"expected a batch of shape \[b >= 1, {FEATURES} features\], got \({shape[0]},"
    with pytest.raises(InputError, match=message):
        rule_of(name).update(trained(name), jnp.zeros(shape))


@every_rule
def test_rows_of_another_width_are_refused_one_by_one_too(name):
    message = rf"expected a batch of shape \[b >= 1, {FEATURES} features\], got "
    with pytest.raises(InputError, match=message):
        rule_of(name).update_each(trained(name), jnp.zeros((5, FEATURES + 1)))


def test_names_without_a_rule_are_refused_with_those_that_have_one():
    with pytest.raises(InputError, match=f"expected rule to be one of {', '.join(sorted(RULES))}"):
        make_rule("pca", FEATURES, COMPONENTS, learning_rate=0.1)


def test_a_rule_without_a_learning_rate_learns_the_same_at_any():
    name = next(name for name, entry in RULES.items() if not entry.needs_learning_rate)
    first, second = (
        make_rule(name, FEATURES, COMPONENTS, learning_rate=rate) for rate in (0.1, 3.0)
    )
    states = [rule.update(trained(name), batch_of(7)) for rule in (first, second)]
    np.testing.assert_array_equal(states[0].rows, states[1].rows)
