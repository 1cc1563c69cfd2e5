"""Frames of an Atari game: slow features, successor features and pixels (Pfau et al. 2019, C.3).

A random agent plays two sets of frames: one trains, the other tests. A spectral inference network
learns slow features. Another network predicts the next frame; a third learns, by temporal
differences, successor features of the predictor's code, whose principal components Machado et al.
(2018) call eigenpurposes. Of each feature, and of the pixels' principal components, the test frames
with the largest and the smallest values are averaged: Figs. 4 to 11. The paper judges them by eye.

Left open by the paper, and settled by the authors' code (its Atari example): three convolutions of
64 maps with 6 x 6 kernels and stride 2, the first unpadded, on stacks of the last four 84 x 84 grey
frames, and no block sparsity. By public readings of Machado et al.'s Fig. 2: the widths 1024 and
2048 of the other layers, and that the predictor multiplies the code by a linear map of the action.
What nobody settles, and where we do otherwise (their example feeds grey levels 0 … 255, ours are
less the mean frame, over 255), ``EXPERIMENT.deviations`` lists.
"""

import contextlib
import dataclasses
import difflib
import importlib
import io
import itertools
import os
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax
from numpy.lib.stride_tricks import sliding_window_view

from rlreps.config import configurable, size, static, with_sizes
from rlreps.encoders import MLP, Convolutional, Encoder, Params, WithConstant
from rlreps.encoders.networks import Layer, dense, init_layers
from rlreps.errors import InputError, require, require_interval, require_positive
from rlreps.experiments.harness import Experiment, Findings, Found, Run, table_of
from rlreps.files import write_atomically
from rlreps.losses import Spin
from rlreps.losses.base import Batch, Encode, Metrics, Objective
from rlreps.numerics import jit
from rlreps.operators import Clip, Slowness, act, points_of
from rlreps.plotting import Line, Panel, plot_panels, plot_reconstructions, plot_signed_images
from rlreps.report.page import Section
from rlreps.runs.progress import progress_bar
from rlreps.subspace import centre_in_place, randomized_svd
from rlreps.subspace.ordered import ordered_spectrum
from rlreps.training import RMSProp, TrainingResult, train

ByteArray: TypeAlias = npt.NDArray[np.uint8]
FloatArray: TypeAlias = npt.NDArray[np.float32]
DoubleArray: TypeAlias = npt.NDArray[np.float64]
IndexArray: TypeAlias = npt.NDArray[np.int64]

IMAGES, STEPS = "images.npy", "steps.npy"
"""Files of a folder of frames; the second is written last."""
SPIN, SUCCESSOR, PIXELS = "SpIN", "successor features", "PCA of pixels"

_PREFIX, _VERSION = "ALE/", "-v5"
_KERNEL = 6
_BLOCK = 512
"""Stacks that are encoded at a time."""
_MEASURED_PAIRS = 256
"""Held-out pairs behind a point of a learning curve."""
_SHIFTS = 99
"""Shifts in time that a feature is compared with; above all of them is a p-value of 1 %."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Slow features of a random agent's frames, successor features and principal components.

    Attributes:
        game: A game of the Arcade Learning Environment, such as ``MsPacman``.
        num_frames: Frames that train; num_frames x size² bytes on disk and on the device.
        held_out_frames: Frames that test, of other episodes.
        size: Height and width of a frame in pixels, after area-averaging.
        stack: Consecutive frames that a network sees together.
        channels: Of the convolutions of every network.
        num_features: Slow features after the constant, and principal components.
        hidden: Width of the slow features' hidden layer.
        clips: Clips of an update of the slow features.
        clip_frames: Consecutive frames of a clip, in ``clip_frames - stack + 1`` stacks.
        objective: Of the slow features; as the paper has it.
        optimizer: Theirs.
        steps: Their updates.
        code_size: Numbers in the next-frame predictor's code, and successor features.
        code_hidden: Width of the hidden layers of predictor and successor network.
        discount: γ of the successor features, in [0, 1).
        transitions: Of an update of predictor and successor network.
        successor_optimizer: Of both.
        successor_steps: Their updates.
        target_every: Updates between copies of the network that temporal differences aim at.
        extremes: Test frames that are averaged at each end of a feature.
        evaluations: Points of each learning curve after its start.
        seed: Of the agent, the networks and the batches.
    """

    game: str = "MsPacman"
    num_frames: int = 500_000
    held_out_frames: int = 64_000
    size: int = 84
    stack: int = 4
    channels: tuple[int, ...] = (64, 64, 64)
    num_features: int = 5
    hidden: int = 128
    clips: int = 24
    clip_frames: int = 10
    objective: Spin = dataclasses.field(
        default=Spin(
            averaging_rate=0.01, shifted=False, starts_at_identity=True, jacobian_rows_at_once=3
        )
    )
    optimizer: RMSProp = dataclasses.field(
        default=RMSProp(learning_rate=1e-6, schedule="constant", decay=0.999)
    )
    steps: int = 1_000_000
    code_size: int = 2048
    code_hidden: int = 1024
    discount: float = 0.99
    transitions: int = 32
    successor_optimizer: RMSProp = dataclasses.field(
        default=RMSProp(learning_rate=1e-4, schedule="constant")
    )
    successor_steps: int = 300_000
    target_every: int = 10_000
    extremes: int = 100
    evaluations: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        # Every whole number but the seed counts something.
        for field in dataclasses.fields(self):
            if field.type is int and field.name != "seed":
                require_positive(field.name, getattr(self, field.name))
        require(len(self.channels) >= 1, "at least one convolution", self.channels)
        for width in self.channels:
            require_positive("channels", width)
        scale, lost = 2 ** len(self.channels), _KERNEL - 2
        expected = f"size = {lost} + a multiple of {scale}, which the predictor's layers make"
        require(self.size > lost and (self.size - lost) % scale == 0, expected, self.size)
        require(
            self.clip_frames > self.stack, f"clip_frames > stack ({self.stack})", self.clip_frames
        )
        for name in ("num_frames", "held_out_frames"):
            least = max(self.clip_frames, 2 * self.extremes)
            require(getattr(self, name) >= least, f"{name} >= {least}", getattr(self, name))
        most = f"num_features <= {self.code_size}, the size of the code"
        require(self.num_features <= self.code_size, most, self.num_features)
        require_interval("averaging_rate", self.objective.averaging_rate, "(0, 1)")
        require_interval("discount", self.discount, "[0, 1)")
        require(0 <= self.seed < 2**30, "seed in [0, 2**30)", self.seed)
        for name in ("steps", "successor_steps"):
            expected = f"{name} to be a multiple of evaluations ({self.evaluations})"
            require(getattr(self, name) % self.evaluations == 0, expected, getattr(self, name))


# The same methods throughout. Smaller presets have fewer frames, smaller networks, and fewer
# updates at higher rates (not tuned), for which the objective's operator is shifted.
_PAPER = Config()
_LAPTOP = dataclasses.replace(
    _PAPER,
    num_frames=40_000,
    held_out_frames=8_000,
    size=44,
    channels=(16, 16, 16),
    hidden=64,
    clips=8,
    objective=Spin(averaging_rate=0.01, jacobian_rows_at_once=1),
    # At 1e-3 the network's last layer died after 1,200 updates.
    optimizer=RMSProp(learning_rate=1e-4, schedule="constant", decay=0.999),
    steps=2000,
    code_size=128,
    code_hidden=128,
    successor_optimizer=RMSProp(learning_rate=1e-3, schedule="constant"),
    successor_steps=4000,
    target_every=200,
    evaluations=20,
)
PRESETS = {
    "smoke": dataclasses.replace(
        _LAPTOP,
        num_frames=300,
        held_out_frames=200,
        size=20,
        channels=(8, 8),
        num_features=2,
        hidden=16,
        clips=4,
        optimizer=RMSProp(learning_rate=1e-3, schedule="linear", decay=0.999),
        steps=60,
        code_size=8,
        code_hidden=16,
        # So few updates have no time for an average to come down from 1.
        successor_optimizer=RMSProp(learning_rate=1e-3, schedule="linear", initial_scale=0.0),
        successor_steps=60,
        target_every=20,
        extremes=10,
        evaluations=3,
    ),
    "laptop": _LAPTOP,
    "paper": _PAPER,
}


class Frames(NamedTuple):
    """Frames and actions of an agent.

    Attributes:
        images: Grey levels in the order in which they were seen, [n, height, width].
        episodes: Number of each frame's episode, rising, [n].
        actions: What was done after each frame, from 0, [n]; at an episode's end it means nothing.
    """

    images: ByteArray
    episodes: IndexArray
    actions: IndexArray

    def windows(self, length: int) -> IndexArray:
        """Find the first frames of all stretches of so many frames within one episode.

        Raises:
            InputError: If there are none.
        """
        last = max(len(self.episodes) - length + 1, 0)
        first = np.flatnonzero(self.episodes[:last] == self.episodes[length - 1 :])
        require(len(first) > 0, f"an episode of at least {length} frames", "none")
        return first


def require_game(game: str) -> None:
    """Raise an ``InputError`` without the package ``ale-py``, or for a game it does not know."""
    try:
        # Optional; importing it registers its games with Gymnasium.
        ale_py = importlib.import_module("ale_py")
    except ImportError as error:
        raise InputError(
            'expected the package ale-py, got none: pip install "rlreps[atari]"'
        ) from error
    # Its banner would break the progress bar.
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    names = sorted(
        name.removeprefix(_PREFIX).removesuffix(_VERSION)
        for name in gymnasium.registry
        if name.startswith(_PREFIX) and name.endswith(_VERSION)
    )
    if game not in names:
        by_lower_case = {name.lower(): name for name in names}
        wanted = game.lower().replace("_", "").replace("-", "").replace(" ", "")
        near = difflib.get_close_matches(wanted, by_lower_case, n=5, cutoff=0.5)
        listed = [by_lower_case[name] for name in near] or names
        raise InputError(f"expected game to be one of {', '.join(listed)}, got {game!r}")


def random_agent(game: str, seed: int) -> Generator[tuple[ByteArray, int, int], None, None]:
    """Play a game without an end, each action with equal probability.

    The environment is ``ALE/<game>-v5`` as it comes: every action is held for four frames, and
    repeated in place of the next with probability 1/4; a frame is the last of its four.

    Yields:
        (grey levels [height, width], number of the episode, the action that follows).
    """
    require_game(game)
    environment: gymnasium.Env[Any, Any] = gymnasium.make(
        f"{_PREFIX}{game}{_VERSION}", obs_type="grayscale", disable_env_checker=True
    )
    with contextlib.closing(environment):
        space = environment.action_space
        assert isinstance(space, gymnasium.spaces.Discrete)
        generator = np.random.default_rng(seed)
        frame, _ = environment.reset(seed=seed)
        episode = 0
        while True:
            action = int(generator.integers(space.n))
            yield frame, episode, action
            frame, _, terminated, truncated, _ = environment.step(space.start + action)
            if terminated or truncated:
                # The frame at the end is seen too, before the next episode's first.
                yield frame, episode, 0
                frame, _ = environment.reset()
                episode += 1


def recorded_frames(
    folder: Path, config: Config, count: int, seed: int, *, progress: bool = True
) -> Frames:
    """Read the frames in a folder, playing them first if they are not all there.

    Both files appear whole or not at all; images are read from disk as they are used.

    Raises:
        InputError: For a game that cannot be played, or files that are not those frames.
    """
    size = config.size
    if not (folder / STEPS).exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{IMAGES}"
        # In place on disk: half a million frames need not be in memory while they are played.
        played: Any = np.lib.format.open_memmap(
            unfinished, mode="w+", dtype=np.uint8, shape=(count, size, size)
        )
        steps = np.zeros((2, count), np.int64)
        title = f"random agent in {config.game}, {folder.name}"
        with (
            contextlib.closing(random_agent(config.game, seed)) as agent,
            progress_bar(title, total=count, unit="frames", show=progress) as advance,
        ):
            for index, (frame, *step) in zip(range(count), agent, strict=False):
                played[index], steps[:, index] = shrunk(frame, size), step
                advance(1)
        played.flush()
        del played
        os.replace(unfinished, folder / IMAGES)
        stream = io.BytesIO()
        np.lib.format.write_array(stream, steps, allow_pickle=False)
        write_atomically(folder / STEPS, stream.getvalue())
    try:
        images = np.load(folder / IMAGES, mmap_mode="r", allow_pickle=False)
        steps = np.load(folder / STEPS, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"expected readable frames, got {error}: {folder}") from error
    found = (images.shape, images.dtype.name, steps.shape)
    expected = ((count, size, size), "uint8", (2, count))
    require(found == expected, f"frames {expected} in {folder}", found)
    return Frames(images, *steps)


def shrunk(frame: ByteArray, size: int) -> ByteArray:
    """Average a frame [height, width] over areas to [size, size], in whole grey levels."""
    averaged = _area_means(_area_means(frame.astype(np.float64), size).T, size).T
    rounded: ByteArray = np.rint(averaged).astype(np.uint8)
    return rounded


def _area_means(values: DoubleArray, size: int) -> DoubleArray:
    """Compute means over ``size`` equal stretches of the first axis, [m, n] → [size, n].

    By differences of running sums: products with a matrix of shares would start BLAS's threads for
    every frame, which costs far more than the sums where cores are shared.
    """
    edges = np.linspace(0.0, len(values), size + 1)
    whole = edges.astype(np.int64)
    none = np.zeros((1, values.shape[1]))
    until = np.concatenate([none, np.cumsum(values, axis=0)])[whole]
    begun = np.concatenate([values, none])[whole] * (edges - whole)[:, None]
    means: DoubleArray = np.diff(until + begun, axis=0) * (size / len(values))
    return means


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ClipSource:
    """Clips of stacked frames, each within an episode, drawn uniformly with replacement.

    Attributes:
        images: Grey levels, [n, height, width] (uint8).
        actions: What was done after each, [n] (int32).
        starts: First frames of clips, [p] (int32).
        mean: What is taken off a frame, [height, width].
        length: Stacks of a clip.
        stack: Frames of a stack.
        num_actions: A.
    """

    images: Array
    actions: Array
    starts: Array
    mean: Array
    length: int = dataclasses.field(metadata={"static": True})
    stack: int = dataclasses.field(metadata={"static": True})
    num_actions: int = dataclasses.field(metadata={"static": True})

    num_tasks = None
    """Targets are actions."""

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw clips of stacks [b, height, width, stack], their newest frame last.

        Targets are what was done after the newest frame of the first stack, [b, A], one of them 1.
        """
        del num_tasks
        first = self.starts[jax.random.randint(key, (num_rows,), 0, len(self.starts))]

        def stacks(shift: int) -> Array:
            shown = self.images[first[:, None] + shift + jnp.arange(self.stack)[None, :]]
            return scaled(jnp.moveaxis(shown, 1, -1), self.mean)

        done = jax.nn.one_hot(self.actions[first + self.stack - 1], self.num_actions)
        return Batch(Clip(tuple(map(stacks, range(self.length)))), done)


def scaled(stacks: Array, mean: Array) -> Array:
    """Turn grey levels [b, height, width, stack] into numbers in [-1, 1], less the mean frame."""
    return (stacks.astype(jnp.float32) - mean[None, :, :, None]) / 255.0


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Frames that train, frames that test, and the mean training frame [height, width]."""

    config: Config
    training: Frames
    held_out: Frames
    mean: FloatArray

    @property
    def num_actions(self) -> int:
        """Actions of the game, all of which a random agent takes."""
        return 1 + max(int(part.actions.max()) for part in (self.training, self.held_out))

    def source(self, frames: Frames, length: int) -> ClipSource:
        """Put frames on the default device, as clips of ``length`` stacks."""
        stack = self.config.stack
        return ClipSource(
            jnp.asarray(frames.images),
            jnp.asarray(frames.actions, jnp.int32),
            jnp.asarray(frames.windows(length + stack - 1), jnp.int32),
            jnp.asarray(self.mean),
            length,
            stack,
            self.num_actions,
        )

    def measured(self) -> Batch:
        """Draw the held-out pairs of stacks behind learning curves."""
        key = jax.random.key(self.config.seed)
        return self.source(self.held_out, 2).sample(key, _MEASURED_PAIRS, 1)

    def tested(self) -> ByteArray:
        """Return the test frames, each the newest of a stack, [m, height, width]."""
        newest = self.held_out.windows(self.config.stack) + self.config.stack - 1
        images: ByteArray = self.held_out.images[newest]
        return images

    def encoded(self, function: Callable[[Array], Array]) -> FloatArray:
        """Apply a function of stacks [b, height, width, stack] → [b, k] to the test's, [m, k]."""
        stacks = sliding_window_view(self.held_out.images, self.config.stack, axis=0)
        compiled = jit(lambda part: function(scaled(part, jnp.asarray(self.mean))))
        parts, first = [], self.held_out.windows(self.config.stack)
        for start in range(0, len(first), _BLOCK):
            rows = first[start : start + _BLOCK]
            # One shape, one compilation: the last block is filled up with its own last stack.
            filled = np.pad(rows, (0, _BLOCK - len(rows)), mode="edge")
            parts.append(np.asarray(compiled(jnp.asarray(stacks[filled])))[: len(rows)])
        return np.concatenate(parts)


def make_problem(config: Config, folder: Path, *, progress: bool = True) -> Problem:
    """Play or read both sets of frames, each by an agent of its own seed."""
    counts = {"training": config.num_frames, "held-out": config.held_out_frames}
    training, held_out = (
        recorded_frames(folder / name, config, count, 2 * config.seed + index, progress=progress)
        for index, (name, count) in enumerate(counts.items())
    )
    mean = training.images.mean(axis=0, dtype=np.float64)
    return Problem(config, training, held_out, mean.astype(np.float32))


def network(config: Config, num_features: int, hidden: int) -> Convolutional:
    """Build the encoder of Machado et al. (2018) with its two last layers of given widths."""
    return Convolutional(
        num_features,
        frame_shape=(config.size, config.size, config.stack),
        channels=config.channels,
        hidden=hidden,
        kernel_size=_KERNEL,
        unpadded=1,
    )


@configurable
@dataclasses.dataclass(frozen=True)
class SuccessorNetwork(Encoder):
    """The next-frame predictor and the successor features of its code φ, φ(s) = ``apply``.

    Attributes:
        code: The encoder of φ.
        num_actions: A.
    """

    code: Convolutional = size(Convolutional())
    num_actions: int = size(1)

    def init(self, key: Array) -> Params:
        keys = jax.random.split(key, 3)
        width, maps = self.code.num_features, self.code.channels[::-1]
        shapes: list[tuple[int, ...]] = [(self.num_actions, width), (width, self.code.hidden)]
        shapes.append((self.code.hidden, self._side**2 * maps[0]))
        shapes += [(3, 3, before, 4 * after) for before, after in itertools.pairwise((*maps, 1))]
        decoder = init_layers(keys[1], shapes)
        for layer in decoder[3:]:
            layer["bias"] = layer["bias"][::4]
        estimator = self._estimator.init(keys[2])
        return {"code": self.code.init(keys[0]), "decoder": decoder, "successor": estimator}

    def apply(self, params: Params, inputs: Array) -> Array:
        return self.code.apply(params["code"], inputs)

    def successor(self, params: Params, code: Array) -> Array:
        """Compute successor features ψ of a code, [b, d] → [b, d]."""
        return self._estimator.apply(params["successor"], jax.nn.relu(code))

    def predict(self, params: Params, code: Array, actions: Array) -> Array:
        """Predict the next frame [b, height, width] from a code [b, d] and actions [b, A]."""
        action, mix, widen, *convolutions, last = params["decoder"]
        values = dense(mix, code * dense(action, actions))
        maps = jax.nn.relu(dense(widen, values)).reshape(len(code), self._side, self._side, -1)
        for layer in convolutions:
            maps = jax.nn.relu(enlarged(layer, maps, crop=2))
        return enlarged(last, maps, crop=0)[..., 0]

    @property
    def _side(self) -> int:
        """Height and width of the smallest maps."""
        side: int = (self.code.frame_shape[0] - _KERNEL + 2) // 2 ** len(self.code.channels)
        return side

    @property
    def _estimator(self) -> MLP:
        width = self.code.num_features
        return MLP(width, num_inputs=width, hidden=(self.code.hidden,))


def enlarged(layer: Layer, maps: Array, *, crop: int) -> Array:
    """Apply a transposed convolution of stride 2 to maps [b, n, n, c].

    A 6 x 6 kernel of stride 2 is one of 3 x 3 and stride 1 that makes blocks of 2 x 2 pixels.

    Args:
        layer: ``kernel`` [3, 3, c, 4 o], the pixels of a block row by row, and ``bias`` [o].
        maps: The maps.
        crop: Pixels cut off each border.

    Returns:
        [b, m, m, o] with m = 2 n + 4 - 2 crop.
    """
    kernel, bias = layer["kernel"], layer["bias"]
    count, side = len(maps), maps.shape[1] + 2
    blocks = jnp.zeros((count, side, side, kernel.shape[-1]), maps.dtype)
    for row, column in itertools.product(range(3), repeat=2):
        borders = ((0, 0), (row, 2 - row), (column, 2 - column), (0, 0))
        blocks += jnp.pad(maps @ kernel[row, column], borders)
    pixels = blocks.reshape(count, side, side, 2, 2, len(bias)).transpose(0, 1, 3, 2, 4, 5)
    pixels = pixels.reshape(count, 2 * side, 2 * side, len(bias)) + bias[None, None, None, :]
    return pixels[:, crop : 2 * side - crop, crop : 2 * side - crop]


class TargetState(NamedTuple):
    """A copy of the network's parameters, and the updates made, [] (int32)."""

    params: Params
    updates: Array


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class SuccessorDifferences(Objective):
    """Next-frame prediction, and successor features by temporal differences.

    (ζ(φ(s), a) − s')² + (φ⁻(s) + γ ψ⁻(φ⁻(s')) − ψ(φ(s)))² of Machado et al. (2018), Section 3.3, as
    means over pixels and features, of which neither paper says whether they are sums: the two terms
    share no parameters that both move, and RMSProp scales every gradient alike.

    Rows are pairs of consecutive stacks.

    Attributes:
        network: ζ, φ and ψ.
        discount: γ.
        target_every: Updates between copies of the parameters into φ⁻ and ψ⁻.
    """

    network: SuccessorNetwork = size(SuccessorNetwork())
    discount: float = static(0.99)
    target_every: int = 1

    @property
    def needs_clips(self) -> bool:
        return True

    def init(self, key: Array) -> TargetState:
        """Return zeros, which the first update replaces."""
        shapes = _estimated(jax.eval_shape(self.network.init, key))
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return TargetState(zeros, jnp.zeros((), jnp.int32))

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: TargetState, key: Array
    ) -> tuple[Array, tuple[TargetState, Metrics]]:
        del key  # Deterministic given the batch.
        network = self.network
        due = state.updates % self.target_every == 0
        target = jax.tree.map(
            lambda new, old: jnp.where(due, new, old), _estimated(params), state.params
        )
        # The aim is held fixed, as in every semi-gradient method.
        target = lax.stop_gradient(target)
        now, after = batch.pair
        code = encode(params, now)
        predicted = network.predict(params, code, batch.targets)
        fixed_now, fixed_after = jnp.split(encode(target, points_of(batch.inputs)), 2)
        aim = fixed_now + self.discount * network.successor(target, fixed_after)
        # Successor features do not move the code that they are of.
        difference = aim - network.successor(params, lax.stop_gradient(code))
        loss = jnp.mean(jnp.square(predicted - after[..., -1])) + jnp.mean(jnp.square(difference))
        return loss, (TargetState(target, state.updates + 1), {})


def _estimated(params: Params) -> Params:
    """Pick the parameters of φ and ψ."""
    return {name: params[name] for name in ("code", "successor")}


class Learned(NamedTuple):
    """A trained network: activations of the test frames [m, d], and its training."""

    values: FloatArray
    result: TrainingResult


def learn_slow_features(run: Run[Config], name: str) -> Learned:
    """Learn by spectral inference with the slowness operator, behind a constant first feature."""
    config, problem = run.config, run.shared
    encoder = WithConstant(network(config, config.num_features, config.hidden))
    length, batch = config.clip_frames - config.stack + 1, problem.measured()
    objective = with_sizes(
        config.objective,
        num_features=config.num_features + 1,
        operator=Slowness(),
        encoder=encoder,
    )

    def evaluate(params: Params) -> Mapping[str, Array]:
        # Or XLA would work out, and slowly, what it can of these frames while it compiles.
        inputs = lax.optimization_barrier(batch.inputs)
        action = act(Slowness(), lambda stacks: encoder.apply(params, stacks), inputs)
        eigenvalues = ordered_spectrum(action.covariance, action.operator_matrix).eigenvalues
        return {f"eigenvalue_{k}": eigenvalues[k] for k in range(1, config.num_features + 1)}

    source = problem.source(problem.training, length)
    learn = _trainer(run, name, config.optimizer, config.steps, config.clips)
    result = learn(encoder, objective, source, evaluate=evaluate)
    # Eigenfunctions by the averages, as in the paper's listing; their weight scales all alike.
    state = result.state.objective
    transform = ordered_spectrum(state.covariance[0], state.operator_matrix[0]).transform[:, 1:]
    features = problem.encoded(lambda stacks: encoder.apply(result.params(), stacks))
    return Learned(features @ np.asarray(transform), result)


def learn_successor_features(run: Run[Config], name: str) -> Learned:
    """Learn successor features of a next-frame predictor's code, and take their components."""
    config, problem = run.config, run.shared
    code = network(config, config.code_size, config.code_hidden)
    encoder, batch = SuccessorNetwork(code, problem.num_actions), problem.measured()
    objective = SuccessorDifferences(
        num_features=config.code_size,
        network=encoder,
        discount=config.discount,
        target_every=config.target_every,
    )

    def evaluate(params: Params) -> Mapping[str, Array]:
        now, after = lax.optimization_barrier(batch.pair)
        codes = encoder.apply(params, now)
        predicted = encoder.predict(params, codes, batch.targets)
        aim = codes + config.discount * encoder.successor(params, encoder.apply(params, after))
        return {
            "next_frame": _unexplained(predicted, after[..., -1]),
            "temporal_difference": _unexplained(encoder.successor(params, codes), aim),
        }

    source, optimizer = problem.source(problem.training, 2), config.successor_optimizer
    learn = _trainer(run, name, optimizer, config.successor_steps, config.transitions)
    result = learn(encoder, objective, source, evaluate=evaluate)
    params = result.params()
    successors = problem.encoded(
        lambda stacks: encoder.successor(params, encoder.apply(params, stacks))
    )
    return Learned(principal_components(successors, config.num_features), result)


def _unexplained(predicted: Array, wanted: Array) -> Array:
    """Compute the mean squared error over the variance of what is wanted [b, ...], []."""
    variance = jnp.mean(jnp.square(wanted - wanted.mean(axis=0, keepdims=True)))
    # A network that is zero throughout aims at what does not vary.
    return jnp.mean(jnp.square(predicted - wanted)) / jnp.maximum(variance, 1e-12)


def _trainer(
    run: Run[Config], name: str, optimizer: RMSProp, steps: int, rows: int
) -> Callable[..., TrainingResult]:
    """Prepare ``train`` for one network, in a folder of its own."""
    return partial(
        train,
        optimizer=optimizer,
        steps=steps,
        rows=rows,
        seeds=[run.config.seed],
        evaluate_every=steps // run.config.evaluations,
        folder=run.training_folder(name, network=name),
        checkpoint_every=steps // run.config.evaluations,
        devices=run.devices,
        description=name.replace("-", " "),
        progress=run.progress,
    )


def principal_components(rows: FloatArray, count: int) -> FloatArray:
    """Compute the leading principal components' values at rows [m, k], which are centred, [m, d].

    Raises:
        InputError: If the rows span fewer dimensions.
    """
    centre_in_place(rows)
    values: FloatArray = randomized_svd(rows, count).basis
    return values


def extremes(values: FloatArray, count: int) -> IndexArray:
    """Find the rows of the ``count`` largest and smallest values of features [m, d].

    Returns:
        Rows in the order of time, [2, d, count], the largest first.
    """
    order = np.argsort(values, axis=0, kind="stable").T
    return np.sort(np.stack([order[:, -count:], order[:, :count]]), axis=-1)


def collapsed(values: FloatArray) -> npt.NDArray[np.bool_]:
    """Tell which features [m, d] are the same in every row but for rounding, [d]."""
    values = np.asarray(values, np.float64)
    spread: npt.NDArray[np.bool_] = np.ptp(values, axis=0) <= 1e-5 * np.abs(values).max(axis=0)
    return spread


def averages(images: ByteArray, rows: IndexArray) -> DoubleArray:
    """Average frames [m, height, width] over the last axis of rows [2, d, count]."""
    return np.stack([[images[each].mean(axis=0) for each in end] for end in rows])


def apart(images: DoubleArray) -> DoubleArray:
    """Compute how far averages [2, d, height, width] of both ends are apart, in grey levels [d]."""
    distance: DoubleArray = np.sqrt(np.mean(np.square(images[0] - images[1]), axis=(1, 2)))
    return distance


def apart_by_chance(images: ByteArray, rows: IndexArray) -> DoubleArray:
    """Compute ``apart`` for rows moved in time against the frames, [shifts, d].

    Moved round in a circle, rows keep how they cluster in time and lose what they have to do with
    what the frames show, as those of a feature that tells nothing, where play is stationary.
    """
    shifts = len(images) * np.arange(1, _SHIFTS + 1) // (_SHIFTS + 1)
    return np.stack([apart(averages(images, (rows + shift) % len(images))) for shift in shifts])


def judge(config: Config, told: Mapping[str, int]) -> Found:
    """Found what the paper sees: nearly all slow features tell their ends apart, eigenpurposes few.

    Told apart counts by a test that may be sharper than the eye, so it can refute "nearly all" and
    confirm "few", but not refute that.

    Args:
        config: Of the run: nothing can be told but under the paper's protocol.
        told: Method → number of features that do.
    """
    total, spin, successor = config.num_features, told[SPIN], told[SUCCESSOR]
    decisive = {each.name for each in dataclasses.fields(config)} - {"game", "seed", "evaluations"}
    holds = None
    if all(getattr(config, name) == getattr(_PAPER, name) for name in decisive):
        holds = False if spin < total - 1 else True if 2 * successor <= total else None
    return Found(
        statement=f"Features whose extreme test frames differ in {config.game}, one network of "
        "each kind (our stand-in for the eye; holds if all but one of SpIN's do and at most half "
        "of the others)",
        stated="nearly all of SpIN's, for many games few of successor features' (C.3)",
        found=f"{spin} of {total} of SpIN's, {successor} of {total} of successor features'",
        holds=holds,
    )


def report(run: Run[Config], found: Mapping[str, Learned]) -> Findings:
    """Draw the averages of extreme frames, and count the features that tell their ends apart."""
    config, problem = run.config, run.shared
    images = problem.tested()
    pixels = images.reshape(len(images), -1).astype(np.float32)
    values = {
        SPIN: found["slow-features"].values,
        SUCCESSOR: found["successor-features"].values,
        PIXELS: principal_components(pixels, config.num_features),
    }
    pictures, rows = {}, []
    for method, features in values.items():
        chosen = extremes(features, config.extremes)
        pictures[method] = averages(images, chosen)
        constant = collapsed(features)
        distances, most = apart(pictures[method]), apart_by_chance(images, chosen).max(axis=0)
        rows += [
            {
                "method": method,
                "feature": k + 1,
                "apart": float(distances[k]),
                "most_by_chance": float(most[k]),
                "told": bool(distances[k] > most[k]),
                "constant": bool(constant[k]),
            }
            for k in range(config.num_features)
        ]
    run.write_rows("extremes", rows)
    told = {name: sum(r["told"] is True for r in rows if r["method"] == name) for name in values}
    dead = sum(r["constant"] is True for r in rows if r["method"] == SPIN)
    trainings = {name: found[name].result for name in ("slow-features", "successor-features")}
    episodes = [int(part.episodes[-1]) + 1 for part in (problem.training, problem.held_out)]
    return Findings(
        abstract=f"A random agent in {config.game}: {config.num_frames:,} frames of {episodes[0]} "
        f"episodes train, {config.held_out_frames:,} of {episodes[1]} others test; "
        f"{config.size} x {config.size} pixels, {config.stack} frames seen together. One network "
        "of each kind."
        + (f" SpIN's network collapsed: {dead} of its features are constant." if dead else ""),
        claims=[judge(config, told)],
        sections=[
            Section(
                title="Extreme frames",
                text="The paper compares the averages of the test frames with the largest and the "
                "smallest values of a feature, by eye: where the two differ, the feature encodes "
                "something. Whether one method's objects are clearer than another's cannot be told "
                "from numbers; look at the pictures. What is counted is which features' two "
                f"averages are further apart than all {_SHIFTS} pairs that the same feature gives "
                "when it is moved in time against the frames (a p-value of 1 %). Being further "
                "apart than that is no merit: the pixels' principal components are made for it.",
                tables=[
                    table_of(
                        rows,
                        {
                            "features": "method",
                            "feature": "feature",
                            "apart, grey levels": "apart",
                            "at most by chance": "most_by_chance",
                            "tells its ends apart": "told",
                        },
                        "Root mean squared difference of a feature's two averages.",
                    )
                ],
                figures=_show_extremes(run, pictures),
            ),
            Section(title="Training", figures=[_show_training(run, trainings)]),
        ],
        summary={
            "game": config.game,
            "episodes": dict(zip(("training", "held_out"), episodes, strict=True)),
            "told": told,
            "seconds": {name: round(each.seconds, 1) for name, each in trainings.items()},
        },
    )


def _show_extremes(run: Run[Config], pictures: Mapping[str, DoubleArray]) -> list[tuple[Path, str]]:
    """Draw averages [2, d, height, width] of every method, and their differences."""
    ends = ("largest", "smallest")
    count = run.config.extremes
    frames = {
        f"{method}\n{end}": images / 255.0
        for method, both in pictures.items()
        for end, images in zip(ends, both, strict=True)
    }
    differences = {method: both[0] - both[1] for method, both in pictures.items()}
    titles = [str(k) for k in range(1, run.config.num_features + 1)]
    shown = f"the {count} test frames with the largest values of each feature"
    return [
        run.show(
            "frames",
            f"The average of {shown} and of the {count} with the smallest. A feature is a column, "
            "the first on the left. Its sign is arbitrary.",
            None,
            plot_reconstructions(frames),
        ),
        run.show(
            "differences",
            f"The average of {shown} less that of the {count} with the smallest.",
            None,
            plot_signed_images(differences, titles=titles),
        ),
    ]


def _show_training(run: Run[Config], trainings: Mapping[str, TrainingResult]) -> tuple[Path, str]:
    """Draw what was measured on held-out pairs over training, a panel for each network."""
    rows, panels = [], []
    for name, result in trainings.items():
        steps = [record["step"] for record in result.history]
        lines = []
        for curve in sorted({*result.history[0]} - {"step", "seconds", "loss"}):
            values = [record[curve][0] for record in result.history]
            lines.append(Line(label=curve.replace("_", " "), x=steps, mean=values))
            rows += [
                {"network": name, "curve": curve, "step": step, "held_out": value}
                for step, value in zip(steps, values, strict=True)
            ]
        panels.append(Panel(title=name.replace("-", " "), lines=lines))
    figure = plot_panels(
        panels, x_label="update", y_label="eigenvalue, or share of variance", share_y=False
    )
    caption = (
        f"On {_MEASURED_PAIRS} held-out pairs: the slow features' eigenvalues (0 still, 2 "
        "unrelated from a frame to the next), which SpIN trains on; the squared errors of the next "
        "frame and of temporal differences, over the variance of what they aim at."
    )
    return run.show("training", caption, rows, figure)


EXPERIMENT = Experiment(
    name="atari",
    title=lambda config: f"Atari: slow features and successor features of {config.game}",
    paper="Pfau et al. 2019, Appendix C.3",
    presets=PRESETS,
    check=lambda config, _: require_game(config.game),
    prepare=lambda run: make_problem(run.config, run.folder.path / "frames", progress=run.progress),
    cells=lambda run: {
        "slow-features": learn_slow_features,
        "successor-features": learn_successor_features,
    },
    measure=lambda run, name, learn: learn(run, name),
    report=report,
    keeps_parts=False,
    deviations={
        "initial weights": "Machado et al. draw them as Oh et al. (2015) do, and the paper is "
        "silent on SpIN's; here all are LeCun-normal, as the authors' code has SpIN's.",
        "scale of inputs": "Not told by the paper; the authors' example feeds grey levels 0 … 255. "
        "Here they are less the mean training frame, over 255.",
        "frames": "Not told; here ALE/<game>-v5 as it comes: every fourth frame, actions repeated "
        "with probability 1/4.",
        "held-out frames": "Not told how they were chosen; here another agent plays them after its "
        "own reset, so no episode is in both sets.",
        "stacks of a clip": "Not told; here a clip's ten frames make seven stacks of four. "
        "Thirteen frames would make ten.",
        "γ of the successor features": "The paper does not tell it; here 0.99.",
        "decay of the successor network's RMSProp": "The paper does not tell it; here 0.9.",
        "activation of an eigenpurpose": "Not told; here that of the centred successor features. "
        "That of the code is the other reading.",
    },
)
