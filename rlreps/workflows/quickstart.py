"""The whole pipeline in one command: ground truth, training, evaluation, pictures, report.

Figures are written as early as possible: the arena at once, the true components after the ground
truth, the learned ones after each training run.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlreps import plotting
from rlreps.config import as_json
from rlreps.encoders import MLP
from rlreps.envs import load_arena
from rlreps.losses import DanskinLissa, Explicit, LargeBatch, Objective
from rlreps.plotting import Line
from rlreps.plotting.lines import over_runs
from rlreps.report.page import Section, write_report
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder, complete_run
from rlreps.runs.progress import hidden, progress_bar, shown
from rlreps.subspace import RandomizedSVD
from rlreps.successor.ground_truth import GroundTruth
from rlreps.successor.measure import MonteCarlo
from rlreps.training import Optimizer
from rlreps.workflows.evaluate import distance_history
from rlreps.workflows.figures import aligned_components
from rlreps.workflows.ground_truths import STORE, generation_figures, own_ground_truth
from rlreps.workflows.train import TrainingConfig, run_training

KIND = "quickstart"
_RUNS_AT_ONCE = 2

RECIPES = {"recommended": "Recommended recipe", "paper": "Paper's protocol"}

_PUBLISHED: Mapping[type[Objective], Objective] = {
    Explicit: Explicit(weight_start=1.0, dense_optimizer=True)
}
"""Methods whose published options differ from the defaults of rlreps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuickstartConfig:
    """The whole pipeline: ground truth, then every method under two recipes at equal budgets.

    Attributes:
        successor: The ground truth.
        objectives: The methods to compare, with options that suit the recommended recipe; the
            paper's protocol runs the same methods with their published options.
        paper: The paper's protocol (Le Lan et al. 2023, App. C.3) with fewer updates. Large batch
            fits its weights on the gradient's own rows, which differs from the paper: fitting on
            all cells would take too long.
        recommended: The recommended recipe, with as many features.
        estimated_seconds: Rough time on two cores.
    """

    successor: MonteCarlo
    objectives: tuple[Objective, ...] = (
        LargeBatch(precondition=1e-2, leave_one_out=True),
        DanskinLissa(permutations=2, whitening=True),
        Explicit(weight_learning_rate=0.01),
    )
    paper: TrainingConfig
    recommended: TrainingConfig
    estimated_seconds: int

    def runs(self) -> dict[str, tuple[str, TrainingConfig]]:
        """List every training run: folder's name → (recipe, configuration)."""
        # The longest first, so that the last ones end together and no core waits.
        found = {
            f"recommended-{each.name}": (
                "recommended",
                dataclasses.replace(self.recommended, objective=each),
            )
            for each in self.objectives
        }
        for each in self.objectives:
            published = _PUBLISHED.get(type(each), type(each)())
            run = dataclasses.replace(self.paper, objective=published)
            found[f"paper-{each.name}"] = ("paper", run)
        return found


def _paper(steps: int, seeds: int) -> TrainingConfig:
    return TrainingConfig(
        encoder=MLP(hidden=(512, 512)),
        optimizer=Optimizer(learning_rate=1e-4, schedule="constant"),
        rows=250,
        tasks=1,
        states="uniform",
        steps=steps,
        num_seeds=seeds,
        evaluate_every=steps // 10,
        checkpoint_every=steps // 2,
    )


PRESETS = {
    "smoke": QuickstartConfig(
        successor=MonteCarlo(bins=20, rollouts=100, horizon=200, block_rows=100),
        paper=_paper(100, 2),
        recommended=TrainingConfig(
            steps=150, num_seeds=2, rows=250, tasks=64, evaluate_every=25, checkpoint_every=75
        ),
        estimated_seconds=30,
    ),
    "laptop": QuickstartConfig(
        successor=MonteCarlo(rollouts=500),
        paper=_paper(1000, 1),
        recommended=TrainingConfig(),
        estimated_seconds=120,
    ),
}
"""Preset name → configuration."""


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


def run_quickstart(config: QuickstartConfig, out: Path) -> dict[str, Any]:
    """Run the pipeline in a folder, resuming any part that was interrupted.

    Args:
        config: A preset.
        out: The folder: the store, a folder for each training run, figures, ``report.html`` and
            ``summary.json``.

    Returns:
        The summary: ``ground_truth`` and, under ``methods``, each method's headline measures under
        the recommended recipe with all its ``runs``.

    Raises:
        InputError: If the folder holds another run, or d exceeds the matrix's rank.
        ArenaError: For an unknown or invalid arena.
        TrainingDivergedError: If a training run became non-finite.
    """
    load_arena(config.successor.arena)
    return complete_run(
        out, kind=KIND, config=as_json(config), compute=lambda folder: _run(config, folder)
    )


def _run(config: QuickstartConfig, folder: RunFolder) -> dict[str, Any]:
    """Run every part and return the summary."""
    began = time.perf_counter()
    successor, d = config.successor, config.recommended.num_features
    arena = load_arena(successor.arena)

    def say(text: str) -> None:
        if shown():
            print(f"[{time.perf_counter() - began:4.0f} s] {text}", flush=True)

    def draw(name: str, figure: Any) -> None:
        plotting.save_figure(figure, _figure(folder, name))

    def draw_components(name: str, runs: Sequence[Trained] = ()) -> None:
        """Draw the true components above learned ones."""
        found = {each.label: aligned_components(each.folder, truth, d) for each in runs}
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
        f"transitions, then {len(config.runs())} training runs; about "
        f"{config.estimated_seconds} s in all on two cores"
    )
    draw("environment", plotting.plot_environment(arena))
    # With these options the floor at d = 10 is accurate to 5e-5 of itself.
    halves = RandomizedSVD(rank=d, oversampling=20, power_iterations=3)
    ground = own_ground_truth(successor, folder, d, halves=halves)
    truth, floor = ground.truth, np.asarray(ground.noise_floor)
    principal = truth.principal
    draw("spectrum", plotting.plot_spectrum(principal.singular_values, principal.total_energy))
    draw("noise_floor", plotting.plot_subspace_error({"noise floor": floor}))
    draw_components("components")
    say(f"wrote the {d} leading components to {_figure(folder, 'components')}")
    trained: list[Trained] = []
    for each in _trained(config, folder, truth):
        trained.append(each)
        distance = each.figures["subspace_distance"]
        say(f"{RECIPES[each.recipe]}, {each.label}: {distance:.4f}")
        # Other runs continue to train while the figures of a recipe are drawn.
        runs = [run for run in trained if run.recipe == each.recipe]
        if len(runs) == len(config.objectives):
            draw_components(f"components_{each.recipe}", runs)
            curves = [
                Line.of_runs(run.label, *distance_history(run.folder), within=(0.0, 1.0))
                for run in runs
            ]
            label = f"subspace distance (d = {d})"
            figure = plotting.plot_curves(
                curves, x_label="update", y_label=label, noise_floor=ground.floor(d)
            )
            draw(f"curves_{each.recipe}", figure)
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
        "methods": _by_method(trained),
        "report": str(folder.path / "report.html"),
    }
    _write_report(config, folder, trained, summary)
    return summary


def _figure(folder: RunFolder, name: str) -> Path:
    return folder.figures / f"{name}.png"


def _trained(config: QuickstartConfig, folder: RunFolder, truth: GroundTruth) -> Iterator[Trained]:
    """Make all training runs, several at once, and yield them in order.

    An error in one is raised after those running beside it have ended.
    """
    runs = config.runs()

    def one(name: str) -> Trained:
        (recipe, training), out = runs[name], folder.path / "runs" / name
        with hidden():
            found = run_training(training, folder.path / STORE, out, truth=truth)
        return Trained(RunFolder(out), recipe, training, found)

    # One run alone leaves cores idle while it compiles and gathers entries of the matrix.
    with (
        ThreadPoolExecutor(max_workers=_RUNS_AT_ONCE) as pool,
        progress_bar("training", total=len(runs), unit="runs") as advance,
    ):
        for found in pool.map(one, runs):
            advance(1)
            yield found


def _by_method(trained: Sequence[Trained]) -> dict[str, dict[str, Any]]:
    """Collect each method's headline measures with all its runs."""
    names = ("recipe", "subspace_distance", "relative_excess_loss", "d", "steps", "seconds")
    runs = [{"recipe": each.recipe, **each.figures} for each in trained]
    return {
        run["method"]: {
            **{name: run[name] for name in names},
            "runs": [other for other in runs if other["method"] == run["method"]],
        }
        for run in runs
        if run["recipe"] == "recommended"
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
    d, truth = config.recommended.num_features, summary["ground_truth"]
    best = min(
        (each for each in trained if each.recipe == "recommended"),
        key=lambda each: float(each.figures["subspace_distance"]),
    )
    energy = 100.0 * truth["energy_captured"][d - 1]
    write_report(
        folder.path / "report.html",
        title="rlreps quickstart: learned principal components of PuddleWorld",
        summary=f"The {d} leading principal components hold {energy:.1f} % of the energy of the "
        f"centred successor measure. Under the recommended recipe {best.label} comes closest to "
        f"them: subspace distance {best.figures['subspace_distance']:.4f} after "
        f"{best.config.steps} updates.",
        sections=[
            _truth_section(config, folder, truth),
            *(_recipe_section(config, folder, recipe, trained) for recipe in RECIPES),
        ],
        config=folder.config,
        provenance=folder.provenance,
        explorable=True,
    )


def _truth_section(
    config: QuickstartConfig, folder: RunFolder, truth: Mapping[str, Any]
) -> Section:
    successor, d = config.successor, config.recommended.num_features
    rows = [
        ("arena", successor.arena),
        ("states and tasks", successor.num_states),
        ("transitions", truth["transitions"]),
        ("seconds", truth["seconds"]),
        ("transitions per second", truth["transitions_per_second"]),
        ("standard error of an entry (root mean square)", truth["standard_error"]),
        (f"noise floor at d = {d}", truth["noise_floor"][d - 1]),
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


def _recipe_section(
    config: QuickstartConfig, folder: RunFolder, recipe: str, trained: Sequence[Trained]
) -> Section:
    base: TrainingConfig = getattr(config, recipe)
    d, seeds = base.num_features, base.num_seeds
    header = ("method", "updates", "training s", "subspace distance", "excess loss", "streak")
    columns = ("steps", "seconds", "subspace_distance", "relative_excess_loss")
    rows = [
        (each.label, *(each.figures[name] for name in (*columns, "longest_eigenvector_streak")))
        for each in trained
        if each.recipe == recipe
    ]
    over = "of one seed" if seeds == 1 else f"means over {seeds} seeds trained together"
    caption = (
        f"Results {over}; training time excludes compilation and evaluation; {_RUNS_AT_ONCE} runs "
        "share the cores. Excess loss is relative to the best d features; streak counts leading "
        "components within π/8 of the true ones, in order."
    )
    text = (
        f"{base.rows} states and {'one task' if base.tasks == 1 else f'{base.tasks} tasks'} an "
        f"update; {base.steps} updates. Every method draws the same states and tasks. The "
        "configuration below has all other options."
    )
    if recipe == "paper":
        text += (
            f" The paper makes 10⁸ updates; after {base.steps} the methods have not converged. It "
            "also fits large batch's weights on φ and Ψ at the centres of all cells, 10,000 of "
            "them; here the gradient's own rows fit them, which is another method. Its code "
            "centres the rows of the matrix, whereas columns are centred here, and it makes 1,000 "
            f"rollouts a cell instead of {config.successor.rollouts}. The experiment puddle-world "
            "follows the protocol in all of this."
        )
    return Section(
        title=RECIPES[recipe],
        text=text,
        tables=[Table(header, rows, caption)],
        figures=[
            (
                _figure(folder, f"components_{recipe}"),
                f"The {d} leading principal components (top row) and the learned ones of the first "
                "seed, rotated within their span onto the true ones (orthogonal Procrustes). |cos| "
                "is the cosine with the true component; each column has common colour limits.",
            ),
            (
                _figure(folder, f"curves_{recipe}"),
                f"Subspace distance at d = {d} against updates, {over_runs(seeds)}; dashed: the "
                "noise floor.",
            ),
        ],
    )
