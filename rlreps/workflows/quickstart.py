"""The whole pipeline in one command: ground truth, training, evaluation, pictures, report.

Figures are written as soon as what they show is there: the arena at once, the true components
after the ground truth, the learned ones after each training run.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rlreps import plotting
from rlreps.config import as_json
from rlreps.envs import load_arena
from rlreps.losses import Objective
from rlreps.plotting import Line
from rlreps.plotting.lines import over_runs
from rlreps.report.page import Section, write_report
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder, complete_run
from rlreps.runs.progress import progress_bar
from rlreps.subspace import RandomizedSVD
from rlreps.successor.ground_truth import GroundTruth
from rlreps.workflows.evaluate import distance_history
from rlreps.workflows.figures import aligned_components
from rlreps.workflows.ground_truths import (
    STORE,
    OwnGroundTruth,
    generation_figures,
    own_ground_truth,
)
from rlreps.workflows.quickstart_config import RECIPES, QuickstartConfig
from rlreps.workflows.train import TrainingConfig, run_training

KIND = "quickstart"
_RUNS_AT_ONCE = 2


def run_quickstart(config: QuickstartConfig, out: Path, *, progress: bool = True) -> dict[str, Any]:
    """Run the pipeline in a folder, resuming whatever part was interrupted.

    Args:
        config: A preset.
        out: The folder: the store, a folder for each training run, figures, ``report.html`` and
            ``summary.json``.
        progress: Whether to show progress bars and what is to be done.

    Returns:
        The summary: ``ground_truth`` and, under ``methods``, each method's headline figures under
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
        compute=lambda folder: _Pipeline(config, folder, progress).run(),
    )


class _Pipeline:
    """One run of the pipeline: where it stands, and the figures so far."""

    def __init__(self, config: QuickstartConfig, folder: RunFolder, progress: bool) -> None:
        self.config, self.folder, self.progress = config, folder, progress
        self.runs = folder.path / "runs"
        self.environment = load_arena(config.successor.arena)
        self.figures: dict[str, Path] = {}
        self.began = time.perf_counter()

    def say(self, text: str) -> None:
        """Print a line on what is done or to come, with the time so far."""
        if self.progress:
            print(f"[{time.perf_counter() - self.began:4.0f} s] {text}", flush=True)

    def draw(self, name: str, figure: Figure) -> None:
        """Write a figure."""
        path = self.folder.figures / f"{name}.png"
        self.figures[name] = plotting.save_figure(figure, path)

    def run(self) -> dict[str, Any]:
        """Run every part and return the summary."""
        config, d = self.config, self.config.headline_dimension
        runs = config.runs()
        self.say(
            f"ground truth of {config.successor.num_states:,} states from "
            f"{config.successor.transitions:,} transitions, then {len(runs)} training runs; about "
            f"{config.estimated_seconds} s in all on two cores"
        )
        self.draw("environment", plotting.plot_environment(self.environment))
        most = max(config.dimensions)
        ground = own_ground_truth(
            config.successor,
            self.folder,
            most,
            # These options give the floor at d = 10 to 5e-5 of itself.
            halves=RandomizedSVD(rank=most, oversampling=20, power_iterations=3),
            progress=self.progress,
        )
        truth, floor = ground.truth, np.asarray(ground.noise_floor)
        principal = truth.principal
        self.draw(
            "spectrum",
            plotting.plot_spectrum(principal.singular_values, principal.total_energy),
        )
        self.draw("noise_floor", plotting.plot_subspace_error({"noise floor": floor}))
        self.draw_components("components", {}, {}, truth)
        self.say(f"wrote the {d} leading components to {self.figures['components']}")
        summaries: list[dict[str, Any]] = []
        learned: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        curves: dict[str, list[Line]] = {}
        for (name, (recipe, training)), found in zip(
            runs.items(), self.train(runs, truth), strict=True
        ):
            out = self.runs / name
            summaries.append({"recipe": recipe, **found})
            label, distance = training.objective.label, found["subspace_distance"]
            self.say(f"{RECIPES[recipe]}, {label}, d = {found['d']}: distance {distance:.4f}")
            if found["d"] == d:
                steps, distances = distance_history(RunFolder(out))
                curves.setdefault(recipe, []).append(
                    Line.of_runs(label, steps, distances, within=(0.0, 1.0))
                )
                maps, cosines = learned.setdefault(recipe, ({}, {}))
                maps[label], cosines[label] = aligned_components(RunFolder(out), truth, d)
                # Runs to come train on while the figures of a recipe are drawn.
                if len(maps) == len(config.objectives):
                    self.draw_recipe(recipe, curves[recipe], *learned[recipe], ground)
        if len(config.dimensions) > 1:
            rows = [
                {
                    "method": _title(config, "recommended", run["method"]),
                    "d": run["d"],
                    "subspace_distance": [seed["subspace_distance"] for seed in run["per_seed"]],
                }
                for run in summaries
                if run["recipe"] == "recommended"
            ]
            self.draw(
                "distance_by_dimension",
                plotting.plot_distance_by_dimension(rows, noise_floor=floor),
            )
        described = {
            **generation_figures(self.folder, config.successor),
            "store": str(ground.path),
            "bins": config.successor.bins,
            "singular_values": [float(value) for value in principal.singular_values],
            "energy_captured": [float(value) for value in principal.energy_captured()],
            "standard_error": ground.standard_error,
            "noise_floor": floor.tolist(),
        }
        summary = {
            "ground_truth": described,
            "methods": _by_method(config, summaries),
            "report": str(self.folder.path / "report.html"),
        }
        _write_report(config, self.folder, self.figures, summaries, summary)
        return summary

    def train(
        self, runs: Mapping[str, tuple[str, TrainingConfig]], truth: GroundTruth
    ) -> Iterator[dict[str, Any]]:
        """Make all training runs, several at once, and yield their summaries in order.

        An error in one is raised once those beside it have ended.
        """

        def one(name: str) -> dict[str, Any]:
            training = runs[name][1]
            store = self.folder.path / STORE
            return run_training(training, store, self.runs / name, truth=truth, progress=False)

        # One run alone leaves cores idle while it compiles and gathers entries of the matrix.
        with (
            ThreadPoolExecutor(max_workers=_RUNS_AT_ONCE) as pool,
            progress_bar("training", total=len(runs), unit="runs", show=self.progress) as advance,
        ):
            for found in pool.map(one, runs):
                advance(1)
                yield found

    def draw_recipe(
        self,
        recipe: str,
        curves: Sequence[Line],
        maps: Mapping[str, Any],
        cosines: Mapping[str, Any],
        ground: OwnGroundTruth,
    ) -> None:
        """Draw what the methods learned under a recipe, and how the distance fell."""
        d = self.config.headline_dimension
        self.draw_components(f"components_{recipe}", maps, cosines, ground.truth)
        figure = plotting.plot_curves(
            curves,
            x_label="update",
            y_label=f"subspace distance (d = {d})",
            noise_floor=ground.floor(d),
        )
        self.draw(f"curves_{recipe}", figure)

    def draw_components(
        self, name: str, maps: Mapping[str, Any], cosines: Mapping[str, Any], truth: Any
    ) -> None:
        """Draw the true components above learned ones."""
        basis = truth.principal.truncated(self.config.headline_dimension).basis
        self.draw(
            name,
            plotting.plot_components(
                {"ground truth": basis, **maps},
                bins=self.config.successor.bins,
                environment=self.environment,
                cosines=dict(cosines),
            ),
        )


def _title(config: QuickstartConfig, recipe: str, method: str) -> str:
    """Return a method's name for tables, with what it must say of its options in a recipe."""
    objectives = (run.objective for name, run in config.runs().values() if name == recipe)
    return next(each.label for each in objectives if each.name == method)


def _by_method(
    config: QuickstartConfig, summaries: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Collect each method's headline figures with every run beside them."""
    names = ("recipe", "subspace_distance", "relative_excess_loss", "d", "steps", "seconds")
    methods = {}
    for objective in config.objectives:
        runs = [run for run in summaries if run["method"] == objective.name]
        headline = next(
            run
            for run in runs
            if (run["recipe"], run["d"]) == ("recommended", config.headline_dimension)
        )
        methods[objective.name] = {**{name: headline[name] for name in names}, "runs": runs}
    return methods


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
    figures: Mapping[str, Path],
    summaries: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
) -> None:
    d, truth = config.headline_dimension, summary["ground_truth"]
    sections = [_truth_section(config, truth, figures)]
    sections += [_recipe_section(config, recipe, summaries, figures) for recipe in RECIPES]
    if "distance_by_dimension" in figures:
        sections.append(
            Section(
                title="Distance against the number of features",
                text="Recommended recipe. Later components carry less energy and have smaller "
                "gradients, so they are learned last.",
                figures=[
                    (
                        figures["distance_by_dimension"],
                        "Subspace distance after training against the number of features d, mean "
                        "over seeds; 0 is the true subspace, 1 is orthogonal to it.",
                    )
                ],
            )
        )
    method, best = min(
        summary["methods"].items(), key=lambda item: float(item[1]["subspace_distance"])
    )
    energy = 100.0 * truth["energy_captured"][d - 1]
    write_report(
        folder.path / "report.html",
        title="rlreps quickstart: learned principal components of PuddleWorld",
        summary=f"The {d} leading components hold {energy:.1f} % of the energy of the centred "
        f"successor measure. Under the recommended recipe "
        f"{_title(config, 'recommended', method)} comes closest "
        f"to them: subspace distance {best['subspace_distance']:.4f} after {best['steps']} "
        "updates.",
        sections=sections,
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
        explorable=True,
    )


def _truth_section(
    config: QuickstartConfig, truth: Mapping[str, Any], figures: Mapping[str, Path]
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
        "from the distance between two independent halves of the rollouts. No smaller distance "
        "tells a representation from a perfect one.",
    }
    return Section(
        title="Ground truth",
        text="Successor measure of the uniformly random policy, estimated by Monte-Carlo rollouts "
        "that start uniformly inside each cell. Its columns are centred over states; the principal "
        "components are the left singular vectors of what is left.",
        tables=[Table(("quantity", "value"), rows, "How the ground truth was made")],
        figures=[(figures[name], caption) for name, caption in captions.items()],
    )


_STATES = {"centres": "at cells' centres", "uniform": "anywhere in the square"}


def _recipe_section(
    config: QuickstartConfig,
    recipe: str,
    summaries: Sequence[Mapping[str, Any]],
    figures: Mapping[str, Path],
) -> Section:
    base: TrainingConfig = getattr(config, recipe)
    d, seeds = config.headline_dimension, base.num_seeds
    names = ("d", "steps", "seconds", "subspace_distance", "relative_excess_loss")
    rows = [
        (
            _title(config, recipe, run["method"]),
            *(run[name] for name in names),
            run["longest_eigenvector_streak"],
        )
        for run in summaries
        if run["recipe"] == recipe
    ]
    header = ("method", "d", "updates", "training s", "subspace distance", "excess loss", "streak")
    over = "of one seed" if seeds == 1 else f"means over {seeds} seeds trained together"
    table = Table(
        header,
        rows,
        f"Results {over}; training time is without compilation and evaluation; "
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
            f" States lie {_STATES[base.states]}. The paper makes 10⁸ updates: after {base.steps} "
            "the methods are on their way. It also fits large batch's weights on φ and Ψ at the "
            "centres of all cells, 10,000 of them; here the gradient's own rows fit them, which is "
            "another method. Its code centres the rows of the matrix, where columns are centred "
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
                figures[f"components_{recipe}"],
                f"The {d} leading principal components (top row) and the learned ones of the first "
                "seed, rotated within their span onto the true ones (orthogonal Procrustes). |cos| "
                "is the cosine with the true component; colour limits are shared down each column.",
            ),
            (
                figures[f"curves_{recipe}"],
                f"Subspace distance at d = {d} against updates, {curves}; dashed: the noise floor.",
            ),
        ],
    )


def _changes(objective: Objective) -> str:
    """Name the options in which an objective differs from its class's defaults."""
    plain, here = as_json(type(objective)()), as_json(objective)
    changed = [f"{name} = {value}" for name, value in here.items() if value != plain[name]]
    return ", ".join(changed).replace("_", " ") or "none"
