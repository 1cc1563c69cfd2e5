"""The commands that draw: those below ``rlreps plot``, and the page to explore."""

from pathlib import Path
from typing import Any

from tyro.conf import Positional

from rlreps.cli.options import Choice
from rlreps.errors import require
from rlreps.subspace.svd import DECOMPOSITIONS, Decomposition, RandomizedSVD

CHOICES: dict[Any, Choice] = {Decomposition: Choice("method", DECOMPOSITIONS)}
RANDOMIZED = RandomizedSVD()


def plot_env(
    out: Path,
    arena: str = "sutton",
    bins: int | None = None,
    goal: tuple[float, float, float] | None = None,
) -> None:
    """Draw an arena.

    Args:
        out: Figure file (.png, .svg or .pdf).
        arena: Name of an arena, or path of a TOML file.
        bins: Also draw the cells of a bins x bins grid; none by default.
        goal: Also draw a goal, a disc (x, y, radius); none by default.
    """
    from rlreps.workflows import figures

    print(f"wrote {figures.draw_environment(arena, out, bins=bins, goal=goal)}")


def plot_components(
    store: Positional[Path],
    out: Path,
    runs: tuple[Path, ...] = (),
    d: int = 10,
) -> None:
    """Draw the leading principal components of a store, and those that runs have learned.

    Args:
        store: Folder of the store.
        out: Figure file (.png, .svg or .pdf).
        runs: Training runs to draw beside the ground truth, aligned to it.
        d: Number of components.
    """
    from rlreps.workflows import figures

    print(f"wrote {figures.draw_components(store, runs, out, d=d)}")


def plot_spectrum(store: Positional[Path], out: Path, config: Decomposition = RANDOMIZED) -> None:
    """Draw the singular values of a store and the energy they capture.

    Args:
        store: Folder of the store.
        out: Figure file (.png, .svg or .pdf).
        config: How the principal subspace is computed.
    """
    from rlreps.workflows import figures

    print(f"wrote {figures.draw_spectrum(store, config, out)}")


def plot_curves(runs: Positional[tuple[Path, ...]], out: Path) -> None:
    """Draw the learning curves of training runs.

    Args:
        runs: Folders of training runs.
        out: Figure file (.png, .svg or .pdf).
    """
    from rlreps.workflows import figures

    print(f"wrote {figures.draw_curves(runs, out)}")


def explore(
    paths: Positional[tuple[Path, ...]],
    out: Path,
    components: int = 50,
) -> None:
    """Write one self-contained, interactive page of a successor measure.

    Args:
        paths: A store or a released ground truth (sutton-100), training runs on it, or the folder
            of a quickstart, which holds both. Without a store, the store of the first run is used.
        out: The page (.html); it needs no server and no network.
        components: Number of principal components on the page.
    """
    require(out.suffix == ".html", "a page's file ending in .html", str(out))
    from rlreps.workflows import explore

    print(f"wrote {explore.explore(paths, out, components=components)}")
