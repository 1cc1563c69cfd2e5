"""Video of bouncing balls: deep slow feature analysis against linear (Pfau et al. 2019, 5.2).

Networks see one frame or several consecutive ones and learn the functions of them that change least
from a frame to the next. Two exact analyses stand beside them: linear slow feature analysis of
pixels, the baseline, and that of functions of the balls' positions, which tells how slow features
of positions can be.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpy.typing as npt
import scipy.linalg
from jax import Array
from matplotlib.figure import Figure
from scipy.stats import binned_statistic_2d

from rlreps.config import with_sizes
from rlreps.encoders import (
    BlockSparse,
    Convolutional,
    Encoder,
    FunctionEncoder,
    Params,
    WithConstant,
)
from rlreps.envs import BouncingBalls, BouncingBallsState
from rlreps.errors import require, require_positive
from rlreps.experiments.harness import Experiment, Findings, Found, Run, agrees
from rlreps.losses import Spin
from rlreps.losses.base import Batch
from rlreps.numerics import jit, matmul
from rlreps.operators import Clip, Slowness
from rlreps.plotting import Line, Panel, plot_components, plot_panels, plot_reconstructions
from rlreps.plotting.lines import over_runs
from rlreps.plotting.style import MUTED, plain_log_ticks, styled
from rlreps.report.page import Section
from rlreps.report.table import Table
from rlreps.runs.intervals import FEWEST_BANDED, mean_interval
from rlreps.subspace.ordered import Spectrum, ordered_spectrum, ritz_spectrum
from rlreps.training import Optimizer, RMSProp, TrainingResult, train
from rlreps.training.evaluation import Moments, sampled_moments

DoubleArray: TypeAlias = npt.NDArray[np.float64]
FloatArray: TypeAlias = npt.NDArray[np.float32]
Function: TypeAlias = Callable[[Array], Array]
"""Of inputs [b, ...], with values [b, m]."""

VIDEO = BouncingBalls()
EIGENVALUE = "eigenvalue λ (0 never changes, 2 white noise)"
DEEP, PIXELS, POSITIONS = "deep", "linear, pixels", "functions of positions"
SIDES, ONE_BALL, TOGETHER, VELOCITY, ORDERED = 0.8, 0.5, 0.5, 0.1, 0.05
"""Shares of variance, and the relative distance to Rayleigh-Ritz, by which claims are judged."""

_EVALUATIONS_PER_CHECKPOINT = 5
_LEAST_VARIANCE = 1e-5
"""Variance of the least principal component that is kept, relative to the greatest."""
_DRAWS = {"held out": 10, "linear": 11, "test": 12, "frames": 13, "video": 14}
"""Numbers folded into the first seed's key for draws that are not training's own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Deep slow feature analysis of frames, and linear analyses to compare with.

    Attributes:
        num_features: Eigenfunctions after the constant.
        frames: Consecutive frames that the network sees at once.
        encoder: The network.
        objective: Spectral inference; operator and encoder are filled in.
        optimizer: The optimizer.
        clips: Clips of a batch, of training and of measuring.
        clip_frames: Consecutive frames of a clip, in ``clip_frames - frames + 1`` inputs.
        num_frames: Frames of the video that clips are cut from; None plays new ones for every
            batch.
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
        response_batches: Batches of unrelated inputs behind the maps and the shares of variance;
            the frames that excite features most are chosen from them.
        shown: How many of these frames are shown of each feature, and as many that excite it least.
    """

    num_features: int = 12
    frames: int = 1
    encoder: Encoder = dataclasses.field(default=Convolutional())
    objective: Spin = dataclasses.field(default=Spin())
    optimizer: Optimizer = dataclasses.field(
        default=Optimizer(learning_rate=3e-3, schedule="cosine")
    )
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
    linear_batches: int = 400
    test_batches: int = 400
    map_bins: int = 24
    response_batches: int = 400
    shown: int = 5

    def __post_init__(self) -> None:
        # Every whole number but the seed counts something.
        for field in dataclasses.fields(self):
            if field.type is int and field.name != "seed":
                require_positive(field.name, getattr(self, field.name))
        least = f"clip_frames > frames ({self.frames})"
        require(self.clip_frames > self.frames, least, self.clip_frames)
        if self.num_frames is not None:
            least = f"num_frames >= clip_frames ({self.clip_frames})"
            require(self.num_frames >= self.clip_frames, least, self.num_frames)
        require(
            self.steps % self.evaluations == 0,
            f"steps to be a multiple of evaluations ({self.evaluations})",
            self.steps,
        )
        most = self.rows * self.response_batches
        require(self.shown <= most, f"shown <= {most}, the frames to choose from", self.shown)
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)

    @property
    def rows(self) -> int:
        """Inputs of a batch."""
        return self.clips * self.clip_inputs

    @property
    def clip_inputs(self) -> int:
        """Consecutive inputs of a clip."""
        return self.clip_frames - self.frames + 1

    @property
    def pairs(self) -> int:
        """Inputs of a batch that are followed by another."""
        return self.clips * (self.clip_inputs - 1)

    @property
    def is_published(self) -> bool:
        """Return whether networks, however many, are trained and judged as by ``paper``."""
        # Neither training nor what decides a statement of the paper knows of these.
        free = {"evaluations", "evaluation_batches", "seed", "num_seeds", "pooling", "components"}
        free |= {"linear_batches", "map_bins", "shown"}
        return agrees(self, PRESETS["paper"], free)

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

    def source(self, *, fresh: bool = True, as_positions: bool = False) -> "Clips":
        """Return where batches come from; training's own is not ``fresh``."""
        video = None if fresh or self.num_frames is None else self.num_frames // self.clip_frames
        return Clips(VIDEO, self.frames, self.clip_frames, video, self.key("video"), as_positions)

    def key(self, draw: str) -> Array:
        """Derive the key of a draw that is not training's own."""
        return jax.random.fold_in(jax.random.key(self.seed), _DRAWS[draw])


# Sums of the twelve eigenvalues, held out, after 1,000 updates of Adam with cosine decay and β = 1
# on batches of 256 single frames (linear analysis of pixels 0.60, functions of positions 0.29):
# 0.358 with channels (8, 16, 16), hidden 64, rate 3e-3; 0.384 with channels (8, 16, 32, 32); 0.330
# with hidden 128, rate 1e-2; 0.324 with hidden 256, rate 3e-3; one seed each.
PRESETS = {
    "smoke": Config(
        num_features=4,
        frames=2,
        encoder=BlockSparse(Convolutional(channels=(8, 8), hidden=32)),
        optimizer=Optimizer(learning_rate=1e-2, schedule="cosine"),
        clips=16,
        clip_frames=4,
        num_frames=2000,
        steps=60,
        evaluations=5,
        evaluation_batches=10,
        num_seeds=2,
        pooling=8,
        components=30,
        degree=2,
        linear_batches=10,
        test_batches=10,
        map_bins=12,
        response_batches=10,
        shown=3,
    ),
    "laptop": Config(
        frames=2,
        clip_frames=3,
        encoder=Convolutional(channels=(8, 16, 16), hidden=256),
        optimizer=Optimizer(learning_rate=5e-3, schedule="cosine"),
        steps=2000,
        num_seeds=3,
    ),
    "paper": Config(
        frames=2,
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
        num_seeds=5,
    ),
}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Clips:
    """Consecutive inputs of clips of a video, as ``operators.Slowness`` takes them.

    An input is one frame or several consecutive ones, its channels. A start of an episode has the
    law of every later frame, so clips that start there are independent and a video is known by its
    clips' numbers: nothing has to be stored.

    Attributes:
        video: The balls.
        frames: Consecutive frames of an input.
        clip_frames: Frames of a clip.
        num_clips: Clips of the video; None never plays one twice.
        key: What the video's clips are drawn by.
        as_positions: Whether inputs are the balls' centres [rows, balls, 2], the mean over an
            input's frames, in place of frames; the same key draws the same states either way.
    """

    video: BouncingBalls
    frames: int = dataclasses.field(metadata={"static": True})
    clip_frames: int = dataclasses.field(metadata={"static": True})
    num_clips: int | None = dataclasses.field(metadata={"static": True})
    key: Array
    as_positions: bool = dataclasses.field(default=False, metadata={"static": True})

    num_tasks = None
    """Targets are empty."""

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw clips of l = clip_frames − frames + 1 inputs [num_rows, size, size, frames]."""
        del num_tasks
        if self.num_clips is None:
            keys = jax.random.split(key, num_rows)
        else:
            numbers = jax.random.randint(key, (num_rows,), 0, self.num_clips)
            keys = jax.vmap(partial(jax.random.fold_in, self.key))(numbers)
        states = jax.vmap(self._play)(keys)
        inputs = windows(self.video, states, self.frames, as_positions=self.as_positions)
        clip = Clip(tuple(jnp.swapaxes(inputs, 0, 1)))
        return Batch(clip, jnp.zeros((num_rows, 0), inputs.dtype))

    def _play(self, key: Array) -> BouncingBallsState:
        """Play one clip: states of its frames, leaves [clip_frames, ...]."""
        return play(self.video, self.video.reset(key), self.clip_frames)


def play(video: BouncingBalls, state: BouncingBallsState, count: int) -> BouncingBallsState:
    """Return a state and those of the frames after it, leaves [count, ...]."""

    def move(state: BouncingBallsState, _: None) -> tuple[BouncingBallsState, BouncingBallsState]:
        positions, velocities = video.move(state.positions, state.velocities)
        after = BouncingBallsState(positions, velocities, state.steps + 1)
        return after, after

    later = jax.lax.scan(move, state, None, length=count - 1)[1]
    states: BouncingBallsState = jax.tree.map(
        lambda first, rest: jnp.concatenate([first[None], rest]), state, later
    )
    return states


def windows(
    video: BouncingBalls, states: BouncingBallsState, frames: int, *, as_positions: bool = False
) -> Array:
    """Take every so many consecutive frames of clips [clips, count] as one input.

    Returns:
        [clips, count − frames + 1, size, size, frames], or the mean of the balls' centres
        [clips, count − frames + 1, balls, 2].
    """
    each = states.positions if as_positions else jax.vmap(jax.vmap(video.observe))(states)
    count = each.shape[1] - frames + 1
    shifted = [each[:, first : first + count] for first in range(frames)]
    if as_positions:
        return jnp.mean(jnp.stack(shifted), axis=0)
    return jnp.concatenate(shifted, axis=-1)


def pixels(video: BouncingBalls, pooling: int) -> Function:
    """Average frames [b, size, size, frames] over squares of ``pooling`` x ``pooling`` pixels.

    Raises:
        InputError: If squares do not tile a frame.
    """
    size = video.frame_size
    require(size % pooling == 0, f"pooling that divides a frame's side ({size})", pooling)
    side = size // pooling

    def function(frames: Array) -> Array:
        squares = frames.reshape(len(frames), side, pooling, side, pooling, -1)
        return squares.mean(axis=(2, 4)).reshape(len(frames), -1)

    return function


def positions(video: BouncingBalls, degree: int) -> tuple[Function, npt.NDArray[np.int64]]:
    """Build functions of centres [b, balls, 2] → [b, m] that do not tell the balls apart.

    With cosines cos(iπx)cos(jπy), of degree i + j up to ``degree``, over the square that centres
    can be in: their sums over balls, and products of two and of three such sums. They span all
    symmetric polynomials in the cosines, for up to three balls, to that degree.

    Returns:
        The functions, and how many balls each takes together, [m].
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
        cosines = _cosines(video, centres, degree)
        sums = jnp.sum(cosines[:, :, 0, across] * cosines[:, :, 1, along], axis=1)
        sums = jnp.concatenate([sums, jnp.ones_like(sums[:, :1])], axis=1)
        return jnp.prod(sums[:, filled], axis=2)

    return function, np.asarray([len(chosen) for chosen in products])


def velocities(video: BouncingBalls) -> Callable[[Array, Array], Array]:
    """Build functions of centres and velocities [b, balls, 2] → [b, 30] that vary with velocities.

    Sums over balls of v_x, v_y, v_x², v_y² and v_x v_y times cosines to degree 2 of the ball's
    centre.
    """
    waves = [(i, j) for i in range(3) for j in range(3 - i)]
    across, along = (jnp.asarray(part) for part in np.transpose(waves))

    def function(centres: Array, velocities: Array) -> Array:
        cosines = _cosines(video, centres, 2)
        shapes = cosines[:, :, 0, across] * cosines[:, :, 1, along]
        x, y = velocities[..., 0] / video.speed, velocities[..., 1] / video.speed
        moves = jnp.stack([x, y, x * x, y * y, x * y], axis=-1)
        products = matmul(jnp.swapaxes(shapes, 1, 2), moves)
        return products.reshape(len(products), -1)

    return function


def _cosines(video: BouncingBalls, centres: Array, degree: int) -> Array:
    """Compute cos(iπx), i = 0 … degree, over the square that centres can be in, [..., degree+1]."""
    unit = (centres - video.radius) / (1.0 - 2.0 * video.radius)
    multiples = jnp.pi * jnp.arange(degree + 1, dtype=unit.dtype)
    return jnp.cos(unit[..., None] * multiples[None, None, None, :])


def moments(
    config: Config, encoder: Encoder, params: Params, source: Clips, key: Array, batches: int
) -> Moments:
    """Average Σ and Π of features over batches of fresh clips."""
    return sampled_moments(
        encoder, params, Slowness(), source, key, rows=config.clips, batches=batches
    )


def linear_slow_features(
    config: Config, function: Function, source: Clips, components: int | None = None
) -> tuple[Encoder, tuple[Array, Array]]:
    """Find the slowest combinations of functions by the generalised eigenproblem.

    Principal components first, at most ``components`` of them: what hardly varies would be fitted
    to the sample.

    Returns:
        An encoder of the constant and the features, the slowest first, of unit variance and mean
        zero; and its parameters, the combinations [m, features] and what they subtract [features].

    Raises:
        InputError: If fewer principal components than features vary.
    """
    functions = WithConstant(FunctionEncoder(lambda _: (), lambda _, inputs: function(inputs)))
    average = jit(
        lambda source, key: moments(config, functions, (), source, key, config.linear_batches)
    )
    found = average(source, config.key("linear"))
    second, changes = (np.asarray(part, np.float64) for part in found)
    mean = second[0, 1:]
    variances, axes = scipy.linalg.eigh(second[1:, 1:] - np.outer(mean, mean))
    kept = variances > _LEAST_VARIANCE * variances[-1]
    kept[: -min(components or len(kept), len(kept))] = False
    axes, wanted = axes[:, kept], config.num_features
    require(axes.shape[1] >= wanted, f"at least {wanted} components that vary", axes.shape[1])
    changes = (changes + changes.T)[1:, 1:] / 2.0
    _, mixing = scipy.linalg.eigh(
        axes.T @ changes @ axes, np.diag(variances[kept]), subset_by_index=(0, wanted - 1)
    )
    weights = axes @ mixing
    fitted = (jnp.asarray(weights, jnp.float32), jnp.asarray(mean @ weights, jnp.float32))
    features = FunctionEncoder(
        lambda _: fitted,
        lambda params, inputs: matmul(function(inputs), params[0]) - params[1][None, :],
    )
    return WithConstant(features), fitted


def explained(features: npt.ArrayLike, values: npt.ArrayLike) -> DoubleArray:
    """Compute the shares of variance [d] of features [n, d] that functions [n, m] explain linearly.

    The last third of the rows is predicted from a fit to the rest, so that functions which are
    many do not explain by chance; what predicts worse than the mean is negative.
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
    config: Config, encoder: Encoder, params: Params, source: Clips, draw: str
) -> Spectra:
    """Measure eigenvalues of features whose first is the constant, on one of the fresh draws."""
    batches = config.test_batches if draw == "test" else config.evaluation_batches
    ordered, ritz = _spectra(config, encoder, batches, params, source, config.key(draw))
    return Spectra(
        np.asarray(ordered.eigenvalues, np.float64)[1:],
        np.asarray(ritz.eigenvalues, np.float64)[1:],
        np.asarray(ordered.transform)[:, 1:],
    )


@partial(jit, static_argnums=(0, 1, 2))
def _spectra(
    config: Config, encoder: Encoder, batches: int, params: Params, source: Clips, key: Array
) -> tuple[Spectrum, Spectrum]:
    # Networks and draws are arguments: one program measures them all.
    found = moments(config, encoder, params, source, key, batches)
    return ordered_spectrum(*found), ritz_spectrum(*found)


class Responses(NamedTuple):
    """Eigenfunctions on unrelated inputs.

    Attributes:
        centres: Of the balls, the mean over an input's frames, [n, balls, 2].
        velocities: Of the balls in the input's first frame, [n, balls, 2].
        values: Of the eigenfunctions, [n, d]; the mean response that is largest in magnitude is
            positive.
        maps: Mean of each eigenfunction where one ball is in a cell (``mean_responses``).
    """

    centres: FloatArray
    velocities: FloatArray
    values: FloatArray
    maps: DoubleArray


def measure_responses(
    encoder: Encoder, params: Params, video: BouncingBalls, config: Config
) -> Responses:
    """Evaluate an encoder's eigenfunctions on batches of unrelated inputs."""

    @jit
    def evaluate(params: Params, keys: Array) -> tuple[Array, Array, Array]:
        def one_batch(key: Array) -> tuple[Array, Array, Array]:
            starts = jax.vmap(video.reset)(jax.random.split(key, config.rows))
            states = jax.vmap(lambda state: play(video, state, config.frames))(starts)
            inputs, centres = (
                windows(video, states, config.frames, as_positions=each)[:, 0]
                for each in (False, True)
            )
            return centres, states.velocities[:, 0], encoder.apply(params, inputs)

        measured: tuple[Array, Array, Array] = jax.lax.map(one_batch, keys)
        return measured

    keys = jax.random.split(config.key("frames"), config.response_batches)
    centres, speeds, values = (
        np.asarray(part).reshape(-1, *part.shape[2:]) for part in evaluate(params, keys)
    )
    maps = mean_responses(centres, values, config.map_bins)
    largest = np.take_along_axis(maps, np.nanargmax(np.abs(maps), axis=0)[None, :], axis=0)
    signs = np.where(largest < 0.0, -1.0, 1.0)
    return Responses(centres, speeds, values * np.float32(signs), maps * signs)


def mean_responses(centres: npt.ArrayLike, values: npt.ArrayLike, bins: int) -> DoubleArray:
    """Average features [n, d] over the states with a ball, whichever, in a cell of the unit square.

    Centres of the balls are [n, balls, 2]. The result is [bins², d], cell row · bins + column with
    rows upwards in y; NaN where no ball has been.
    """
    points, features = np.asarray(centres), np.asarray(values, np.float64)
    x, y = points.reshape(-1, 2).T
    each_ball = np.repeat(features, points.shape[1], axis=0).T
    edges = np.linspace(0.0, 1.0, bins + 1)
    means = binned_statistic_2d(y, x, list(each_ball), bins=[edges, edges]).statistic
    return np.asarray(means, np.float64).reshape(len(each_ball), -1).T


def measure_shares(
    responses: Responses, video: BouncingBalls, config: Config
) -> dict[str, DoubleArray]:
    """Compute shares of each eigenfunction's variance [d], on frames that were not fitted to.

    ``mean_position`` is what the balls' mean position explains linearly, ``one_ball`` what sums
    over balls of functions of one ball's position do, ``all_balls`` what these and their products,
    functions of two and three balls together, do, and ``velocity`` what functions of the balls'
    velocities add to those.
    """
    function, bodies = positions(video, config.degree)
    centres = jnp.asarray(responses.centres)
    values = np.asarray(jit(function)(centres))
    moving = np.asarray(jit(velocities(video))(centres, jnp.asarray(responses.velocities)))
    all_balls = explained(responses.values, values)
    return {
        "mean_position": explained(responses.values, responses.centres.mean(axis=1)),
        "one_ball": explained(responses.values, values[:, bodies == 1]),
        "all_balls": all_balls,
        "velocity": explained(responses.values, np.column_stack([values, moving])) - all_balls,
    }


def extreme_frames(responses: Responses, video: BouncingBalls, count: int) -> FloatArray:
    """Render frames that excite eigenfunctions least to most, [d, 2 · count, size, size]."""
    order = np.argsort(responses.values, axis=0)
    chosen = np.concatenate([order[:count], order[-count:]]).T
    centres = jnp.asarray(responses.centres[chosen.ravel()])
    still = BouncingBallsState(centres, jnp.zeros_like(centres), jnp.zeros(len(centres), jnp.int32))
    frames = np.asarray(jit(jax.vmap(video.render))(still))
    return frames.reshape(*chosen.shape, *frames.shape[1:])


class Network(NamedTuple):
    """A trained network, its eigenvalues and responses, and what explains these, [d] each."""

    seed: int
    trained: TrainingResult
    spectra: Spectra
    responses: Responses
    shares: dict[str, DoubleArray]


def measure(run: Run[Config], name: str, seed: int) -> Network:
    """Train one network, and measure it and what its eigenfunctions respond to."""
    config, encoder = run.config, run.config.network
    source = config.source()

    def evaluate(params: Params) -> Mapping[str, Array]:
        key, batches = config.key("held out"), config.evaluation_batches
        found = ordered_spectrum(*moments(config, encoder, params, source, key, batches))
        return {f"eigenvalue_{k}": found.eigenvalues[k] for k in range(1, 1 + config.num_features)}

    every = config.steps // config.evaluations
    trained = train(
        encoder,
        with_sizes(
            config.objective,
            num_features=1 + config.num_features,
            operator=Slowness(),
            encoder=encoder,
        ),
        config.source(fresh=False),
        optimizer=config.optimizer,
        steps=config.steps,
        rows=config.clips,
        seeds=[seed],
        evaluate=evaluate,
        evaluate_every=every,
        folder=run.training_folder(name, seed=seed),
        checkpoint_every=every * _EVALUATIONS_PER_CHECKPOINT,
        devices=run.devices,
        description=f"slow features, seed {seed}",
        progress=run.progress,
    )
    params = trained.params()
    spectra = measure_spectra(config, encoder, params, source, "test")
    eigenfunctions = FunctionEncoder(
        encoder.init, lambda both, frames: matmul(encoder.apply(both[0], frames), both[1])
    )
    both = params, jnp.asarray(spectra.transform)
    responses = measure_responses(eigenfunctions, both, VIDEO, config)
    return Network(seed, trained, spectra, responses, measure_shares(responses, VIDEO, config))


def prepare(run: Run[Config]) -> dict[str, Spectra]:
    """Measure the exact analyses on the frames that networks are measured on.

    Returns:
        Analysis → spectra on the test frames, and under ``held out`` those of functions of
        positions on the frames that networks are followed on during training.
    """
    config = run.config
    frames, centres = config.source(), config.source(as_positions=True)
    squares, (functions, _) = pixels(VIDEO, config.pooling), positions(VIDEO, config.degree)
    linear = linear_slow_features(config, squares, frames, config.components)
    best = linear_slow_features(config, functions, centres)
    return {
        PIXELS: measure_spectra(config, *linear, frames, "test"),
        POSITIONS: measure_spectra(config, *best, centres, "test"),
        "held out": measure_spectra(config, *best, centres, "held out"),
    }


def judge(config: Config, networks: Sequence[Network], exact: Mapping[str, Spectra]) -> list[Found]:
    """Set the paper's statements and our goals beside what was found.

    The paper's statements are judged under its protocol alone, network by network: they hold where
    they do for all, and do not where they do for none.
    """
    sums = np.asarray([network.spectra.ordered.sum() for network in networks])
    linear, best = (exact[name].ordered.sum() for name in (PIXELS, POSITIONS))
    shares = {
        name: np.stack([network.shares[name] for network in networks])
        for name in ("mean_position", "one_ball", "all_balls", "velocity")
    }
    total = mean_interval(sums)
    several = len(networks) > 1
    interval = f" [{total.low:.3f}, {total.high:.3f}]" if several else ""
    straddles = not several or total.low <= linear <= total.high
    first = shares["mean_position"][:, :2]
    alone = shares["one_ball"] >= ONE_BALL
    together = (shares["all_balls"] - shares["one_ball"]) > TOGETHER
    disorder = max(
        float(np.max(np.abs(spectra.ordered / spectra.ritz - 1.0)))
        for spectra in (network.spectra for network in networks)
    )

    def verdict(each: npt.ArrayLike, known: bool = True) -> bool | None:
        found = np.asarray(each)
        if not (config.is_published and known) or (found.any() and not found.all()):
            return None
        return bool(found.all())

    return [
        Found(
            statement="The first two (Section 5.2, Fig. 2a; holds if the balls' mean position "
            f"explains {SIDES:.0%} of the variance of both)",
            stated="separate up from down and left from right",
            found=f"{100.0 * first.min():.1f} % at least",
            holds=verdict(first.min(axis=1) >= SIDES),
        ),
        Found(
            statement="Most of them (Section 5.2, Fig. 2a; holds if functions of single balls "
            f"explain {ONE_BALL:.0%} of the variance of more than half)",
            stated="encode the positions of balls independently",
            found=f"{alone.sum()} of {alone.size} do",
            holds=verdict(alone.mean(axis=1) > 0.5),
        ),
        Found(
            statement="Some later ones (Section 5.2, Fig. 2b; holds if functions of two and three "
            f"balls add {TOGETHER:.0%} of the variance of one of them)",
            stated="encode joint statistics of positions, seen in the frames that excite them",
            found=f"{together[:, 2:].sum()} of {together[:, 2:].size} do",
            holds=verdict(together[:, 2:].any(axis=1)),
        ),
        Found(
            statement="Velocity (Section 5.2; holds if functions of velocities add less than "
            f"{VELOCITY:.0%} of the variance of every feature)",
            stated="none seems to encode anything meaningful about it",
            found=f"they add {100.0 * shares['velocity'].max():.1f} % at most"
            if config.frames > 1
            else "it shows in no single frame",
            holds=verdict(shares["velocity"].max(axis=1) < VELOCITY, config.frames > 1),
        ),
        Found(
            statement="Deep against linear slow features (our goal, by the interval over networks)",
            stated="a smaller sum of eigenvalues than linear analysis of pixels",
            found=f"{total.value:.3f}{interval} against {linear:.3f}; "
            f"analysis of positions: {best:.3f}",
            holds=None if straddles else bool(total.high < linear),
        ),
        Found(
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
    count, seconds = len(networks), sum(network.trained.seconds for network in networks)
    note = over_runs(count, "network")
    seen = "one frame" if config.frames == 1 else f"{config.frames} consecutive frames"
    video = "new clips" if config.num_frames is None else f"a video of {config.num_frames:,} frames"
    return Findings(
        abstract=f"Three equal balls in a box, 64 x 64 pixels. A network sees {seen} and learns "
        "the functions of its input that change least from a frame to the next. Every batch holds "
        f"{config.clips} clips of {config.clip_frames} frames from {video}; measurements are made "
        "on clips that no network was trained on.\n\n"
        f"{count} networks of {config.steps:,} updates, {seconds:,.0f} s of training in all.",
        claims=judge(config, networks, exact),
        sections=[
            Section(
                title="Against the paper",
                text="The paper shows maps against a ball's position and the frames that excite "
                "each feature most and least. It prints no eigenvalues. What is judged is how much "
                "of each feature's variance functions of the balls' positions and velocities "
                "explain. Its statements are judged under its protocol alone; our two goals stand "
                "below them.",
            ),
            _eigenvalues(run, networks, exact, note),
            _responses(run, networks),
            _training(run, networks, note),
        ],
        summary={
            "eigenvalues": {
                DEEP: [network.spectra.ordered.tolist() for network in networks],
                **{name: spectra.ordered.tolist() for name, spectra in exact.items()},
            },
            "seconds": {network.seed: round(network.trained.seconds, 3) for network in networks},
        },
    )


def _eigenvalues(
    run: Run[Config], networks: Sequence[Network], exact: Mapping[str, Spectra], note: str
) -> Section:
    """Set the eigenvalues of networks beside those of the exact analyses."""
    config, first = run.config, networks[0]
    numbers = np.arange(1, config.num_features + 1)
    analyses: list[tuple[str, int | None, Spectra]] = [
        *((DEEP, network.seed, network.spectra) for network in networks),
        *((name, None, spectra) for name, spectra in exact.items()),
    ]
    rows = [
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
    ]
    lines = [Line.of_runs(DEEP, numbers, [network.spectra.ordered for network in networks])]
    lines += [Line(label=name, x=numbers, mean=each.ordered) for name, each in exact.items()]
    figure = plot_panels(
        [Panel(title="slowness of every feature, on fresh frames", lines=lines)],
        x_label="feature, after the constant",
        y_label=EIGENVALUE,
        x_ticks=numbers.tolist(),
        note=note,
    )
    caption = (
        f"Eigenvalue of every feature on fresh frames: of networks ({note}), of linear slow "
        "feature analysis of pixels, and of functions of the balls' positions, which no video "
        "shows."
    )
    columns = {
        "deep λ": first.spectra.ordered,
        "correlation a frame later": 1.0 - first.spectra.ordered / 2.0,
        "of the span": first.spectra.ritz,
        "linear λ": exact[PIXELS].ordered,
        "positions λ": exact[POSITIONS].ordered,
    }
    shares = {
        "mean position": "mean_position",
        "single balls": "one_ball",
        "all balls": "all_balls",
        "velocity adds": "velocity",
    }
    cells = [
        (
            k,
            *(f"{column[k - 1]:.4f}" for column in columns.values()),
            *(f"{first.shares[name][k - 1]:.3f}" for name in shares.values()),
        )
        for k in numbers
    ]
    table = Table(
        ("feature", *columns, *shares),
        cells,
        f"Every feature of the network of seed {first.seed}. Last four columns: shares of its "
        "variance that the balls' mean position, sums of functions of single balls, and products "
        "of up to three of these explain, and what functions of velocities add, on frames that "
        "were not fitted to. Other seeds are in "
        "results/exciting_frames.csv.",
    )
    return Section(
        title="Eigenvalues",
        text="An eigenvalue is E[(u(s') - u(s))^2] of a feature of mean zero and variance 1 that "
        "is uncorrelated with those before it; 1 - λ/2 is its correlation with itself a frame "
        "later. All analyses are measured by the same estimator on the same "
        f"{config.pairs * config.test_batches:,} fresh pairs of inputs.\n\n"
        "Linear analysis solves the generalised eigenproblem of the "
        f"{config.components} leading principal components of frames averaged over squares of "
        f"{config.pooling} x {config.pooling} pixels. Functions of positions are symmetric "
        f"polynomials of cosines to degree {config.degree}: an exact solution in a space that "
        "knows the balls, and an upper bound of the smallest eigenvalues that a frame allows. "
        "Linear combinations of pixels are sums over balls of functions of one ball, so linear "
        "analysis cannot see pairs.",
        tables=[table],
        figures=[run.show("eigenvalues", caption, rows, figure)],
    )


def _responses(run: Run[Config], networks: Sequence[Network]) -> Section:
    """Show what excites the first network's features, and tabulate what explains all networks'."""
    config, first = run.config, networks[0]
    bins, numbers = config.map_bins, range(1, config.num_features + 1)
    notes = [f"λ {value:.4f}" for value in first.spectra.ordered]
    maps = run.show(
        "maps",
        "Mean of each eigenfunction where one of the balls is, over all states with a ball there "
        f"(network of seed {first.seed}). Eigenfunctions have variance 1; the number above each "
        "map is its largest magnitude, so a map with small limits says that the feature does not "
        "depend on where one ball is alone. Centres of balls do not come to the grey border.",
        [
            {
                "x": (cell % bins + 0.5) / bins,
                "y": (cell // bins + 0.5) / bins,
                **{f"feature_{k}": row[k - 1] for k in numbers},
            }
            for cell, row in enumerate(first.responses.maps)
        ],
        plot_components(
            {"mean feature": first.responses.maps},
            bins=bins,
            labels=[f"{k}: {note}" for k, note in zip(numbers, notes, strict=True)],
        ),
    )
    frames = extreme_frames(first.responses, VIDEO, config.shown)
    # An empty picture sets the most exciting frames apart from the least exciting.
    frames = np.insert(frames, config.shown, np.nan, axis=1)
    labels = [f"feature {k}" for k in numbers]
    exciting = run.show(
        "exciting_frames",
        f"Of {config.rows * config.response_batches:,} unrelated frames, those that excite each "
        "eigenfunction least (left) and most (right), more to the ends.",
        [
            {
                "seed": network.seed,
                "feature": k,
                **{name: share[k - 1] for name, share in network.shares.items()},
            }
            for network in networks
            for k in numbers
        ],
        plot_reconstructions(
            dict(zip(labels, frames, strict=True)), notes=dict(zip(labels, notes, strict=True))
        ),
    )
    return Section(title="What features respond to", figures=[maps, exciting])


def _training(run: Run[Config], networks: Sequence[Network], note: str) -> Section:
    """Show eigenvalues on held-out frames over training."""
    numbers = range(1, run.config.num_features + 1)
    rows = [
        {
            "seed": network.seed,
            "step": record["step"],
            "seconds": record["seconds"],
            **{f"feature_{k}": record[f"eigenvalue_{k}"][0] for k in numbers},
        }
        for network in networks
        for record in network.trained.history
    ]
    steps = [record["step"] for record in networks[0].trained.history]
    curves = [
        [[record[f"eigenvalue_{k}"][0] for record in each.trained.history] for each in networks]
        for k in numbers
    ]
    caption = (
        f"Eigenvalues on held-out frames over training, {note}. Dashes at the right edge: those of "
        "functions of positions on the same frames, which are not those of the table."
    )
    figure = draw_training(steps, curves, run.shared["held out"].ordered)
    return Section(title="Training", figures=[run.show("training", caption, rows, figure)])


@styled
def draw_training(steps: Sequence[int], curves: npt.ArrayLike, best: DoubleArray) -> Figure:
    """Draw eigenvalues [d, networks, p] at steps [p], and the best [d] at the right edge."""
    colors = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, len(best)))
    figure = Figure(figsize=(6.8, 4.2))
    axes = figure.subplots()
    axes.set(yscale="log", xlabel="update", ylabel=EIGENVALUE)
    axes.grid(visible=True)
    for index, (runs, color) in enumerate(zip(np.asarray(curves), colors, strict=True)):
        curve = mean_interval(runs)
        axes.plot(steps, curve.value, color=color, label=str(index + 1))
        if len(runs) >= FEWEST_BANDED:
            axes.fill_between(steps, curve.low, curve.high, color=color, alpha=0.2, lw=0)
        elif len(runs) > 1:
            axes.plot(steps, np.transpose(runs), color=color, alpha=0.4, linewidth=0.7)
    edge = np.full(len(best), 1.04 * steps[-1])
    axes.set_xlim(-0.01 * steps[-1], 1.06 * steps[-1])
    axes.scatter(edge, best, marker="_", s=70, c=colors, linewidths=1.8, zorder=3)
    axes.plot([], [], "_", markersize=8, markeredgewidth=1.8, color=MUTED, label="positions")
    plain_log_ticks(axes.yaxis)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.legend(loc="outside right center", title="feature", handlelength=1.6, reverse=True)
    return figure


EXPERIMENT = Experiment(
    name="bouncing-balls",
    title="Bouncing balls: deep slow feature analysis",
    paper="Pfau et al. 2019, Section 5.2",
    presets=PRESETS,
    prepare=prepare,
    cells=lambda run: {
        f"seed-{seed}": seed
        for seed in range(run.config.seed, run.config.seed + run.config.num_seeds)
    },
    measure=measure,
    report=report,
    keeps_parts=False,
    deviations={
        "video": "The paper does not tell how its 200,000 frames were cut; here they are 20,000 "
        "disjoint clips of ten frames, each from an independent start, of which every batch "
        "draws 24. Cut anywhere, a video of as many frames has more clips, which overlap.",
        "inputs of a clip": "Ten frames make nine inputs of two frames and eight steps; whether "
        "the paper's ten count frames or inputs is not told.",
        "initial weights": "Not told by the paper; here LeCun-normal, with biases of zero.",
        "units": "Whether units count from 0 or 1 in the blocks is not told; here from 1.",
    },
)
