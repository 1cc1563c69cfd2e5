"""Video of bouncing balls: deep slow feature analysis against linear (Pfau et al. 2019, 5.2).

Three equal balls in a box, 64 x 64 pixels. Networks see one frame or several consecutive frames and
learn the functions of their input that change least from one frame to the next. They are compared
with two exact analyses: linear slow feature analysis of pixels, the baseline, and the same analysis
of functions of the balls' positions. The second shows how slowly a function of positions can
change.

The paper prints no eigenvalues. The claims judge, network by network, how much of each feature's
variance is explained by functions of the balls' positions and velocities: a statement holds if it
holds for more than half of all networks, by the exact interval of this share. Two goals of our own
follow.

An eigenvalue is E[(u(s') - u(s))²] of a feature of mean zero and variance 1 that is uncorrelated
with the features before it; 1 - λ/2 is its correlation with itself a frame later. All analyses are
measured by the same estimator on the same fresh clips. Functions of positions are symmetric
polynomials of cosines of the balls' positions. The analysis is exact in the space of these
functions. A frame shows the positions, so the eigenvalues in this space are upper bounds on the
smallest eigenvalues of functions of a frame. Linear combinations of pixels are sums over balls of
functions of one ball, so linear analysis cannot see pairs.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure

from rlreps.config import with_sizes
from rlreps.encoders import (
    BlockSparse,
    Convolutional,
    Encoder,
    FunctionEncoder,
    Params,
    WithConstant,
)
from rlreps.experiments.pfau_2019.balls import (
    BallClips,
    BallResponses,
    ball_responses,
    make_position_functions,
    pooled_pixels,
)
from rlreps.experiments.pfau_2019.slowness import Draw, Spectra, linear_slow_features, slow_spectra
from rlreps.experiments.pfau_2019.video import BouncingBalls
from rlreps.losses import Spin
from rlreps.numerics import matmul
from rlreps.operators import Slowness
from rlreps.plotting import plot_components, plot_reconstructions
from rlreps.stats import format_interval, judge_share
from rlreps.study import (
    STEP,
    Axis,
    Claim,
    Curve,
    Drawn,
    Experiment,
    Frame,
    Metric,
    Results,
    Run,
    TableRows,
    Tabulated,
    design_of,
)
from rlreps.subspace import ordered_spectrum
from rlreps.training import Optimizer, RMSProp, train
from rlreps.typing import DoubleArray

VIDEO = BouncingBalls()
DEEP, PIXELS, POSITIONS = "deep", "linear, pixels", "functions of positions"
SHARES = ("mean_position", "one_ball", "all_balls", "velocity")
SIDES, ONE_BALL, TOGETHER, VELOCITY, ORDERED = 0.8, 0.5, 0.5, 0.1, 0.05
"""Thresholds of claims: shares of variance, and the relative distance to Rayleigh-Ritz."""

TEST, HELD_OUT, LINEAR = "test", "evaluation", "linear"
"""Draws for final eigenvalues, for learning curves, and for the training of linear analyses."""

_DRAWS = {HELD_OUT: 10, LINEAR: 11, TEST: 12, "frames": 13, "video": 14}
"""Numbers that are folded into the first seed's key, for draws outside training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Deep slow feature analysis of frames, and linear analyses to compare with.

    Attributes:
        num_features: Eigenfunctions after the constant.
        frames: Consecutive frames that the network sees at once.
        objective: Spectral inference; operator and encoder are filled in.
        clips: Clips of a batch, for training and for measurements.
        clip_frames: Consecutive frames of a clip, in ``clip_frames - frames + 1`` inputs.
        num_frames: Frames of the video that clips are cut from; None plays new ones for every
            batch.
        evaluations: Points of each learning curve after its start.
        evaluation_batches: Held-out batches for each of these points.
        seed: Seed of the first run, and of all draws outside training.
        num_seeds: Independent networks, seeds ``seed`` … ``seed + num_seeds - 1``.
        pooling: Side of the squares that pixels are averaged over before linear analysis.
        components: Principal components that linear analysis of pixels chooses from.
        degree: Greatest degree of the cosines of positions.
        batches: Number of batches for each of three purposes: training of the linear analyses;
            final eigenvalues (fresh batches); and the maps, the shares of variance and the frames
            that excite a feature most and least (batches of unrelated inputs).
        map_bins: Cells along each side of the maps.
        shown: Number of frames to show that excite a feature most, and number that excite it least.
    """

    num_features: int = 12
    frames: int = 2
    encoder: Encoder = Convolutional()
    objective: Spin = Spin()
    optimizer: Optimizer = Optimizer(learning_rate=3e-3, schedule="cosine")
    clips: int = 128
    clip_frames: int = 2
    num_frames: int | None = None
    steps: int = 1000
    evaluations: int = 20
    evaluation_batches: int = 48
    seed: int = 0
    num_seeds: int = 1
    pooling: int = 2
    components: int = 256
    degree: int = 6
    batches: int = 400
    map_bins: int = 24
    shown: int = 5

    @property
    def rows(self) -> int:
        """Number of inputs in a batch."""
        return self.clips * (self.clip_frames - self.frames + 1)

    @property
    def seeds(self) -> range:
        """Seeds of the networks."""
        return range(self.seed, self.seed + self.num_seeds)

    @property
    def features(self) -> range:
        """Numbers of the features after the constant."""
        return range(1, 1 + self.num_features)

    @property
    def network(self) -> Encoder:
        """The constant and the network's features."""
        sizes = {
            "num_features": self.num_features,
            "frame_shape": (VIDEO.frame_size, VIDEO.frame_size, self.frames),
        }
        if isinstance(self.encoder, BlockSparse):
            return WithConstant(BlockSparse(with_sizes(self.encoder.encoder, **sizes)))
        return WithConstant(with_sizes(self.encoder, **sizes))

    def key(self, draw: str) -> Array:
        """Derive the key of a draw outside training."""
        return jax.random.fold_in(jax.random.key(self.seed), _DRAWS[draw])

    def source(self, num_frames: int | None = None, *, as_positions: bool = False) -> BallClips:
        """Return the source of clips: a video of ``num_frames`` frames, or new clips."""
        clips = None if num_frames is None else num_frames // self.clip_frames
        key = self.key("video")
        return BallClips(VIDEO, self.frames, self.clip_frames, clips, key, as_positions)

    def draw(self, name: str, *, as_positions: bool = False) -> Draw:
        """Return a draw of clips that no network was trained on."""
        batches = self.evaluation_batches if name == HELD_OUT else self.batches
        return Draw(self.source(as_positions=as_positions), self.key(name), self.clips, batches)


# Sizes of networks that were tried, one seed each: sums of the twelve eigenvalues on held-out clips
# after 1,000 updates of Adam with cosine decay, β = 1 (``averaging_rate``) and batches of 256
# single frames. For comparison, linear analysis of pixels has 0.60, functions of positions 0.29.
# 0.358 with channels (8, 16, 16), hidden 64, rate 3e-3; 0.384 with channels (8, 16, 32, 32); 0.330
# with hidden 128, rate 1e-2; 0.324 with hidden 256, rate 3e-3.
PAPER = Config(
    encoder=BlockSparse(Convolutional(channels=(32, 32, 32), hidden=128, kernel_size=5)),
    objective=Spin(
        averaging_rate=0.01, shifted=False, starts_at_identity=True, jacobian_rows_at_once=13
    ),
    optimizer=RMSProp(learning_rate=1e-6, schedule="constant", decay=0.999),
    clips=24,
    clip_frames=10,
    num_frames=200_000,
    steps=1_000_000,
    evaluations=200,
    num_seeds=6,
)
PRESETS = {
    "smoke": Config(
        num_features=4,
        encoder=BlockSparse(Convolutional(channels=(8, 8), hidden=32)),
        optimizer=Optimizer(learning_rate=1e-2, schedule="cosine"),
        clips=16,
        clip_frames=4,
        num_frames=2000,
        steps=60,
        evaluations=5,
        evaluation_batches=10,
        pooling=8,
        components=30,
        degree=2,
        batches=10,
        map_bins=12,
        shown=3,
    ),
    "laptop": Config(
        clip_frames=3,
        encoder=Convolutional(channels=(8, 16, 16), hidden=256),
        optimizer=Optimizer(learning_rate=5e-3, schedule="cosine"),
        steps=2000,
        num_seeds=3,
    ),
    "paper": PAPER,
}


def measure(run: Run[Config], name: str, seed: int | None) -> dict[str, Any]:
    """Train and measure one network; without a seed, measure the exact analyses.

    Returns:
        A ``frame`` of eigenvalues, with a row for each draw, step and feature; the network's final
        ``spectra`` and what its eigenfunctions respond to (``responses``).
    """
    if seed is None:
        return exact_analyses(run.config)
    config, encoder = run.config, run.config.network
    held_out = config.draw(HELD_OUT)

    def evaluate(params: Params) -> Mapping[str, Array]:
        found = ordered_spectrum(*held_out.moments(encoder, params)).eigenvalues
        return {f"eigenvalue_{k}": found[k] for k in config.features}

    trained = train(
        encoder,
        with_sizes(
            config.objective,
            num_features=1 + config.num_features,
            operator=Slowness(),
            encoder=encoder,
        ),
        config.source(config.num_frames),
        optimizer=config.optimizer,
        rows=config.clips,
        seeds=[seed],
        evaluate=evaluate,
        **run.training(name, config.steps, config.evaluations, seed=seed),
    )
    params = trained.params()
    spectra = slow_spectra(encoder, params, config.draw(TEST))
    eigenfunctions = FunctionEncoder(
        encoder.init, lambda both, frames: matmul(encoder.apply(both[0], frames), both[1])
    )
    responses = ball_responses(
        eigenfunctions,
        (params, jnp.asarray(spectra.transform)),
        VIDEO,
        jax.random.split(config.key("frames"), config.batches),
        frames=config.frames,
        rows=config.rows,
        bins=config.map_bins,
    )
    curves = Frame.of_history(trained.history, [seed], analysis=DEEP, draw=HELD_OUT)
    final = final_values(config, spectra, DEEP, seed, **responses.shares(config.degree))
    made = Frame.concat([curves.long("eigenvalue", "feature"), final])
    return {"frame": made, "spectra": spectra, "responses": responses}


def final_values(
    config: Config, spectra: Spectra, analysis: str, seed: int | None = None, **shares: DoubleArray
) -> Frame:
    """List the final eigenvalues and shares of variance: a row for each feature."""
    columns = {"eigenvalue": spectra.ordered, "of_the_span": spectra.ritz, **shares}
    about = {"analysis": analysis, "draw": TEST, "seed": seed, "step": config.steps}
    return Frame.grid(columns, **about, feature=config.features)


def exact_analyses(config: Config) -> dict[str, Any]:
    """Measure the exact analyses on the clips that networks are measured on.

    Returns:
        A ``frame`` of eigenvalues on the test clips. ``HELD_OUT`` → the spectra of functions of
        positions on the clips that measure networks during training.
    """
    squares = pooled_pixels(VIDEO.frame_size, config.pooling)
    functions, _ = make_position_functions(VIDEO, config.degree)
    linear = linear_slow_features(
        squares, config.draw(LINEAR), config.num_features, config.components
    )
    best = linear_slow_features(
        functions, config.draw(LINEAR, as_positions=True), config.num_features
    )
    found = {
        PIXELS: slow_spectra(*linear, config.draw(TEST)),
        POSITIONS: slow_spectra(*best, config.draw(TEST, as_positions=True)),
    }
    made = Frame.concat(final_values(config, each, name) for name, each in found.items())
    held_out = slow_spectra(*best, config.draw(HELD_OUT, as_positions=True))
    return {"frame": made, HELD_OUT: held_out}


def of_networks(results: Results[Config], column: str) -> DoubleArray:
    """Return a column's final values, [networks, d]."""
    final = results.ends.where(analysis=DEEP, draw=TEST)
    return final.pivot(column, "seed", "feature")[0]


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the paper's claims on the first features, on most and on later ones, and our goals."""
    mean, alone, together, velocity = (of_networks(results, share) for share in SHARES)
    first, most = mean[:, :2].min(axis=1), (alone >= ONE_BALL).mean(axis=1)
    added, moving = (together - alone)[:, 2:].max(axis=1), velocity.max(axis=1)
    yield Claim(
        "The first two (Section 5.2, Fig. 2a; holds if, in most networks, the balls' mean position "
        f"explains {SIDES:.0%} of the variance of both)",
        "separate up from down and left from right",
        judge_share(0.5, first >= SIDES, f"{first.min():.1%} at least"),
    )
    yield Claim(
        "Most of them (Section 5.2, Fig. 2a; holds if, in most networks, functions of single balls "
        f"explain {ONE_BALL:.0%} of the variance of more than half)",
        "encode the positions of balls independently",
        judge_share(0.5, most > 0.5, f"{most.min():.0%} of features at least"),
    )
    yield Claim(
        "Some later ones (Section 5.2, Fig. 2b; holds if, in most networks, functions of two and "
        f"three balls add {TOGETHER:.0%} of the variance of one of them)",
        "encode joint statistics of positions, seen in the frames that excite them",
        judge_share(0.5, added > TOGETHER, f"they add {added.min():.1%} at least"),
    )
    yield Claim(
        "Velocity (Section 5.2; holds if, in most networks, functions of velocities add less than "
        f"{VELOCITY:.0%} of the variance of every feature)",
        "none seems to encode anything meaningful about it",
        judge_share(0.5, moving < VELOCITY, f"they add {moving.max():.1%} at most"),
    )
    deep, linear = (
        results.config.num_features * results.end(analysis=each, draw=TEST)
        for each in (DEEP, PIXELS)
    )
    yield Claim(
        "Deep against linear slow features (our goal, by the interval over networks)",
        "a smaller sum of eigenvalues than linear analysis of pixels",
        (deep < linear.mean).saying(f"{format_interval(deep.interval)} against {linear.mean:.3f}"),
        in_any_preset=True,
    )
    ratios = of_networks(results, "eigenvalue") / of_networks(results, "of_the_span")
    disorder = np.abs(ratios - 1.0).max(axis=1)
    yield Claim(
        f"Order of features (our goal; holds if, in most networks, within {ORDERED:.0%})",
        "every eigenvalue is that of the features' span (Rayleigh-Ritz)",
        judge_share(0.5, disorder <= ORDERED, f"{disorder.max():.1%} off at most"),
        in_any_preset=True,
    )


def first_network(results: Results[Config]) -> tuple[BallResponses, list[str]]:
    """Return the first network's responses and, for each of its features, its eigenvalue."""
    network = results.found[f"seed-{results.config.seed}"]
    return network["responses"], [f"λ {each:.4f}" for each in network["spectra"].ordered]


def draw_maps(results: Results[Config]) -> tuple[TableRows, Figure]:
    """Draw the first network's features against the place of one ball."""
    bins, (responses, notes) = results.config.map_bins, first_network(results)
    maps, centres = responses.maps, (np.arange(results.config.map_bins) + 0.5) / bins
    named = {f"feature_{k}": each.reshape(bins, bins) for k, each in enumerate(maps.T, start=1)}
    labels = [f"{k}: {note}" for k, note in enumerate(notes, start=1)]
    figure = plot_components({"mean feature": maps}, bins=bins, labels=labels)
    return Frame.grid(named, y=centres, x=centres).rows("x", "y", *named), figure


def draw_exciting_frames(results: Results[Config]) -> tuple[None, Figure]:
    """Draw the frames that excite the first network's features least and most."""
    responses, notes = first_network(results)
    frames = responses.extreme_frames(results.config.shown)
    labels = [f"feature {k}" for k in results.config.features]
    pictures = dict(zip(labels, frames, strict=True))
    return None, plot_reconstructions(pictures, notes=dict(zip(labels, notes, strict=True)))


EXPERIMENT = Experiment(
    name="bouncing-balls",
    title="Bouncing balls: deep slow feature analysis",
    paper="Pfau et al. 2019, Section 5.2",
    presets=PRESETS,
    cells=lambda run: {**{f"seed-{seed}": seed for seed in run.config.seeds}, "exact": None},
    measure=measure,
    value=Metric(
        value="eigenvalue", label="eigenvalue λ (0 never changes, 2 white noise)", log=True
    ),
    claims=claims,
    decided_on=PAPER,
    # These change neither the training nor the judgement of the paper's statements.
    free=(
        *("evaluations", "evaluation_batches", "seed", "num_seeds", "pooling", "components"),
        *("map_bins", "shown"),
    ),
    sections={
        "Against the paper": [design_of(__doc__)],
        "Eigenvalues": [
            Tabulated(
                name="exciting_frames",
                rows=lambda r: r.ends.where(analysis=DEEP, draw=TEST).rows(
                    "seed", "feature", "eigenvalue", "of_the_span", *SHARES
                ),
                caption="Every feature of every network, in the order learned. The last four "
                "columns are shares of the feature's variance, on frames that the regressions were "
                "not fitted to: explained by the balls' mean position, by sums of functions of "
                "single balls, by products of up to three such sums, and in addition by functions "
                "of velocities.",
            ),
            Curve(
                name="eigenvalues",
                caption="Eigenvalue of every feature on fresh frames: of networks, of linear slow "
                "feature analysis of pixels, and of functions of the balls' positions, which the "
                "networks do not see.",
                x=Axis("feature", "feature, after the constant", ticks=True),
                line="analysis",
                of={"draw": TEST},
                at_end=True,
                keys=("seed",),
                beside=("of_the_span",),
            ),
        ],
        "What features respond to": [
            Drawn(
                name="maps",
                caption="Mean of each eigenfunction over all states that have a ball at a place, "
                "against the place (network of seed {config.seed}). Eigenfunctions have variance "
                "1; the number above each map is its largest magnitude, so a map with small limits "
                "means that the feature does not depend on the place of a single ball. A ball's "
                "centre is never in the grey border.",
                draw=draw_maps,
            ),
            Drawn(
                name="exciting_frames",
                caption="The unrelated frames that excite each eigenfunction least (left) and most "
                "(right); the most extreme frames are outermost.",
                draw=draw_exciting_frames,
            ),
        ],
        "Training": [
            Curve(
                name="training",
                caption="Eigenvalues on held-out frames over training. Dotted lines: eigenvalues "
                "of functions of positions on the same held-out frames; they differ from the "
                "table, which uses other frames.",
                x=STEP,
                line="feature {feature}",
                of={"draw": HELD_OUT, "analysis": DEEP},
                keys=("seed",),
                axes=lambda r: {
                    "reference_y": (r.found["exact"][HELD_OUT].ordered.tolist(), POSITIONS)
                },
            ),
        ],
    },
    # A resumed run needs the networks to draw maps and frames.
    keeps_parts=False,
    deviations={
        "video": "The paper does not say how its 200,000 frames were cut; here they are 20,000 "
        "disjoint clips of ten frames, each from an independent start, and every batch draws 24 "
        "clips. If clips could start at any frame, the same video would give more clips, which "
        "overlap.",
        "inputs of a clip": "Ten frames make nine inputs of two frames and eight steps. The paper "
        "does not say whether its ten counts frames or inputs.",
        "initial weights": "Not specified by the paper; here LeCun-normal, with biases of zero.",
        "units": "The paper does not say whether units in the blocks count from 0 or 1; here from "
        "1.",
    },
)
