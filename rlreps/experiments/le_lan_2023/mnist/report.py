"""Figures, tables and report of the MNIST experiment."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlreps.experiments.le_lan_2023.mnist.config import PRESETS, MnistConfig
from rlreps.experiments.le_lan_2023.mnist.figures import (
    MethodResult,
    curve_rows,
    draw_components,
    draw_curves,
    draw_reconstructions,
)
from rlreps.experiments.le_lan_2023.mnist.problem import Problem
from rlreps.experiments.results import Claim, claims_table, write_results
from rlreps.report.page import Section, Table, write_report
from rlreps.runs.folder import RunFolder

EIGENGAME = "eigengame"
"""Name of EigenGame's runs."""

PAPER_EXACT, PAPER_LEARNED, PAPER_RATIO = 21.46, 21.53, 1.0033
"""Test reconstruction errors that the paper states, and their ratio."""

_PAPER_TASK = (60_000, 784, 16)
"""Training images, pixels and components of the paper's numbers."""

_ERROR_HEADER = (
    "components",
    "updates",
    "entries read a run",
    "training s",
    "subspace distance",
    "test error",
    "over the exact",
    "runs",
    "diverged",
)


def write_mnist_report(
    config: MnistConfig,
    problem: Problem,
    results: Sequence[MethodResult],
    folder: RunFolder,
    summary: Mapping[str, Any],
    claims: Sequence[Claim],
) -> Path:
    """Writes figures, the numbers behind them and ``report.html``; returns the page's path."""
    for name, figure in draw_curves(config, results).items():
        write_results(folder, name, curve_rows(results), figure)
    write_results(folder, "reconstructions", *draw_reconstructions(config, problem, results))
    shown = [each for each in results if each.name in (summary["best"]["method"], EIGENGAME)]
    write_results(folder, "components", *draw_components(problem, shown))
    write_results(folder, "test_errors", _error_rows(problem, results))
    return write_report(
        folder.path / "report.html",
        title="MNIST: principal components from a few pixels at a time",
        summary=_abstract(results, summary),
        sections=[
            _claims_section(claims),
            _errors_section(config, problem, results, folder),
            _curves_section(config, folder),
            _settings_section(config),
        ],
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )


def compare_with_paper(
    config: MnistConfig, problem: Problem, summary: Mapping[str, Any]
) -> list[Claim]:
    """The paper's numbers beside this run's.

    They can be told only where the task is the same, and those of Danskin-LISSA only where its
    settings are the paper's too.
    """
    num_images, num_pixels = problem.source.images.shape
    same = (num_images, num_pixels, config.num_components) == _PAPER_TASK
    learned_alike = same and config.danskin == PRESETS["paper"].danskin
    exact, best = summary["exact"]["test_error"], summary["best"]

    def agrees(paper: float, found: float) -> bool:
        return bool(abs(found / paper - 1.0) <= 0.005)

    return [
        Claim(
            statement="Test error of exact PCA (holds within 0.5 %)",
            paper=f"{PAPER_EXACT:.2f}",
            found=f"{exact:.2f} (training images: {summary['exact']['train_error']:.2f})",
            holds=agrees(PAPER_EXACT, exact) if same else None,
        ),
        Claim(
            statement="Test error of the best Danskin-LISSA (holds within 0.5 %)",
            paper=f"{PAPER_LEARNED:.2f}",
            found=f"{best['test_error']:.2f} ({best['method']})",
            holds=agrees(PAPER_LEARNED, best["test_error"]) if learned_alike else None,
        ),
        Claim(
            statement="Ratio of the learned to the exact test error (holds if no larger)",
            paper=f"{PAPER_RATIO:.4f}",
            found=f"{best['test_error_ratio']:.4f}",
            holds=bool(best["test_error_ratio"] <= PAPER_RATIO) if learned_alike else None,
        ),
    ]


def _error_rows(problem: Problem, results: Sequence[MethodResult]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {"method": "exact", "test_error": problem.test_error, "test_error_ratio": 1.0}
    ]
    for result in results:
        error, ratio = result.summary["test_error"], result.summary["test_error_ratio"]
        rows.append(
            {
                "method": result.name,
                "test_error": error["mean"],
                "test_error_low": error["mean_low"],
                "test_error_high": error["mean_high"],
                "test_error_interquartile_mean": error["interquartile_mean"],
                "test_error_ratio": ratio["mean"],
                "test_error_ratio_low": ratio["mean_low"],
                "test_error_ratio_high": ratio["mean_high"],
                "subspace_distance": result.summary["subspace_distance"]["mean"],
                **{name: result.summary[name] for name in ("steps", "entries_read", "seconds")},
                **{name: result.summary[name] for name in ("runs", "diverged")},
            }
        )
    return rows


def _claims_section(claims: Sequence[Claim]) -> Section:
    return Section(
        title="What the paper states",
        text="Errors are means of ||x - Px||² over test images: x is a test image divided by 255 "
        "less the mean training image, and P projects onto components of the training images. "
        "The ratio of two errors is what tells how well was learned. Danskin-LISSA is run with the "
        "settings below, and judged against the paper only where they are the paper's; those of "
        "the laptop preset are not and were chosen by these test errors, and so is the best N.",
        tables=[claims_table(claims)],
    )


def _errors_section(
    config: MnistConfig, problem: Problem, results: Sequence[MethodResult], folder: RunFolder
) -> Section:
    rows: list[tuple[object, ...]] = [
        ("exact PCA", None, None, None, 0.0, f"{problem.test_error:.3f}", "1.0000", None, None)
    ]
    for result in results:
        found = result.summary
        rows.append(
            (
                result.label,
                found["steps"],
                found["entries_read"],
                found["seconds"],
                found["subspace_distance"]["mean"],
                f"{found['test_error']['mean']:.3f}",
                f"{found['test_error_ratio']['mean']:.4f}{_interval(found['test_error_ratio'])}",
                found["runs"],
                found["diverged"],
            )
        )
    return Section(
        title="Reconstruction of test images",
        tables=[
            Table(
                _ERROR_HEADER,
                rows,
                "Mean squared error of test images under each method's components, means over "
                "runs with a 95 % bootstrap interval. Training time is of all runs of a method "
                "together, without compilation and evaluation. A run that diverged counts with "
                "the error of no components at all.",
            )
        ],
        figures=[
            (
                folder.figures / "reconstructions.png",
                f"The first {config.shown_images} test images and what {config.num_components} "
                "components keep of them (learned ones: first run). Below each name, its mean "
                "error over all test images.",
            ),
            (
                folder.figures / "components.png",
                "Exact components, and those of the best Danskin-LISSA and of EigenGame, rotated "
                "within their span onto the exact ones (orthogonal Procrustes; first run). Below "
                "each image, its |cosine| with the exact component.",
            ),
        ],
    )


def _interval(aggregated: Mapping[str, Any]) -> str:
    low, high = aggregated["mean_low"], aggregated["mean_high"]
    return f" [{low:.4f}, {high:.4f}]" if math.isfinite(low) else ""


def _curves_section(config: MnistConfig, folder: RunFolder) -> Section:
    return Section(
        title="Learning curves",
        text="An update of Danskin-LISSA reads 5 N pixels of each of its images and changes the "
        "features of N; an update of EigenGame reads all pixels of its images.",
        figures=[
            (
                folder.figures / "curves.png",
                f"Subspace distance to the exact {config.num_components} components against "
                f"updates, geometric mean over {config.num_seeds} runs; 0 is the exact subspace, "
                "1 is orthogonal to it.",
            ),
            (
                folder.figures / "curves_by_entries.png",
                "The same against the entries of the matrix that a run has read, repeated ones "
                "counted again.",
            ),
        ],
    )


def _settings_section(config: MnistConfig) -> Section:
    """This run's settings beside the paper's, where they differ."""
    here, paper = _flat(dataclasses.asdict(config)), _flat(dataclasses.asdict(PRESETS["paper"]))
    rows = [(name, str(paper[name]), str(here[name])) for name in here if here[name] != paper[name]]
    if not rows:
        return Section(title="Settings", text="This run has the settings of the paper's preset.")
    return Section(
        title="Settings",
        text="Several images an update and a learning rate that decays to zero lower the noise of "
        "the weight estimates; whitening brings the truncated series nearer to the inverse that it "
        "stands for; a running norm keeps its step from jumping with the largest row of a batch.",
        tables=[Table(("setting", "paper preset", "this run"), rows, "What this run changes.")],
    )


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        inner = f"{prefix}{name}"
        flat |= _flat(value, f"{inner}.") if isinstance(value, Mapping) else {inner: value}
    return flat


def _abstract(results: Sequence[MethodResult], summary: Mapping[str, Any]) -> str:
    best = next(each for each in results if each.name == summary["best"]["method"])
    return (
        f"The best Danskin-LISSA ({best.label.split(', ')[-1]}) reconstructs test images with "
        f"{summary['best']['test_error_ratio']:.4f} times the error of the exact {summary['d']} "
        f"components ({summary['best']['test_error']:.3f} against "
        f"{summary['exact']['test_error']:.3f})."
    )
