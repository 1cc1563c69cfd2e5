"""∂Σ/∂θ against jacobians by brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP, SeparateMLP, Tabular
from rlreps.errors import InputError
from rlreps.losses.covariance_jacobian import CovarianceJacobian

NUM_FEATURES, NUM_ROWS = 3, 8
ENCODERS = {
    "mlp": MLP(NUM_FEATURES, num_inputs=2, hidden=(5,)),
    "separate": SeparateMLP(NUM_FEATURES, num_inputs=2, hidden=(4,)),
    "tabular": Tabular(NUM_FEATURES, num_states=6),
}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def problem(name):
    """(parameters, parameters → features, each row's share)."""
    encoder = ENCODERS[name]
    inputs = jax.random.normal(jax.random.key(0), (NUM_ROWS, 2))
    if name == "tabular":
        inputs = jnp.arange(NUM_ROWS) % 6
    shares = jax.random.uniform(jax.random.key(1), (NUM_ROWS, 1)) / NUM_ROWS
    return encoder.init(jax.random.key(2)), lambda params: encoder.apply(params, inputs), shares


def pair_means(params, encode, shares):
    """E[u_j ∂u_k/∂θ] for all j and k, leaves [d, d, ...]: only the second factor moves."""
    held = encode(params)

    def means(moving):
        return jnp.einsum("bj,bk->jk", held * shares, encode(moving))

    return jax.jit(jax.jacrev(means))(params)


def assert_trees_close(tree, other, rtol=1e-10, atol=1e-12):
    jax.tree.map(
        lambda one, two: np.testing.assert_allclose(one, two, rtol=rtol, atol=atol), tree, other
    )


def of_batch(jacobian, params, encode, shares):
    return jax.jit(lambda p: jacobian.of_batch(encode, p, encode(p), shares))(params)


@pytest.mark.parametrize("name", ENCODERS)
def test_rows_are_the_upper_pairs_of_the_jacobian_of_means(name):
    params, encode, shares = problem(name)
    jacobian = CovarianceJacobian(NUM_FEATURES)
    found = of_batch(jacobian, params, encode, shares)
    firsts, seconds = np.triu_indices(NUM_FEATURES)
    expected = jax.tree.map(lambda leaf: leaf[firsts, seconds], pair_means(params, encode, shares))
    assert jacobian.num_passes == 6
    assert_trees_close(found, expected)
    assert_trees_close(jax.tree.map(jnp.zeros_like, found), jacobian.zeros(params))


def test_both_factors_together_make_the_derivative_of_the_covariance():
    params, encode, shares = problem("mlp")

    def covariance(moving):
        features = encode(moving)
        return jnp.einsum("bj,bk->jk", features * shares, features)

    means = pair_means(params, encode, shares)
    both = jax.tree.map(lambda leaf: leaf + jnp.swapaxes(leaf, 0, 1), means)
    assert_trees_close(both, jax.jit(jax.jacrev(covariance))(params))


@pytest.mark.parametrize("rows_at_once", [1, 2, 4, 6, 50])
@pytest.mark.parametrize("separate", [False, True])
def test_how_many_passes_go_together_changes_no_number(rows_at_once, separate):
    params, encode, shares = problem("separate")
    whole = of_batch(CovarianceJacobian(NUM_FEATURES, separate), params, encode, shares)
    jacobian = CovarianceJacobian(NUM_FEATURES, separate, rows_at_once)
    assert_trees_close(of_batch(jacobian, params, encode, shares), whole)


def test_separate_parameters_give_the_contraction_of_shared_ones_in_fewer_passes():
    params, encode, shares = problem("separate")
    coefficients = jax.random.normal(jax.random.key(3), (NUM_FEATURES, NUM_FEATURES))
    results = []
    for separate, passes in ((True, 3), (False, 6)):
        jacobian = CovarianceJacobian(NUM_FEATURES, separate)
        assert jacobian.num_passes == passes
        rows = of_batch(jacobian, params, encode, shares)
        results.append(jacobian.contract(rows, coefficients))
    assert_trees_close(*results)


@pytest.mark.parametrize("separate", [False, True])
def test_the_contraction_takes_the_upper_coefficients_alone(separate):
    params, encode, shares = problem("separate")
    jacobian = CovarianceJacobian(NUM_FEATURES, separate)
    rows = of_batch(jacobian, params, encode, shares)
    coefficients = np.random.default_rng(0).normal(size=(NUM_FEATURES, NUM_FEATURES))
    means = pair_means(params, encode, shares)
    expected = jax.tree.map(
        lambda leaf: np.einsum("jk,jk...->...", np.triu(coefficients), np.asarray(leaf)), means
    )
    assert_trees_close(jacobian.contract(rows, jnp.asarray(coefficients)), expected)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CovarianceJacobian(0), "num_features >= 1, got 0"),
        (lambda: CovarianceJacobian(3, rows_at_once=0), "jacobian_rows_at_once >= 1, got 0"),
        (
            lambda: CovarianceJacobian(3, separate=True).check(
                {"w": np.ones((2, 3)), "b": np.ones(())}
            ),
            r"parameters of 3 separate features, leaves \[d, ...\], got",
        ),
    ],
)
def test_counts_and_parameters_that_do_not_fit_are_refused(build, message):
    with pytest.raises(InputError, match="expected " + message):
        build()
