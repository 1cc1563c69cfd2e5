"""What the experiment on workers found, beside what we expected of it."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rlreps.experiments.amid_warmuth_2020.pca_claims import Entry, implicit_claims, is_less
from rlreps.experiments.amid_warmuth_2020.pca_findings import RuleRuns
from rlreps.experiments.amid_warmuth_2020.pca_losses import Repeated, repeated
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.experiments.results import Claim


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RuleResult(RuleRuns):
    """What one rule did for one k; rows seen are those of each worker, and seconds the workers'.

    Losses are NaN where a model had diverged.

    Attributes:
        workers: Losses just before combining, [points, repeats, workers].
        combined: Losses of the combined model, [points, repeats].
        single: Losses of one model that has seen as many rows as all workers, [points, repeats].
    """

    workers: npt.NDArray[np.float64]
    combined: npt.NDArray[np.float64]
    single: npt.NDArray[np.float64]

    @property
    def first_combination_helped(self) -> bool | None:
        """Whether the first combined model was better than its workers' mean (``is_less``)."""
        return is_less(self.combined[1], self.workers[1].mean(axis=1))

    def final(self, problem: PcaProblem) -> dict[str, Repeated]:
        """Final losses of the combined model, of the mean worker before, and of the single one."""
        return {
            "combined": repeated(self.combined[-1], problem),
            "workers": repeated(self.workers[-1], problem),
            "single": repeated(self.single[-1], problem),
        }


def judge(problem: PcaProblem, results: Sequence[RuleResult]) -> list[Claim]:
    """Our expectations beside what was found."""

    def entry(result: RuleResult) -> Entry:
        final = result.final(problem)["combined"]
        return Entry(result.title, result.combined[-1], f"{final.mean:.4f}")

    return [
        *(_combining_claim(problem, result) for result in results),
        *implicit_claims(
            results, entry, "the combined model's final loss", "the least of all rules"
        ),
    ]


def _combining_claim(problem: PcaProblem, result: RuleResult) -> Claim:
    found = result.final(problem)
    return Claim(
        statement=f"{result.title}, k = {result.k}: the combined model's final loss",
        paper="less than its workers' mean just before",
        found=f"{found['combined'].mean:.4f} against {found['workers'].mean:.4f}",
        holds=is_less(result.combined[-1], result.workers[-1].mean(axis=1)),
    )
