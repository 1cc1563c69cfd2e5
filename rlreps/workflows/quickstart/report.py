"""Figures and report of the quickstart."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rlreps import plotting
from rlreps.envs import PuddleWorld
from rlreps.losses import Objective
from rlreps.report.method_names import method_name
from rlreps.report.page import Section, Table, write_report
from rlreps.runs.folder import RunFolder
from rlreps.successor.ground_truth import GroundTruth
from rlreps.workflows.quickstart.config import QuickstartConfig
from rlreps.workflows.train import TrainingConfig

_RECIPES = {"paper": "Paper's protocol", "recommended": "Recommended recipe"}
_DISTANCE = "subspace distance"


@dataclasses.dataclass(frozen=True)
class RecipeResult:
    """All runs under one recipe.

    Attributes:
        summaries: One per run, as its ``summary.json``.
        curves: Learning curve of each method at the headline dimension.
        components: Each method's components at that dimension, aligned to the true ones, [n, d].
        cosines: |cosine| of each aligned component with the true one, [d].
    """

    summaries: list[dict[str, Any]]
    curves: list[plotting.Line]
    components: dict[str, np.ndarray]
    cosines: dict[str, np.ndarray]


def write_quickstart_report(
    config: QuickstartConfig,
    folder: RunFolder,
    truth: GroundTruth,
    environment: PuddleWorld,
    results: Mapping[str, RecipeResult],
    summary: Mapping[str, Any],
) -> Path:
    """Writes every figure as PNG and the report that holds them all.

    Returns:
        The path of ``report.html``.
    """
    figures = {
        name: plotting.save_figure(figure, folder.figures / f"{name}.png")
        for name, figure in _figures(
            config, truth, environment, results, np.asarray(summary["ground_truth"]["noise_floor"])
        ).items()
    }
    sections = [
        _truth_section(config, summary["ground_truth"], figures),
        *(
            _recipe_section(recipe, getattr(config, recipe), results[recipe], figures, config)
            for recipe in _RECIPES
        ),
        Section(
            title="Distance against the number of features",
            text="Recommended recipe. Later components carry less energy, their gradients are "
            "smaller in proportion, and they are learned last.",
            figures=[
                (
                    figures["distance_by_dimension"],
                    "Subspace distance after training against the number of features d, geometric "
                    "mean over seeds; 0 is the true subspace, 1 is orthogonal to it.",
                )
            ],
        ),
    ]
    return write_report(
        folder.path / "report.html",
        title="rlreps quickstart: learned principal components of PuddleWorld",
        summary=_abstract(config, summary),
        sections=sections,
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )


def _figures(
    config: QuickstartConfig,
    truth: GroundTruth,
    environment: PuddleWorld,
    results: Mapping[str, RecipeResult],
    noise_floor: np.ndarray,
) -> dict[str, Figure]:
    d, bins = config.headline_dimension, config.successor.bins
    basis = truth.principal.truncated(d).basis
    figures = {
        "environment": plotting.plot_environment(environment),
        "spectrum": plotting.plot_spectrum(
            truth.principal.singular_values, truth.principal.total_energy
        ),
        "distance_by_dimension": plotting.plot_distance_by_dimension(
            _distance_rows(results["recommended"]), noise_floor=noise_floor
        ),
        "noise_floor": plotting.plot_subspace_error({"noise floor": noise_floor}),
    }
    for recipe, result in results.items():
        named = {method_name(method): maps for method, maps in result.components.items()}
        figures[f"components_{recipe}"] = plotting.plot_components(
            {"ground truth": basis, **named},
            bins=bins,
            environment=environment,
            cosines={method_name(method): values for method, values in result.cosines.items()},
        )
        figures[f"curves_{recipe}"] = plotting.plot_curves(
            result.curves,
            x_label="update",
            y_label=f"{_DISTANCE} (d = {d})",
            noise_floor=float(noise_floor[d - 1]) or None,
        )
    return figures


def _distance_rows(result: RecipeResult) -> list[dict[str, Any]]:
    return [
        {
            "method": method_name(run["method"]),
            "d": run["d"],
            "subspace_distance": [seed["subspace_distance"] for seed in run["per_seed"]],
        }
        for run in result.summaries
    ]


def _truth_section(
    config: QuickstartConfig, truth: Mapping[str, Any], figures: Mapping[str, Path]
) -> Section:
    successor = config.successor
    start = "t ≥ 0" if successor.count_start else "t ≥ 1"
    rows = [
        ("arena", successor.arena),
        ("states and tasks", f"{successor.bins} x {successor.bins} cells"),
        ("discount", successor.discount),
        ("sum over", start),
        ("horizon (steps)", successor.horizon),
        ("rollouts per cell", successor.rollouts),
        ("transitions", truth["transitions"]),
        ("seconds", truth["seconds"]),
        ("transitions per second", truth["transitions_per_second"]),
        ("standard error of an entry (root mean square)", truth["standard_error"]),
        *(
            (f"noise floor at d = {d}", truth["noise_floor"][d - 1])
            for d in config.dimensions
            if d <= len(truth["noise_floor"])
        ),
    ]
    return Section(
        title="Ground truth",
        text="Successor measure of the uniformly random policy, estimated by Monte-Carlo rollouts "
        "that start uniformly inside each cell. Its columns are centred over states; the "
        "principal components are the left singular vectors of what is left.",
        tables=[Table(("quantity", "value"), rows, "How the ground truth was made")],
        figures=[
            (
                figures["environment"],
                "The arena. Shading gives the speed inside a puddle as a fraction of the speed "
                "outside; overlapping puddles compound.",
            ),
            (
                figures["spectrum"],
                "Singular values of the centred successor measure, and the share of its energy "
                "that the leading components capture.",
            ),
            (
                figures["noise_floor"],
                "Noise floor: expected subspace distance of this matrix from the truth, from the "
                "distance between two independent halves of the rollouts. No smaller distance "
                "tells a representation from a perfect one.",
            ),
        ],
    )


def _recipe_section(
    recipe: str,
    base: TrainingConfig,
    result: RecipeResult,
    figures: Mapping[str, Path],
    config: QuickstartConfig,
) -> Section:
    d = config.headline_dimension
    header = ("method", "d", "updates", "training s", _DISTANCE, "excess loss", "streak")
    rows = [
        (
            method_name(run["method"]),
            run["d"],
            run["steps"],
            run["seconds"],
            run["subspace_distance"],
            run["relative_excess_loss"],
            run["longest_eigenvector_streak"],
        )
        for run in result.summaries
    ]
    caption = (
        f"Means over {base.num_seeds} seeds trained together; training time is of all seeds, "
        "without compilation and evaluation. Excess loss is relative to the best d features; "
        "streak counts leading components within π/8 of the true ones, in order."
    )
    options = _describe_options(config.objectives) if recipe == "recommended" else ""
    return Section(
        title=_RECIPES[recipe],
        text=f"{_describe(base)}\n\n{options}".strip(),
        tables=[Table(header, rows, caption)],
        figures=[
            (
                figures[f"components_{recipe}"],
                f"The {d} leading principal components (top row) and the learned ones of the first "
                "seed, rotated within their span onto the true ones (orthogonal Procrustes). "
                "|cos| is the cosine with the true component; colour limits are shared down each "
                "column.",
            ),
            (
                figures[f"curves_{recipe}"],
                f"Subspace distance at d = {d} against updates, geometric mean over "
                f"{base.num_seeds} seeds with a 95 % t-interval of the logarithms.",
            ),
        ],
    )


def _describe(config: TrainingConfig) -> str:
    hidden = " x ".join(str(width) for width in getattr(config.encoder, "hidden", ()))
    inputs = (
        f"coordinates and {getattr(config.encoder, 'frequencies', 0)} cosines of each"
        if config.encoder.name == "fourier_mlp"
        else "coordinates"
    )
    tasks = "one task" if config.tasks == 1 else f"{config.tasks} tasks"
    return (
        f"ReLU network of hidden widths {hidden} on {inputs}; {config.rows} states and {tasks} an "
        f"update; {config.optimizer.name.capitalize()}, learning rate "
        f"{config.optimizer.learning_rate:g} ({config.optimizer.schedule}); {config.steps} "
        "updates. Every method draws the same states and tasks."
    )


def _describe_options(objectives: Sequence[Objective]) -> str:
    """What the recommended recipe sets beyond a method's defaults, a sentence each."""
    sentences = []
    for objective in objectives:
        options = []
        if getattr(objective, "permutations", 1) > 1:
            options.append(
                f"rows that exchange roles {getattr(objective, 'permutations', 1)} times an update"
            )
        if getattr(objective, "whitening", False):
            options.append("features whitened by a running covariance (our extension)")
        if getattr(objective, "precondition", None) is not None:
            options.append("its gradient preconditioned by the running WWᵀ (our extension)")
        if getattr(objective, "leave_one_out", False):
            options.append("residuals of weights fitted without the row (our extension)")
        if getattr(objective, "weight_learning_rate", None) is not None:
            options.append(
                f"weights learned at rate {getattr(objective, 'weight_learning_rate', 0.0):g}"
            )
        if options:
            sentences.append(f"{method_name(objective.name)} has {' and '.join(options)}.")
    return " ".join(sentences)


def _abstract(config: QuickstartConfig, summary: Mapping[str, Any]) -> str:
    best = min(summary["methods"].items(), key=lambda item: item[1]["subspace_distance"])
    energy = np.asarray(summary["ground_truth"]["energy_captured"])
    d = config.headline_dimension
    method, figures = best
    return (
        f"The {d} leading components hold {100 * energy[d - 1]:.1f} % of the energy of the centred "
        f"successor measure. Under the recommended recipe {method_name(method)} comes closest to "
        f"them: subspace distance {figures['subspace_distance']:.4f} after {figures['steps']} "
        "updates."
    )
