"""The commands that draw: those below ``rlreps plot``, and the page to explore."""

from pathlib import Path
from typing import Any

from tyro.conf import Positional

from rlreps.cli.options import Choice, Switch
from rlreps.envs.observations import OBSERVATIONS, Observation
from rlreps.errors import require
from rlreps.subspace.svd import DECOMPOSITIONS, Decomposition, RandomizedSVD

OBSERVED: dict[Any, Choice] = {Observation | None: Choice("observation", OBSERVATIONS)}
OBSERVED_NAMES = {
    **{f"Code.{name}": f"code_{name}" for name in ("size", "bins", "seed")},
    "Image.size": "image_size",
}
"""Options that name an agent's observation of a PuddleWorld."""

CHOICES: dict[Any, Choice] = {**OBSERVED, Decomposition: Choice("method", DECOMPOSITIONS)}
NAMES = OBSERVED_NAMES
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
    observation: Observation | None = None,
) -> None:
    """Draw the leading principal components of a store, and those that runs have learned.

    Args:
        store: Folder of the store.
        out: Figure file (.png, .svg or .pdf).
        runs: Training runs to draw beside the ground truth, aligned to it.
        d: Number of components.
        observation: Observation in the data of fits among the runs, in a PuddleWorld; by default
            the one that each fit names, or the position.
    """
    from rlreps.workflows import figures

    print(f"wrote {figures.draw_components(store, runs, out, d=d, observation=observation)}")


def plot_spectrum(store: Positional[Path], out: Path, config: Decomposition = RANDOMIZED) -> None:
    """Draw the singular values of a store and the energy they capture.

    Args:
        store: Folder of the store.
        out: Figure file (.png, .svg or .pdf).
        config: How the principal subspace is computed.
    """
    from rlreps.workflows import figures

    print(f"wrote {figures.draw_spectrum(store, config, out)}")


def plot_curves(runs: Positional[tuple[Path, ...]], out: Path, quiet: Switch = False) -> None:
    """Draw the learning curves of training runs.

    Args:
        runs: Folders of training runs.
        out: Figure file (.png, .svg or .pdf).
        quiet: Show no progress bar.
    """
    from rlreps.workflows import figures

    print(f"wrote {figures.draw_curves(runs, out, progress=not quiet)}")


def explore(
    paths: Positional[tuple[Path, ...]],
    out: Path,
    components: int = 50,
    observation: Observation | None = None,
    quiet: Switch = False,
) -> None:
    """Write one self-contained, interactive page of a successor measure.

    Args:
        paths: A store or a released ground truth (sutton-100), training runs on it, or the folder
            of a quickstart, which holds both. Without a store, the store of the first run is used.
        out: The page (.html); it needs no server and no network.
        components: Number of principal components on the page.
        observation: Observation in the data of fits among the runs, in a PuddleWorld; by default
            the one that each fit names, or the position.
        quiet: Show no progress bars.
    """
    require(out.suffix == ".html", "a page's file ending in .html", str(out))
    from rlreps.workflows import explore

    options: dict[str, Any] = {"components": components, "observation": observation}
    print(f"wrote {explore.explore(paths, out, **options, progress=not quiet)}")
