"""Results, figures and report of the bouncing-balls experiment."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlreps.experiments.pfau_2019.bouncing_balls import figures
from rlreps.experiments.pfau_2019.bouncing_balls.claims import compare
from rlreps.experiments.pfau_2019.bouncing_balls.config import BouncingBallsConfig
from rlreps.experiments.pfau_2019.bouncing_balls.linear import DoubleArray
from rlreps.experiments.pfau_2019.bouncing_balls.measuring import Explained, FloatArray, Spectra
from rlreps.experiments.results import Claim, claims_table, write_results
from rlreps.report.page import Section, Table, write_report
from rlreps.runs.folder import RunFolder

DEEP, PIXELS, POSITIONS = "deep", "linear, pixels", "functions of positions"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A trained network and what it was found to be.

    Attributes:
        seed: Its seed.
        seconds: Time in updates.
        history: Records of its training.
        spectra: Its eigenvalues on fresh frames.
        explained: What explains its eigenfunctions.
        maps: Mean eigenfunctions against one ball's position, [bins², d].
        frames: Those that excite each least and most, [d, 2 · shown, size, size].
    """

    seed: int
    seconds: float
    history: list[dict[str, Any]]
    spectra: Spectra
    explained: Explained
    maps: DoubleArray
    frames: FloatArray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """Everything measured.

    Attributes:
        networks: One for each seed.
        pixels: Linear slow feature analysis of pixels.
        positions: Slow feature analysis of functions of the balls' positions.
        positions_held_out: The same on the frames that networks are measured on over training.
    """

    networks: Sequence[Network]
    pixels: Spectra
    positions: Spectra
    positions_held_out: Spectra


def write_balls_report(
    config: BouncingBallsConfig, folder: RunFolder, results: Results
) -> dict[str, Any]:
    """Writes figures, the numbers behind them and the report; returns the summary."""
    first = results.networks[0]
    learned = _stacked([network.spectra.ordered for network in results.networks])
    claims = compare(
        learned,
        _stacked([network.spectra.ritz for network in results.networks]),
        results.pixels.ordered,
        results.positions.ordered,
        _stacked([network.explained.one_ball for network in results.networks]),
        _stacked([network.explained.all_balls for network in results.networks]),
    )
    exact = {PIXELS: results.pixels.ordered, POSITIONS: results.positions.ordered}
    shown = {
        "eigenvalues": (
            _eigenvalue_rows(results),
            figures.draw_eigenvalues(learned, exact, DEEP),
        ),
        "maps": (
            figures.map_rows(first.maps),
            figures.draw_maps(first.maps, first.spectra.ordered),
        ),
        "exciting_frames": (
            _explained_rows(results),
            figures.draw_extremes(first.frames, first.spectra.ordered),
        ),
        "training": (
            _training_rows(config, results),
            figures.draw_training(
                [record["step"] for record in first.history],
                _curves(config, results),
                results.positions_held_out.ordered,
            ),
        ),
    }
    for name, (rows, figure) in shown.items():
        write_results(folder, name, rows, figure)
    write_report(
        folder.path / "report.html",
        title="Bouncing balls: deep slow feature analysis",
        summary=_abstract(config, results),
        sections=_sections(config, folder, results, claims),
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )
    return {
        "eigenvalues": {
            DEEP: learned.tolist(),
            **{name: values.tolist() for name, values in exact.items()},
        },
        "seconds": {network.seed: round(network.seconds, 3) for network in results.networks},
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "report": str(folder.path / "report.html"),
    }


def _stacked(parts: Sequence[DoubleArray]) -> DoubleArray:
    return np.stack(parts)


def _eigenvalue_rows(results: Results) -> figures.Rows:
    analyses = [(DEEP, network.seed, network.spectra) for network in results.networks]
    exact = [(PIXELS, None, results.pixels), (POSITIONS, None, results.positions)]
    return [
        {
            "analysis": name,
            "seed": seed,
            "feature": k + 1,
            "eigenvalue": spectra.ordered[k],
            "of_the_span": spectra.ritz[k],
            "correlation_at_lag_1": 1.0 - spectra.ordered[k] / 2.0,
        }
        for name, seed, spectra in [*analyses, *exact]
        for k in range(len(spectra.ordered))
    ]


def _explained_rows(results: Results) -> figures.Rows:
    names = [field.name for field in dataclasses.fields(Explained)]
    return [
        {
            "seed": network.seed,
            "feature": k + 1,
            **{name: getattr(network.explained, name)[k] for name in names},
        }
        for network in results.networks
        for k in range(len(network.spectra.ordered))
    ]


def _curves(config: BouncingBallsConfig, results: Results) -> DoubleArray:
    """Held-out eigenvalues over training, [networks, evaluations, d]."""
    names = [f"eigenvalue_{k}" for k in range(1, config.num_features + 1)]
    return np.asarray(
        [
            [[record[name][0] for name in names] for record in network.history]
            for network in results.networks
        ]
    )


def _training_rows(config: BouncingBallsConfig, results: Results) -> figures.Rows:
    return [
        {
            "seed": network.seed,
            "step": record["step"],
            "seconds": record["seconds"],
            **{f"feature_{k}": value for k, value in enumerate(values, start=1)},
        }
        for network, curve in zip(results.networks, _curves(config, results), strict=True)
        for record, values in zip(network.history, curve, strict=True)
    ]


def _sections(
    config: BouncingBallsConfig, folder: RunFolder, results: Results, claims: Sequence[Claim]
) -> list[Section]:
    first = results.networks[0]
    return [
        Section(
            title="What the paper states",
            text="Pfau et al. (2019) show, of a convolutional network's 12 eigenfunctions of three "
            "balls, maps against one ball's position and the frames that excite each one most and "
            "least. They print no eigenvalues. A frame is a function of the balls' positions, so "
            "what is judged is how simple a function of them each feature is. Our two goals stand "
            "below what the paper states.",
            tables=[claims_table(claims)],
        ),
        Section(
            title="Eigenvalues",
            text=_about_eigenvalues(config),
            tables=[_feature_table(first, results)],
            figures=[
                (
                    folder.figures / "eigenvalues.png",
                    "Eigenvalue of every feature on fresh frames: of networks "
                    f"({figures.over(len(results.networks))}), of linear slow feature analysis of "
                    "pixels, and of functions of the balls' positions, which no video shows.",
                )
            ],
        ),
        Section(
            title="What features respond to",
            figures=[
                (
                    folder.figures / "maps.png",
                    "Mean of each eigenfunction where one of the balls is, over all states with a "
                    f"ball there (network of seed {first.seed}). Eigenfunctions have variance 1; "
                    "the number above each map is its largest magnitude, so a map with small "
                    "limits says that the feature does not depend on where one ball is alone. "
                    "Centres of balls do not come to the grey border.",
                ),
                (
                    folder.figures / "exciting_frames.png",
                    f"Of {config.rows * config.frame_batches:,} unrelated frames, those that "
                    "excite each eigenfunction least (left) and most (right), more to the ends.",
                ),
            ],
        ),
        Section(
            title="Training",
            figures=[
                (
                    folder.figures / "training.png",
                    "Eigenvalues on held-out frames over training, "
                    f"{figures.over(len(results.networks))}. Dashes at the right edge: those of "
                    "functions of positions on the same frames, which are not those of the table.",
                )
            ],
        ),
    ]


def _about_eigenvalues(config: BouncingBallsConfig) -> str:
    return (
        "An eigenvalue is E[(u(s') - u(s))^2] of a feature of mean zero and variance 1 that is "
        "uncorrelated with those before it; 1 - λ/2 is its correlation with itself a frame later. "
        "All analyses are measured by the same estimator on the same "
        f"{config.rows // 2 * config.test_batches:,} fresh pairs of frames.\n\n"
        "Linear analysis solves the generalised eigenproblem of the "
        f"{config.components} leading principal components of frames averaged over squares of "
        f"{config.pooling} x {config.pooling} pixels. Functions of positions are symmetric "
        f"polynomials of cosines to degree {config.degree}: an exact solution in a space that "
        "knows the balls, and an upper bound of the eigenvalues that a frame allows. Linear "
        "combinations of pixels are sums over balls of functions of one ball, so linear analysis "
        "cannot see pairs."
    )


def _feature_table(first: Network, results: Results) -> Table:
    header = (
        "feature",
        "deep λ",
        "correlation a frame later",
        "of the span",
        "linear λ",
        "positions λ",
        "mean position",
        "single balls",
        "all balls",
    )
    found = first.spectra
    rows = [
        (
            k + 1,
            f"{found.ordered[k]:.4f}",
            f"{1.0 - found.ordered[k] / 2.0:.4f}",
            f"{found.ritz[k]:.4f}",
            f"{results.pixels.ordered[k]:.4f}",
            f"{results.positions.ordered[k]:.4f}",
            f"{first.explained.mean_position[k]:.3f}",
            f"{first.explained.one_ball[k]:.3f}",
            f"{first.explained.all_balls[k]:.3f}",
        )
        for k in range(len(found.ordered))
    ]
    return Table(
        header,
        rows,
        f"Every feature of the network of seed {first.seed}. Last three columns: shares of its "
        "variance that the balls' mean position, sums of functions of single balls, and products "
        "of up to three of these explain, on frames that were not fitted to. Other seeds are in "
        "results/exciting_frames.csv.",
    )


def _abstract(config: BouncingBallsConfig, results: Results) -> str:
    seconds = sum(network.seconds for network in results.networks)
    return (
        "Three equal balls in a box, 64 x 64 pixels. A network sees one frame, as in Pfau et al. "
        "(2019), and learns the functions of it that change least from a frame to the next. "
        "Velocities show in no single frame, so features are functions of positions. Every batch "
        "is of fresh frames: the law that episodes start from is stationary.\n\n"
        f"{len(results.networks)} networks of {config.steps:,} updates on {config.rows} frames "
        f"each, {seconds:,.0f} s of training in all."
    )
