"""Placement of training on one device or on a mesh of devices.

There are two ways to distribute a run, and the number of seeds decides:

- If it is a multiple of the number of devices, each device trains its own seeds. The devices never
  exchange data.
- Otherwise the rows of every batch are distributed. Each device encodes its share of the rows;
  parameters, optimizer and objective state are replicated. XLA inserts the sums and exchanges that
  give an objective the same meaning as on one device: least squares still cover the whole batch.
  Shares need not be equal.

Random draws do not depend on the devices, and checkpoints store a state as on one device. So a run
may continue on another number of devices; results agree up to rounding.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from rlreps.errors import require
from rlreps.numerics import usable_cores
from rlreps.runs.processes import require_same
from rlreps.training.update import Learner

Tree = TypeVar("Tree")

SEEDS = "seeds"
ROWS = "rows"


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices of a run, and what is distributed over them.

    Attributes:
        mesh: A mesh with the one axis ``SEEDS`` or ``ROWS``; None leaves JAX's arrays in place and
            puts others on the default device.
    """

    mesh: Mesh | None = None

    @property
    def axis(self) -> str | None:
        """The axis that is distributed, ``SEEDS`` or ``ROWS``; None with one device."""
        if self.mesh is None or self.mesh.size == 1:
            return None
        return str(self.mesh.axis_names[0])

    @property
    def share(self) -> float:
        """The share of all seeds that this process holds."""
        if self.axis != SEEDS:
            return 1.0
        assert self.mesh is not None
        return len(self.mesh.local_devices) / self.mesh.size

    def spread_rows(self, learner: Learner) -> Learner:
        """Make a learner distribute its batches over the devices, if rows are distributed."""
        return dataclasses.replace(learner, row_mesh=self.mesh) if self.axis == ROWS else learner

    def spread_seeds(
        self, function: Callable[..., Any], by_seed: Sequence[bool]
    ) -> Callable[..., Any]:
        """Make each device compute its own seeds, if seeds are distributed.

        Args:
            function: Its results have a leading seed axis.
            by_seed: Whether each of its arguments has one.
        """
        if self.axis != SEEDS:
            return function
        own, same = PartitionSpec(SEEDS), PartitionSpec()
        # Devices exchange nothing, so there is no replication to check.
        return jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=tuple(own if each else same for each in by_seed),
            out_specs=own,
            check_vma=False,
        )

    def put(self, tree: Tree) -> Tree:
        """Replicate whole arrays on every device."""
        return self._put(tree, PartitionSpec())

    def put_seeds(self, tree: Tree) -> Tree:
        """Put arrays with a leading seed axis on the devices that train the seeds."""
        return self._put(tree, PartitionSpec(SEEDS if self.axis == SEEDS else None))

    def collect(self, tree: Tree) -> Tree:
        """Gather arrays of any placement on the first device of every process."""
        if self.mesh is None:
            return tree
        if not self.mesh.is_multi_process:
            first = SingleDeviceSharding(self.mesh.devices.flat[0])
            return cast(Tree, jax.device_put(tree, first))
        whole = _whole(self.mesh)(tree)
        return cast(Tree, jax.tree.map(lambda leaf: leaf.addressable_data(0), whole))

    def _put(self, tree: Tree, spec: PartitionSpec) -> Tree:
        if self.mesh is None:
            return cast(Tree, jax.device_put(tree))
        sharding = NamedSharding(self.mesh, spec)
        if not self.mesh.is_multi_process:
            return cast(Tree, jax.device_put(tree, sharding))

        def put(leaf: Any) -> Array:
            if isinstance(leaf, Array) and not leaf.is_fully_addressable:
                return leaf  # Already in place.
            # ``jax.device_put`` would compare the processes' copies.
            whole = np.asarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype))
            return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

        return cast(Tree, jax.tree.map(put, tree))


@functools.cache
def _whole(mesh: Mesh) -> Callable[[Any], Any]:
    """Make the program that gathers arrays on every device of a mesh."""
    return jax.jit(lambda tree: tree, out_shardings=NamedSharding(mesh, PartitionSpec()))


def make_placement(devices: Sequence[jax.Device] | None, num_seeds: int) -> Placement:
    """Choose the placement of a run.

    Args:
        devices: Devices of this process. If several processes run together, devices of all
            processes, the same number of each; None is JAX's default device.
        num_seeds: Number of seeds that are trained together. Seeds are distributed if every device
            gets the same number of them; otherwise rows are distributed.

    Raises:
        InputError: If the sequence is empty or names a device twice.
    """
    if devices is None:
        return Placement()
    once = 1 <= len(devices) == len({*devices})
    require(once, "at least one device, each once", list(devices))
    axis = SEEDS if num_seeds % len(devices) == 0 else ROWS
    return Placement(Mesh(np.asarray(devices), (axis,)))


def choose_devices(count: int | None) -> list[jax.Device]:
    """Choose the first devices of every process of this run for a command to train on.

    Args:
        count: Devices of each process; None is all accelerators or, without any, one CPU device.

    Raises:
        InputError: If there are too few, or processes were asked for different numbers.
    """
    require_same("number of devices", count)
    by_process: dict[int, list[jax.Device]] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    fewest = min(by_process.values(), key=len)
    if count is None:
        count = 1 if fewest[0].platform == "cpu" else len(fewest)
    require(
        1 <= count <= len(fewest),
        f"devices in [1, {len(fewest)}], the number of {fewest[0].platform} devices",
        count,
    )
    return [device for index in sorted(by_process) for device in by_process[index][:count]]


def devices_for_small_runs() -> list[jax.Device]:
    """Choose devices for many runs, each too small to fill one device.

    They are all accelerators of every process of this run or, without any, one CPU device for each
    core. A process in which JAX has started already keeps the CPU devices that it has.
    """
    # If JAX has already started, this is no error: one device computes the same in more time.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", usable_cores())
    devices: list[jax.Device] = jax.devices()
    return devices
