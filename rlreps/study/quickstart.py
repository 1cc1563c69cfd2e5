"""The whole pipeline in one command: ground truth, training, evaluation, pictures, report.

Figures are written as early as possible: the arena at once, the true components after the ground
truth, and the learned components after a recipe's training runs.
"""

import contextlib
import dataclasses
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from rlreps import plotting
from rlreps.app.job import Context, Job, Printed, run_job
from rlreps.app.jobs.train import Train
from rlreps.app.plots import plot_distances, plot_learned_components
from rlreps.config import as_json
from rlreps.encoders import MLP
from rlreps.envs import load_arena
from rlreps.losses import DanskinChunked, DanskinLissa, Explicit, LargeBatch, Objective
from rlreps.report.page import Page, Section
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder
from rlreps.runs.progress import hidden, progress_bar
from rlreps.runs.workers import map_names
from rlreps.study.figures import Shown, save
from rlreps.study.ground_truths import (
    OwnGroundTruth,
    generation_record,
    own_ground_truth,
)
from rlreps.subspace import RandomizedSVD
from rlreps.successor.measure.methods import MonteCarlo
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.store import STORE
from rlreps.training import Optimizer
from rlreps.training.config import TrainingConfig

KIND = "quickstart"
_RUNS_AT_ONCE = 2

RECIPES = {"recommended": "Recommended recipe", "paper": "Paper's protocol"}

_PUBLISHED: Mapping[type[Objective], Objective] = {
    DanskinChunked: DanskinLissa(),
    Explicit: Explicit(weight_start=1.0, dense_optimizer=True),
}
"""Methods whose published form differs from the defaults of rlreps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuickstartConfig:
    """The whole pipeline: ground truth, then every method under two recipes at equal budgets.

    Attributes:
        successor: The ground truth.
        objectives: The methods to compare, with options that suit the recommended recipe; the
            paper's protocol runs the same methods in their published form.
        paper: The paper's protocol (Le Lan et al. 2023, App. C.3) with fewer updates. Large batch
            fits its weights on the gradient's own rows, which differs from the paper: fitting on
            all cells would take too long.
        recommended: The recommended recipe, with the same number of features.
    """

    successor: MonteCarlo
    objectives: tuple[Objective, ...] = (
        LargeBatch(precondition=1e-2, leave_one_out=True),
        DanskinChunked(),
        Explicit(weight_learning_rate=0.01),
    )
    paper: TrainingConfig
    recommended: TrainingConfig

    def runs(self) -> dict[str, tuple[str, TrainingConfig]]:
        """List every training run: folder's name → (recipe, configuration)."""
        # The longest run starts first, so that the last runs end together and no core idles.
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
            found[f"paper-{published.name}"] = ("paper", run)
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
            steps=150, num_seeds=2, rows=360, tasks=64, evaluate_every=25, checkpoint_every=75
        ),
    ),
    "laptop": QuickstartConfig(
        successor=MonteCarlo(rollouts=500),
        paper=_paper(1000, 1),
        recommended=TrainingConfig(),
    ),
}
"""Preset name → configuration."""


MEASURES = ("d", "steps", "seconds", "subspace_distance", "relative_excess_loss")


Findings: TypeAlias = tuple[dict[str, Any], list[Section]]
"""The summary of a finished quickstart, and the sections of its page."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quickstart(Job[Findings]):
    """The whole pipeline in a folder; any part that was interrupted is resumed.

    The folder has the store, a folder for each training run, ``results/trainings.csv`` and figures.
    The summary has the ``ground_truth``, and ``trainings``, a row for each method and recipe.

    Attributes:
        config: A preset.
    """

    kind: ClassVar = KIND
    takes: ClassVar = ("executor",)

    config: QuickstartConfig

    def describe(self) -> Mapping[str, Any]:
        """Describe the run.

        Raises:
            InputError: For an unknown or invalid arena.
        """
        load_arena(self.config.successor.arena)
        described: Mapping[str, Any] = as_json(self.config)
        return described

    def compute(self, folder: RunFolder, context: Context) -> Findings:
        """Run every part; write figures as early as possible.

        Raises:
            InputError: If d exceeds the matrix's rank.
            TrainingDivergedError: If a training run became non-finite.
        """
        config = self.config
        d, runs, rows = config.recommended.num_features, config.runs(), []
        figure = plotting.plot_environment(load_arena(config.successor.arena))
        caption = (
            "The arena. Shading gives the speed inside a puddle as a fraction of the speed "
            "outside; overlapping puddles compound."
        )
        arena = save(folder, "environment", figure, caption)
        # With these options the floor at d = 10 has a relative error of 5e-5.
        halves = RandomizedSVD(rank=d, oversampling=20, power_iterations=3)
        ground = own_ground_truth(
            config.successor, folder, d, halves=halves, executor=context.executor
        )
        principal, error = ground.truth.principal, ground.error
        assert error is not None  # The matrix is sampled.
        truth = {
            **generation_record(folder, config.successor),
            "store": str(ground.path),
            "bins": config.successor.bins,
            "singular_values": principal.singular_values.tolist(),
            "energy_captured": principal.energy_captured().tolist(),
            "standard_error": error.standard_error,
            "noise_floor": error.noise_floor.tolist(),
        }
        sections = [_truth_section(config, folder, ground, truth, arena)]

        def trainings() -> Generator[dict[str, Any]]:
            """Yield what the runs find, in their order."""
            train = partial(_train, folder.path.absolute(), config)
            if context.executor is not None:
                found = dict(map_names(train, runs, context.executor))
                yield from map(found.__getitem__, runs)
                return
            # A single run leaves cores idle while it compiles and gathers entries of the matrix.
            with ThreadPoolExecutor(max_workers=_RUNS_AT_ONCE) as pool:
                yield from pool.map(partial(train, truth=ground.truth), runs)

        with (
            contextlib.closing(trainings()) as trained,
            progress_bar("training", total=len(runs), unit="runs") as advance,
        ):
            for recipe in RECIPES:
                names = [name for name, (its, _) in runs.items() if its == recipe]
                for name, found in zip(names, trained, strict=False):
                    label = runs[name][1].objective.label
                    measured = {
                        each: found[each] for each in (*MEASURES, "longest_eigenvector_streak")
                    }
                    rows.append({"method": label, "recipe": recipe, **measured})
                    advance(1)
                # Other runs continue to train meanwhile.
                sections.append(
                    _recipe_section(config, folder, ground, recipe, rows[-len(names) :])
                )
        folder.write_rows("trainings", rows)
        return {"ground_truth": truth, "trainings": rows}, sections

    def summarise(self, found: Findings) -> Mapping[str, Any]:
        return found[0]

    def report(self, folder: RunFolder, found: Findings) -> Page:
        summary, sections = found
        d, truth = self.config.recommended.num_features, summary["ground_truth"]
        best = min(
            (row for row in summary["trainings"] if row["recipe"] == "recommended"),
            key=lambda row: float(row["subspace_distance"]),
        )
        return Page(
            title="rlreps quickstart: learned principal components of PuddleWorld",
            summary=f"The {d} leading principal components hold "
            f"{100.0 * truth['energy_captured'][d - 1]:.1f} % of the energy of the centred "
            f"successor measure. Under the recommended recipe {best['method']} comes closest to "
            f"them: subspace distance {best['subspace_distance']:.4f} after {best['steps']:,} "
            f"updates.{_describe_failures(summary['trainings'])}",
            sections=sections,
            explorable=True,
        )

    def show(self, summary: Mapping[str, Any]) -> Iterator[Printed]:
        """Yield the ground truth, every training run and the report's path."""
        truth, out = summary["ground_truth"], Path(summary["report"]).parent
        yield (
            f"Ground truth: {truth['transitions']:,} transitions in {truth['seconds']:.1f} s "
            f"({truth['transitions_per_second']:.3g} a second)"
        )
        caption = "Learned subspaces against the ground truth"
        yield _table_of(summary["trainings"], ("method", "recipe", *MEASURES), caption)
        yield f"To explore the result: rlreps explore {out} --out {out / 'explore.html'}"
        yield f"Report: {summary['report']}"


def _describe_failures(rows: Sequence[Mapping[str, Any]]) -> str:
    """Name the methods that miss more than half of the components; empty if there are none."""
    failed = [
        f"{row['method']}, {row['recipe']} recipe ({row['subspace_distance']:.2f})"
        for row in rows
        if row["subspace_distance"] > 0.5
    ]
    return f" More than half of the components are missing: {'; '.join(failed)}." * bool(failed)


def quickstart(preset: Literal["smoke", "laptop"] = "laptop") -> Quickstart:
    """Run everything at once: ground truth, training, evaluation, pictures and a report.

    Args:
        preset: smoke takes seconds on a small grid; laptop takes two minutes on 100 x 100 cells.
    """
    return Quickstart(config=PRESETS[preset])


def _train(
    folder: Path, config: QuickstartConfig, name: str, truth: GroundTruth | None = None
) -> dict[str, Any]:
    """Train one run of a quickstart's folder; a worker elsewhere reads the ground truth there."""
    with hidden():
        job = Train(store=folder / STORE, config=config.runs()[name][1], truth=truth)
        return run_job(job, folder / "runs" / name)


def _truth_section(
    config: QuickstartConfig,
    folder: RunFolder,
    ground: OwnGroundTruth,
    truth: Mapping[str, Any],
    arena: Shown,
) -> Section:
    """Draw the ground truth, and describe it."""
    successor, d = config.successor, config.recommended.num_features
    principal, floor = ground.truth.principal, truth["noise_floor"]
    rows = [
        ("arena", successor.arena),
        ("states and tasks", successor.num_states),
        *(
            (name.replace("_", " "), truth[name])
            for name in ("transitions", "seconds", "transitions_per_second")
        ),
        ("standard error of an entry (root mean square)", truth["standard_error"]),
        (f"noise floor at d = {d}", floor[d - 1]),
    ]
    components = (
        plot_learned_components(ground.truth, {}, d),
        f"The {d} leading principal components: left singular vectors of the centred successor "
        "measure, one value a state.",
    )
    spectrum = (
        plotting.plot_spectrum(principal.singular_values, principal.total_energy),
        "Singular values of the centred successor measure, and the share of its energy that the "
        "leading components capture.",
    )
    noise = (
        plotting.plot_subspace_error({"noise floor": floor}),
        "Noise floor: expected subspace distance of this matrix from the truth, estimated from the "
        "distance between two independent halves of the rollouts. Smaller distances do not tell a "
        "representation from a perfect one.",
    )
    drawn = {"components": components, "spectrum": spectrum, "noise_floor": noise}
    return Section(
        title="Ground truth",
        text="Successor measure of the uniformly random policy, estimated by Monte-Carlo rollouts "
        "that start uniformly inside each cell. Its columns are centred over states; the principal "
        "components are the left singular vectors of the centred matrix.",
        tables=[Table(("quantity", "value"), rows, "How the ground truth was made")],
        figures=[arena, *(save(folder, name, *each) for name, each in drawn.items())],
    )


def _recipe_section(
    config: QuickstartConfig,
    folder: RunFolder,
    ground: OwnGroundTruth,
    recipe: str,
    rows: Sequence[Mapping[str, Any]],
) -> Section:
    """Draw the components that the methods learned under a recipe, and tabulate their errors."""
    base: TrainingConfig = getattr(config, recipe)
    d = base.num_features
    runs = {
        run.objective.label: RunFolder(folder.path / "runs" / name)
        for name, (its, run) in config.runs().items()
        if its == recipe
    }
    learned = save(
        folder,
        f"components_{recipe}",
        plot_learned_components(ground.truth, runs, d),
        f"The {d} leading principal components (top row) and the learned ones of the first seed, "
        "rotated within their span onto the true ones (orthogonal Procrustes). |cos| is the cosine "
        "with the true component; each column has common colour limits.",
    )
    curves = save(
        folder,
        f"curves_{recipe}",
        plot_distances(runs, None if ground.error is None else ground.error.floor(d)),
        f"Subspace distance at d = {d} against updates; dashed: the noise floor.",
    )
    names = [name for name in rows[0] if name not in ("recipe", "d")]
    caption = (
        f"Means over seeds ({base.num_seeds}, trained together); seconds exclude compilation and "
        f"evaluation, and {_RUNS_AT_ONCE} runs share the cores. The excess loss is relative to "
        "the best d features; the streak counts leading components within π/8 of the true ones, in "
        "order."
    )
    text = (
        f"States an update: {base.rows:,}; tasks: {base.tasks:,}; updates: {base.steps:,}. Every "
        "method draws the same states and tasks. The configuration below has all other options."
    )
    if recipe == "paper":
        text += (
            f" The paper makes 10⁸ updates; after {base.steps:,} the methods have not converged. "
            "It also fits large batch's weights on φ and Ψ at the centres of all cells, 10,000 of "
            "them; here the weights are fitted on the gradient's own rows, which is another "
            "method. The authors' code centres the rows of the matrix, whereas columns are centred "
            f"here, and makes 1,000 rollouts per cell instead of {config.successor.rollouts}. The "
            "experiment puddle-world follows the paper's protocol in these points."
        )
    return Section(
        title=RECIPES[recipe],
        text=text,
        tables=[_table_of(rows, names, caption)],
        figures=[learned, curves],
    )


def _table_of(rows: Sequence[Mapping[str, Any]], names: Sequence[str], caption: str) -> Table:
    cells = [[row[name] for name in names] for row in rows]
    return Table([name.replace("_", " ") for name in names], cells, caption)
