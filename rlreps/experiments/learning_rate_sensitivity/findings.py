"""What the experiment on learning rates found, beside what the paper states."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.experiments.learning_rate_sensitivity.config import LearningRateSensitivityConfig
from rlreps.experiments.pca_losses import Repeated, is_mnist, repeated
from rlreps.experiments.pca_problem import PcaProblem
from rlreps.experiments.results import Claim
from rlreps.streaming.registry import RULES

IMPLICIT = "implicit_krasulina"
PRINTED = {5: 35.17, 10: 26.96, 20: 18.77}
"""k → implicit Krasulina's final loss on MNIST as the paper prints it, the same at every scale."""

PRINTED_SCALES = (0.1, 1.0, 10.0)
TOLERANCE = 0.02


@dataclasses.dataclass(frozen=True, eq=False)
class RuleResult:
    """What one rule did for one k.

    Attributes:
        rule: Its name.
        k: Components.
        learning_rate: The chosen η0.
        tuning_losses: Loss on the part for each rate that was tried; NaN where it diverged.
        rows_seen: [points], the start among them.
        losses: [points, scales, repeats]; NaN where a run had diverged.
        seconds: Time in the updates of all runs, without compilation and choice of η0.
    """

    rule: str
    k: int
    learning_rate: float
    tuning_losses: Sequence[float]
    rows_seen: npt.NDArray[np.int64]
    losses: npt.NDArray[np.float64]
    seconds: float

    @classmethod
    def from_part(cls, rule: str, k: int, part: Mapping[str, Any]) -> "RuleResult":
        """The result that a part of the run's folder holds."""
        return cls(
            rule,
            k,
            part["learning_rate"],
            part["tuning_losses"],
            np.asarray(part["rows_seen"], np.int64),
            np.asarray(part["losses"], np.float64),
            part["seconds"],
        )

    @property
    def title(self) -> str:
        """Its name in figures and tables."""
        return RULES[self.rule].title

    def final(self, problem: PcaProblem) -> list[Repeated]:
        """Final losses at each scale."""
        return [repeated(losses, problem) for losses in self.losses[-1]]

    def spread(self, problem: PcaProblem) -> float:
        """Largest less smallest mean final loss over the scales."""
        means = [found.mean for found in self.final(problem)]
        return max(means) - min(means)

    def worse_scale(self, config: LearningRateSensitivityConfig, problem: PcaProblem) -> int:
        """Index of the scale other than 1 of largest mean final loss."""
        means = [found.mean for found in self.final(problem)]
        others = [index for index, scale in enumerate(config.scales) if scale != 1.0]
        return max(others, key=means.__getitem__)


def compare_with_paper(
    config: LearningRateSensitivityConfig, problem: PcaProblem, results: Sequence[RuleResult]
) -> list[Claim]:
    """What the paper states beside what was found; its numbers only where the rows are MNIST."""
    claims = []
    for result in results:
        if is_mnist(problem) and result.rule == IMPLICIT and result.k in PRINTED:
            claims += _printed_claims(config, problem, result)
    for k in config.components:
        spreads = {each.title: each.spread(problem) for each in results if each.k == k}
        implicit = RULES[IMPLICIT].title
        others = {title: spread for title, spread in spreads.items() if title != implicit}
        if implicit in spreads and others and len(config.scales) > 1:
            nearest = min(others, key=others.__getitem__)
            claims.append(
                Claim(
                    statement=f"{implicit}, k = {k}: largest less smallest mean loss over scales",
                    paper="goal: the least of all rules",
                    found=f"{spreads[implicit]:.3f}; next comes {nearest} with "
                    f"{others[nearest]:.3f}",
                    holds=spreads[implicit] < others[nearest],
                )
            )
    unknown = [RULES[rule].title for rule in config.rules if rule != IMPLICIT]
    if is_mnist(problem) and unknown:
        claims.append(
            Claim(
                statement=f"{', '.join(unknown)}: mean loss at η0 within the printed spread",
                paper="the printed values were not at hand",
                found="see the table of final losses",
                holds=None,
            )
        )
    return claims


def _printed_claims(
    config: LearningRateSensitivityConfig, problem: PcaProblem, result: RuleResult
) -> list[Claim]:
    """The published final losses of implicit Krasulina, one claim a scale."""
    printed, whole = PRINTED[result.k], int(result.rows_seen[-1]) == len(problem.rows)
    return [
        Claim(
            statement=f"{result.title}, k = {result.k}, {scale:g} η0: mean final loss "
            f"(holds within {TOLERANCE:g})",
            paper=f"{printed:.2f}",
            found=str(found),
            holds=abs(found.mean - printed) <= TOLERANCE if config.is_published and whole else None,
        )
        for scale, found in zip(config.scales, result.final(problem), strict=True)
        if scale in PRINTED_SCALES
    ]
