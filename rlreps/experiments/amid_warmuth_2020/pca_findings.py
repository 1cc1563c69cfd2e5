"""What repeated runs of one streaming rule left behind, as findings read it from its part."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rlreps.streaming import RULES

IMPLICIT = "implicit_krasulina"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RuleRuns:
    """What one rule did for one k; a subclass adds its arrays of losses.

    Attributes:
        rule: Its name.
        k: Components.
        learning_rate: The chosen η0; NaN for a rule without.
        tuning_losses: Loss on the part for each rate that was tried; NaN where it diverged.
        rows_seen: [points], the start among them.
        seconds: Time in the updates of all runs, without compilation and choice of η0.
    """

    rule: str
    k: int
    learning_rate: float
    tuning_losses: Sequence[float]
    rows_seen: npt.NDArray[np.int64]
    seconds: float

    @classmethod
    def from_part(cls, rule: str, k: int, part: Mapping[str, Any]) -> Self:
        """The result that a part of the run's folder holds."""
        common = {field.name for field in dataclasses.fields(RuleRuns)}
        names = [field.name for field in dataclasses.fields(cls) if field.name not in common]
        return cls(
            rule=rule,
            k=k,
            learning_rate=part["learning_rate"],
            tuning_losses=part["tuning_losses"],
            rows_seen=np.asarray(part["rows_seen"], np.int64),
            seconds=part["seconds"],
            **{name: np.asarray(part[name], np.float64) for name in names},
        )

    @classmethod
    def from_parts(
        cls, cells: Sequence[tuple[str, int]], parts: Sequence[Mapping[str, Any]]
    ) -> list[Self]:
        """The results for cells (rule, k)."""
        return [cls.from_part(rule, k, part) for (rule, k), part in zip(cells, parts, strict=True)]

    @property
    def title(self) -> str:
        """Its name in figures and tables."""
        return RULES[self.rule].title
