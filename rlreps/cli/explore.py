"""The command that writes a page to explore."""

import dataclasses
from pathlib import Path

from tyro.conf import Positional

from rlreps.cli.options import Switch
from rlreps.errors import require


@dataclasses.dataclass(frozen=True)
class Explore:
    """Write one self-contained, interactive page of a successor measure.

    Attributes:
        paths: A store or a released ground truth (sutton-100), training runs on it, or the folder
            of a quickstart, which holds both. Without a store, that of the first run.
        out: The page (.html); it needs no server and no network.
        components: Principal components on the page.
        quiet: Show no progress bars.
    """

    paths: Positional[tuple[Path, ...]]
    out: Path
    components: int = 50
    quiet: Switch = False

    def run(self) -> None:
        require(self.out.suffix == ".html", "a page's file ending in .html", str(self.out))
        from rlreps.workflows.explore import explore

        written = explore(self.paths, self.out, components=self.components, progress=not self.quiet)
        print(f"wrote {written}")
