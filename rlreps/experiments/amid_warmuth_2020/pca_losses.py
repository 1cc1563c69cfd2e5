"""Losses of repeated runs of streaming rules, as tables and figures of experiments show them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlreps.errors import require
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem

DoubleArray = npt.NDArray[np.float64]

_LEAST_SHARE = 1e-6
"""Of the variance: what float32 rows can hold beyond their top components."""


class Repeated(NamedTuple):
    """Losses of one thing's repeated runs.

    Attributes:
        mean: Their mean; a run that diverged counts with the loss of no components at all.
        deviation: Their standard deviation (n - 1); 0 of one run.
        diverged: Runs, or workers of all runs, that did.
    """

    mean: float
    deviation: float
    diverged: int

    def __str__(self) -> str:
        found = f"{self.mean:.3f} ± {self.deviation:.3f}"
        return f"{found} ({self.diverged} diverged)" if self.diverged else found


def counted(losses: npt.ArrayLike, problem: PcaProblem) -> DoubleArray:
    """Losses with that of no components, the rows' whole variance, where a run diverged (NaN)."""
    table = np.asarray(losses, np.float64)
    return np.where(np.isfinite(table), table, float(np.trace(problem.moments)))


def repeated(losses: npt.ArrayLike, problem: PcaProblem) -> Repeated:
    """Mean and spread over runs.

    Args:
        losses: Final losses [runs] or, to be averaged over workers first, [runs, workers]; NaN
            where one diverged.
        problem: The rows.
    """
    table = counted(losses, problem)
    values = table if table.ndim == 1 else table.mean(axis=1)
    deviation = float(values.std(ddof=1)) if values.size > 1 else 0.0
    diverged = int(np.count_nonzero(~np.isfinite(np.asarray(losses, np.float64))))
    return Repeated(float(values.mean()), deviation, diverged)


def excess_percent(losses: npt.ArrayLike, problem: PcaProblem, k: int) -> DoubleArray:
    """100 (loss / exact loss − 1) of losses of k components; diverged ones as ``counted``."""
    excess: DoubleArray = 100.0 * (counted(losses, problem) / problem.exact_loss(k) - 1.0)
    return excess


def require_excess(problem: PcaProblem, k: int) -> None:
    """Raises an ``InputError`` where k components leave nothing that an excess could be of."""
    share = problem.exact_loss(k) / max(float(np.trace(problem.moments)), np.finfo(float).tiny)
    require(
        share > _LEAST_SHARE,
        f"rows of {problem.name} that vary beyond their top {k} components",
        f"a share of {share:.1e} of their variance there",
    )


def is_mnist(problem: PcaProblem) -> bool:
    """Whether the rows are the 70,000 images of Amid & Warmuth's tables."""
    return problem.name.startswith("MNIST (70,000")
