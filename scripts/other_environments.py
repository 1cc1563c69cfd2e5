"""Successor measures beyond PuddleWorld: a JAX environment of your own, and Gymnasium's.

    python scripts/other_environments.py --out FOLDER [--smoke] [--seed SEED]

Three ways to a matrix, one for each kind of environment, and what all of them have in common:

- four rooms (Sutton, Precup & Singh 1999), in pure JAX (four_rooms.py): the library's own kernel;
- MountainCar from Gymnasium, whose state can be set: rollouts from every cell;
- Pendulum from Gymnasium, taken as if it could not be set: rows from the states it visits.

Each matrix is centred and decomposed, an encoder is trained on its entries for a few seconds, and
the leading components of both are drawn to FOLDER/<name>.png.
"""

import argparse
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
import optax
from four_rooms import exact_four_rooms, four_rooms, free_squares
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from rlreps import losses, subspace
from rlreps.encoders import FourierMLP
from rlreps.plotting import save_figure, signed_colormap
from rlreps.plotting.style import styled
from rlreps.sources.matrix import matrix_source
from rlreps.successor.chains import environment_chain
from rlreps.successor.grids import BoxGrid
from rlreps.successor.gymnasium import (
    GymnasiumProcess,
    GymnasiumRowSampler,
    VisitSettings,
    every_visit,
)
from rlreps.successor.measure import RolloutSettings, RowEstimates
from rlreps.successor.monte_carlo import RowSampler
from rlreps.training import train

COMPONENTS = 6

GOAL = 0.5
"""Position from which on MountainCar's episodes end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """Size of the example.

    Attributes:
        rollouts: Rollouts from each of the four rooms' cells.
        bins: Cells along each axis of the Gymnasium environments' state spaces.
        car_rollouts: Rollouts from each cell of MountainCar.
        pendulum_steps: Steps of each of 64 pendulums.
        updates: Training steps of each encoder.
    """

    rollouts: int = 2000
    bins: int = 24
    car_rollouts: int = 24
    pendulum_steps: int = 10_000
    updates: int = 2000


SMOKE = Size(rollouts=200, bins=10, car_rollouts=4, pendulum_steps=500, updates=40)


class Measured(NamedTuple):
    """A successor measure over cells of a grid, as far as there are rows.

    Attributes:
        name: File name of its figure.
        title: Title of its figure.
        grid: The cells.
        axes: Names and units of the two coordinates.
        cells: Grid cell of each row [n].
        estimates: Rows and half differences [n, tasks].
        transitions: Simulated steps of the environment.
    """

    name: str
    title: str
    grid: BoxGrid
    axes: tuple[str, str]
    cells: np.ndarray
    estimates: RowEstimates
    transitions: int


def measure_four_rooms(size: Size, seed: int) -> Measured:
    """Rollouts on the device, checked against the exact matrix."""
    environment = four_rooms()
    squares = len(environment.targets)
    settings = RolloutSettings(rollouts=size.rollouts, horizon=300, discount=0.97, seed=seed)
    chain = environment_chain(
        environment, num_cells=squares, start=lambda key, cell: cell, cell=lambda state: state
    )
    estimates = next(RowSampler(chain, settings).row_blocks([range(squares)]))
    assert estimates.half_difference is not None  # Rollouts were sampled.
    errors = estimates.rows - exact_four_rooms(environment, settings.discount, settings.horizon)
    print(
        f"four_rooms: root-mean-square error {np.sqrt(np.mean(errors**2)):.4f} against the exact "
        f"matrix; by the halves {np.sqrt(np.mean(estimates.half_difference**2)):.4f}"
    )
    rows, columns = free_squares().shape
    grid = BoxGrid((0, 0), (columns, rows), (columns, rows))
    return Measured(
        name="four_rooms",
        title=f"four rooms, γ = {settings.discount}; grey: walls",
        grid=grid,
        axes=("column (squares)", "row (squares)"),
        cells=grid.cell(np.asarray(environment.positions) + 0.5),
        estimates=estimates,
        transitions=squares * settings.rollouts * settings.horizon,
    )


def measure_mountain_car(size: Size, seed: int) -> Measured:
    """Rollouts from every cell of a grid; the goal, where episodes end, is one more cell."""
    grid = BoxGrid((-1.2, -0.07), (GOAL, 0.07), (size.bins, size.bins))

    def cell(observations: np.ndarray) -> np.ndarray:
        return np.where(observations[:, 0] >= GOAL, grid.num_cells, grid.cell(observations))

    settings = RolloutSettings(rollouts=size.car_rollouts, horizon=60, discount=0.9, seed=seed)
    environment = gymnasium.make_vec(
        "MountainCar-v0",
        settings.rollouts,
        vectorization_mode="sync",
        max_episode_steps=settings.horizon,
        disable_env_checker=True,
    )
    process = GymnasiumProcess(
        environment=environment, grid=grid, cell=cell, num_cells=grid.num_cells + 1
    )
    rows, half_difference = GymnasiumRowSampler(process, settings=settings).estimates()
    environment.close()
    assert half_difference is not None  # Rollouts were sampled.
    # The goal absorbs, but is no task: its one column would hold most of the matrix's energy.
    estimates = RowEstimates(rows[:, :-1], half_difference[:, :-1])
    return Measured(
        name="mountain_car",
        title=f"MountainCar, γ = {settings.discount}",
        grid=grid,
        axes=("position (m)", "velocity (m per step)"),
        cells=np.arange(grid.num_cells),
        estimates=estimates,
        transitions=grid.num_cells * settings.rollouts * (settings.horizon - 1),
    )


def pendulum_state(observations: np.ndarray) -> np.ndarray:
    """(cos θ, sin θ, θ') [m, 3] → (θ, θ') [m, 2] in rad and rad/s."""
    angles = np.arctan2(observations[:, 1], observations[:, 0])
    return np.stack([angles, observations[:, 2]], axis=1)


def measure_pendulum(size: Size, seed: int) -> Measured:
    """Rows of the cells that random torques lead through from Gymnasium's own starts."""
    grid = BoxGrid((-np.pi, -8.0), (np.pi, 8.0), (size.bins, size.bins))
    settings = VisitSettings(steps=size.pendulum_steps, horizon=60, discount=0.9, seed=seed)
    environment = gymnasium.make_vec(
        "Pendulum-v1", 64, vectorization_mode="sync", disable_env_checker=True
    )
    process = GymnasiumProcess(
        environment=environment,
        grid=grid,
        cell=lambda observations: grid.cell(pendulum_state(observations)),
    )
    estimates = every_visit(process, settings)
    environment.close()
    visited = estimates.reduced(minimum_visits=20)
    return Measured(
        name="pendulum",
        title=f"Pendulum, γ = {settings.discount}; grey: cells visited rarely or never",
        grid=grid,
        axes=("angle from upright (rad)", "angular velocity (rad/s)"),
        cells=visited.cells,
        estimates=visited.estimates,
        transitions=settings.steps * 64,
    )


def noise_floor(measured: Measured) -> float:
    """Subspace distance of the estimate from the truth, from that between its two halves.

    A half has twice the variance of the whole, and so have two halves in place of one half and the
    truth; distances grow with the variance.
    """
    rows, half_difference = measured.estimates
    assert half_difference is not None  # Every estimate here is from samples.
    bases = [
        subspace.exact_svd(subspace.centre_columns(jnp.asarray(half)), COMPONENTS).basis
        for half in (rows + half_difference, rows - half_difference)
    ]
    return float(subspace.subspace_distance(jnp.asarray(bases[0]), jnp.asarray(bases[1]))) / 4


def learn(measured: Measured, size: Size, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Decomposes the matrix and trains an encoder on its entries.

    Returns:
        The true components, the encoder's, rotated onto them (both [n, COMPONENTS]), and the
        subspace distance between the two.
    """
    matrix = subspace.centre_columns(jnp.asarray(measured.estimates.rows))
    basis = jnp.asarray(subspace.exact_svd(matrix, COMPONENTS).basis)
    inputs = jnp.asarray(measured.grid.unit_centres()[measured.cells])
    encoder = FourierMLP(COMPONENTS, num_inputs=2, hidden=(128, 128))
    result = train(
        encoder,
        losses.LargeBatch(COMPONENTS),
        matrix_source(matrix, inputs),
        optimizer=optax.adam(optax.cosine_decay_schedule(2e-3, size.updates)),
        steps=size.updates,
        # In a small batch centred columns have a mean, for which a constant feature would pay.
        rows=1000,
        tasks=128,
        seeds=(seed,),
        evaluate_every=size.updates,
        checkpoint_every=size.updates,
        progress=False,
    )
    features = encoder.apply(result.params(), inputs)
    distance = float(subspace.subspace_distance(features, basis))
    return np.asarray(basis), np.asarray(subspace.align(features, basis)), distance


@styled
def draw(measured: Measured, components: dict[str, np.ndarray]) -> Figure:
    """Sets of components [n, COMPONENTS], one under the other; cells without a row are grey."""
    grid = measured.grid
    figure = Figure(figsize=(10.0, 3.9))
    panels = figure.subplots(len(components), COMPONENTS, sharex=True, sharey=True, squeeze=False)
    for column in range(COMPONENTS):
        limit = max(float(np.abs(table[:, column]).max()) for table in components.values())
        for row, (name, table) in enumerate(components.items()):
            values = np.full(grid.num_cells, np.nan)
            values[measured.cells] = table[:, column]
            axes = panels[row, column]
            axes.imshow(
                values.reshape(grid.bins[::-1]),
                extent=(grid.low[0], grid.high[0], grid.low[1], grid.high[1]),
                aspect="auto",
                cmap=signed_colormap(),
                vmin=-limit,
                vmax=limit,
            )
            axes.set_box_aspect(1)
            axes.spines[:].set_visible(True)
            axes.tick_params(labelsize=7.0, length=2.0, pad=1.5)
            if row == 0:
                axes.set_title(f"component {column + 1}\n±{limit:#.2g}", fontsize=8.5)
            if column == 0:
                axes.set_ylabel(f"{name}\n{measured.axes[1]}", fontsize=8.0)
    figure.suptitle(
        f"Principal components of a random policy's successor measure: {measured.title}",
        fontsize=10.0,
    )
    figure.supxlabel(measured.axes[0], fontsize=8.0)
    figure.colorbar(
        ScalarMappable(Normalize(-1, 1), signed_colormap()),
        ax=panels,
        label="value relative to ± limit",
        ticks=[-1, 0, 1],
        shrink=0.8,
        aspect=25,
        pad=0.01,
    )
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the figures")
    parser.add_argument("--smoke", action="store_true", help="seconds instead of a minute")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    size = SMOKE if options.smoke else Size()
    for measure in (measure_four_rooms, measure_mountain_car, measure_pendulum):
        start = time.perf_counter()
        measured = measure(size, options.seed)
        seconds = time.perf_counter() - start
        truth, learned, distance = learn(measured, size, options.seed)
        figure = draw(measured, {"ground truth": truth, "encoder": learned})
        path = save_figure(figure, options.out / f"{measured.name}.png")
        print(
            f"{measured.name}: {len(measured.cells)} of {measured.grid.num_cells} cells, "
            f"{measured.transitions:,} transitions in {seconds:.1f} s; encoder at subspace "
            f"distance {distance:.4f} from the ground truth, itself about "
            f"{noise_floor(measured):.4f} from exact; {path}"
        )


if __name__ == "__main__":
    main()
