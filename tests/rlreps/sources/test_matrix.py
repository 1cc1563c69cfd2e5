"""Entries of a matrix, drawn uniformly, with the matrix an argument and never a constant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from rlreps.errors import InputError
from rlreps.sources import matrix as sources
from rlreps.sources.matrix import matrix_source
from rlreps.successor.grids import Grid

NUM_STATES, NUM_TASKS = 12, 7
ONES = np.ones((3, 2), np.float32)
SAMPLE = jax.jit(
    lambda source, key, rows, tasks: source.sample(key, rows, tasks), static_argnums=(2, 3)
)


def _matrix(dtype=np.float32):
    return np.random.default_rng(0).normal(size=(NUM_STATES, NUM_TASKS)).astype(dtype)


def test_rows_are_drawn_with_replacement_and_independently_of_each_other_and_of_tasks():
    source, keys = matrix_source(_matrix()), jax.random.split(jax.random.key(4), 2_000)
    batches = jax.jit(jax.vmap(lambda key: source.sample(key, 3, 2)))(keys)
    rows, tasks = np.asarray(batches.inputs), np.asarray(batches.tasks)
    for first, second, counts in (
        (rows[:, 0], rows[:, 1], (NUM_STATES, NUM_STATES)),
        (rows[:, 0], tasks[:, 0], (NUM_STATES, NUM_TASKS)),
        (tasks[:, 0], tasks[:, 1], (NUM_TASKS, NUM_TASKS)),
    ):
        pairs = np.bincount(
            np.ravel_multi_index((first, second), counts), minlength=np.prod(counts)
        )
        assert scipy.stats.chisquare(pairs).pvalue > 0.01


def test_targets_are_the_entries_where_rows_and_tasks_meet_and_more_tasks_change_no_row():
    matrix, positions = _matrix(), np.random.default_rng(1).uniform(size=(NUM_STATES, 2))
    source = matrix_source(matrix, positions.astype(np.float32), with_population=True)
    batch = SAMPLE(source, jax.random.key(0), 30, 5)
    # Positions are distinct, so that each input names its state.
    rows = np.argmin(np.abs(positions[:, None, 0] - np.asarray(batch.inputs)[None, :, 0]), axis=0)
    np.testing.assert_array_equal(batch.inputs, positions[rows].astype(np.float32))
    np.testing.assert_array_equal(batch.targets, matrix[np.ix_(rows, batch.tasks)])
    assert batch.targets.shape == (30, 5)
    assert batch.tasks.dtype == jnp.int32
    np.testing.assert_array_equal(batch.population.inputs, positions.astype(np.float32))
    np.testing.assert_array_equal(batch.population.targets, matrix[:, np.asarray(batch.tasks)])
    other = SAMPLE(source, jax.random.key(1), 30, 5)
    assert np.any(other.inputs != batch.inputs)
    narrower = SAMPLE(matrix_source(matrix, source.inputs), jax.random.key(0), 30, 2)
    np.testing.assert_array_equal(narrower.inputs, batch.inputs)
    assert narrower.population is None


def test_positions_are_uniform_inside_the_cells_that_the_centres_would_be_drawn_from():
    bins = 3
    centres, widths = Grid(bins).centres(), np.full(2, 1 / bins, np.float32)
    matrix = np.random.default_rng(0).normal(size=(bins**2, NUM_TASKS)).astype(np.float32)
    at_centres = matrix_source(matrix, centres, with_population=True)
    inside = matrix_source(matrix, centres, with_population=True, cell_widths=widths)
    keys = jax.random.split(jax.random.key(2), 400)
    draw = jax.jit(jax.vmap(lambda key: [each.sample(key, 20, 2) for each in (at_centres, inside)]))
    expected, batch = draw(keys)
    # The same cells and tasks, so the same entries; a population stays at the centres.
    for name in ("targets", "tasks", "population"):
        jax.tree.map(np.testing.assert_array_equal, getattr(batch, name), getattr(expected, name))
    offsets = (np.asarray(batch.inputs) - np.asarray(expected.inputs)).reshape(-1, 2) * bins
    assert np.abs(offsets).max() <= 0.5 + 1e-6
    for axis in range(2):
        uniform = scipy.stats.kstest(offsets[:, axis], scipy.stats.uniform(-0.5, 1.0).cdf)
        assert uniform.pvalue > 0.01
    # Offsets say nothing of each other, of the row, nor of the cell that was drawn.
    cells = np.asarray(Grid(bins).cell(jnp.asarray(expected.inputs).reshape(-1, 2).T))
    for one, other in ((offsets[:, 0], offsets[:, 1]), (offsets[:, 0], cells)):
        assert scipy.stats.pearsonr(one, other).pvalue > 0.01
    neighbours = offsets.reshape(400, 20, 2)
    assert scipy.stats.pearsonr(neighbours[:, 0, 0], neighbours[:, 1, 0]).pvalue > 0.01


def test_the_matrix_is_an_argument_of_a_compiled_program_and_not_a_constant():
    rng = np.random.default_rng(0)
    source = matrix_source(rng.normal(size=(300, 400)).astype(np.float32), with_population=True)
    leaves = jax.tree.leaves(source)
    assert {leaf.shape for leaf in leaves} == {(300,), (300, 400)}
    lowered = jax.jit(lambda s, key: s.sample(key, 5, 2)).lower(source, jax.random.key(0))
    assert len(lowered.as_text()) < 100_000
    assert lowered.compile().memory_analysis().argument_size_in_bytes >= 300 * 400 * 4


@pytest.mark.parametrize("size", [1, 65_536, 2**31 - 1])
def test_words_are_scaled_as_exact_integers_are(size):
    rng = np.random.default_rng(0)
    words = np.concatenate([rng.integers(2**32, size=1000, dtype=np.uint32), [0, 2**32 - 1]])
    expected = [int(word) * size >> 32 for word in words]
    scaled = sources._scaled(jnp.asarray(words.astype(np.uint32)), size)
    np.testing.assert_array_equal(scaled, expected)
    assert scaled.dtype == jnp.int32


@pytest.mark.parametrize(
    ("matrix", "inputs", "message"),
    [
        (ONES[0], None, "expected a matrix of shape [states, tasks], got (2,)"),
        (ONES.astype(np.int32), None, "expected a floating matrix, got 'int32'"),
        (ONES, np.float32(1.0), "expected one input for each of the 3 states, got ()"),
        (ONES, ONES * np.nan, "expected finite inputs, got 'NaN or infinity'"),
    ],
)
def test_matrices_and_inputs_that_cannot_be_used_are_refused(matrix, inputs, message):
    with pytest.raises(InputError) as error:
        matrix_source(matrix, inputs)
    assert str(error.value) == message
