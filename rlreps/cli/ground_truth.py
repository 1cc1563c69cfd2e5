"""Options of ground truths on the command line."""

import dataclasses
from typing import TYPE_CHECKING, Literal

from rlreps.errors import require

if TYPE_CHECKING:
    from rlreps.subspace.svd import Decomposition
    from rlreps.successor.measure import SuccessorMeasure


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubspaceOptions:
    """The principal subspace of a stored, column-centred matrix.

    Attributes:
        rank: Leading singular vectors kept; None is 100, or all that the matrix has if fewer.
        method: ``randomized`` (Halko et al. 2011) or ``exact``.
        oversampling: Extra columns of the randomized range finder.
        power_iterations: Subspace iterations of the randomized range finder.
        seed: Seed of the randomized range finder.
    """

    rank: int | None = None
    method: Literal["randomized", "exact"] = "randomized"
    oversampling: int = 40
    power_iterations: int = 10
    seed: int = 0

    def build(self) -> "Decomposition":
        """Make the decomposition."""
        from rlreps.subspace.svd import ExactSVD, RandomizedSVD

        if self.method == "exact":
            return ExactSVD(rank=self.rank)
        return RandomizedSVD(
            rank=self.rank,
            oversampling=self.oversampling,
            power_iterations=self.power_iterations,
            seed=self.seed,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuccessorOptions:
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

    method: Literal["monte_carlo", "transition"] = "monte_carlo"
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

    def build(self) -> "SuccessorMeasure":
        """Make the measure; options of the other method are refused unless left alone."""
        from rlreps.successor.measure import METHODS

        values = dataclasses.asdict(self)
        cls = METHODS[values.pop("method")]
        known = {field.name for field in dataclasses.fields(cls)}
        defaults = type(self)()
        for name in values.keys() - known:
            require(
                values[name] == getattr(defaults, name),
                f"options of {self.method} ({', '.join(sorted(known))})",
                name,
            )
        return cls(**{name: value for name, value in values.items() if name in known})
