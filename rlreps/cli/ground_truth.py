"""Options of ground truths on the command line."""

import dataclasses
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rlreps.subspace.svd import Decomposition


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
