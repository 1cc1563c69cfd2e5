"""Entries of a matrix, drawn uniformly, with the matrix an argument and never a constant."""

import dataclasses

import jax
import numpy as np
import pytest
import scipy.stats

from rlreps.errors import InputError
from rlreps.sources.matrix import matrix_source
from rlreps.successor.measure.grids import Grid

NUM_STATES, NUM_TASKS = 12, 7
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
    np.testing.assert_array_equal(batch.population.inputs, positions.astype(np.float32))
    np.testing.assert_array_equal(batch.population.targets, matrix[:, np.asarray(batch.tasks)])
    narrower = SAMPLE(matrix_source(matrix, source.inputs), jax.random.key(0), 30, 2)
    np.testing.assert_array_equal(narrower.inputs, batch.inputs)
    assert narrower.population is None


def test_positions_are_uniform_inside_the_cells_that_the_centres_would_be_drawn_from():
    matrix = np.arange(9.0 * NUM_TASKS, dtype=np.float32).reshape(9, NUM_TASKS)
    at_centres = matrix_source(matrix, Grid(3).centres(), with_population=True)
    inside = dataclasses.replace(at_centres, cell_widths=np.full(2, 1 / 3, np.float32))
    keys = jax.random.split(jax.random.key(2), 400)
    draw = jax.jit(jax.vmap(lambda key: [each.sample(key, 20, 2) for each in (at_centres, inside)]))
    expected, batch = draw(keys)
    # The same cells and tasks, so the same entries; a population stays at the centres.
    for name in ("targets", "tasks", "population"):
        jax.tree.map(np.testing.assert_array_equal, getattr(batch, name), getattr(expected, name))
    offsets = 3.0 * (np.asarray(batch.inputs) - np.asarray(expected.inputs))
    uniform = scipy.stats.uniform(-0.5, 1.0).cdf
    for axis in range(2):
        assert scipy.stats.kstest(offsets[..., axis].ravel(), uniform).pvalue > 0.01
    # Offsets say nothing of each other, nor of those of other rows.
    for other in (offsets[:, 0, 1], offsets[:, 1, 0]):
        assert scipy.stats.pearsonr(offsets[:, 0, 0], other).pvalue > 0.01


def test_the_matrix_is_an_argument_of_a_compiled_program_and_not_a_constant():
    rng = np.random.default_rng(0)
    source = matrix_source(rng.normal(size=(300, 400)).astype(np.float32), with_population=True)
    lowered = jax.jit(lambda s, key: s.sample(key, 5, 2)).lower(source, jax.random.key(0))
    assert len(lowered.as_text()) < 100_000
    assert lowered.compile().memory_analysis().argument_size_in_bytes >= 300 * 400 * 4


@pytest.mark.parametrize(
    ("matrix", "inputs", "message"),
    [
        (np.ones(2), None, r"a matrix of shape \[states, tasks\], got \(2,\)"),
        (np.ones((3, 2)), np.ones(2), r"one input for each of the 3 states, got \(2,\)"),
        (np.ones((3, 2)), np.full(3, np.nan), "finite inputs, got 'NaN or infinity'"),
    ],
)
def test_matrices_and_inputs_that_cannot_be_used_are_refused(matrix, inputs, message):
    with pytest.raises(InputError, match=f"expected {message}"):
        matrix_source(matrix, inputs)
