"""Sources of batches of (inputs, targets): pure, jittable samplers that are pytrees.

A source carries its arrays as leaves, so that it passes through ``jit`` as an argument: a matrix of
400 MB must not become a constant of the compiled program. Sources without a matrix in memory are in
``store`` (entries read from disk) and ``live`` (entries from fresh rollouts).
"""

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.batch import Batch, Population
from rlreps.errors import require
from rlreps.numerics import all_finite, jit


class Source(Protocol):
    """Anything with a pure, jittable ``sample`` that is a pytree."""

    @property
    def num_tasks(self) -> int | None:
        """Number of task columns; None if every batch brings its own tasks."""
        ...

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw inputs [num_rows, ...] and targets [num_rows, num_tasks], by the key alone."""
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MatrixSource:
    """Entries of a states x tasks matrix, rows and columns drawn uniformly with replacement.

    Attributes:
        inputs: Encoder input of each state, [n, ...].
        matrix: Ψ, [n, tasks]; centre it to learn the principal subspace of the centred matrix.
        with_population: Whether batches bring all states' inputs and sampled columns.
        cell_widths: Extent of a state's cell along each coordinate, [k]. Inputs are then positions
            uniform inside the drawn cells, where Ψ is constant; a population's inputs stay the
            centres. None gives the states' own inputs.
    """

    inputs: Array
    matrix: Array
    with_population: bool = dataclasses.field(default=False, metadata={"static": True})
    cell_widths: Array | None = None

    @property
    def num_tasks(self) -> int:
        return self.matrix.shape[1]

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw independent rows and columns; the batch's tasks are the columns' indices."""
        rows, tasks = draw_rows_and_tasks(key, self.matrix.shape, num_rows, num_tasks)
        targets = entries(self.matrix, rows, tasks)
        population = None
        if self.with_population:
            population = Population(self.inputs, self.matrix[:, tasks])
        inputs = draw_inputs(key, self.inputs, rows, self.cell_widths)
        return Batch(inputs, targets, tasks, population)


def draw_rows_and_tasks(
    key: Array, shape: tuple[int, ...], num_rows: int, num_tasks: int
) -> tuple[Array, Array]:
    """Draw rows [num_rows] and columns [num_tasks] of a matrix, uniform, with replacement.

    Only the key decides: a matrix of shape (n, tasks) gives the same batches in memory and on disk.
    Rows and columns are independent of each other.
    """
    # One call of the generator for both: in a small training step, its calls take most of the time.
    words = jax.random.bits(key, (num_rows + num_tasks,), jnp.uint32)
    return _scaled(words[:num_rows], shape[0]), _scaled(words[num_rows:], shape[1])


_GATHERED_ROWS = 250


def entries(matrix: Array, rows: Array, tasks: Array) -> Array:
    """Return the entries of a matrix [n, t] at rows [r] and tasks [c], [r, c].

    On a CPU they are read in a loop over groups of rows. Otherwise XLA would fuse the computation
    of the indices into the gather and repeat it for every entry, which takes longer than reading.
    """

    def at_once(matrix: Array, rows: Array, tasks: Array) -> Array:
        return matrix[rows[:, None], tasks[None, :]]

    def in_groups(matrix: Array, rows: Array, tasks: Array) -> Array:
        found: Array = lax.map(lambda row: matrix[row, tasks], rows, batch_size=_GATHERED_ROWS)
        return found

    found: Array = lax.platform_dependent(matrix, rows, tasks, cpu=in_groups, default=at_once)
    return found


_POSITIONS = 0x706F73
"""Folded into a batch's key for the draws within cells, which are then independent of the rows."""


def draw_inputs(key: Array, inputs: Array, rows: Array, cell_widths: Array | None) -> Array:
    """Return the inputs [b, ...] of drawn rows [b], or positions uniform inside their cells.

    Positions have random numbers of their own, so rows and tasks are the same without positions.

    Args:
        key: The batch's key.
        inputs: Encoder input of each state, [n, ...]; with ``cell_widths``, cells' centres [n, k].
        rows: Indices of states.
        cell_widths: Extents of a cell, [k]; None returns the inputs themselves.
    """
    centres: Array = inputs[rows]
    if cell_widths is None:
        return centres
    own = jax.random.fold_in(key, _POSITIONS)
    offsets = jax.random.uniform(own, centres.shape, centres.dtype, -0.5, 0.5)
    return centres + offsets * cell_widths[None, :]


def _scaled(words: Array, size: int) -> Array:
    """Map words [m] (uint32) to integers in [0, size), ⌊word · size / 2³²⌋, [m] (int32).

    No two integers differ in probability by more than 2⁻³².
    """
    halves = jnp.uint32(16)
    low, high = words & jnp.uint32(0xFFFF), words >> halves
    small, large = jnp.uint32(size & 0xFFFF), jnp.uint32(size >> 16)
    # The upper half of the product of two 32-bit words, in 16-bit pieces.
    middle = high * small + ((low * small) >> halves)
    other = low * large + (middle & jnp.uint32(0xFFFF))
    upper: Array = high * large + (middle >> halves) + (other >> halves)
    return upper.astype(jnp.int32)


def matrix_source(
    matrix: Array | np.ndarray,
    inputs: Array | np.ndarray | None = None,
    *,
    with_population: bool = False,
    cell_widths: Array | np.ndarray | None = None,
) -> MatrixSource:
    """Return a source over a matrix of your own.

    Args:
        matrix: Ψ, [n, tasks], floating.
        inputs: Encoder input of each state, [n, ...]; None gives state indices [n] (int32), for a
            tabular encoder.
        with_population: Whether batches bring all states (objectives say whether they need them).
        cell_widths: Draw positions uniformly inside cells of this extent [k] around the inputs,
            instead of the inputs themselves.

    Raises:
        InputError: If the shapes do not fit or there are non-finite entries.
    """
    matrix = jnp.asarray(matrix)
    require(matrix.ndim == 2 and matrix.size > 0, "a matrix of shape [states, tasks]", matrix.shape)
    require(jnp.issubdtype(matrix.dtype, jnp.floating), "a floating matrix", matrix.dtype.name)
    require(bool(_all_finite(matrix)), "a matrix of finite entries", "NaN or infinity")
    inputs = encoder_inputs(inputs, matrix.shape[0])
    widths = checked_widths(cell_widths, inputs)
    return MatrixSource(inputs, matrix, with_population, widths)


def encoder_inputs(inputs: Array | np.ndarray | None, num_states: int) -> Array:
    """Return the encoder inputs [n, ...] of all states; None gives state indices [n] (int32).

    Raises:
        InputError: If there is not one input per state, or an input is not finite.
    """
    if inputs is None:
        inputs = np.arange(num_states, dtype=np.int32)
    inputs = jnp.asarray(inputs)
    require(
        inputs.ndim >= 1 and inputs.shape[0] == num_states,
        f"one input for each of the {num_states} states",
        inputs.shape,
    )
    require(bool(_all_finite(inputs)), "finite inputs", "NaN or infinity")
    return inputs


def checked_widths(cell_widths: Array | np.ndarray | None, inputs: Array) -> Array | None:
    """Return the extents [k] of cells around inputs [n, k], in the inputs' dtype, or None.

    Raises:
        InputError: If inputs are not positions, or there is not a positive width for each axis.
    """
    if cell_widths is None:
        return None
    positions = inputs.ndim == 2 and jnp.issubdtype(inputs.dtype, jnp.floating)
    require(positions, "centres of cells [n, k] as inputs", (inputs.dtype.name, inputs.shape))
    widths = np.asarray(cell_widths)
    fits = widths.shape == inputs.shape[1:] and bool(np.all((widths > 0) & np.isfinite(widths)))
    require(fits, f"{inputs.shape[1]} positive widths of a cell", widths.tolist())
    return jnp.asarray(widths, inputs.dtype)


_all_finite = jit(all_finite)
"""Compiled, it makes no mask of the matrix's size."""
