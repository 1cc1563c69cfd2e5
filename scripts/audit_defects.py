"""Plant defects in sound features of ten worlds, and count which of them the audit names.

    python scripts/audit_defects.py

Rules and bounds were chosen on the first eight worlds; the last two were kept aside.
``docs/results/audit.md`` has the tables.
"""

import collections
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from rlreps.app.generation import generate
from rlreps.auditing import audit
from rlreps.errors import InputError
from rlreps.report.table import Table
from rlreps.successor import (
    BoxGrid,
    GroundTruth,
    MonteCarlo,
    load_ground_truth,
    save_matrix,
)
from rlreps.typing import DoubleArray

UNITS = 64
SEEDS = 2
DISCOUNT = 0.95


def puddle_world(arena: str, folder: Path) -> GroundTruth:
    """Generate the ground truth of an arena, 20 x 20 cells."""
    generate(MonteCarlo(arena=arena, bins=20, rollouts=200, discount=DISCOUNT, horizon=150), folder)
    return load_ground_truth(folder)


def exact_truth(steps: DoubleArray, grid: BoxGrid, folder: Path) -> GroundTruth:
    """Store (I − γP)⁻¹ of a Markov chain [n, n] on the cells of a grid."""
    save_matrix(folder, np.linalg.inv(np.eye(len(steps)) - DISCOUNT * steps), grid)
    return load_ground_truth(folder)


def mountain_car(position: DoubleArray, velocity: DoubleArray, action: int) -> list[DoubleArray]:
    """Make three steps of MountainCar (Sutton & Barto 2018, Example 10.1) without its goal."""
    for _ in range(3):
        velocity = velocity + 0.001 * action - 0.0025 * np.cos(3.0 * position)
        velocity = np.clip(velocity, -0.07, 0.07)
        position = np.clip(position + velocity, -1.2, 0.6)
        velocity = np.where((position <= -1.2) & (velocity < 0.0), 0.0, velocity)
    return [position, velocity]


def pendulum(angle: DoubleArray, velocity: DoubleArray, action: int) -> list[DoubleArray]:
    """Make two steps of Gymnasium's Pendulum-v1 with torques −2, 0 and 2."""
    for _ in range(2):
        velocity = np.clip(velocity + 0.75 * np.sin(angle) + 0.3 * action, -8.0, 8.0)
        angle = (angle + 0.05 * velocity + np.pi) % (2.0 * np.pi) - np.pi
    return [angle, velocity]


def cart(position: DoubleArray, velocity: DoubleArray, action: int) -> list[DoubleArray]:
    """Push a cart with friction between two springy walls for one second."""
    for _ in range(5):
        velocity = np.clip(0.96 * velocity + 0.12 * action, -1.0, 1.0)
        position = position + 0.2 * velocity
        beyond = (position < 0.0) | (position > 2.0)
        velocity = np.where(beyond, -0.8 * velocity, velocity)
        position = np.clip(position, 0.0, 2.0)
    return [position, velocity]


def lake(x: DoubleArray, y: DoubleArray, action: int) -> list[DoubleArray]:
    """Drift on a lake with a current that is strong in its middle, and row across it."""
    for _ in range(3):
        x = x + 1.5 * np.exp(-(((y - 10.0) / 4.0) ** 2))
        y = y + 1.2 * action
    return [np.where(x > 40.0, x - 40.0, x), np.clip(y, 0.0, 20.0)]


def dynamics_truth(
    step: Callable[[DoubleArray, DoubleArray, int], list[DoubleArray]], grid: BoxGrid, folder: Path
) -> GroundTruth:
    """Return the truth of random actions, from 30 random points of each cell."""
    random, points = np.random.default_rng(0), 30
    centres = grid.centres().astype(np.float64)
    chain = np.zeros((grid.num_cells, grid.num_cells))
    for action in (-1, 0, 1):
        for _ in range(points):
            offset = random.uniform(-0.5, 0.5, centres.shape) * np.asarray(grid.cell_widths)
            cells = grid.cell(np.stack(step(*(centres + offset).T, action), axis=1))
            np.add.at(chain, (np.arange(grid.num_cells), cells), 1.0 / (3 * points))
    return exact_truth(chain, grid, folder)


def ring(folder: Path) -> GroundTruth:
    """Return the truth of a walk with drift on 300 places of a circle, slow in one third."""
    count = 300
    index = np.arange(count)
    pace = np.where(index < count // 3, 0.3, 1.0)
    chain = np.zeros((count, count))
    for step, share in ((-3, 0.2), (1, 0.3), (4, 0.5)):
        chain[index, (index + step) % count] += share * pace
    chain[index, index] += 1.0 - pace
    return exact_truth(chain, BoxGrid((0.0,), (6.2832,), (count,), ("angle",)), folder)


WORLDS: Mapping[str, Callable[[Path], GroundTruth]] = {
    "sutton": lambda folder: puddle_world("sutton", folder),
    "four_rooms": lambda folder: puddle_world("four_rooms", folder),
    "mountain car": lambda folder: dynamics_truth(
        mountain_car,
        BoxGrid((-1.2, -0.07), (0.6, 0.07), (24, 20), ("position", "velocity")),
        folder,
    ),
    "ring": ring,
    "spiral": lambda folder: puddle_world("spiral", folder),
    "pendulum": lambda folder: dynamics_truth(
        pendulum, BoxGrid((-np.pi, -8.0), (np.pi, 8.0), (24, 20), ("angle", "velocity")), folder
    ),
    "five_corridors": lambda folder: puddle_world("five_corridors", folder),
    "cart": lambda folder: dynamics_truth(
        cart, BoxGrid((0.0, -1.0), (2.0, 1.0), (22, 20), ("position", "velocity")), folder
    ),
    "two_room_slow (aside)": lambda folder: puddle_world("two_room_slow", folder),
    "lake (aside)": lambda folder: dynamics_truth(
        lake, BoxGrid((0.0, 0.0), (40.0, 20.0), (24, 16), ("x", "y")), folder
    ),
}


def sound_features(
    truth: GroundTruth, random: np.random.Generator
) -> Iterator[tuple[str, DoubleArray]]:
    """Yield kinds of features without a defect, each with its features [n, p]."""
    places = np.asarray(truth.coordinates, np.float64)
    axes = places.shape[1]
    phases = random.uniform(0.0, 2.0 * np.pi, UNITS)
    yield "cosines", np.cos(np.pi * places @ random.normal(size=(axes, UNITS)) * 2.0 + phases)
    hidden = np.tanh(3.0 * places @ random.normal(size=(axes, 128)) + random.normal(size=128))
    yield "untrained tanh network", np.tanh(hidden @ random.normal(size=(128, UNITS)) / 8.0)
    centres = places[random.permutation(len(places))[:UNITS]]
    squares = np.sum(np.square(places[:, None] - centres[None]), axis=2)
    yield "radial bumps", np.exp(-squares / (2.0 * 0.1**2))
    mixing = np.linalg.qr(random.normal(size=(30, 30)))[0]
    yield "exact components, mixed", truth.principal.basis[:, :30].astype(np.float64) @ mixing


def planted(
    truth: GroundTruth, random: np.random.Generator
) -> Iterator[tuple[str, str, DoubleArray]]:
    """Yield a defect, the name by which the audit should call it, and features that have it."""
    sound = dict(sound_features(truth, random))
    cosines, (count, units) = sound["cosines"], sound["cosines"].shape
    noise = random.normal(size=cosines.shape)
    direction = random.normal(size=units)
    yield (
        "collapsed to one direction",
        "collapsed",
        (cosines[:, :1] * direction + 1e-3 * noise * np.abs(direction).mean()),
    )
    yield f"rank 3 of {units}", "low rank", cosines[:, :3] @ random.normal(size=(3, units))
    yield "constant offset", "offset", cosines + 100.0 * random.uniform(0.5, 1.0, units)
    yield "half of the units dormant", "dormant", cosines * (np.arange(units) % 2)
    mirrored = np.asarray(truth.coordinates, np.float64)
    mirrored[:, 0] = np.minimum(mirrored[:, 0], 1.0 - mirrored[:, 0])
    phases = random.uniform(0.0, 2.0 * np.pi, units)
    frequencies = random.normal(size=(mirrored.shape[1], units))
    yield "two halves aliased", "aliased", np.cos(2.0 * np.pi * mirrored @ frequencies + phases)
    basis = np.delete(truth.principal.basis[:, :31].astype(np.float64), 4, axis=1)
    yield (
        "fifth component missing",
        "missing component",
        (basis @ np.linalg.qr(random.normal(size=(30, 30)))[0]),
    )
    yield "scaled by a million", "scale", 1e6 * cosines
    yield "half of the units twice", "duplicated", np.repeat(cosines[:, ::2], 2, axis=1)
    yield "noise", "no better than chance", noise
    yield (
        "as many units as states",
        "overfitted",
        np.concatenate([cosines, random.normal(size=(count, int(0.9 * count) - units))], axis=1),
    )
    yield "rows shuffled", "no better than chance", cosines[random.permutation(count)]


def main() -> None:
    """Print both tables."""
    named: dict[str, dict[str, list[bool]]] = collections.defaultdict(dict)
    others: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    alarms: dict[str, dict[str, list[str]]] = collections.defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder:
        for world, make in WORLDS.items():
            truth = make(Path(folder) / world)
            for seed in range(SEEDS):
                random = np.random.default_rng(seed)
                for kind, features in sound_features(truth, random):
                    found = audit(features.astype(np.float32), truth, seed=seed).findings[
                        "features"
                    ]
                    alarms[kind].setdefault(world, []).append(
                        ", ".join(each.name for each in found.defects)
                    )
                for defect, name, features in planted(truth, random):
                    found = audit(features.astype(np.float32), truth, seed=seed).findings[
                        "features"
                    ]
                    names = [each.name for each in found.defects]
                    named[defect].setdefault(world, []).append(name in names)
                    others[defect].update(each for each in names if each != name)
                refused = False
                try:
                    audit(features, truth, inputs=truth.coordinates)
                except InputError:
                    refused = True
                if not np.allclose(truth.coordinates, truth.observations):
                    named["unit coordinates for observations"].setdefault(world, []).append(refused)
    header = ("planted", *WORLDS, "named beside it")
    rows = [
        (
            defect,
            *(f"{sum(by[w])} of {len(by[w])}" if w in by else "" for w in WORLDS),
            ", ".join(f"{name} ({count})" for name, count in others[defect].items()),
        )
        for defect, by in named.items()
    ]
    every = [each for by in named.values() for several in by.values() for each in several]
    Table(header, rows, f"Named: {sum(every)} of {len(every)}").print()
    wrong = [each for by in alarms.values() for several in by.values() for each in several]
    rows = [
        (kind, *("; ".join(filter(None, by[w])) or "none" for w in WORLDS))
        for kind, by in alarms.items()
    ]
    caption = f"False alarms: {sum(map(bool, wrong))} of {len(wrong)}"
    Table(("sound features", *WORLDS), rows, caption).print()


if __name__ == "__main__":
    main()
