"""Configurations of ground truths and of the processes that compute them."""

import dataclasses
from typing import Literal, get_args

from rlreps.errors import require, require_choice, require_positive

SuccessorMethodName = Literal["monte_carlo", "transition"]


LONGEST_HORIZON = 10**7
"""Most terms of a discounted sum: each has a weight in memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuccessorConfig:
    """A successor measure of PuddleWorld's uniformly random policy.

    Options of the other method are ignored.

    Attributes:
        method: ``monte_carlo`` rollouts, or powers of the one-step ``transition`` matrix.
        arena: One of the named arenas, or the path of a TOML file that describes one.
        bins: Cells along each axis; the matrix is bins² x bins².
        rollouts: Rollouts from each start cell (``monte_carlo``), at least 2.
        refinement: Sub-cells along each side of a cell in which the agent is located
            (``transition``).
        points: Quadrature points a sub-cell (``transition``), a power of two.
        horizon: Terms of the discounted sum, h.
        discount: γ, strictly between 0 and 1.
        count_start: Whether the sum starts with the start state (Σ_{t≥0} γᵗ, the paper's formula)
            or with the first successor (Σ_{t≥1} γᵗ⁻¹).
        seed: Seed of every random draw; the matrix depends on it and not on how it was computed.
        block_rows: Rows written, and lost to a kill, at a time.
    """

    method: SuccessorMethodName = "monte_carlo"
    arena: str = "sutton"
    bins: int = 100
    rollouts: int = 1000
    refinement: int = 1
    points: int = 4096
    horizon: int = 700
    discount: float = 0.99
    count_start: bool = True
    seed: int = 0
    block_rows: int = 100

    def __post_init__(self) -> None:
        require_choice("method", self.method, get_args(SuccessorMethodName))
        require(self.bins >= 2, "bins >= 2", self.bins)
        if self.method == "monte_carlo":
            require(self.rollouts >= 2, "rollouts >= 2, one for each half", self.rollouts)
        else:
            require_positive("refinement", self.refinement)
            power_of_two = self.points >= 1 and self.points.bit_count() == 1
            require(power_of_two, "points to be a power of two", self.points)
        require(
            1 <= self.horizon <= LONGEST_HORIZON,
            f"horizon in [1, {LONGEST_HORIZON}]",
            self.horizon,
        )
        require(0.0 < self.discount < 1.0, "discount strictly between 0 and 1", self.discount)
        require(0 <= self.seed < 2**32, "seed in [0, 2**32)", self.seed)
        require_positive("block_rows", self.block_rows)

    @property
    def num_cells(self) -> int:
        """States and tasks of the matrix, n = bins²."""
        return self.bins**2

    @property
    def transitions(self) -> int:
        """Simulated environment steps in the whole matrix."""
        return self.num_cells * self.rollouts * self.horizon

    @property
    def row_sum(self) -> float:
        """What every row sums to: (1 - γʰ) / (1 - γ)."""
        return (1.0 - self.discount**self.horizon) / (1.0 - self.discount)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessesConfig:
    """Several processes that work on one store together, on one machine or many.

    With nothing given they find each other where a cluster manager that JAX knows started them.

    Attributes:
        coordinator: Address HOST:PORT of process 0, the same for all.
        num_processes: How many there are; 1 never looks for others.
        process_id: Which one this is, from 0.
        timeout: Seconds to wait for the others to start.
    """

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    timeout: int = 300

    def __post_init__(self) -> None:
        given = (self.coordinator, self.num_processes, self.process_id)
        alone = self.num_processes == 1 and given == (None, 1, None)
        require(
            alone or all(value is None for value in given) or None not in given,
            "coordinator, num_processes and process_id together, or none of them",
            given,
        )
        if self.num_processes is not None and self.process_id is not None:
            require_positive("num_processes", self.num_processes)
            require(
                0 <= self.process_id < self.num_processes,
                f"process_id in [0, {self.num_processes})",
                self.process_id,
            )
        require_positive("timeout", self.timeout)
