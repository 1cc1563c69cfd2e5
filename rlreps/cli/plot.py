"""The commands below ``rlreps plot``."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from tyro.conf import Positional

from rlreps.cli.observations import OBSERVED, OBSERVED_NAMES
from rlreps.cli.options import Choice, Switch
from rlreps.envs.observations import Observation
from rlreps.subspace.svd import DECOMPOSITIONS, Decomposition, RandomizedSVD


@dataclasses.dataclass(frozen=True)
class PlotEnv:
    """Draw an arena.

    Attributes:
        out: Figure file (.png, .svg or .pdf).
        arena: Name of an arena, or path of a TOML file.
        bins: Also draw the cells of a bins x bins grid; none by default.
        goal: Also draw a goal, a disc (x, y, radius); none by default.
    """

    out: Path
    arena: str = "sutton"
    bins: int | None = None
    goal: tuple[float, float, float] | None = None

    def run(self) -> None:
        from rlreps.workflows import figures

        written = figures.draw_environment(self.arena, self.out, bins=self.bins, goal=self.goal)
        _say_written(written)


@dataclasses.dataclass(frozen=True)
class PlotComponents:
    """Draw the leading principal components of a store, and those that runs have learned.

    Attributes:
        store: Folder of the store.
        out: Figure file (.png, .svg or .pdf).
        runs: Training runs to draw beside the ground truth, aligned to it.
        d: Number of components.
        observation: What the data of fits among the runs show of a PuddleWorld; by default what
            each names, or the position.
    """

    store: Positional[Path]
    out: Path
    runs: tuple[Path, ...] = ()
    d: int = 10
    observation: Observation | None = None

    choices: ClassVar[dict[Any, Choice]] = OBSERVED
    names: ClassVar[dict[str, str]] = OBSERVED_NAMES

    def run(self) -> None:
        from rlreps.workflows import figures

        written = figures.draw_components(
            self.store, self.runs, self.out, d=self.d, observation=self.observation
        )
        _say_written(written)


@dataclasses.dataclass(frozen=True)
class PlotSpectrum:
    """Draw the singular values of a store and the energy they capture.

    Attributes:
        store: Folder of the store.
        out: Figure file (.png, .svg or .pdf).
        config: How the principal subspace is computed.
    """

    store: Positional[Path]
    out: Path
    config: Decomposition = dataclasses.field(default_factory=RandomizedSVD)

    choices: ClassVar[dict[Any, Choice]] = {Decomposition: Choice("method", DECOMPOSITIONS)}

    def run(self) -> None:
        from rlreps.workflows import figures

        _say_written(figures.draw_spectrum(self.store, self.config, self.out))


@dataclasses.dataclass(frozen=True)
class PlotCurves:
    """Draw the learning curves of training runs.

    Attributes:
        runs: Folders of training runs.
        out: Figure file (.png, .svg or .pdf).
        quiet: Show no progress bar.
    """

    runs: Positional[tuple[Path, ...]]
    out: Path
    quiet: Switch = False

    def run(self) -> None:
        from rlreps.workflows import figures

        _say_written(figures.draw_curves(self.runs, self.out, progress=not self.quiet))


def _say_written(path: Path) -> None:
    print(f"wrote {path}")
