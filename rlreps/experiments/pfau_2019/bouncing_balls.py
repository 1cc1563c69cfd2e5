"""Video of bouncing balls: deep slow feature analysis against linear (Pfau et al. 2019, 5.2).

Networks see single frames and learn the functions of them that change least from a frame to the
next. Two exact analyses stand beside them: linear slow feature analysis of pixels, the baseline,
and that of functions of the balls' positions, which sees what no video shows and tells how slow
features of a frame can be.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpy.typing as npt
import scipy.linalg
from jax import Array
from matplotlib.figure import Figure

from rlreps.encoders import Convolutional, Encoder, FunctionEncoder, Params, WithConstant
from rlreps.envs import BouncingBalls, BouncingBallsState
from rlreps.errors import require, require_interval, require_positive
from rlreps.experiments.harness import Claim, Experiment, Findings, Run
from rlreps.losses import Spin
from rlreps.losses.base import Batch
from rlreps.numerics import jit, matmul
from rlreps.operators import Slowness
from rlreps.plotting import Line, Panel, plot_components, plot_panels
from rlreps.plotting.style import INK, MUTED, plain_log_ticks, styled
from rlreps.report.page import Section
from rlreps.report.table import Table
from rlreps.runs.intervals import mean_interval
from rlreps.subspace.ordered import ordered_spectrum, ritz_spectrum
from rlreps.training import Optimizer, train
from rlreps.training.evaluation import sampled_moments

DoubleArray: TypeAlias = npt.NDArray[np.float64]
FloatArray: TypeAlias = npt.NDArray[np.float32]

VIDEO = BouncingBalls()
EIGENVALUE = "eigenvalue λ (0 never changes, 2 white noise)"
DEEP, PIXELS, POSITIONS = "deep", "linear, pixels", "functions of positions"
ENCODES, ONE_BALL, TOGETHER, ORDERED = 0.9, 0.9, 0.5, 0.05
"""Shares of variance, and the relative distance to Rayleigh-Ritz, by which claims are judged."""

_EVALUATIONS_PER_CHECKPOINT = 5
_LEAST_VARIANCE = 1e-5
"""Variance of the least principal component that is kept, relative to the greatest."""
_DRAWS = {name: 10 + index for index, name in enumerate(("held out", "linear", "test", "frames"))}
"""What is folded into the first seed's key for draws that are not training's own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Deep slow feature analysis of single frames, and linear analyses to compare with.

    Attributes:
        num_features: Eigenfunctions after the constant.
        channels: Of each convolution.
        hidden: Width of the hidden layer.
        averaging_rate: β of the objective; 1 averages nothing.
        jacobian_rows_at_once: Backward passes made together where β < 1; None makes all together.
        optimizer: The optimizer.
        rows: Frames of a batch, two a pair; of every batch, of training and of measuring.
        steps: Updates of a seed.
        evaluations: Points of each learning curve after its start.
        evaluation_batches: Held-out batches behind each of these points.
        seed: Seed of the first run; also of all draws that are not training's.
        num_seeds: Independent networks, seeds ``seed`` … ``seed + num_seeds - 1``.
        pooling: Side of the squares that pixels are averaged over before linear analysis.
        components: Principal components that linear analysis of pixels chooses from.
        degree: Greatest degree of the cosines of positions.
        linear_batches: Batches that the linear analyses learn from.
        test_batches: Fresh batches behind the final eigenvalues.
        map_bins: Cells a side of the maps.
        frame_batches: Batches of unrelated frames behind the maps and the shares of variance; the
            frames that excite features most are chosen from them.
        shown: How many of these frames are shown of each feature, and as many that excite it least.
    """

    num_features: int = 12
    channels: tuple[int, ...] = (32, 32, 32)
    hidden: int = 64
    averaging_rate: float = 1.0
    jacobian_rows_at_once: int | None = None
    optimizer: Optimizer = dataclasses.field(
        default=Optimizer(learning_rate=3e-3, schedule="cosine")
    )
    rows: int = 256
    steps: int = 1000
    evaluations: int = 20
    evaluation_batches: int = 48
    seed: int = 0
    num_seeds: int = 1
    pooling: int = 2
    components: int = 256
    degree: int = 6
    linear_batches: int = 400
    test_batches: int = 400
    map_bins: int = 24
    frame_batches: int = 400
    shown: int = 5

    def __post_init__(self) -> None:
        counts = (
            "num_features hidden steps evaluations evaluation_batches num_seeds pooling components "
            "degree linear_batches test_batches map_bins frame_batches shown"
        )
        for name in counts.split():
            require_positive(name, getattr(self, name))
        for channels in self.channels:
            require_positive("channels", channels)
        require(len(self.channels) >= 1, "at least one convolution", self.channels)
        require_interval("averaging_rate", self.averaging_rate, "(0, 1]")
        require(self.rows >= 2 and self.rows % 2 == 0, "an even number of rows >= 2", self.rows)
        require(
            self.steps % self.evaluations == 0,
            f"steps to be a multiple of evaluations ({self.evaluations})",
            self.steps,
        )
        most = self.rows * self.frame_batches
        require(self.shown <= most, f"shown <= {most}, the frames to choose from", self.shown)
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)

    def key(self, draw: str) -> Array:
        """Derive the key of a draw that is not training's own."""
        return jax.random.fold_in(jax.random.key(self.seed), _DRAWS[draw])

    def batches(self, draw: str) -> int:
        """Return how many batches eigenvalues are measured on."""
        return self.test_batches if draw == "test" else self.evaluation_batches


# Sums of the twelve eigenvalues, held out, after 1,000 updates of Adam with cosine decay and β = 1
# on batches of 256 frames (linear analysis of pixels 0.60, functions of positions 0.29): 0.358 with
# channels (8, 16, 16), hidden 64, rate 3e-3; 0.384 with channels (8, 16, 32, 32); 0.330 with hidden
# 128, rate 1e-2; 0.324 with hidden 256, rate 3e-3; one seed each. On two CPU cores β = 0.01 takes
# 78 backward passes and 80 times as long an update, so it was not trained there, and channels
# (32, 32, 32) take 9 times as long.
#
# ``paper`` shares with the published protocol three convolutions of 32 channels, 12 features,
# RMSProp and β = 0.01. Published are two consecutive frames as the input, a hidden layer of 128,
# 24 clips of 10 frames a batch and 10⁶ updates at a rate of 1e-6; input, hidden width, batch, rate
# and updates here are ours. It has not been run.
PRESETS = {
    "smoke": Config(
        channels=(8, 8),
        hidden=32,
        optimizer=Optimizer(learning_rate=1e-2, schedule="cosine"),
        rows=64,
        steps=300,
        evaluations=6,
        evaluation_batches=4,
        pooling=4,
        components=64,
        degree=4,
        linear_batches=60,
        test_batches=40,
        map_bins=12,
        frame_batches=60,
        shown=3,
    ),
    "laptop": Config(
        channels=(8, 16, 16),
        hidden=256,
        optimizer=Optimizer(learning_rate=5e-3, schedule="cosine"),
        steps=2000,
        num_seeds=2,
    ),
    "paper": Config(
        averaging_rate=0.01,
        optimizer=Optimizer(name="rmsprop", learning_rate=1e-3, schedule="constant"),
        steps=100_000,
        num_seeds=5,
    ),
}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FramePairs:
    """Fresh pairs of consecutive frames, as ``operators.Slowness`` takes them.

    A frame is a picture of positions alone: velocities show in no single frame. A start of an
    episode has the law of every later frame, so pairs are independent of each other and nothing has
    to be stored.

    Attributes:
        video: The balls.
        as_positions: Whether inputs are the balls' centres [rows, balls, 2] in place of frames; the
            same key draws the same states either way.
    """

    video: BouncingBalls
    as_positions: bool = dataclasses.field(default=False, metadata={"static": True})

    @property
    def num_tasks(self) -> None:
        """Return None: targets are empty."""
        return None

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw frames [num_rows, size, size, 1], i and i + num_rows / 2 consecutive.

        Raises:
            InputError: For an odd number of rows.
        """
        del num_tasks
        require(num_rows % 2 == 0, "an even number of rows, pairs of frames", num_rows)
        before = jax.vmap(self.video.reset)(jax.random.split(key, num_rows // 2))
        positions, velocities = jax.vmap(self.video.move)(before.positions, before.velocities)
        after = BouncingBallsState(positions, velocities, before.steps + 1)
        states = jax.tree.map(lambda *parts: jnp.concatenate(parts), before, after)
        inputs = states.positions if self.as_positions else jax.vmap(self.video.observe)(states)
        return Batch(inputs, jnp.zeros((num_rows, 0), inputs.dtype))


class Basis(NamedTuple):
    """Functions whose combinations slow feature analysis is to choose from.

    Attributes:
        function: Inputs [b, ...] → values [b, m].
        bodies: Balls that each function takes together, [m]; 0 where that has no meaning.
    """

    function: Callable[[Array], Array]
    bodies: npt.NDArray[np.int64]


def pixels(video: BouncingBalls, pooling: int) -> Basis:
    """Average frames [b, size, size, 1] over squares of ``pooling`` x ``pooling`` pixels.

    Raises:
        InputError: If squares do not tile a frame.
    """
    size = video.frame_size
    require(size % pooling == 0, f"pooling that divides a frame's side ({size})", pooling)
    side = size // pooling

    def function(frames: Array) -> Array:
        squares = frames.reshape(len(frames), side, pooling, side, pooling)
        return squares.mean(axis=(2, 4)).reshape(len(frames), -1)

    return Basis(function, np.zeros(side * side, np.int64))


def positions(video: BouncingBalls, degree: int) -> Basis:
    """Build functions of centres [b, balls, 2] that do not tell the balls apart.

    With cosines cos(iπx)cos(jπy), of degree i + j, over the square that centres can be in: their
    sums over balls, and products of two and of three such sums. They span all symmetric
    polynomials in the cosines, for up to three balls, to the degree given.

    Args:
        video: The balls.
        degree: Greatest total degree.
    """
    waves = [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i) if i + j > 0]
    products = [
        chosen
        for bodies in range(1, min(video.num_balls, 3) + 1)
        for chosen in itertools.combinations_with_replacement(range(len(waves)), bodies)
        if sum(sum(waves[wave]) for wave in chosen) <= degree
    ]
    # The last column of ones fills products of fewer than three.
    filled = np.asarray([(*chosen, *[len(waves)] * (3 - len(chosen))) for chosen in products])
    across, along = (jnp.asarray(part) for part in np.transpose(waves))

    def function(centres: Array) -> Array:
        unit = (centres - video.radius) / (1.0 - 2.0 * video.radius)
        multiples = jnp.pi * jnp.arange(degree + 1, dtype=unit.dtype)
        cosines = jnp.cos(unit[..., None] * multiples[None, None, None, :])
        sums = jnp.sum(cosines[:, :, 0, across] * cosines[:, :, 1, along], axis=1)
        sums = jnp.concatenate([sums, jnp.ones_like(sums[:, :1])], axis=1)
        return jnp.prod(sums[:, filled], axis=2)

    return Basis(function, np.asarray([len(chosen) for chosen in products]))


def linear_slow_features(
    basis: Basis,
    source: FramePairs,
    key: Array,
    count: int,
    *,
    rows: int,
    batches: int,
    components: int,
) -> Encoder:
    """Find the slowest combinations of functions by the generalised eigenproblem.

    Principal components first: what hardly varies would be fitted to the sample.

    Args:
        basis: The functions.
        source: Where pairs come from.
        key: Random key.
        count: Slow features wanted.
        rows: Frames of a batch, two a pair.
        batches: Batches to learn from.
        components: Most principal components to keep.

    Returns:
        An encoder of ``count`` features, the slowest first, of unit variance and mean zero; its
        parameters are the combinations [functions, count] and what they subtract [count].

    Raises:
        InputError: If fewer principal components than features vary.
    """
    functions = FunctionEncoder(lambda _: (), lambda _, inputs: basis.function(inputs))
    moments = jit(
        lambda source, key: sampled_moments(
            WithConstant(functions), (), Slowness(), source, key, rows=rows, batches=batches
        )
    )(source, key)
    second, changes = (np.asarray(part, np.float64) for part in moments)
    mean = second[0, 1:]
    variances, axes = scipy.linalg.eigh(second[1:, 1:] - np.outer(mean, mean))
    kept = variances > _LEAST_VARIANCE * variances[-1]
    kept[: -min(components, len(kept))] = False
    axes = axes[:, kept]
    require(axes.shape[1] >= count, f"at least {count} components that vary", axes.shape[1])
    changes = (changes + changes.T)[1:, 1:] / 2.0
    _, mixing = scipy.linalg.eigh(
        axes.T @ changes @ axes, np.diag(variances[kept]), subset_by_index=(0, count - 1)
    )
    weights = axes @ mixing
    fitted = (jnp.asarray(weights, jnp.float32), jnp.asarray(mean @ weights, jnp.float32))
    return FunctionEncoder(
        lambda _: fitted,
        lambda params, inputs: matmul(basis.function(inputs), params[0]) - params[1][None, :],
    )


def explained(features: npt.ArrayLike, values: npt.ArrayLike) -> DoubleArray:
    """Compute the share of each feature's variance that a combination of functions explains, [d].

    The last third of the rows is predicted from a fit to the rest, so that functions which are
    many do not explain by chance; what predicts worse than the mean is negative.

    Args:
        features: [n, d].
        values: The functions at the same inputs, [n, m].
    """
    targets, given = (np.asarray(part, np.float64) for part in (features, values))
    design = np.column_stack([np.ones(len(given)), given])
    fitted = 2 * len(targets) // 3
    normal = design[:fitted].T @ design[:fitted]
    ridge = 1e-9 * np.trace(normal) / len(normal) * np.eye(len(normal))
    weights = np.linalg.solve(normal + ridge, design[:fitted].T @ targets[:fitted])
    left = targets[fitted:] - design[fitted:] @ weights
    share: DoubleArray = 1.0 - np.mean(np.square(left), axis=0) / targets[fitted:].var(axis=0)
    return share


class Spectra(NamedTuple):
    """Eigenvalues of one analysis, the constant's left out.

    Attributes:
        ordered: λ_k of feature k made orthogonal to those before it, [d].
        ritz: Of the features' span, rising, [d]; the sum is that of ``ordered``.
        transform: The features to eigenfunctions, in learned order, [1 + d, d].
    """

    ordered: DoubleArray
    ritz: DoubleArray
    transform: FloatArray


def measure_spectra(
    config: Config, encoder: Encoder, params: Params, source: FramePairs, draw: str
) -> Spectra:
    """Measure eigenvalues of features whose first is the constant, on one of the fresh draws."""
    rows, batches = config.rows, config.batches(draw)
    moments = jit(
        lambda params, source, key: sampled_moments(
            encoder, params, Slowness(), source, key, rows=rows, batches=batches
        )
    )(params, source, config.key(draw))
    ordered, ritz = ordered_spectrum(*moments), ritz_spectrum(*moments)
    return Spectra(
        np.asarray(ordered.eigenvalues, np.float64)[1:],
        np.asarray(ritz.eigenvalues, np.float64)[1:],
        np.asarray(ordered.transform)[:, 1:],
    )


class Responses(NamedTuple):
    """Eigenfunctions on unrelated frames.

    Attributes:
        centres: Of the balls, [n, balls, 2].
        values: Of the eigenfunctions, [n, d]; the mean response that is largest in magnitude is
            positive (``mean_responses``).
        maps: Mean of each eigenfunction where one ball is in a cell, [bins², d]; NaN where none is.
    """

    centres: FloatArray
    values: FloatArray
    maps: DoubleArray


def measure_responses(
    eigenfunctions: Callable[[Array], Array], video: BouncingBalls, config: Config
) -> Responses:
    """Evaluate eigenfunctions, frames [b, ...] → [b, d], on batches of unrelated frames."""

    def one_batch(batch_key: Array) -> tuple[Array, Array]:
        states = jax.vmap(video.reset)(jax.random.split(batch_key, config.rows))
        return states.positions, eigenfunctions(jax.vmap(video.observe)(states))

    keys = jax.random.split(config.key("frames"), config.frame_batches)
    centres, values = (
        np.asarray(part).reshape(-1, *part.shape[2:])
        for part in jit(lambda keys: jax.lax.map(one_batch, keys))(keys)
    )
    maps = mean_responses(centres, values, config.map_bins)
    largest = np.take_along_axis(maps, np.nanargmax(np.abs(maps), axis=0)[None, :], axis=0)
    signs = np.where(largest < 0.0, -1.0, 1.0)
    return Responses(centres, values * np.float32(signs), maps * signs)


def mean_responses(centres: npt.ArrayLike, values: npt.ArrayLike, bins: int) -> DoubleArray:
    """Average features over the states with a ball, whichever, in a cell of the unit square.

    Args:
        centres: Of the balls, [n, balls, 2].
        values: Of the features, [n, d].
        bins: Cells a side.

    Returns:
        [bins², d], cell row · bins + column with rows upwards in y; NaN where no ball has been.
    """
    points, features = np.asarray(centres), np.asarray(values, np.float64)
    columns, rows = np.moveaxis(np.clip((points * bins).astype(int), 0, bins - 1), -1, 0)
    cells = rows * bins + columns
    counts = np.bincount(cells.ravel(), minlength=bins * bins)
    totals = np.stack(
        [
            np.bincount(cells.ravel(), np.repeat(feature, cells.shape[1]), minlength=bins * bins)
            for feature in features.T
        ],
        axis=1,
    )
    means: DoubleArray = np.where(counts > 0, totals.T / np.maximum(counts, 1), np.nan).T
    return means


def measure_shares(
    responses: Responses, video: BouncingBalls, config: Config
) -> dict[str, DoubleArray]:
    """Compute shares of each eigenfunction's variance, on frames that were not fitted to.

    Returns:
        ``mean_position``: what the balls' mean position explains linearly; ``one_ball``: what sums
        over balls of functions of one ball's position do; ``all_balls``: what these and their
        products, functions of two and three balls together, do; [d] each.
    """
    basis = positions(video, config.degree)
    values = np.asarray(jit(basis.function)(jnp.asarray(responses.centres)))
    return {
        "mean_position": explained(responses.values, responses.centres.mean(axis=1)),
        "one_ball": explained(responses.values, values[:, basis.bodies == 1]),
        "all_balls": explained(responses.values, values),
    }


def extreme_frames(responses: Responses, video: BouncingBalls, count: int) -> FloatArray:
    """Draw the frames that excite each eigenfunction least and most.

    Returns:
        [d, 2 · count, size, size]: the least exciting first, rising.
    """
    order = np.argsort(responses.values, axis=0)
    chosen = np.concatenate([order[:count], order[-count:]]).T
    centres = jnp.asarray(responses.centres[chosen.ravel()])
    still = BouncingBallsState(centres, jnp.zeros_like(centres), jnp.zeros(len(centres), jnp.int32))
    frames = np.asarray(jit(jax.vmap(video.render))(still))
    return frames.reshape(*chosen.shape, *frames.shape[1:])


class Network(NamedTuple):
    """A trained network and what it was found to be.

    Attributes:
        seed: Its seed.
        seconds: Time in updates.
        history: Records of its training.
        spectra: Its eigenvalues on fresh frames.
        shares: What explains its eigenfunctions (``measure_shares``).
        maps: Mean eigenfunctions against one ball's position, [bins², d].
        frames: Those that excite each least and most, [d, 2 · shown, size, size].
    """

    seed: int
    seconds: float
    history: list[dict[str, Any]]
    spectra: Spectra
    shares: dict[str, DoubleArray]
    maps: DoubleArray
    frames: FloatArray


def measure(run: Run[Config], name: str, seed: int) -> Network:
    """Train one network, and measure it and what its eigenfunctions respond to."""
    config, source = run.config, FramePairs(VIDEO)
    encoder = WithConstant(
        Convolutional(
            config.num_features,
            frame_shape=(VIDEO.frame_size, VIDEO.frame_size, 1),
            channels=config.channels,
            hidden=config.hidden,
        )
    )

    def evaluate(params: Params) -> Mapping[str, Array]:
        moments = sampled_moments(
            encoder,
            params,
            Slowness(),
            source,
            config.key("held out"),
            rows=config.rows,
            batches=config.evaluation_batches,
        )
        found = ordered_spectrum(*moments).eigenvalues
        return {f"eigenvalue_{k}": found[k] for k in range(1, len(found))}

    every = config.steps // config.evaluations
    result = train(
        encoder,
        Spin(
            1 + config.num_features,
            operator=Slowness(),
            averaging_rate=config.averaging_rate,
            encoder=encoder,
            jacobian_rows_at_once=config.jacobian_rows_at_once,
        ),
        source,
        optimizer=config.optimizer,
        steps=config.steps,
        rows=config.rows,
        seeds=[seed],
        evaluate=evaluate,
        evaluate_every=every,
        folder=run.training_folder(name, seed=seed),
        checkpoint_every=every * _EVALUATIONS_PER_CHECKPOINT,
        devices=run.devices,
        description=f"slow features, seed {seed}",
        progress=run.progress,
    )
    params = result.params()
    spectra = measure_spectra(config, encoder, params, source, "test")
    transform = jnp.asarray(spectra.transform)
    responses = measure_responses(
        lambda frames: encoder.apply(params, frames) @ transform, VIDEO, config
    )
    return Network(
        seed,
        result.seconds,
        result.history,
        spectra,
        measure_shares(responses, VIDEO, config),
        responses.maps,
        extreme_frames(responses, VIDEO, config.shown),
    )


def prepare(run: Run[Config]) -> dict[str, Spectra]:
    """Measure the exact analyses on the frames that networks are measured on.

    Returns:
        Analysis → spectra on the test frames, and under ``held out`` those of functions of
        positions on the frames that networks are followed on during training.
    """
    config = run.config
    centres = positions(VIDEO, config.degree)

    def solve(basis: Basis, source: FramePairs, components: int, *draws: str) -> list[Spectra]:
        features = linear_slow_features(
            basis,
            source,
            config.key("linear"),
            config.num_features,
            rows=config.rows,
            batches=config.linear_batches,
            components=components,
        )
        encoder, params = WithConstant(features), features.init(jax.random.key(0))
        return [measure_spectra(config, encoder, params, source, draw) for draw in draws]

    frames = pixels(VIDEO, config.pooling)
    (linear,) = solve(frames, FramePairs(VIDEO), config.components, "test")
    test, held_out = solve(
        centres, FramePairs(VIDEO, True), len(centres.bodies), "test", "held out"
    )
    return {PIXELS: linear, POSITIONS: test, "held out": held_out}


def judge(
    learned: DoubleArray,
    ritz: DoubleArray,
    linear: DoubleArray,
    best: DoubleArray,
    one_ball: DoubleArray,
    all_balls: DoubleArray,
) -> list[Claim]:
    """Set the paper's statements and our goals beside what was found.

    What the paper says of eigenfunctions cannot be told of networks that are not slower than linear
    analysis: they have not learned them.

    Args:
        learned: Eigenvalues of networks in learned order, [networks, d].
        ritz: Of their spans, [networks, d].
        linear: Of linear analysis of pixels, [d].
        best: Of analysis of functions of positions, [d].
        one_ball: Shares of variance that functions of single balls explain, [networks, d].
        all_balls: Shares that functions of all balls explain, [networks, d].
    """
    total = mean_interval(learned.sum(axis=1))
    several = len(learned) > 1
    interval = f" [{total.low:.3f}, {total.high:.3f}]" if several else ""
    learnt = bool(learned.sum(axis=1).max() < linear.sum())
    first, later = one_ball[:, :2], one_ball[:, 2:]
    interactions = (all_balls[:, 2:] - later) > TOGETHER
    disorder = float(np.max(np.abs(learned / ritz - 1.0)))
    return [
        Claim(
            statement="All features (holds if functions of balls' positions explain "
            f"{ENCODES:.0%} of the variance on average)",
            stated="encode where balls are",
            found=f"{100.0 * all_balls.mean():.1f} % on average, {100.0 * all_balls.min():.1f} % "
            "at least",
            holds=bool(all_balls.mean() >= ENCODES) if learnt else None,
        ),
        Claim(
            statement="The first two (holds if functions of single balls explain "
            f"{ONE_BALL:.0%} of the variance)",
            stated="low-order functions of single balls' positions",
            found=f"{100.0 * first.min():.1f} % at least",
            holds=bool(first.min() >= ONE_BALL) if learnt else None,
        ),
        Claim(
            statement="Some later ones (holds if functions of two and three balls add "
            f"{TOGETHER:.0%} of the variance in every network)",
            stated="interactions, seen in the frames that excite them, not in maps of single balls",
            found=f"{interactions.sum()} of {interactions.size} do",
            holds=bool(interactions.any(axis=1).all()) if learnt else None,
        ),
        Claim(
            statement="Deep against linear slow features (our goal; told from two networks on)",
            stated="a smaller sum of eigenvalues than linear analysis of pixels",
            found=f"{total.value:.3f}{interval} against {linear.sum():.3f}; "
            f"analysis of positions: {best.sum():.3f}",
            holds=bool(total.high < linear.sum()) if several else None,
        ),
        Claim(
            statement=f"Order of features (our goal; holds within {ORDERED:.0%})",
            stated="every eigenvalue is that of the features' span (Rayleigh-Ritz)",
            found=f"{100.0 * disorder:.1f} % off at most",
            holds=disorder <= ORDERED,
        ),
    ]


def report(run: Run[Config], found: Mapping[str, Network]) -> Findings:
    """Draw eigenvalues, maps, frames and curves, and judge the claims."""
    config, networks = run.config, list(found.values())
    exact = {name: run.shared[name] for name in (PIXELS, POSITIONS)}
    first, count = networks[0], len(networks)
    features = range(1, config.num_features + 1)
    learned = np.stack([network.spectra.ordered for network in networks])
    curves = np.asarray(
        [
            [[record[f"eigenvalue_{k}"][0] for k in features] for record in network.history]
            for network in networks
        ]
    )
    note = f"mean over {count} networks, 95 % bootstrap interval" if count > 1 else "one network"
    figures = _show(run, networks, exact, curves, note)
    return Findings(
        abstract=_abstract(config, networks),
        claims=judge(
            learned,
            np.stack([network.spectra.ritz for network in networks]),
            exact[PIXELS].ordered,
            exact[POSITIONS].ordered,
            np.stack([network.shares["one_ball"] for network in networks]),
            np.stack([network.shares["all_balls"] for network in networks]),
        ),
        sections=[
            Section(
                title="Against the paper",
                text="The paper shows maps against a ball's position and the frames that excite "
                "each feature most and least. It prints no eigenvalues. A frame is a function of "
                "the balls' positions, so what is judged is how simple a function of them each "
                "feature is. Our two goals stand below what the paper states.",
            ),
            Section(
                title="Eigenvalues",
                text=_about_eigenvalues(config),
                tables=[_feature_table(first, exact)],
                figures=[figures["eigenvalues"]],
            ),
            Section(
                title="What features respond to",
                figures=[figures["maps"], figures["exciting_frames"]],
            ),
            Section(title="Training", figures=[figures["training"]]),
        ],
        summary={
            "eigenvalues": {
                DEEP: learned.tolist(),
                **{name: spectra.ordered.tolist() for name, spectra in exact.items()},
            },
            "seconds": {network.seed: round(network.seconds, 3) for network in networks},
        },
    )


def _show(
    run: Run[Config],
    networks: Sequence[Network],
    exact: Mapping[str, Spectra],
    curves: DoubleArray,
    note: str,
) -> dict[str, tuple[Any, str]]:
    config, first = run.config, networks[0]
    learned = np.stack([network.spectra.ordered for network in networks])
    numbers = np.arange(1, config.num_features + 1)
    analyses = [(DEEP, network.seed, network.spectra) for network in networks]
    analyses += [(name, None, spectra) for name, spectra in exact.items()]  # type: ignore[misc]
    bins = config.map_bins
    rows: dict[str, list[dict[str, object]]] = {
        "eigenvalues": [
            {
                "analysis": name,
                "seed": seed,
                "feature": k,
                "eigenvalue": spectra.ordered[k - 1],
                "of_the_span": spectra.ritz[k - 1],
                "correlation_at_lag_1": 1.0 - spectra.ordered[k - 1] / 2.0,
            }
            for name, seed, spectra in analyses
            for k in numbers
        ],
        "maps": [
            {
                "x": (cell % bins + 0.5) / bins,
                "y": (cell // bins + 0.5) / bins,
                **{f"feature_{k}": row[k - 1] for k in numbers},
            }
            for cell, row in enumerate(first.maps)
        ],
        "exciting_frames": [
            {
                "seed": network.seed,
                "feature": k,
                **{name: share[k - 1] for name, share in network.shares.items()},
            }
            for network in networks
            for k in numbers
        ],
        "training": [
            {
                "seed": network.seed,
                "step": record["step"],
                "seconds": record["seconds"],
                **{f"feature_{k}": values[k - 1] for k in numbers},
            }
            for network, curve in zip(networks, curves, strict=True)
            for record, values in zip(network.history, curve, strict=True)
        ],
    }
    lines = [Line.of_runs(DEEP, numbers, learned)]
    lines += [Line(label=name, x=numbers, mean=each.ordered) for name, each in exact.items()]
    eigenvalues = plot_panels(
        [Panel(title="slowness of every feature, on fresh frames", lines=lines)],
        x_label="feature, after the constant",
        y_label=EIGENVALUE,
        x_ticks=numbers.tolist(),
        note=note,
    )
    labels = [f"{k}: λ {first.spectra.ordered[k - 1]:.4f}" for k in numbers]
    maps = plot_components({"mean feature": first.maps}, bins=bins, labels=labels)
    steps = [record["step"] for record in first.history]
    shown = {
        "eigenvalues": (
            f"Eigenvalue of every feature on fresh frames: of networks ({note}), of linear slow "
            "feature analysis of pixels, and of functions of the balls' positions, which no video "
            "shows.",
            eigenvalues,
        ),
        "maps": (
            "Mean of each eigenfunction where one of the balls is, over all states with a ball "
            f"there (network of seed {first.seed}). Eigenfunctions have variance 1; the number "
            "above each map is its largest magnitude, so a map with small limits says that the "
            "feature does not depend on where one ball is alone. Centres of balls do not come to "
            "the grey border.",
            maps,
        ),
        "exciting_frames": (
            f"Of {config.rows * config.frame_batches:,} unrelated frames, those that excite each "
            "eigenfunction least (left) and most (right), more to the ends.",
            draw_extremes(first.frames, first.spectra.ordered),
        ),
        "training": (
            f"Eigenvalues on held-out frames over training, {note}. Dashes at the right edge: "
            "those of functions of positions on the same frames, which are not those of the table.",
            draw_training(steps, curves, run.shared["held out"].ordered),
        ),
    }
    return {
        name: run.show(name, caption, rows[name], figure)
        for name, (caption, figure) in shown.items()
    }


@styled
def draw_training(steps: Sequence[int], networks: DoubleArray, best: DoubleArray) -> Figure:
    """Draw held-out eigenvalues over training.

    Args:
        steps: Updates, [p].
        networks: [networks, p, d].
        best: Eigenvalues of functions of positions, [d], as dashes at the right edge.
    """
    count = networks.shape[2]
    colors = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, count))
    figure = Figure(figsize=(6.8, 4.2))
    axes = figure.subplots()
    axes.set(yscale="log", xlabel="update", ylabel=EIGENVALUE)
    axes.grid(visible=True)
    for index, color in enumerate(colors):
        curve = mean_interval(networks[:, :, index])
        axes.plot(steps, curve.value, color=color, label=str(index + 1))
        if len(networks) > 1:
            axes.fill_between(steps, curve.low, curve.high, color=color, alpha=0.2, lw=0)
    margin = 0.04 * steps[-1]
    axes.set_xlim(-0.01 * steps[-1], steps[-1] + 1.5 * margin)
    edge = np.full(count, steps[-1] + margin)
    axes.scatter(edge, best, marker="_", s=70, c=colors, linewidths=1.8, zorder=3)
    axes.plot([], [], "_", markersize=8, markeredgewidth=1.8, color=MUTED, label="positions")
    plain_log_ticks(axes.yaxis)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.legend(loc="outside right center", title="feature", handlelength=1.6, reverse=True)
    return figure


@styled
def draw_extremes(frames: FloatArray, eigenvalues: DoubleArray) -> Figure:
    """Draw frames [d, 2 · shown, size, size] that excite features least (left) and most (right)."""
    count, columns = frames.shape[:2]
    half, side = columns // 2, 0.6
    figure = Figure(figsize=(1.0 + side * (columns + 0.3), 0.4 + side * count))
    grid = figure.subplots(
        count,
        columns + 1,
        squeeze=False,
        gridspec_kw={"width_ratios": [1.0] * half + [0.3] + [1.0] * half, "wspace": 0.04},
    )
    for index, line in enumerate(grid):
        line[half].set_axis_off()
        shown = [axes for column, axes in enumerate(line) if column != half]
        for axes, picture in zip(shown, frames[index], strict=True):
            axes.imshow(picture, cmap="gray", vmin=0.0, vmax=1.0, origin="upper")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(True)
        line[0].set_ylabel(
            f"{index + 1}\nλ {eigenvalues[index]:.4f}",
            rotation=0,
            horizontalalignment="right",
            verticalalignment="center",
            fontsize=8.0,
            color=INK,
        )
    for column, text in ((half // 2, "least (most negative)"), (half + 1 + half // 2, "most")):
        grid[0, column].set_title(text, fontsize=9.0)
    return figure


def _about_eigenvalues(config: Config) -> str:
    return (
        "An eigenvalue is E[(u(s') - u(s))^2] of a feature of mean zero and variance 1 that is "
        "uncorrelated with those before it; 1 - λ/2 is its correlation with itself a frame later. "
        "All analyses are measured by the same estimator on the same "
        f"{config.rows // 2 * config.test_batches:,} fresh pairs of frames.\n\n"
        "Linear analysis solves the generalised eigenproblem of the "
        f"{config.components} leading principal components of frames averaged over squares of "
        f"{config.pooling} x {config.pooling} pixels. Functions of positions are symmetric "
        f"polynomials of cosines to degree {config.degree}: an exact solution in a space that "
        "knows the balls, and an upper bound of the smallest eigenvalues that a frame allows. "
        "Linear combinations of pixels are sums over balls of functions of one ball, so linear "
        "analysis cannot see pairs."
    )


def _feature_table(first: Network, exact: Mapping[str, Spectra]) -> Table:
    ordered, shares = first.spectra.ordered, first.shares.values()
    rows = [
        (
            k + 1,
            f"{ordered[k]:.4f}",
            f"{1.0 - ordered[k] / 2.0:.4f}",
            f"{first.spectra.ritz[k]:.4f}",
            *(f"{spectra.ordered[k]:.4f}" for spectra in exact.values()),
            *(f"{share[k]:.3f}" for share in shares),
        )
        for k in range(len(ordered))
    ]
    header = ("feature", "deep λ", "correlation a frame later", "of the span", "linear λ")
    return Table(
        (*header, "positions λ", "mean position", "single balls", "all balls"),
        rows,
        f"Every feature of the network of seed {first.seed}. Last three columns: shares of its "
        "variance that the balls' mean position, sums of functions of single balls, and products "
        "of up to three of these explain, on frames that were not fitted to. Other seeds are in "
        "results/exciting_frames.csv.",
    )


def _abstract(config: Config, networks: Sequence[Network]) -> str:
    seconds = sum(network.seconds for network in networks)
    return (
        "Three equal balls in a box, 64 x 64 pixels. A network sees one frame and learns the "
        "functions of it that change least from a frame to the next (Pfau et al. give theirs two "
        "consecutive frames). Velocities show in no single frame, so features are functions of "
        "positions. Every batch is of fresh frames: the law that episodes start from is "
        f"stationary.\n\n{len(networks)} networks of {config.steps:,} updates on {config.rows} "
        f"frames each, {seconds:,.0f} s of training in all."
    )


EXPERIMENT = Experiment(
    name="bouncing-balls",
    title="Bouncing balls: deep slow feature analysis",
    paper="Pfau et al. 2019, Section 5.2",
    presets=PRESETS,
    prepare=prepare,
    cells=lambda run: {
        f"seed-{run.config.seed + index}": run.config.seed + index
        for index in range(run.config.num_seeds)
    },
    measure=measure,
    report=report,
    keeps_parts=False,
)
