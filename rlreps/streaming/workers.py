"""Several workers on one model: each learns from its own rows, then their models are combined.

Workers may be simulated on one device, spread over a mesh of devices, or over the devices of
several processes joined by ``jax.distributed.initialize``: the step is the same function. Each step
exchanges the workers' states, O(k · features) numbers per worker.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlreps.config import configurable
from rlreps.errors import require, require_positive
from rlreps.streaming.passes import Evaluate, MakeRule, Runs, follow_orders, map_runs, scan_updates
from rlreps.streaming.rules.base import StreamingRule, WrappedRule
from rlreps.streaming.rules.combining import online_em_average
from rlreps.streaming.rules.orthonormal import orthonormalize

WORKERS = "workers"
"""The axis of a mesh of workers."""

WorkerStep = Callable[[Any, Array, Array], tuple[Any, Any]]
"""(states, rows [workers, n, features], weights [workers]) → (each worker's state after its rows,
the combined state for every worker); states have a leading worker axis."""


@configurable
@dataclasses.dataclass(frozen=True)
class MeanThenQR(WrappedRule):
    """A rule on orthonormal vectors whose models combine by the QR factor Q of their mean.

    The baseline of Amid & Warmuth 2020, who know no systematic way to combine orthonormal matrices.
    ``projection_average`` and the mean of second moments, which the rules of rlreps use, are
    extensions. The energies of incremental PCA are lost and set to one, as in the authors' code.
    """

    def combine(self, states: Any, weights: Array) -> Any:
        combined = self.rule.combine(states, weights)
        if hasattr(combined, "energies"):
            combined = combined._replace(energies=jnp.ones_like(combined.energies))
        return combined._replace(rows=orthonormalize(online_em_average(states.rows, weights)))


def worker_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Return a mesh for workers; None takes all devices of all processes."""
    return Mesh(np.asarray(jax.devices() if devices is None else devices), (WORKERS,))


def start_workers(
    rule: StreamingRule, key: Array, workers: int, *, mesh: Mesh | None = None
) -> Any:
    """Return the common start of all workers: states with a leading worker axis.

    Raises:
        InputError: Unless workers are a multiple of the mesh's devices.
    """
    devices = 1 if mesh is None else mesh.size
    require(
        workers >= 1 and workers % devices == 0,
        f"workers >= 1 and a multiple of the mesh's {devices} devices",
        workers,
    )
    sharding = None if mesh is None else NamedSharding(mesh, PartitionSpec(WORKERS))
    start = jax.jit(lambda key: broadcast(rule.init(key), workers), out_shardings=sharding)
    # Every process uses the same key: data of a single process could not be distributed.
    return start(key)


def share_rows(rows: npt.NDArray[Any], mesh: Mesh) -> Array:
    """Join every process's rows [its workers, n, features] into one array of all workers'."""
    sharding = NamedSharding(mesh, PartitionSpec(WORKERS))
    shared: Array = jax.make_array_from_process_local_data(sharding, rows)
    return shared


def worker_step(
    rule: StreamingRule, *, rows_per_update: int = 1, mesh: Mesh | None = None
) -> WorkerStep:
    """Make the step: every worker's updates on its own rows, then one model from all workers.

    Args:
        rule: The rule.
        rows_per_update: Rows of each update of a worker, which divides its rows.
        mesh: With the axis ``WORKERS``, over which workers are spread evenly; None simulates them
            on one device.

    Returns:
        The step, for ``jit``. Weights must be equal on all processes and have a positive sum.

    Raises:
        InputError: If ``rows_per_update`` is below 1; from the step, if rows do not divide into
            whole updates, or weights and workers differ in number.
    """
    require_positive("rows_per_update", rows_per_update)

    def learn_and_combine(states: Any, rows: Array, weights: Array) -> tuple[Any, Any]:
        learned = map_runs(
            lambda state, rows: scan_updates(rule, state, rows, rows_per_update), states, rows
        )
        everyone = learned if mesh is None else jax.lax.all_gather(learned, WORKERS, tiled=True)
        return learned, broadcast(rule.combine(everyone, weights), len(rows))

    step = learn_and_combine
    if mesh is not None:
        own, same = PartitionSpec(WORKERS), PartitionSpec()
        # Every device combines the same states in the same way: there is no replication to check.
        step = jax.shard_map(
            step, mesh=mesh, in_specs=(own, own, same), out_specs=(own, own), check_vma=False
        )

    def checked(states: Any, rows: Array, weights: Array) -> tuple[Any, Any]:
        require(
            rows.ndim == 3 and rows.shape[1] % rows_per_update == 0,
            f"rows [workers, n, features], n a multiple of {rows_per_update}",
            rows.shape,
        )
        require(weights.shape == rows.shape[:1], "a weight for each worker", weights.shape)
        return step(states, rows, weights)

    return checked


class WorkerResult(NamedTuple):
    """Measures over time of runs of several workers; the first point is the start.

    Attributes:
        rows_seen: Rows that each worker had seen at each point, [points].
        seconds: Time in the updates and combinations of all workers and runs so far, [points].
        workers: Each worker's measure just before the combination, [points, runs, workers].
        combined: The combined model's measure, [points, runs].
        components: The combined model's components at the end, [runs, features, k].
    """

    rows_seen: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    workers: npt.NDArray[np.float64]
    combined: npt.NDArray[np.float64]
    components: npt.NDArray[np.float32]


def run_workers(
    make_rule: MakeRule,
    rows: npt.NDArray[np.float32],
    runs: Runs,
    *,
    workers: int,
    combine_every: int,
    evaluate: Evaluate,
    rows_per_update: int = 1,
    passes: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> WorkerResult:
    """Run a rule with simulated workers, each on its share of the permuted rows.

    Every run has M ``workers``. Between combinations each learns from ``combine_every`` rows, in
    whole updates. Rows that do not fill a worker's last interval are left out of a pass. All
    workers have equal weights. Other arguments are those of ``run_passes``.

    Raises:
        InputError: As ``run_passes``, for an interval between combinations.
    """
    runs.check()
    require_positive("workers", workers)
    require_positive("rows_per_update", rows_per_update)
    require_positive("passes", passes)
    each = len(rows) // workers
    require(
        1 <= combine_every <= each and combine_every % rows_per_update == 0,
        f"combine_every in [1, {each}], the rows of a worker, and a multiple of rows_per_update "
        f"({rows_per_update})",
        combine_every,
    )

    def advance(state: Any, rows: Array, order: Array, rate: Array) -> Any:
        _, combined = state
        rule = make_rule(rate)
        step = worker_step(rule, rows_per_update=rows_per_update)
        before, after = step(broadcast(combined, workers), rows[order], jnp.ones(workers))
        return before, jax.tree.map(lambda leaf: leaf[0], after)

    def start(key: Array, rate: Array) -> Any:
        state = make_rule(rate).init(key)
        return broadcast(state, workers), state

    def observe(state: Any, rate: Array) -> Any:
        before, combined = state
        rule = make_rule(rate)
        return map_runs(rule.components, before), rule.components(combined)

    def measure(observed: Any) -> tuple[list[list[float]], list[float]]:
        before, combined = observed
        return [[evaluate(one) for one in run] for run in before], [*map(evaluate, combined)]

    seen, seconds, figures, (_, components) = follow_orders(
        runs,
        rows,
        lambda index: runs.orders(index, len(rows))[:, : workers * each].reshape(-1, workers, each),
        interval=combine_every,
        passes=passes,
        start=start,
        advance=advance,
        observe=observe,
        measure=measure,
        devices=devices,
    )
    before, combined = zip(*figures, strict=True)
    return WorkerResult(seen, seconds, np.asarray(before), np.asarray(combined), components)


def broadcast(state: Any, workers: int) -> Any:
    """Return a state with a leading axis of ``workers`` copies, from which all workers start."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (workers, *jnp.shape(leaf))), state)
