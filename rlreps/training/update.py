"""One training update, and a scan over a chunk of updates: everything that runs on the device.

Every random draw is keyed by (seed, step), never by position in a chunk.
"""

import dataclasses
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlreps.batch import Batch
from rlreps.config import configurable, leaf, positive
from rlreps.encoders import Encoder, Params
from rlreps.errors import require
from rlreps.losses.base import Metrics, Objective
from rlreps.numerics import all_finite, floating_leaves, optimizer_step, seed_key
from rlreps.sources.matrix import Source
from rlreps.sources.store import StreamedSource
from rlreps.training.loop import OWN_FIGURES
from rlreps.training.optimizers import GivenOptimizer

Tree = TypeVar("Tree")


class TrainState(NamedTuple):
    """Everything that an update changes.

    Attributes:
        step: Updates made, [] (int32).
        params: Encoder parameters.
        optimizer: Optimizer state.
        objective: Objective state.
    """

    step: Array
    params: Params
    optimizer: Any
    objective: Any


class ChunkReport(NamedTuple):
    """The report of a chunk of updates.

    Attributes:
        metrics: Means over the chunk of the ``loss`` and the objective's metrics.
        bad_step: First step with a non-finite loss; failing that, the last step if any number of
            the state ended non-finite; -1 if all numbers are finite, [] (int32).
    """

    metrics: Metrics
    bad_step: Array


class Updates(Protocol):
    """Updates of one member of a population, such as a ``Learner``."""

    @property
    def resets_diverged(self) -> bool: ...

    def init(self, seed: Array) -> TrainState: ...

    def chunk(
        self, num_steps: int, state: TrainState, source: Any, seed: Array
    ) -> tuple[TrainState, ChunkReport]: ...


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Learner:
    """One update and its configuration.

    Its numbers (learning rates, κ0 and other numbers of its parts) are the leaves of a pytree. A
    learner whose numbers have a leading member axis represents a population of learners.

    Attributes:
        encoder: The encoder being trained.
        objective: The objective that trains it.
        optimizer: Optimizer of its parameters; an optax transformation is wrapped.
        rows: b, states drawn per update.
        tasks: t, columns drawn per update.
        row_mesh: A mesh of one axis, over whose devices the rows of every batch are spread; None
            leaves rows where the state is.
        resets_diverged: Whether a chunk that ends with a non-finite state sets it to zero for the
            rest of the run (its features span nothing: distance 1), instead of keeping NaN.
    """

    encoder: Encoder = leaf()
    objective: Objective = leaf()
    optimizer: Any = leaf()
    rows: int = positive()
    tasks: int = positive()
    row_mesh: Mesh | None = None
    resets_diverged: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, optax.GradientTransformation):
            object.__setattr__(self, "optimizer", GivenOptimizer(self.optimizer))
        known = hasattr(self.optimizer, "transformation")
        require(known, "optimizer to be an Optimizer or an optax transformation", self.optimizer)

    def init(self, seed: Array) -> TrainState:
        """Return the state before the first update, for a seed [] (uint32)."""
        encoder_key, objective_key = jax.random.split(seed_key(seed, 0))
        params = self.encoder.init(encoder_key)
        return TrainState(
            jnp.zeros((), jnp.int32),
            params,
            self.optimizer.transformation.init(params),
            self.objective.init(objective_key),
        )

    def update(self, state: TrainState, source: Source, seed: Array) -> tuple[TrainState, Array]:
        """Make one update; return (next state, loss [])."""
        batch = self._sample(state.step, source, seed_key(seed, 1))
        state, loss, _ = self._update_on(state, batch, seed_key(seed, 2))
        return state, loss

    def _sample(self, step: Array, source: Source, key: Array) -> Batch:
        batch = source.sample(jax.random.fold_in(key, step), self.rows, self.tasks)
        require(isinstance(batch, Batch), "a source that draws a Batch", type(batch).__name__)
        require(batch.num_rows == self.rows, f"a batch of {self.rows} rows", batch.num_rows)
        stored, columns = (getattr(part, "num_tasks", None) for part in (self.objective, source))
        fits = stored is None or columns is None or stored >= columns
        require(fits, f"an objective of num_tasks={columns}, the source's", stored)
        if isinstance(source, StreamedSource):
            # What the host reads comes to one device, and must be gathered before it is spread.
            batch = self._replicate(batch)
        return batch._replace(
            inputs=self._spread(batch.inputs), targets=self._spread(batch.targets)
        )

    def _spread(self, by_row: Tree) -> Tree:
        """Spread the rows of a pytree of arrays [b, ...] over the devices."""
        if self.row_mesh is None:
            return by_row
        spec = PartitionSpec(*self.row_mesh.axis_names)
        spread: Tree = lax.with_sharding_constraint(by_row, NamedSharding(self.row_mesh, spec))
        return spread

    def _encode(self, params: Params, inputs: Any) -> Array:
        """Encode any inputs [b, ...] that an objective takes from a batch, [b, d]."""
        # A slice of spread rows is not spread: without this, every device would encode all rows.
        return self._spread(self.encoder.apply(params, self._spread(inputs)))

    def _replicate(self, tree: Tree) -> Tree:
        """Replicate whole arrays on every device."""
        if self.row_mesh is None:
            return tree
        everywhere = NamedSharding(self.row_mesh, PartitionSpec())
        replicated: Tree = lax.with_sharding_constraint(tree, everywhere)
        return replicated

    def _update_on(
        self, state: TrainState, batch: Batch, key: Array
    ) -> tuple[TrainState, Array, Metrics]:
        loss_key = jax.random.fold_in(key, state.step)
        grad = jax.value_and_grad(self.objective.loss, has_aux=True)
        (loss, (objective, metrics)), gradients = grad(
            state.params, self._encode, batch, state.objective, loss_key
        )
        taken = OWN_FIGURES & {*metrics}
        require(not taken, f"metrics of other names than {sorted(OWN_FIGURES)}", sorted(taken))
        params, optimizer = optimizer_step(
            self.optimizer.transformation, gradients, state.optimizer, state.params, value=loss
        )
        state = TrainState(state.step + 1, params, optimizer, objective)
        return self._replicate(state), loss, metrics

    def check(self, source: Source) -> None:
        """Trace one update without running it, so that parts that do not fit together fail early.

        Raises:
            InputError: As the source or the objective, or if they do not fit together.
        """

        def first_update(source: Source, seed: Array) -> tuple[TrainState, Array]:
            return self.update(self.init(seed), source, seed)

        jax.eval_shape(first_update, source, jnp.zeros((), jnp.uint32))

    def chunk(
        self, num_steps: int, state: TrainState, source: Source, seed: Array
    ) -> tuple[TrainState, ChunkReport]:
        """Make ``num_steps`` updates in one scan."""
        # Outside the loop, since XLA does not move this out of the loop by itself.
        batch_key, loss_key = seed_key(seed, 1), seed_key(seed, 2)

        # Draw the next batch one update ahead and carry it. Within one update, XLA would read the
        # entries from the matrix again at every use, which takes a quarter of the whole step.
        def body(
            carry: tuple[TrainState, Batch], _: None
        ) -> tuple[tuple[TrainState, Batch], tuple[Array, Metrics]]:
            new_state, loss, metrics = self._update_on(*carry, loss_key)
            return (new_state, self._sample(new_state.step, source, batch_key)), (loss, metrics)

        start = (state, self._sample(state.step, source, batch_key))
        (new_state, _), (losses, metrics) = lax.scan(body, start, None, length=num_steps)
        bad = ~jnp.isfinite(losses)
        first_bad = state.step + jnp.argmax(bad).astype(jnp.int32)
        # Check more than parameters: a checkpoint must not keep moments that spoil the next update.
        finite = all_finite(new_state)
        after = jnp.where(finite, -1, new_state.step - 1)
        if self.resets_diverged:
            new_state = zero_unless(finite, new_state)._replace(step=new_state.step)
        metrics = {"loss": losses, **metrics}
        means = {name: jnp.mean(values, axis=0) for name, values in metrics.items()}
        return new_state, ChunkReport(means, jnp.where(bad.any(), first_bad, after))


def zero_unless(kept: Array, tree: Tree) -> Tree:
    """Set every number to zero unless ``kept``, [] (bool), is true.

    Zero features give zero weights and so zero gradients: a diverged state stays zero. NaN would
    stay too, but LAPACK takes ten times as long for the eigenvalues of a matrix of NaN.
    """
    zeroed: Tree = jax.tree.map(lambda leaf: jnp.where(kept, leaf, jnp.zeros_like(leaf)), tree)
    return zeroed


@jax.jit
def all_zero(tree: object) -> Array:
    """Return which members' floating leaves [members, ...] are all zero (reset), [members]."""
    leaves = [jnp.all(leaf.reshape(len(leaf), -1) == 0, axis=1) for leaf in floating_leaves(tree)]
    return jnp.all(jnp.stack(leaves), axis=0)
