"""Where batches of (inputs, targets) come from: pure, jittable samplers that are pytrees.

A source carries its arrays as leaves, so that it passes through ``jit`` as an argument: a matrix of
400 MB must not become a constant of the compiled program.
"""

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.configs import require
from rlreps.losses.base import Batch, Population


class Source(Protocol):
    """Anything with a pure, jittable ``sample`` that is a pytree."""

    @property
    def num_tasks(self) -> int:
        """Number of task columns."""
        ...

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draws inputs [num_rows, ...] and targets [num_rows, num_tasks]."""
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MatrixSource:
    """Entries of a states x tasks matrix, rows and columns drawn uniformly with replacement.

    Attributes:
        inputs: Encoder input of each state, [n, ...].
        matrix: Ψ, [n, tasks]; centred, if the principal subspace is the centred matrix's.
        with_population: Whether batches bring all states' inputs and sampled columns (oracle).
    """

    inputs: Array
    matrix: Array
    with_population: bool = dataclasses.field(default=False, metadata={"static": True})

    @property
    def num_states(self) -> int:
        """Number of states, n."""
        return self.matrix.shape[0]

    @property
    def num_tasks(self) -> int:
        """Columns of the matrix."""
        return self.matrix.shape[1]

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draws independent rows and columns and the entries where they meet.

        Args:
            key: Random key.
            num_rows: b.
            num_tasks: t.

        Returns:
            A batch: inputs [b, ...], targets [b, t], tasks [t].
        """
        row_key, task_key = jax.random.split(key)
        rows = jax.random.randint(row_key, (num_rows,), 0, self.num_states)
        tasks = jax.random.randint(task_key, (num_tasks,), 0, self.num_tasks)
        targets = self.matrix[rows[:, None], tasks[None, :]]
        population = None
        if self.with_population:
            population = Population(self.inputs, self.matrix[:, tasks])
        return Batch(self.inputs[rows], targets, tasks, population)


def matrix_source(
    matrix: Array | np.ndarray,
    inputs: Array | np.ndarray | None = None,
    *,
    with_population: bool = False,
) -> MatrixSource:
    """A source over a matrix of your own.

    Args:
        matrix: Ψ, [n, tasks], floating.
        inputs: Encoder input of each state, [n, ...]; None gives state indices [n] (int32), for a
            tabular encoder.
        with_population: Whether batches bring all states (for the ``oracle`` objective).

    Returns:
        The source.

    Raises:
        InputError: If the shapes do not fit or there are non-finite entries.
    """
    matrix = jnp.asarray(matrix)
    require(matrix.ndim == 2 and matrix.size > 0, "a matrix of shape [states, tasks]", matrix.shape)
    require(jnp.issubdtype(matrix.dtype, jnp.floating), "a floating matrix", matrix.dtype.name)
    require(bool(_all_finite(matrix)), "a matrix of finite entries", "NaN or infinity")
    if inputs is None:
        inputs = np.arange(matrix.shape[0], dtype=np.int32)
    inputs = jnp.asarray(inputs)
    require(
        inputs.ndim >= 1 and inputs.shape[0] == matrix.shape[0],
        f"one input for each of the {matrix.shape[0]} states",
        inputs.shape,
    )
    require(bool(_all_finite(inputs)), "finite inputs", "NaN or infinity")
    return MatrixSource(inputs, matrix, with_population)


@jax.jit
def _all_finite(values: Array) -> Array:
    """Whether every entry is finite; compiled, so that no mask as large as the matrix is made."""
    return jnp.all(jnp.isfinite(values))
