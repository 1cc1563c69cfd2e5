"""Placement of training on one device, or spread over a mesh of them.

There are two ways to spread a run, and its number of seeds chooses:

- If it is a multiple of the number of devices, each device trains its own seeds. They never
  exchange a number.
- Otherwise the rows of every batch are spread. Each device encodes its share of them; parameters,
  optimizer and objective state are the same everywhere. XLA inserts the sums and exchanges that an
  objective needs to mean the same as on one device: least squares are still over the whole batch.
  Shares need not be equal.

Random draws do not depend on the devices, and where the state is kept it lies on one device. So a
run may go on with another number of devices, and results agree up to rounding.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from rlreps.errors import require
from rlreps.numerics import usable_cores
from rlreps.training.update import Learner

Tree = TypeVar("Tree")

SEEDS = "seeds"
ROWS = "rows"


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices of a run, and what they share out.

    Attributes:
        mesh: A mesh with the one axis ``SEEDS`` or ``ROWS``; None leaves arrays where they are.
    """

    mesh: Mesh | None = None

    @property
    def axis(self) -> str | None:
        """Axis that is shared out, ``SEEDS`` or ``ROWS``; None if there is one device."""
        if self.mesh is None or self.mesh.size == 1:
            return None
        return str(self.mesh.axis_names[0])

    def spread_rows(self, learner: Learner) -> Learner:
        """Have a learner spread its batches over the devices, if rows are what is shared out."""
        return dataclasses.replace(learner, row_mesh=self.mesh) if self.axis == ROWS else learner

    def spread_seeds(
        self, function: Callable[..., Any], *, own_sources: bool
    ) -> Callable[..., Any]:
        """Have each device compute its own seeds, if seeds are what is shared out.

        Args:
            function: Of (states, source, seeds, numbers). Results have a leading seed axis, as have
                states, seeds and numbers.
            own_sources: Whether the source has one too.
        """
        if self.axis != SEEDS:
            return function
        own, same = PartitionSpec(SEEDS), PartitionSpec()
        # Nothing is exchanged, so there is nothing whose replication is to be checked.
        return jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=(own, own if own_sources else same, own, own),
            out_specs=own,
            check_vma=False,
        )

    def put(self, tree: Tree) -> Tree:
        """Put whole arrays on every device."""
        return self._put(tree, PartitionSpec())

    def put_seeds(self, tree: Tree) -> Tree:
        """Put arrays with a leading seed axis where their seeds are trained."""
        return self._put(tree, PartitionSpec(SEEDS if self.axis == SEEDS else None))

    def collect(self, tree: Tree) -> Tree:
        """Bring arrays of any placement in whole to the first device."""
        if self.mesh is None:
            return tree
        return cast(Tree, jax.device_put(tree, SingleDeviceSharding(self.mesh.devices.flat[0])))

    def _put(self, tree: Tree, spec: PartitionSpec) -> Tree:
        if self.mesh is None:
            return tree
        return cast(Tree, jax.device_put(tree, NamedSharding(self.mesh, spec)))


def make_placement(devices: Sequence[jax.Device] | None, num_seeds: int) -> Placement:
    """Choose the placement of a run.

    Args:
        devices: Devices of this process; None is JAX's default device.
        num_seeds: Seeds that are trained together; they are shared out if they can be in equal
            shares, rows otherwise.

    Raises:
        InputError: If there is no device, one comes twice or one belongs to another process.
    """
    if devices is None:
        return Placement()
    local = jax.local_devices(backend=devices[0].platform) if devices else []
    require(
        len(devices) >= 1
        and len(set(devices)) == len(devices)
        and all(device in local for device in devices),
        "at least one device, each once and all of one kind and of this process",
        list(devices),
    )
    axis = SEEDS if num_seeds % len(devices) == 0 else ROWS
    return Placement(Mesh(np.asarray(devices), (axis,)))


def choose_devices(count: int | None) -> list[jax.Device]:
    """Choose the first devices of this process for a command to train on.

    Args:
        count: How many; None is all accelerators of this machine or, without any, one CPU device.

    Raises:
        InputError: If there are not as many.
    """
    available: list[jax.Device] = jax.local_devices()
    if count is None:
        return available[:1] if available[0].platform == "cpu" else available
    require(
        1 <= count <= len(available),
        f"devices in [1, {len(available)}], the {available[0].platform} devices there are",
        count,
    )
    return available[:count]


def devices_for_small_runs() -> list[jax.Device]:
    """Choose the devices over which many runs too small to fill one are shared out.

    They are all accelerators or, without any, one CPU device for each core; a process in which JAX
    has started already keeps the CPU devices it has.
    """
    # Too late is no error: one device does the same, in more time.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", usable_cores())
    devices: list[jax.Device] = jax.local_devices()
    return devices


def largest_even_share(devices: Sequence[jax.Device], runs: int) -> Sequence[jax.Device]:
    """Choose as many devices, from the first, as share this many runs out evenly."""
    count = max(n for n in range(1, len(devices) + 1) if runs % n == 0)
    return devices[:count]
