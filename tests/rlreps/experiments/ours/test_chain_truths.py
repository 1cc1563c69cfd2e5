"""Exact truths of small chains: against brute force."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.ours.chain_truths import ChainTruths

DISCOUNT = 0.7
RANDOM = np.random.default_rng(0)
DIRECTED = (lambda each: each / each.sum(axis=1, keepdims=True))(RANDOM.random((7, 7)) ** 3 + 0.01)
START = np.full(7, 1.0 / 7)


@pytest.fixture
def chain():
    return ChainTruths(DIRECTED, DISCOUNT)


def sums():
    """Σ γᵗ P^{t+1}, term by term."""
    total, power = np.zeros_like(DIRECTED), np.eye(len(DIRECTED))
    for step in range(200):
        total += DISCOUNT**step * power @ DIRECTED
        power = power @ DIRECTED
    return total


def projector(functions, measure):
    """The projector on the span of functions, orthogonal in a measure, by normal equations."""
    weighed = measure[:, None] * functions
    return functions @ np.linalg.solve(weighed.T @ functions, weighed.T)


def best_of_rank(matrix, count, rows, columns):
    """The projector on the best span: eigenfunctions of T T*, T* the adjoint of T: L2 → L2."""
    # T g = Σ_t matrix(s, t) columns(t) g(t); its adjoint is Σ_s rows(s) matrix(s, t) f(s).
    operator = (matrix * columns) @ (matrix.T * rows)
    values, vectors = np.linalg.eig(operator)
    order = np.argsort(-values.real)[:count]
    return projector(vectors[:, order].real, rows), np.sqrt(np.sort(values.real)[::-1][:count])


def test_singular_functions_of_the_successor_measure_are_those_of_its_centred_columns(chain):
    matrix = sums() - sums().mean(axis=0, keepdims=True)
    found = chain.successor_measure().first(3)
    expected, values = best_of_rank(matrix, 3, START, np.ones(7))
    np.testing.assert_allclose(projector(found.functions, START), expected, atol=1e-8)
    np.testing.assert_allclose(found.values, values, atol=1e-8)


def test_the_density_ratio_is_decomposed_in_the_measures_of_both_ends(chain):
    matrix = (1.0 - DISCOUNT) * sums()
    later = START @ matrix
    found = chain.density_ratio()
    expected, values = best_of_rank(matrix / later, 3, START, later)
    np.testing.assert_allclose(projector(found.first(3).functions, START), expected, atol=1e-7)
    np.testing.assert_allclose(found.first(3).values, values, atol=1e-8)
    np.testing.assert_allclose(found.functions[:, 0], 1.0)
    gram = found.functions.T @ (START[:, None] * found.functions)
    np.testing.assert_allclose(gram, np.eye(7), atol=1e-10)


def test_the_logarithm_leaves_a_function_of_the_state_open(chain):
    matrix = (1.0 - DISCOUNT) * sums()
    later = START @ matrix
    logarithm = np.log(matrix / later)
    centred = logarithm - np.sum(logarithm * later, axis=1, keepdims=True)
    expected, _ = best_of_rank(centred, 2, START, later)
    found = chain.log_density_ratio().first(2)
    np.testing.assert_allclose(projector(found.functions, START), expected, atol=1e-7)
    apart = np.eye(2)
    with pytest.raises(InputError, match="every state may follow"):
        ChainTruths(apart, DISCOUNT).log_density_ratio()


def test_the_walk_is_that_of_pairs_in_either_order(chain):
    found = chain.walk()
    joint = START[:, None] * (1.0 - DISCOUNT) * sums()
    joint = (joint + joint.T) / 2.0
    measure = joint.sum(axis=1)
    np.testing.assert_allclose(found.measure, measure, atol=1e-12)
    image = joint @ found.functions / measure[:, None]
    np.testing.assert_allclose(image, found.functions * found.values, atol=1e-10)
    assert (np.diff(found.values) < 0.0).all()
    largest = chain.largest_of_walk()
    order = np.argsort(-np.abs(found.values))
    np.testing.assert_allclose(largest.values, found.values[order], atol=1e-10)
    image = joint @ largest.functions / measure[:, None]
    np.testing.assert_allclose(image, largest.functions * largest.values, atol=1e-10)


@pytest.mark.parametrize("kind", ["pairs", "cumulants"])
def test_both_semi_gradients_of_temporal_differences_vanish_at_their_fixed_point(chain, kind):
    cumulants = None if kind == "pairs" else np.random.default_rng(1).random((7, 5)) + 0.1
    next_states = START @ DIRECTED
    kernel = np.diag(1.0 / next_states) if cumulants is None else cumulants @ cumulants.T
    operator = sums() @ kernel @ DIRECTED.T * START
    found = np.linalg.eigvals(operator)
    sizes = np.sort(np.abs(found))[::-1]
    count = next(k for k in (2, 3) if sizes[k - 1] > 1.01 * sizes[k])
    basis = chain.temporal_differences(count, cumulants).functions
    # Targets B of the values: densities of the next state, or cumulants there; W fits them.
    weighed = START[:, None] * basis
    rest = np.eye(7) - DISCOUNT * DIRECTED
    source = (1.0 - DISCOUNT) * DIRECTED
    source = source / next_states if cumulants is None else source @ cumulants
    columns = next_states if cumulants is None else np.ones(cumulants.shape[1])
    weights = np.linalg.solve(weighed.T @ rest @ basis, weighed.T @ source)
    errors = rest @ basis @ weights - source
    np.testing.assert_allclose(weighed.T @ errors, 0.0, atol=1e-10)
    np.testing.assert_allclose((errors * columns) @ weights.T, 0.0, atol=1e-8)
    # It is the leading one: power iteration comes to the same span.
    power = np.random.default_rng(2).normal(size=(7, count))
    for _ in range(3_000):
        power, _ = np.linalg.qr(operator @ power)
    np.testing.assert_allclose(projector(power, START), projector(basis, START), atol=1e-6)


def test_there_is_no_fixed_point_where_a_complex_pair_is_parted():
    cycle = np.roll(np.eye(5), 1, axis=1) * 0.6 + np.eye(5) * 0.4
    truths = ChainTruths(cycle, 0.9)
    assert truths.temporal_differences(3).functions.shape == (5, 3)
    with pytest.raises(InputError, match="gap behind eigenvalue 2"):
        truths.temporal_differences(2)


def test_distances_and_cosines_are_those_in_the_measure(chain):
    truth = chain.walk().first(3)
    mixing = np.triu(np.random.default_rng(3).normal(size=(3, 3))) + 2.0 * np.eye(3)
    exact = jnp.asarray(truth.functions @ mixing, jnp.float32)
    assert float(truth.distance(exact)) < 1e-10
    single = jnp.asarray(truth.functions * np.array([2.0, -1.0, 0.0]), jnp.float32)
    np.testing.assert_allclose(truth.cosines(single), [1.0, 1.0, 0.0], atol=1e-6)
    assert float(truth.distance(single)) == pytest.approx(1.0 / 3.0, abs=1e-6)
    behind = chain.walk().behind_constant().first(2)
    shifted = jnp.asarray(behind.functions + np.array([3.0, -1.0]), jnp.float32)
    assert float(behind.distance(shifted)) < 1e-9
    assert float(chain.walk().first(2).distance(shifted)) > 0.1


def test_a_state_that_is_never_entered_is_refused():
    with pytest.raises(InputError, match="enters every state, got '1 never entered'"):
        ChainTruths(np.array([[1.0, 0.0], [1.0, 0.0]]))
