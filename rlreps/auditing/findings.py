"""What an audit finds: its tables, its figures, and the files that hold them."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rlreps import plotting
from rlreps.auditing.defects import Defect
from rlreps.auditing.measures import HEADLINE, Health
from rlreps.files import write_atomically
from rlreps.report.table import Table
from rlreps.subspace import align
from rlreps.successor import GroundTruth
from rlreps.typing import DoubleArray

if TYPE_CHECKING:  # An audit without a picture does not load matplotlib.
    from matplotlib.figure import Figure

LEADING = (1, 2, 5, 10, 20, 50)
"""Numbers of leading components whose captured shares are listed."""
LABELLED = (10, 50, 200)
"""Numbers of labelled states from which values are predicted."""
REWARDS = 16
"""Number of random rewards whose values are predicted."""
DRAWS = 8
"""Number of draws of labelled states."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureFindings:
    """What the audit found of one network's features [n, p].

    Attributes:
        features: The features.
        components: ‖Qᵀu_j‖² of each leading component in the span with an intercept, [k].
        without_intercept: The same in the span of the features as they are, [k].
        held_out: R² of each component at held-out states, [k].
        chance: Share of each component in the span of random features of this rank with an
            intercept, [k]: c² + (1 − c²) r / (n − 1), where the constant holds a share of c². It is
            0 if the truth's columns are centred.
        health: Health of the features.
        aliased: Share of states that have the features of a state far away in the truth's leading
            components.
        aliases: Pairs of such states, [pairs, 2].
        values: Kind of features → R² [len(LABELLED), rewards] of value functions of random rewards
            that a linear read-out predicts from 10, 50 and 200 labelled states at others; NaN
            where more than half of the states would be labelled.
        defects: Known defects, none of sound features.
    """

    features: np.ndarray
    components: DoubleArray
    without_intercept: DoubleArray
    held_out: DoubleArray
    chance: DoubleArray
    health: Health
    aliased: float
    aliases: npt.NDArray[np.int64]
    values: Mapping[str, DoubleArray]
    defects: list[Defect]

    def by_chance(self, k: int = HEADLINE) -> float:
        """Return the mean share of the leading k components that random features hold."""
        return float(self.chance[:k].mean())

    def leading(self, k: int = HEADLINE) -> float:
        """Return the captured share of the leading k components, with an intercept."""
        return float(self.components[:k].mean())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """Findings on one or several sets of features.

    Attributes:
        truth: The truth; of recorded data, their components at the measured states.
        findings: Label → findings. A checkpoint has its step as label, one network "features".
        notes: Sentences about recorded data: how the components were estimated, and the limits of
            the data; empty for a ground truth.
        observable: Largest share of each leading component that a function of the observation can
            have, [k]; None if no two states look alike.
    """

    truth: GroundTruth
    findings: Mapping[str | int, FeatureFindings]
    notes: Sequence[str] = ()
    observable: DoubleArray | None = None

    def lines(self) -> list[str]:
        """Return the audit in words: what is captured, and every defect with what to try."""
        lines = []
        if self.observable is not None:
            k = min(HEADLINE, len(self.observable))
            lines.append(
                f"states look alike: features of the observation hold at most "
                f"{self.observable[:k].mean():.3f} of the leading {k} components"
            )
        for label, each in self.findings.items():
            name = "" if len(self.findings) == 1 else f"{label}: "
            k = min(HEADLINE, len(each.components))
            error = (
                "" if self.truth.error is None else f", their error {self.truth.error[k - 1]:.3f}"
            )
            lines.append(
                f"{name}{each.leading(k):.3f} of the leading {k} components are in the span "
                f"(chance {each.by_chance(k):.3f}{error}), {each.held_out[:k].mean():.3f} at "
                "held-out states"
            )
            lines += [f"{name}{defect.line()}" for defect in each.defects]
            if not each.defects:
                lines.append(f"{name}no known defect")
        return [*lines, *(f"note: {note}" for note in self.notes)]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def table(self) -> Table:
        """Return what is captured of the leading components, a row for each k."""
        rows = [
            (
                str(label),
                k,
                each.leading(k),
                float(each.without_intercept[:k].mean()),
                float(each.held_out[:k].mean()),
                each.by_chance(k),
                None if self.truth.error is None else float(self.truth.error[k - 1]),
            )
            for label, each in self.findings.items()
            for k in LEADING
            if k <= len(each.components)
        ]
        header = ("features", "k", "captured", "without intercept", "held out", "chance")
        return Table(
            (*header, "the truth's own error"),
            rows,
            "Share of the leading k components in the span of the features and a constant; in the "
            "span of the features alone; R² at states held out from a linear map; the share that "
            "random features of the same rank have",
        )

    def health_table(self) -> Table:
        """Return the health of the features, a row for each set."""
        fields = [field.name for field in dataclasses.fields(Health)]
        rows = [
            (str(label), each.features.shape[1], *(getattr(each.health, name) for name in fields))
            for label, each in self.findings.items()
        ]
        names = [name.replace("_", " ") for name in fields]
        return Table(("features", "units", *names), rows, "Health (see rlreps.auditing.Health)")

    def values_table(self) -> Table:
        """Return the R² of value functions from few labelled states, by kind of features."""
        rows = [
            (str(label), kind, *(float(row.mean()) for row in scores))
            for label, each in self.findings.items()
            for kind, scores in each.values.items()
        ]
        header = ("features", "read out from", *(f"{count} labelled" for count in LABELLED))
        return Table(
            header,
            rows,
            f"Mean R² of values of {REWARDS} random rewards, {DRAWS} draws of labelled states",
        )

    def figure(self) -> "Figure":
        """Draw what is captured, and by chance: over training for checkpoints, else over k."""
        several, first = len(self.findings) > 1, next(iter(self.findings.values()))
        k = np.arange(1, len(first.components) + 1)
        if several and all(isinstance(label, int) for label in self.findings):
            x, x_label = np.array([*self.findings], np.float64), "step"
            means = {
                f"leading {some}": [each.leading(some) for each in self.findings.values()]
                for some in LEADING
                if some <= len(k)
            }
            by_chance = {"chance": [each.by_chance() for each in self.findings.values()]}
            # From zero, so that small changes look small.
            drawn = max(map(max, [*means.values(), *by_chance.values()]))
            highest = min(max(1.1 * drawn, 0.01), 1.02)
        else:
            x, x_label, highest = k.astype(np.float64), "leading components k", 1.02
            shares = {str(label): each.components for label, each in self.findings.items()}
            if not several:
                shares = {
                    "with an intercept": first.components,
                    "without": first.without_intercept,
                    "held-out states": np.maximum(first.held_out, 0.0),
                }
            means = {name: (np.cumsum(share) / k).tolist() for name, share in shares.items()}
            by_chance = {
                str(label) if several else "chance": (np.cumsum(each.chance) / k).tolist()
                for label, each in self.findings.items()
            }
        lines = [plotting.Line(label=name, x=x, mean=mean) for name, mean in means.items()]
        look = {"linestyle": "--", "linewidth": 1.1, "marker": "", "alpha": 0.7}
        if "chance" in by_chance:
            look["color"] = plotting.MUTED
        lines += [
            plotting.Line(label=name, x=x, mean=mean, variant="chance")
            for name, mean in by_chance.items()
        ]
        return plotting.plot_panels(
            [plotting.Panel(title="", lines=lines)],
            x_label=x_label,
            y_label="captured share",
            log_y=False,
            y_limits=(0.0, highest),
            looks={"chance": look},
        )

    def components_figure(self) -> "Figure | None":
        """Draw the leading components above their images in the features; None without a grid."""
        grid = self.truth.grid
        if grid is None or len(grid.bins) > 2:
            return None
        k = min(5, self.truth.principal.basis.shape[1])
        basis = self.truth.principal.basis[:, :k]
        maps = {"truth": basis}
        for label, each in self.findings.items():
            centred = each.features - each.features.mean(axis=0, dtype=np.float64)
            if each.health.rank:
                maps[str(label)] = np.asarray(align(centred.astype(np.float32), basis))
        cosines = {
            str(label): np.sqrt(each.components[:k])
            for label, each in self.findings.items()
            if str(label) in maps
        }
        return plotting.plot_components(maps, grid=grid, cells=self.truth.cells, cosines=cosines)

    def aliases_figure(self) -> "Figure | None":
        """Draw which states are one in the features; None without a plane or aliased states."""
        grid = self.truth.grid
        pairs = {str(label): each.aliases for label, each in self.findings.items()}
        pairs = {label: found for label, found in pairs.items() if len(found)}
        if grid is None or len(grid.bins) != 2 or not pairs:
            return None
        return plotting.plot_pairs(pairs, np.asarray(self.truth.states), grid)

    def write(self, folder: str | Path) -> list[Path]:
        """Write the tables (CSV) and figures (PNG) to a folder; return their paths."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        tables = {
            "captured": self.table(),
            "health": self.health_table(),
            "values": self.values_table(),
        }
        paths = [
            write_atomically(place / f"{name}.csv", table.to_csv().encode())
            for name, table in tables.items()
        ]
        return paths + [path for path, _ in self.save_figures(place)]

    def save_figures(self, folder: Path) -> list[tuple[Path, str]]:
        """Write the figures to a folder; return the path and the caption of each."""
        drawn = {
            "captured": (self.figure(), "Share of the leading components in the span."),
            "components": (
                self.components_figure(),
                "The leading components, and their images in the features.",
            ),
            "aliases": (
                self.aliases_figure(),
                "Aliased states: lines join states that are one in the features although the truth "
                "tells them apart.",
            ),
        }
        return [
            (plotting.save_figure(figure, folder / f"{name}.png"), caption)
            for name, (figure, caption) in drawn.items()
            if figure is not None
        ]
