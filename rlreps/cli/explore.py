"""The command that writes a page to explore."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from tyro.conf import Positional

from rlreps.cli.observations import OBSERVED, OBSERVED_NAMES
from rlreps.cli.options import Choice, Switch
from rlreps.envs.observations import Observation
from rlreps.errors import require


@dataclasses.dataclass(frozen=True)
class Explore:
    """Write one self-contained, interactive page of a successor measure.

    Attributes:
        paths: A store or a released ground truth (sutton-100), training runs on it, or the folder
            of a quickstart, which holds both. Without a store, that of the first run.
        out: The page (.html); it needs no server and no network.
        components: Principal components on the page.
        observation: What the data of fits among the runs show of a PuddleWorld; by default what
            each names, or the position.
        quiet: Show no progress bars.
    """

    paths: Positional[tuple[Path, ...]]
    out: Path
    components: int = 50
    observation: Observation | None = None
    quiet: Switch = False

    choices: ClassVar[dict[Any, Choice]] = OBSERVED
    names: ClassVar[dict[str, str]] = OBSERVED_NAMES

    def run(self) -> None:
        require(self.out.suffix == ".html", "a page's file ending in .html", str(self.out))
        from rlreps.workflows.explore import explore

        written = explore(
            self.paths,
            self.out,
            components=self.components,
            observation=self.observation,
            progress=not self.quiet,
        )
        print(f"wrote {written}")
