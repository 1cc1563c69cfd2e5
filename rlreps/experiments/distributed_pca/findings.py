"""What the experiment on workers found, and the goals that it is judged by."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.experiments.distributed_pca.config import DistributedPcaConfig
from rlreps.experiments.pca_losses import Repeated, repeated
from rlreps.experiments.pca_problem import PcaProblem
from rlreps.experiments.results import Claim
from rlreps.streaming.registry import RULES

IMPLICIT = "implicit_krasulina"


@dataclasses.dataclass(frozen=True, eq=False)
class RuleResult:
    """What one rule did for one k. Losses are NaN where a model had diverged.

    Attributes:
        rule: Its name.
        k: Components.
        learning_rate: The chosen η0; NaN for a rule without.
        rows_seen: By each worker, [points], the start among them.
        workers: Losses just before combining, [points, repeats, workers].
        combined: Losses of the combined model, [points, repeats].
        single: Losses of one model that has seen as many rows as all workers, [points, repeats].
        seconds: Time in the workers' updates and combinations, all repeats together.
    """

    rule: str
    k: int
    learning_rate: float
    rows_seen: npt.NDArray[np.int64]
    workers: npt.NDArray[np.float64]
    combined: npt.NDArray[np.float64]
    single: npt.NDArray[np.float64]
    seconds: float

    @classmethod
    def from_part(cls, rule: str, k: int, part: Mapping[str, Any]) -> "RuleResult":
        """The result that a part of the run's folder holds."""
        figures = {
            name: np.asarray(part[name], np.float64) for name in ("workers", "combined", "single")
        }
        return cls(
            rule=rule,
            k=k,
            learning_rate=part["learning_rate"],
            rows_seen=np.asarray(part["rows_seen"], np.int64),
            seconds=part["seconds"],
            **figures,
        )

    @property
    def title(self) -> str:
        """Its name in figures and tables."""
        return RULES[self.rule].title

    def final(self, problem: PcaProblem) -> dict[str, Repeated]:
        """Final losses of the combined model, of the mean worker before, and of the single one."""
        return {
            "combined": repeated(self.combined[-1], problem),
            "workers": repeated(self.workers[-1], problem),
            "single": repeated(self.single[-1], problem),
        }


def judge(
    config: DistributedPcaConfig, problem: PcaProblem, results: Sequence[RuleResult]
) -> list[Claim]:
    """The goals beside what was found."""
    claims = []
    for result in results:
        found = result.final(problem)
        combined, workers = found["combined"], found["workers"]
        claims.append(
            Claim(
                statement=f"{result.title}, k = {result.k}: the combined model's final loss",
                paper="goal: less than its workers' mean just before",
                found=f"{combined.mean:.4f} against {workers.mean:.4f}",
                holds=combined.mean < workers.mean,
            )
        )
    for k in config.components:
        losses = {
            result.rule: result.final(problem)["combined"].mean
            for result in results
            if result.k == k
        }
        others = {rule: loss for rule, loss in losses.items() if rule != IMPLICIT}
        if IMPLICIT in losses and others:
            nearest = min(others, key=others.__getitem__)
            claims.append(
                Claim(
                    statement=f"{RULES[IMPLICIT].title}, k = {k}: the combined model's final loss",
                    paper="goal: the least of all rules",
                    found=f"{losses[IMPLICIT]:.4f}; the best of the others is "
                    f"{RULES[nearest].title} with {others[nearest]:.4f}",
                    holds=losses[IMPLICIT] < others[nearest],
                )
            )
    return claims
