import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse

from rlreps.errors import InputError
from rlreps.experiments.ours.slow_puddle.problem import (
    make_problem,
    pair_source,
    slowest_eigenfunctions,
    sparse_graph_operator,
    state_source,
)
from rlreps.operators import GraphLaplacian, Sample, graph_laplacian
from rlreps.successor.measure import Transition


def walk(bins, count):
    return make_problem(Transition(bins=bins, points=64), count)


@pytest.fixture(scope="module")
def small():
    return walk(6, 5)


@pytest.mark.parametrize("bins", [8, 21])  # Dense below 400 states, Lanczos above.
def test_eigenfunctions_are_those_of_a_dense_generalised_solver(bins):
    problem = walk(bins, 6)
    laplacian, sigma = problem.graph.laplacian.toarray(), np.diag(problem.measure)
    values, vectors = scipy.linalg.eigh(laplacian, sigma, subset_by_index=(1, 6))
    np.testing.assert_allclose(problem.eigenvalues, values, rtol=1e-8)
    functions = problem.eigenfunctions
    np.testing.assert_allclose(
        laplacian @ functions, sigma @ functions * problem.eigenvalues, atol=1e-10
    )
    np.testing.assert_allclose(functions.T @ sigma @ functions, np.eye(6), atol=1e-8)
    np.testing.assert_allclose(np.abs(np.sum(functions * (sigma @ vectors), axis=0)), 1.0)


def test_the_matrices_are_those_of_the_issue_and_every_cell_has_measure(small):
    n = 36
    chain, uniform = small.chain.toarray(), np.diag(np.full(n, 1 / n))
    after = np.diag(chain.T @ np.full(n, 1 / n))
    expected = uniform + after - uniform @ chain - chain.T @ uniform
    np.testing.assert_allclose(small.graph.laplacian.toarray(), expected, atol=1e-15)
    np.testing.assert_allclose(small.measure, np.diag(uniform + after) / 2)
    assert small.measure.min() > 0.1 / n
    assert small.measure.sum() == pytest.approx(1.0)


def test_pairs_come_with_the_chains_probabilities(small):
    pairs = 400_000
    source = pair_source(small.chain, jnp.asarray(small.centres))
    states, after = np.asarray(
        jax.jit(source.sample_states, static_argnums=1)(jax.random.key(0), pairs)
    )
    counts = np.zeros((36, 36))
    np.add.at(counts, (states, after), 1)
    joint = small.chain.toarray() / 36
    assert not counts[joint == 0.0].any()
    expected = pairs * joint[joint > 0.0]
    error = (counts[joint > 0.0] - expected) / np.sqrt(expected * (1 - joint[joint > 0.0]))
    assert np.abs(error).max() < 5.0
    # Their squares have mean 1, and a standard error of √2 over the root of their number.
    assert np.mean(error**2) == pytest.approx(1.0, abs=5.0 * np.sqrt(2.0 / error.size))


def test_a_batch_has_its_pairs_one_half_apart(small):
    centres = jnp.asarray(small.centres)
    source = pair_source(small.chain, centres)
    batch = source.sample(jax.random.key(3), 10, 1)
    states, after = source.sample_states(jax.random.key(3), 5)
    np.testing.assert_array_equal(batch.inputs[:5], centres[states])
    np.testing.assert_array_equal(batch.inputs[5:], centres[after])
    assert batch.targets.shape == (10, 0)
    with pytest.raises(InputError, match="an even number of rows, two for each pair, got 5"):
        source.sample(jax.random.key(0), 5, 1)


def test_the_slowness_of_sampled_pairs_is_the_eigenvalue(small):
    source = pair_source(small.chain, jnp.asarray(small.centres))
    states, after = np.asarray(source.sample_states(jax.random.key(1), 200_000))
    changes = np.square(small.eigenfunctions[states] - small.eigenfunctions[after])
    error = changes.std(axis=0) / np.sqrt(len(changes))
    assert np.all(np.abs(changes.mean(axis=0) - small.eigenvalues) < 5.0 * error)


def test_the_last_entry_of_a_row_is_reached_and_nothing_after_it():
    # Ten thirds do not add up to one in float32 arithmetic; padding must never be drawn.
    chain = scipy.sparse.csr_array(np.array([[1 / 3, 1 / 3, 1 / 3], [0, 1.0, 0], [0.5, 0, 0.5]]))
    source = pair_source(chain, jnp.arange(3))
    assert np.all(np.asarray(source.cumulative)[[0, 1, 2], [2, 0, 1]] == 1.0)
    states, after = np.asarray(source.sample_states(jax.random.key(0), 3000))
    for state, targets in enumerate([{0, 1, 2}, {1}, {0, 2}]):
        assert set(after[states == state]) == targets


def test_states_come_with_their_measure():
    measure = np.array([0.05, 0.5, 0.15, 0.3])
    drawn = np.asarray(state_source(measure).sample(jax.random.key(0), 100_000, 1).inputs)
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    assert np.all(np.abs(shares - measure) < 5.0 * np.sqrt(measure * (1 - measure) / len(drawn)))


def test_the_sparse_operator_is_the_dense_one(small):
    features = jax.random.normal(jax.random.key(0), (36, 4))
    states = jnp.asarray([3, 0, 35, 17, 3])

    def sample(table):
        return Sample(
            lambda inputs: table[inputs], states, jnp.zeros((5, 0)), table[states], jnp.ones(5)
        )

    sparse = sparse_graph_operator(small.graph)
    images = sparse.apply(sample(features))
    np.testing.assert_allclose(
        images, small.graph.operator().apply(sample(features)), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(sparse.apply(sample(jnp.ones((36, 1)))), 0.0)


def test_states_without_measure_and_too_many_eigenfunctions_are_refused(small):
    measure = np.where(np.arange(36) == 4, 0.0, small.measure)
    broken = GraphLaplacian(small.graph.laplacian, measure, measure)
    with pytest.raises(InputError, match="a measure of every state, got '1 states without'"):
        slowest_eigenfunctions(broken, 3)
    with pytest.raises(InputError, match="fewer eigenfunctions than the 36 states, got 36"):
        slowest_eigenfunctions(small.graph, 36)


def test_a_chain_that_does_nothing_has_no_slow_features_but_zeros():
    values, _ = slowest_eigenfunctions(graph_laplacian(np.eye(5), np.full(5, 0.2)), 2)
    np.testing.assert_allclose(values, 0.0, atol=1e-12)
