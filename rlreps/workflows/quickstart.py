"""The whole pipeline in one command: ground truth, training, evaluation, pictures, report.

Figures are written as early as possible: the arena at once, the true components after the ground
truth, the learned ones after each training run.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlreps import plotting
from rlreps.config import as_json
from rlreps.envs import load_arena
from rlreps.losses import Objective
from rlreps.plotting import Line, Panel
from rlreps.plotting.lines import DISTANCE, have_intervals, over_runs
from rlreps.report.page import Section, write_report
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder, complete_run
from rlreps.runs.progress import progress_bar
from rlreps.subspace import RandomizedSVD
from rlreps.successor.ground_truth import GroundTruth
from rlreps.workflows.evaluate import distance_history
from rlreps.workflows.figures import aligned_components
from rlreps.workflows.ground_truths import STORE, generation_figures, own_ground_truth
from rlreps.workflows.quickstart_config import RECIPES, QuickstartConfig
from rlreps.workflows.train import TrainingConfig, run_training

KIND = "quickstart"
_RUNS_AT_ONCE = 2


class Trained(NamedTuple):
    """One training run, with the measures of its summary."""

    folder: RunFolder
    recipe: str
    config: TrainingConfig
    figures: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Name of the method, with the options that must be shown."""
        return self.config.objective.label


def run_quickstart(config: QuickstartConfig, out: Path, *, progress: bool = True) -> dict[str, Any]:
    """Run the pipeline in a folder, resuming any part that was interrupted.

    Args:
        config: A preset.
        out: The folder: the store, a folder for each training run, figures, ``report.html`` and
            ``summary.json``.
        progress: Whether to show progress bars and announce each part.

    Returns:
        The summary: ``ground_truth`` and, under ``methods``, each method's headline measures under
        the recommended recipe with all its ``runs``.

    Raises:
        InputError: If the folder holds another run, or a dimension exceeds the matrix's rank.
        ArenaError: For an unknown or invalid arena.
        TrainingDivergedError: If a training run became non-finite.
    """
    load_arena(config.successor.arena)
    return complete_run(
        out,
        kind=KIND,
        config=as_json(config),
        compute=lambda folder: _run(config, folder, progress),
    )


def _run(config: QuickstartConfig, folder: RunFolder, progress: bool) -> dict[str, Any]:
    """Run every part and return the summary."""
    began = time.perf_counter()
    successor, d = config.successor, config.headline_dimension
    arena, runs = load_arena(successor.arena), config.runs()

    def say(text: str) -> None:
        if progress:
            print(f"[{time.perf_counter() - began:4.0f} s] {text}", flush=True)

    def draw(name: str, figure: Any) -> None:
        plotting.save_figure(figure, _figure(folder, name))

    def draw_components(name: str, shown: Sequence[Trained] = ()) -> None:
        """Draw the true components above learned ones."""
        found = {each.label: aligned_components(each.folder, truth, d) for each in shown}
        maps = {label: components for label, (components, _) in found.items()}
        figure = plotting.plot_components(
            {"ground truth": truth.principal.truncated(d).basis, **maps},
            bins=successor.bins,
            environment=arena,
            cosines={label: cosines for label, (_, cosines) in found.items()},
        )
        draw(name, figure)

    say(
        f"ground truth of {successor.num_states:,} states from {successor.transitions:,} "
        f"transitions, then {len(runs)} training runs; about {config.estimated_seconds} s in all "
        "on two cores"
    )
    draw("environment", plotting.plot_environment(arena))
    most = max(config.dimensions)
    # With these options the floor at d = 10 is accurate to 5e-5 of itself.
    halves = RandomizedSVD(rank=most, oversampling=20, power_iterations=3)
    ground = own_ground_truth(successor, folder, most, halves=halves, progress=progress)
    truth, floor = ground.truth, np.asarray(ground.noise_floor)
    principal = truth.principal
    draw("spectrum", plotting.plot_spectrum(principal.singular_values, principal.total_energy))
    draw("noise_floor", plotting.plot_subspace_error({"noise floor": floor}))
    draw_components("components")
    say(f"wrote the {d} leading components to {_figure(folder, 'components')}")
    trained: list[Trained] = []
    for each in _trained(config, folder, truth, progress):
        trained.append(each)
        distance = each.figures["subspace_distance"]
        say(f"{RECIPES[each.recipe]}, {each.label}, d = {each.figures['d']}: {distance:.4f}")
        shown = [run for run in trained if (run.recipe, run.figures["d"]) == (each.recipe, d)]
        # Other runs continue to train while the figures of a recipe are drawn.
        if shown[-1:] == [each] and len(shown) == len(config.objectives):
            draw_components(f"components_{each.recipe}", shown)
            curves = [
                Line.of_runs(run.label, *distance_history(run.folder), within=(0.0, 1.0))
                for run in shown
            ]
            label = f"subspace distance (d = {d})"
            figure = plotting.plot_curves(
                curves, x_label="update", y_label=label, noise_floor=ground.floor(d)
            )
            draw(f"curves_{each.recipe}", figure)
    if len(config.dimensions) > 1:
        draw("distance_by_dimension", _distance_by_dimension(config.dimensions, trained, floor))
    summary = {
        "ground_truth": {
            **generation_figures(folder, successor),
            "store": str(ground.path),
            "bins": successor.bins,
            "singular_values": [float(value) for value in principal.singular_values],
            "energy_captured": [float(value) for value in principal.energy_captured()],
            "standard_error": ground.standard_error,
            "noise_floor": floor.tolist(),
        },
        "methods": _by_method(config, trained),
        "report": str(folder.path / "report.html"),
    }
    _write_report(config, folder, trained, summary)
    return summary


def _figure(folder: RunFolder, name: str) -> Path:
    return folder.figures / f"{name}.png"


def _trained(
    config: QuickstartConfig, folder: RunFolder, truth: GroundTruth, progress: bool
) -> Iterator[Trained]:
    """Make all training runs, several at once, and yield them in order.

    An error in one is raised after those running beside it have ended.
    """
    runs = config.runs()

    def one(name: str) -> Trained:
        (recipe, training), out = runs[name], folder.path / "runs" / name
        found = run_training(training, folder.path / STORE, out, truth=truth, progress=False)
        return Trained(RunFolder(out), recipe, training, found)

    # One run alone leaves cores idle while it compiles and gathers entries of the matrix.
    with (
        ThreadPoolExecutor(max_workers=_RUNS_AT_ONCE) as pool,
        progress_bar("training", total=len(runs), unit="runs", show=progress) as advance,
    ):
        for found in pool.map(one, runs):
            advance(1)
            yield found


def _distance_by_dimension(
    dimensions: Sequence[int], trained: Sequence[Trained], floor: np.ndarray
) -> Any:
    """Draw distances under the recommended recipe against d, a line for each method."""
    found: dict[str, list[list[float]]] = {}
    for each in trained:
        if each.recipe == "recommended":
            seeds = [seed["subspace_distance"] for seed in each.figures["per_seed"]]
            found.setdefault(each.label, []).append(seeds)
    lines = [
        Line.of_runs(label, dimensions, np.transpose(runs), counted=True, within=(0.0, 1.0))
        for label, runs in found.items()
    ]
    known = np.arange(min(dimensions), min(max(dimensions), len(floor)) + 1)
    return plotting.plot_panels(
        [Panel(title="", lines=lines, noise_floor=(known, floor[known - 1]))],
        x_label="number of features d",
        y_label=DISTANCE,
        log_x=True,
        x_ticks=dimensions,
        note="mean over seeds, 95 % interval" if have_intervals(lines) else None,
    )


def _by_method(config: QuickstartConfig, trained: Sequence[Trained]) -> dict[str, dict[str, Any]]:
    """Collect each method's headline measures with all its runs."""
    names = ("recipe", "subspace_distance", "relative_excess_loss", "d", "steps", "seconds")
    headline = ("recommended", config.headline_dimension)
    runs = [{"recipe": each.recipe, **each.figures} for each in trained]
    return {
        run["method"]: {
            **{name: run[name] for name in names},
            "runs": [other for other in runs if other["method"] == run["method"]],
        }
        for run in runs
        if (run["recipe"], run["d"]) == headline
    }


def print_quickstart(summary: Mapping[str, Any]) -> None:
    """Print the ground truth, every training run and the report's path."""
    truth = summary["ground_truth"]
    print(
        f"Ground truth: {truth['transitions']:,} transitions in {truth['seconds']:.1f} s "
        f"({truth['transitions_per_second']:.3g} a second)"
    )
    names = ("d", "steps", "seconds", "subspace_distance", "relative_excess_loss")
    rows = [
        (method, run["recipe"], *(run[name] for name in names))
        for method, figures in summary["methods"].items()
        for run in figures["runs"]
    ]
    header = ("method", "recipe", "d", "updates", "seconds", "subspace distance", "excess loss")
    Table(header, rows, "Learned subspaces against the ground truth").print()
    out = Path(summary["report"]).parent
    print(f"To explore the result: rlreps explore {out} --out {out / 'explore.html'}")
    print(f"Report: {summary['report']}")


def _write_report(
    config: QuickstartConfig,
    folder: RunFolder,
    trained: Sequence[Trained],
    summary: Mapping[str, Any],
) -> None:
    d, truth = config.headline_dimension, summary["ground_truth"]
    sections = [_truth_section(config, folder, truth)]
    sections += [_recipe_section(config, folder, recipe, trained) for recipe in RECIPES]
    if len(config.dimensions) > 1:
        sections.append(
            Section(
                title="Distance against the number of features",
                text="Recommended recipe. Later components carry less energy and have smaller "
                "gradients, so they are learned last.",
                figures=[
                    (
                        _figure(folder, "distance_by_dimension"),
                        "Subspace distance after training against the number of features d, mean "
                        "over seeds; 0 is the true subspace, 1 is orthogonal to it.",
                    )
                ],
            )
        )
    best = min(
        (each for each in trained if (each.recipe, each.figures["d"]) == ("recommended", d)),
        key=lambda each: float(each.figures["subspace_distance"]),
    )
    energy = 100.0 * truth["energy_captured"][d - 1]
    write_report(
        folder.path / "report.html",
        title="rlreps quickstart: learned principal components of PuddleWorld",
        summary=f"The {d} leading components hold {energy:.1f} % of the energy of the centred "
        f"successor measure. Under the recommended recipe {best.label} comes closest to them: "
        f"subspace distance {best.figures['subspace_distance']:.4f} after {best.config.steps} "
        "updates.",
        sections=sections,
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
        explorable=True,
    )


def _truth_section(
    config: QuickstartConfig, folder: RunFolder, truth: Mapping[str, Any]
) -> Section:
    successor, d = config.successor, config.headline_dimension
    floors = [
        (f"noise floor at d = {each}", truth["noise_floor"][each - 1])
        for each in config.dimensions
        if each <= len(truth["noise_floor"])
    ]
    cells = f"{successor.bins} x {successor.bins} cells"
    if successor.grid.walls:
        cells = f"{successor.num_states:,} of {cells}, outside the walls"
    rows = [
        ("arena", successor.arena),
        ("states and tasks", cells),
        ("discount", successor.discount),
        ("sum over", "t ≥ 0" if successor.count_start else "t ≥ 1"),
        ("horizon (steps)", successor.horizon),
        ("rollouts per cell", successor.rollouts),
        ("transitions", truth["transitions"]),
        ("seconds", truth["seconds"]),
        ("transitions per second", truth["transitions_per_second"]),
        ("standard error of an entry (root mean square)", truth["standard_error"]),
        *floors,
    ]
    captions = {
        "environment": "The arena. Shading gives the speed inside a puddle as a fraction of the "
        "speed outside; overlapping puddles compound.",
        "components": f"The {d} leading principal components: left singular vectors of the centred "
        "successor measure, one value a state.",
        "spectrum": "Singular values of the centred successor measure, and the share of its energy "
        "that the leading components capture.",
        "noise_floor": "Noise floor: expected subspace distance of this matrix from the truth, "
        "estimated from the distance between two independent halves of the rollouts. Smaller "
        "distances do not tell a representation from a perfect one.",
    }
    return Section(
        title="Ground truth",
        text="Successor measure of the uniformly random policy, estimated by Monte-Carlo rollouts "
        "that start uniformly inside each cell. Its columns are centred over states; the principal "
        "components are the left singular vectors of the centred matrix.",
        tables=[Table(("quantity", "value"), rows, "How the ground truth was made")],
        figures=[(_figure(folder, name), caption) for name, caption in captions.items()],
    )


_STATES = {"centres": "at cells' centres", "uniform": "anywhere in the square"}


def _recipe_section(
    config: QuickstartConfig, folder: RunFolder, recipe: str, trained: Sequence[Trained]
) -> Section:
    base: TrainingConfig = getattr(config, recipe)
    d, seeds = config.headline_dimension, base.num_seeds
    header = ("method", "d", "updates", "training s", "subspace distance", "excess loss", "streak")
    names = ("d", "steps", "seconds", "subspace_distance", "relative_excess_loss")
    columns = (*names, "longest_eigenvector_streak")
    rows = [
        (each.label, *(each.figures[name] for name in columns))
        for each in trained
        if each.recipe == recipe
    ]
    over = "of one seed" if seeds == 1 else f"means over {seeds} seeds trained together"
    table = Table(
        header,
        rows,
        f"Results {over}; training time excludes compilation and evaluation; "
        f"{_RUNS_AT_ONCE} runs share the cores. Excess loss is relative to the best d features; "
        "streak counts leading components within π/8 of the true ones, in order.",
    )
    encoder, optimizer = base.encoder, base.optimizer
    hidden = " x ".join(map(str, getattr(encoder, "hidden", ())))
    cosines = getattr(encoder, "frequencies", 0)
    inputs = f"coordinates and {cosines} cosines of each" if cosines else "coordinates"
    text = (
        f"ReLU network of hidden widths {hidden} on {inputs}; {base.rows} states and "
        f"{'one task' if base.tasks == 1 else f'{base.tasks} tasks'} an update; "
        f"{optimizer.name.capitalize()}, learning rate {optimizer.learning_rate:g} "
        f"({optimizer.schedule}); {base.steps} updates. Every method draws the same states and "
        "tasks."
    )
    if recipe == "recommended":
        changes = [f"{each.title}: {_changes(each)}" for each in config.objectives]
        text += "\n\nOptions beside the methods' defaults. " + "; ".join(changes) + "."
    else:
        text += (
            f" States lie {_STATES[base.states]}. The paper makes 10⁸ updates; after {base.steps} "
            "the methods have not converged. It also fits large batch's weights on φ and Ψ at the "
            "centres of all cells, 10,000 of them; here the gradient's own rows fit them, which is "
            "another method. Its code centres the rows of the matrix, whereas columns are centred "
            f"here, and it makes 1,000 rollouts a cell instead of {config.successor.rollouts}. "
            "The experiment puddle-world follows the protocol in all of this."
        )
    curves = over_runs(seeds)
    return Section(
        title=RECIPES[recipe],
        text=text,
        tables=[table],
        figures=[
            (
                _figure(folder, f"components_{recipe}"),
                f"The {d} leading principal components (top row) and the learned ones of the first "
                "seed, rotated within their span onto the true ones (orthogonal Procrustes). |cos| "
                "is the cosine with the true component; each column has common colour limits.",
            ),
            (
                _figure(folder, f"curves_{recipe}"),
                f"Subspace distance at d = {d} against updates, {curves}; dashed: the noise floor.",
            ),
        ],
    )


def _changes(objective: Objective) -> str:
    """Name the options of an objective that differ from its class's defaults."""
    plain, here = as_json(type(objective)()), as_json(objective)
    changed = [f"{name} = {value}" for name, value in here.items() if value != plain[name]]
    return ", ".join(changed).replace("_", " ") or "none"
