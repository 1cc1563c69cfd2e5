"""Results and report of the Atari experiment."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlreps.experiments.pfau_2019.atari.config import AtariConfig
from rlreps.experiments.pfau_2019.atari.features import Comparison, MethodFeatures, compare
from rlreps.experiments.pfau_2019.atari.figures import (
    draw_eigenvalues,
    draw_exciting_frames,
    draw_history,
    eigenvalue_rows,
    exciting_rows,
    history_rows,
)
from rlreps.experiments.pfau_2019.atari.problem import Problem
from rlreps.experiments.results import Claim, claims_table, write_results
from rlreps.report.page import Section, Table, write_report
from rlreps.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """What the experiment found.

    Attributes:
        methods: Slow features, PCA's and successor features, in this order.
        history: Records of the slow features' training.
        variance_of_pixels: Share of the training frames' variance in PCA's components.
        prediction_errors: Held-out mean squared errors of the next frame, in units of the training
            pixels' variance: of the ``predictor``, the ``mean_frame`` and the ``frame_before``.
        seconds: Time in each network's updates.
    """

    methods: Sequence[MethodFeatures]
    history: Sequence[Mapping[str, Any]]
    variance_of_pixels: float
    prediction_errors: Mapping[str, float]
    seconds: Mapping[str, float]


def write_atari_report(
    config: AtariConfig, folder: RunFolder, problem: Problem, outcome: Outcome
) -> dict[str, Any]:
    """Writes figures, results and report of a finished run; returns its summary."""
    methods, count = outcome.methods, config.num_features
    comparisons = {
        (left.label, right.label): compare(left, right, problem)
        for left, right in itertools.combinations(methods, 2)
    }
    write_results(folder, "eigenvalues", eigenvalue_rows(methods), draw_eigenvalues(methods))
    history = outcome.history
    write_results(folder, "training", history_rows(history, count), draw_history(history, count))
    for method in methods:
        rows = exciting_rows(method, problem)
        figure = draw_exciting_frames(method, problem)
        write_results(folder, _file_name(method), rows, figure)
    write_results(folder, "spans", _comparison_rows(comparisons))
    claims = compare_slowness(methods, later_episodes=problem.later_episodes)
    summary = _summary(config, folder, problem, outcome, comparisons, claims)
    write_report(
        folder.path / "report.html",
        title=f"Atari: slow features of {config.game}",
        summary=_abstract(config, problem, methods),
        sections=_sections(config, folder, outcome, comparisons, claims),
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )
    return summary


def _file_name(method: MethodFeatures) -> str:
    return f"frames_{method.label.lower().replace(' ', '_')}"


def _summary(
    config: AtariConfig,
    folder: RunFolder,
    problem: Problem,
    outcome: Outcome,
    comparisons: Mapping[tuple[str, str], Comparison],
    claims: Sequence[Claim],
) -> dict[str, Any]:
    return {
        "game": config.game,
        "frames": len(problem.frames.episodes),
        "episodes": int(problem.frames.episodes[-1]) + 1,
        "training_pairs": len(problem.training),
        "held_out_pairs": len(problem.held_out),
        "methods": {
            method.label: {
                "training_eigenvalues": method.training_eigenvalues.tolist(),
                "held_out_eigenvalues": method.held_out_eigenvalues.tolist(),
            }
            for method in outcome.methods
        },
        "comparisons": _comparison_rows(comparisons),
        "variance_of_pixels": outcome.variance_of_pixels,
        "predictor": dict(outcome.prediction_errors),
        "seconds": dict(outcome.seconds),
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "report": str(folder.path / "report.html"),
    }


def _comparison_rows(
    comparisons: Mapping[tuple[str, str], Comparison],
) -> list[dict[str, object]]:
    return [
        {
            "left": left,
            "right": right,
            "subspace_distance": found.distance,
            **{
                f"canonical_correlation_{number}": float(value)
                for number, value in enumerate(found.correlations, start=1)
            },
        }
        for (left, right), found in comparisons.items()
    ]


def compare_slowness(methods: Sequence[MethodFeatures], *, later_episodes: bool) -> list[Claim]:
    """What slow features promise, and what was found.

    Args:
        methods: The slow features first.
        later_episodes: Whether held-out frames are of episodes of their own; nothing can be told
            from a run so short that they are not.

    Returns:
        Whether they are slower than each of the others, as the sum of held-out eigenvalues; whether
        they come in order, on training and on held-out pairs; and what only the figures show.
    """
    slow, *others = methods
    total = float(slow.held_out_eigenvalues.sum())
    claims = []
    for other in others:
        other_total = float(other.held_out_eigenvalues.sum())
        claims.append(
            Claim(
                statement=f"sum of the {len(slow.held_out_eigenvalues)} held-out eigenvalues",
                paper=f"below that of {other.label}",
                found=f"{total:.4g} against {other_total:.4g}",
                # One network of each: nothing is known of how much the sums vary.
                holds=None,
            )
        )
    for name, eigenvalues in (
        ("training", slow.training_eigenvalues),
        ("held-out", slow.held_out_eigenvalues),
    ):
        steps = np.diff(eigenvalues)
        claims.append(
            Claim(
                statement=f"order of the slow features on {name} pairs",
                paper="eigenvalues rise",
                found=f"{int(np.sum(steps > 0))} of {len(steps)} steps rise",
                holds=bool(np.all(steps > 0)) if later_episodes else None,
            )
        )
    claims.append(
        Claim(
            statement="what the features show",
            paper="meaningful subgoals (Pfau et al. 2019)",
            found="see the frames that excite them",
            holds=None,
        )
    )
    return claims


def _sections(
    config: AtariConfig,
    folder: RunFolder,
    outcome: Outcome,
    comparisons: Mapping[tuple[str, str], Comparison],
    claims: Sequence[Claim],
) -> list[Section]:
    frames = [
        (
            folder.figures / f"{_file_name(method)}.png",
            f"{method.label.capitalize() if method.label.islower() else method.label}: the "
            "average of the hundredth of all frames that excites each feature most, what sets it "
            "apart from the mean frame, and the same for the frames that excite it least. λ is "
            "the held-out eigenvalue; signs make a feature's third moment positive.",
        )
        for method in outcome.methods
    ]
    return [
        Section(title="Goals", tables=[claims_table(claims, stated="goal")]),
        Section(title="Frames that excite the features", figures=frames),
        Section(
            title="Slowness",
            text="The eigenvalue of a feature is its mean squared change from a frame to the next "
            "over its variance: 0 stands still, 2 is unrelated from frame to frame. PCA's and "
            "successor features are the slowest directions within their spans, in order "
            "(Rayleigh-Ritz on training pairs); slow features keep the order in which they were "
            "learned. On held-out pairs, of later frames, the functions are made orthogonal again, "
            "one by one.",
            figures=[
                (folder.figures / "eigenvalues.png", "Slowness of every method's features."),
                (
                    folder.figures / "training.png",
                    "Slowness of the slow features over training, on up to 512 pairs.",
                ),
            ],
        ),
        Section(
            title="How far the spans are apart",
            text=_predictor_text(config, outcome),
            tables=[_span_table(comparisons)],
        ),
    ]


def _predictor_text(config: AtariConfig, outcome: Outcome) -> str:
    errors = outcome.prediction_errors
    return (
        f"Successor features are discounted sums (γ = {config.discount:g}) of a next-frame "
        f"predictor's code of {config.code_size} numbers along the random agent's episodes, by "
        "least-squares temporal differences, linear in the code; their leading principal "
        "components are compared. The predictor sees one frame and no action. Its held-out "
        f"squared error is {errors['predictor']:.3f} of the training pixels' variance; the mean "
        f"frame's is {errors['mean_frame']:.3f} and the previous frame's "
        f"{errors['frame_before']:.3f}.\n\n"
        f"The principal components hold {outcome.variance_of_pixels:.1%} of the pixels' variance."
    )


def _span_table(comparisons: Mapping[tuple[str, str], Comparison]) -> Table:
    rows = [
        (
            left,
            right,
            found.distance,
            ", ".join(f"{value:.2f}" for value in found.correlations),
        )
        for (left, right), found in comparisons.items()
    ]
    return Table(
        ("features", "and", "subspace distance", "canonical correlations"),
        rows,
        "Spans of the features on held-out frames: distance 0 is equal, 1 orthogonal.",
    )


def _abstract(config: AtariConfig, problem: Problem, methods: Sequence[MethodFeatures]) -> str:
    sums = ", ".join(
        f"{method.held_out_eigenvalues.sum():.3g} ({method.label})" for method in methods
    )
    return (
        f"{len(problem.frames.episodes):,} frames of a random agent in {config.game}, "
        f"{problem.frame_shape[0]} x {problem.frame_shape[1]} pixels, "
        f"{int(problem.frames.episodes[-1]) + 1} episodes. Sums of the "
        f"{config.num_features} held-out slowness eigenvalues: {sums}."
    )
