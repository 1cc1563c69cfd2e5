"""Configuration and presets of the synthetic experiment (Le Lan et al. 2023, Sec. 5.1)."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from rlreps.errors import require, require_choice, require_positive

SpectrumName = Literal["linear", "exponential"]
SyntheticMethod = Literal["danskin_lissa", "danskin_empirical", "naive", "oracle"]

ROLES = {"danskin_lissa": 5, "danskin_empirical": 5, "naive": 3, "oracle": 5}
"""Method → groups of rows that it shares its total out to.

The oracle needs no rows for its weights; it takes the gradient at as many as Danskin-LISSA does, so
that what separates the two is the estimate of the weights alone.
"""


class Setting(NamedTuple):
    """One point of the experiment: what is trained with every seed.

    Attributes:
        method: The objective.
        num_features: d.
        rows: Rows of each role, J = M = N.
        spectrum: The matrix's singular values.
        kappa0: κ0 of LISSA; of no effect on other methods.
    """

    method: SyntheticMethod
    num_features: int
    rows: int
    spectrum: SpectrumName
    kappa0: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticConfig:
    """The four panels of the synthetic experiment.

    Attributes:
        num_states: States and tasks of the square matrix.
        spectra: Singular values: ``linear`` 1 … 1000 or ``exponential`` 10⁰ … 10³.
        step_size: α of stochastic gradient descent on gradients summed over the N rows.
        kappa0: κ0 where it is not what varies.
        rows: J = M = N where they are not what varies.
        dimension: d where it is not what varies.
        dimensions: d of panel (a), increasing.
        rows_by_total: J = M = N of panel (b), increasing.
        totals: Rows an update of panel (c), all roles together; increasing multiples of 15.
        kappa_values: κ0 of panel (d), increasing, on both sides of 2.
        kappa_dimensions: d of panel (d), increasing.
        steps: Updates.
        num_seeds: Runs of each setting, each with a matrix of its own.
        evaluate_every: Updates between measurements.
        checkpoint_every: Updates between checkpoints; a multiple of ``evaluate_every``.
    """

    num_states: int = 50
    spectra: tuple[SpectrumName, ...] = ("linear", "exponential")
    step_size: float = 0.001
    kappa0: float = 1.9
    rows: int = 5
    dimension: int = 10
    dimensions: tuple[int, ...] = (1, 5, 10, 25, 30, 35, 40, 45)
    rows_by_total: tuple[int, ...] = (1, 2, 5, 10, 20)
    totals: tuple[int, ...] = (15, 30, 75, 150, 300)
    kappa_values: tuple[float, ...] = (0.25, 0.5, 1.0, 1.5, 1.9, 2.1, 2.5, 3.0, 4.0)
    kappa_dimensions: tuple[int, ...] = (1, 5, 10, 25)
    steps: int
    num_seeds: int
    evaluate_every: int
    checkpoint_every: int

    def __post_init__(self) -> None:
        require(len(self.spectra) >= 1, "at least one of spectra", self.spectra)
        for spectrum in self.spectra:
            require_choice("spectra", spectrum, get_args(SpectrumName))
        for name in ("num_states", "rows", "steps", "num_seeds", "evaluate_every"):
            require_positive(name, getattr(self, name))
        require(0.0 < self.step_size < math.inf, "a finite step_size > 0", self.step_size)
        # What is compared along an axis: a claim about its ends needs them in order.
        for name in ("dimensions", "rows_by_total", "totals", "kappa_values", "kappa_dimensions"):
            values = getattr(self, name)
            require(
                len(values) >= 1 and list(values) == sorted(set(values)),
                f"increasing {name}, at least one",
                values,
            )
        require(self.rows_by_total[0] >= 1, "rows_by_total of at least 1", self.rows_by_total)
        require(
            self.checkpoint_every >= 1 and self.checkpoint_every % self.evaluate_every == 0,
            f"checkpoint_every to be a multiple of evaluate_every ({self.evaluate_every})",
            self.checkpoint_every,
        )
        for d in (self.dimension, *self.dimensions, *self.kappa_dimensions):
            require(1 <= d < self.num_states, f"d in [1, {self.num_states - 1}]", d)
        for total in self.totals:
            require(total >= 15 and total % 15 == 0, "totals that are multiples of 15", total)
        for kappa in (self.kappa0, *self.kappa_values):
            require(0.0 < kappa < math.inf, "a finite kappa0 > 0", kappa)
        require(
            self.kappa_values[0] < 2.0 < self.kappa_values[-1],
            "kappa_values on both sides of 2, where the series stops converging",
            self.kappa_values,
        )

    def panel_dimensions(self, spectrum: SpectrumName) -> dict[int, Setting]:
        """Panel (a): d → setting."""
        return {
            d: Setting("danskin_lissa", d, self.rows, spectrum, self.kappa0)
            for d in self.dimensions
        }

    def panel_rows(self, spectrum: SpectrumName) -> dict[int, Setting]:
        """Panel (b): total of rows → setting."""
        return {
            ROLES["danskin_lissa"] * rows: Setting(
                "danskin_lissa", self.dimension, rows, spectrum, self.kappa0
            )
            for rows in self.rows_by_total
        }

    def panel_methods(self, spectrum: SpectrumName) -> dict[str, dict[int, Setting]]:
        """Panel (c): method → total of rows → setting."""
        return {
            method: {
                total: Setting(
                    method, self.dimension, total // ROLES[method], spectrum, self.kappa0
                )
                for total in self.totals
            }
            for method in get_args(SyntheticMethod)
        }

    def panel_kappa(self, spectrum: SpectrumName) -> dict[int, dict[float, Setting]]:
        """Panel (d): d → κ0 → setting."""
        return {
            d: {
                kappa: Setting("danskin_lissa", d, self.rows, spectrum, kappa)
                for kappa in self.kappa_values
            }
            for d in self.kappa_dimensions
        }

    def settings(self) -> list[Setting]:
        """Every setting of any panel, once."""
        found: dict[Setting, None] = {}
        for spectrum in self.spectra:
            panels: list[Mapping[Any, Setting]] = [
                self.panel_dimensions(spectrum),
                self.panel_rows(spectrum),
                *self.panel_methods(spectrum).values(),
                *self.panel_kappa(spectrum).values(),
            ]
            found |= dict.fromkeys(setting for panel in panels for setting in panel.values())
        return list(found)


PRESETS: dict[str, SyntheticConfig] = {
    "smoke": SyntheticConfig(
        dimensions=(1, 10),
        rows_by_total=(1, 5),
        totals=(15, 75),
        kappa_values=(1.9, 3.0),
        kappa_dimensions=(10,),
        steps=400,
        num_seeds=3,
        evaluate_every=100,
        checkpoint_every=400,
    ),
    "laptop": SyntheticConfig(
        steps=50_000, num_seeds=10, evaluate_every=1_000, checkpoint_every=10_000
    ),
    "paper": SyntheticConfig(
        steps=1_000_000, num_seeds=30, evaluate_every=10_000, checkpoint_every=50_000
    ),
}
"""Preset name → configuration."""
