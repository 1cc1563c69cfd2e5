"""Commands on worlds: list, build, describe, and store the truth of one."""

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rlreps.app.job import Printed
from rlreps.app.options import Switch
from rlreps.config import as_json
from rlreps.errors import require
from rlreps.files import require_output
from rlreps.report.table import Table
from rlreps.runs.progress import progress_bar
from rlreps.successor.truth.store.format import require_place
from rlreps.worlds import WORLDS, World, build, epsilon_greedy, load
from rlreps.worlds.named import View, cached

_SHOWN = 5
"""Number of singular values that a description has."""


def list_worlds() -> Table:
    """List the worlds that can be built from the installed packages."""
    rows = []
    for name, entry in WORLDS.items():
        try:
            state = "in the cache" if cached(name).is_file() else "not built"
            package = f"{entry.package} {importlib.metadata.version(entry.package)}"
        except ValueError:
            state, package = f'pip install "rlreps[{entry.extra}]"', entry.package
        rows.append((name, package, entry.game, state))
    return Table(("world", "package", "game", "state"), rows, f"{len(rows)} worlds")


def build_world(
    world: str,
    out: Path | None = None,
    seed: int = 0,
    view: View = "image",
    any_version: Switch = False,
) -> dict[str, Any]:
    """Build a world anew, into the cache or a file.

    Args:
        world: Its name.
        out: File (.npz); by default the cache.
        seed: Seed of the reset, which decides a layout that is drawn.
        view: What an agent sees of MiniGrid.
        any_version: Accept a version of the package whose game has other rules than published.
    """
    if out is not None:
        require_output(out, file=True)
        require(out.suffix == ".npz", "a file that ends in .npz", str(out))
    path = cached(world, seed, view) if out is None else out
    made = build(world, seed=seed, view=view, any_version=any_version, progress=progress_bar)
    path.parent.mkdir(parents=True, exist_ok=True)
    return {"path": str(made.save(path)), **describe(made)}


def describe_world(
    world: str, seed: int = 0, view: View = "image", discount: float = 0.95
) -> dict[str, Any]:
    """Describe a world: states, aliases, values, effective horizon and leading singular values.

    Args:
        world: Its name, or the path of a file; a world that is not in the cache is built.
        seed: Seed of the reset.
        view: What an agent sees of MiniGrid.
        discount: γ of values, of the horizon and of the successor measure.
    """
    found = load(world, seed=seed, view=view, progress=progress_bar)
    described = describe(found)
    truth = found.truth(discount=discount, progress=progress_bar)
    horizon = None if found.next_states is None else found.effective_horizon(discount)
    return {
        **described,
        "discount": discount,
        "optimal_value_at_the_start": float(found.start @ found.optimal_values(discount)),
        "random_value_at_the_start": float(found.start @ found.policy_values(discount=discount)),
        "effective_horizon": None if horizon is None else round(horizon, 2),
        "singular_values": [
            round(float(value), 4) for value in truth.principal.singular_values[:_SHOWN]
        ],
        "energy_captured": [
            round(float(each), 4) for each in truth.principal.energy_captured()[:_SHOWN]
        ],
    }


def describe(world: World) -> dict[str, Any]:
    """Return what a world holds, as JSON values."""
    return {
        "states": world.num_states,
        "actions": world.num_actions,
        "deterministic": world.next_states is not None,
        "terminal": int(world.terminal.sum()),
        "rewarded": int(np.count_nonzero(world.rewards)),
        "aliased": world.num_aliased,
        "observation": list(world.observations.shape[1:]),
        "digest": world.digest,
        **{
            name: as_json(value)
            for name, value in world.about.items()
            if name not in ("states", "values") and value is not None
        },
    }


def save_truth(
    world: str,
    out: Path,
    seed: int = 0,
    view: View = "image",
    discount: float = 0.95,
    policy: Literal["uniform", "optimal"] = "uniform",
    epsilon: float = 0.1,
    terminal: Literal["leave", "absorb"] = "leave",
    centring: Literal["columns", "rows", "both"] = "columns",
) -> Iterator[Printed]:
    """Store the successor measure, exact for a world's table, of a policy, and what encoders see.

    Args:
        world: The name of a world, or the path of a file.
        out: Folder of the store.
        seed: Seed of the reset.
        view: What an agent sees of MiniGrid.
        discount: γ.
        policy: The uniformly random policy, or the optimal one that explores.
        epsilon: ε of the optimal policy.
        terminal: Whether an episode leaves the game in a terminal state or stays there.
        centring: Which means are subtracted when the store is read.
    """
    require_place(out)
    found = load(world, seed=seed, view=view, progress=progress_bar)
    chances = None
    if policy == "optimal":
        chances = epsilon_greedy(found.optimal_action_values(discount), epsilon)
    store = found.save_truth(out, chances, discount=discount, terminal=terminal, centring=centring)
    yield f"{store.path}: {found.num_states:,} states of {found.about.get('name', world)}"
