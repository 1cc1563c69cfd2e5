"""Frames of an Atari game: slow features, principal components and successor features.

After Pfau et al. (2019), Appendix C.3: a random agent's frames are played once and kept; a network
learns slow features of them by spectral inference; principal components of pixels and of successor
features are made comparable, ordered by slowness and compared. Successor features are discounted
sums of a next-frame predictor's code, by least-squares temporal differences.
"""

import contextlib
import dataclasses
import difflib
import importlib
import io
import itertools
import math
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from jax import Array, lax
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from rlreps.encoders import MLP, Convolutional, Encoder, FunctionEncoder, Params, WithConstant
from rlreps.errors import InputError, require, require_interval, require_positive
from rlreps.experiments.harness import Claim, Experiment, Findings, Run
from rlreps.files import write_atomically
from rlreps.losses import Spin
from rlreps.losses.base import Batch, Encode, Metrics, Objective
from rlreps.numerics import jit, matmul
from rlreps.operators import Slowness, act
from rlreps.plotting import Line, Panel, plot_panels, signed_colormap
from rlreps.plotting.style import styled
from rlreps.report.page import Section
from rlreps.report.table import Table
from rlreps.runs.progress import progress_bar
from rlreps.subspace import (
    orthonormal_basis,
    principal_angles,
    project_rows,
    randomized_svd,
    subspace_distance,
)
from rlreps.subspace.ordered import ordered_spectrum, ritz_spectrum
from rlreps.training import TrainingResult, train

ByteArray: TypeAlias = npt.NDArray[np.uint8]
FloatArray: TypeAlias = npt.NDArray[np.float32]
DoubleArray: TypeAlias = npt.NDArray[np.float64]
IndexArray: TypeAlias = npt.NDArray[np.int64]

IMAGES, EPISODES = "images.npy", "episodes.npy"
"""Files of the frames' folder; the second is written last."""

_PREFIX, _VERSION = "ALE/", "-v5"
_HELD_OUT_FROM, _HELD_OUT_BEFORE = 0.8, 0.9
"""Between which shares of the frames the held-out ones begin."""
_BLOCK_FRAMES = 512
"""Frames that are turned into numbers at a time."""
_MEASURED_PAIRS = 512
"""Pairs behind a point of a learning curve."""
_WARM_UP_SHARE = 10
"""One update in so many raises the learning rate."""
_EXCITED_SHARE = 0.01
"""Share of the frames whose average shows what excites a feature."""
_SCREEN_ASPECT, _IMAGE_WIDTH = 210 / 160, 0.86
"""Height over width of the screen that frames were made from, and inches."""
_SLOWNESS = "slowness eigenvalue (0 still, 2 unrelated)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Slow features of a random agent's frames, beside PCA's and successor features.

    Attributes:
        game: A game of the Arcade Learning Environment, such as ``MsPacman``.
        num_frames: Frames of the random agent, all of them kept in memory: num_frames x size² bytes
            once on the host and once on the device.
        size: Height and width of a frame in pixels, after area-averaging.
        num_features: d, features of every method.
        channels: Of the convolutions, for the slow features and for the predictor's code.
        hidden: Width of the hidden layers.
        pairs: Pairs of consecutive frames in an update.
        steps: Updates of the slow features.
        learning_rate: Adam's highest learning rate, for both networks: it rises over the first
            tenth of the updates and falls to zero by a cosine.
        code_size: Numbers in the next-frame predictor's code.
        predictor_steps: Updates of the predictor.
        discount: γ of the successor features, in [0, 1).
        evaluations: Points of each learning curve after its start.
        seed: Of the agent, the networks and the batches.
    """

    game: str = "MsPacman"
    num_frames: int = 1_000_000
    size: int = 84
    num_features: int = 9
    channels: tuple[int, ...] = (32, 32, 32)
    hidden: int = 256
    pairs: int = 512
    steps: int = 50_000
    learning_rate: float = 1e-3
    code_size: int = 64
    predictor_steps: int = 50_000
    discount: float = 0.99
    evaluations: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        d, pixels = self.num_features, self.size**2
        for name in ("size", "num_features", "hidden", "steps", "predictor_steps", "evaluations"):
            require_positive(name, getattr(self, name))
        require(len(self.channels) >= 1, "at least one convolution", self.channels)
        for width in self.channels:
            require_positive("channels", width)
        require(self.pairs > d, f"pairs > {d}, the number of features", self.pairs)
        require(self.code_size >= d, f"code_size >= {d}, the number of features", self.code_size)
        enough = f"num_frames >= {20 * d}, twenty for each feature"
        require(self.num_frames >= 20 * d, enough, self.num_frames)
        require(d <= pixels, f"num_features <= {pixels}, the pixels of a frame", d)
        require_interval("learning_rate", self.learning_rate, "(0, inf)")
        require_interval("discount", self.discount, "[0, 1)")
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)
        for name in ("steps", "predictor_steps"):
            require(
                getattr(self, name) % self.evaluations == 0,
                f"{name} to be a multiple of evaluations ({self.evaluations})",
                getattr(self, name),
            )


# Published are 500,000 frames of the agent. The paper preset's frames take 7 GB on the host and
# 7 GB on the device. Architecture and updates are ours in every preset.
PRESETS = {
    "smoke": Config(
        num_frames=300,
        size=24,
        num_features=3,
        channels=(8, 8),
        hidden=16,
        pairs=32,
        steps=60,
        code_size=4,
        predictor_steps=60,
        discount=0.9,
        evaluations=3,
    ),
    "laptop": Config(
        num_frames=40_000,
        size=64,
        channels=(8, 16, 32),
        pairs=128,
        steps=2000,
        code_size=32,
        predictor_steps=2000,
        discount=0.95,
        evaluations=20,
    ),
    "paper": Config(),
}


class Frames(NamedTuple):
    """Grey levels [n, height, width] as they were seen, and each one's episode [n], rising."""

    images: ByteArray
    episodes: IndexArray


def require_game(game: str) -> None:
    """Raise an ``InputError`` without the package ``ale-py``, or for a game it does not know."""
    _import_ale()
    names = sorted(
        name.removeprefix(_PREFIX).removesuffix(_VERSION)
        for name in gymnasium.registry
        if name.startswith(_PREFIX) and name.endswith(_VERSION)
    )
    if game in names:
        return
    by_lower_case = {name.lower(): name for name in names}
    wanted = game.lower().replace("_", "").replace("-", "").replace(" ", "")
    near = difflib.get_close_matches(wanted, by_lower_case, n=5, cutoff=0.5)
    listed = [by_lower_case[name] for name in near] or names
    raise InputError(f"expected game to be one of {', '.join(listed)}, got {game!r}")


def _import_ale() -> ModuleType:
    try:
        # Optional; importing it registers its games with Gymnasium.
        ale_py = importlib.import_module("ale_py")
    except ImportError as error:
        raise InputError(
            'expected the package ale-py, got none: pip install "rlreps[atari]"'
        ) from error
    # Its banner would break the progress bar.
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py


def random_agent(game: str, seed: int) -> Generator[tuple[ByteArray, int], None, None]:
    """Play a game without an end, each action with equal probability.

    The environment is ``ALE/<game>-v5`` as it comes: every action is held for four frames, and
    repeated in place of the next with probability 1/4; a frame is the last of its four.

    Yields:
        (grey levels [height, width], number of the episode).
    """
    _import_ale()
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
            yield frame, episode
            action = space.start + generator.integers(space.n)
            frame, _, terminated, truncated, _ = environment.step(action)
            if terminated or truncated:
                # The frame at the end is seen too, before the next episode's first.
                yield frame, episode
                frame, _ = environment.reset()
                episode += 1


def recorded_frames(folder: Path, config: Config, *, progress: bool = True) -> Frames:
    """Read the frames in a folder, playing them first if they are not all there.

    Both files appear whole or not at all; images are read from disk as they are used.

    Raises:
        InputError: For a game that cannot be played, or files that are not those frames.
    """
    count, size = config.num_frames, config.size
    if not (folder / EPISODES).exists():
        require_game(config.game)
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{IMAGES}"
        # In place on disk: a million frames need not be in memory while they are played.
        played: Any = np.lib.format.open_memmap(
            unfinished, mode="w+", dtype=np.uint8, shape=(count, size, size)
        )
        numbers = np.zeros(count, np.int64)
        title = f"random agent in {config.game}"
        with (
            contextlib.closing(random_agent(config.game, config.seed)) as agent,
            progress_bar(title, total=count, unit="frames", show=progress) as advance,
        ):
            for index, (frame, episode) in zip(range(count), agent, strict=False):
                played[index], numbers[index] = shrunk(frame, size), episode
                advance(1)
        played.flush()
        del played
        os.replace(unfinished, folder / IMAGES)
        stream = io.BytesIO()
        np.lib.format.write_array(stream, numbers, allow_pickle=False)
        write_atomically(folder / EPISODES, stream.getvalue())
    try:
        images = np.load(folder / IMAGES, mmap_mode="r", allow_pickle=False)
        episodes = np.load(folder / EPISODES, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"expected readable frames, got {error}: {folder}") from error
    found = (images.shape, images.dtype.name, episodes.shape)
    expected = ((count, size, size), "uint8", (count,))
    require(found == expected, f"frames {expected} in {folder}", found)
    return Frames(images, episodes)


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
class PairSource:
    """Pairs of consecutive frames, drawn uniformly with replacement.

    Attributes:
        images: Grey levels, [n, height, width] (uint8).
        starts: The first frame of each pair, [p] (int32).
    """

    images: Array
    starts: Array

    num_tasks = None
    """Targets are empty."""

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw frames [num_rows, height, width, 1] (uint8), i and i + num_rows/2 consecutive."""
        del num_tasks
        require(num_rows % 2 == 0, "an even number of rows, pairs of frames", num_rows)
        chosen = jax.random.randint(key, (num_rows // 2,), 0, len(self.starts))
        first = self.starts[chosen]
        frames = self.images[jnp.concatenate([first, first + 1])]
        return Batch(frames[..., None], jnp.zeros((num_rows, 0)))


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Frames, and which of them train.

    Attributes:
        frames: All frames.
        cut: The first held-out frame; the frames before train.
        training: First frames of training pairs, [p].
        held_out: First frames of held-out pairs, [q].
        mean: Mean training frame, [height, width].
        scale: Root mean square of its pixels' deviations from it.
    """

    frames: Frames
    cut: int
    training: IndexArray
    held_out: IndexArray
    mean: FloatArray
    scale: float

    @property
    def later_episodes(self) -> bool:
        """Return whether no episode has both training and held-out frames."""
        before, after = self.frames.episodes[self.cut - 1 : self.cut + 1]
        return bool(before != after)

    def network(self, config: Config, size: int) -> Convolutional:
        """Build the convolutional network of standardised frames → ``size`` features."""
        return Convolutional(
            size,
            frame_shape=(*self.mean.shape, 1),
            channels=config.channels,
            hidden=config.hidden,
        )

    def source(self) -> PairSource:
        """Put training frames on the default device, as pairs."""
        images = jnp.asarray(self.frames.images[: self.cut])
        return PairSource(images, jnp.asarray(self.training, jnp.int32))

    def measured(self, starts: IndexArray) -> Array:
        """Spread pairs evenly, at most ``_MEASURED_PAIRS``, as a batch [2m, height, width, 1]."""
        count = min(len(starts), _MEASURED_PAIRS)
        first = starts[np.linspace(0, len(starts) - 1, count).astype(np.int64)]
        return jnp.asarray(self.frames.images[np.concatenate([first, first + 1])])[..., None]

    def standardised(self, frames: Array) -> Array:
        """Take the mean frame off grey levels [b, height, width, 1]; mean square near one."""
        centred: Array = frames.astype(jnp.float32) - jnp.asarray(self.mean)[None, :, :, None]
        return centred / self.scale

    def on_frames(self, encoder: Encoder) -> Encoder:
        """Make an encoder of grey levels of one of standardised frames."""
        return FunctionEncoder(
            encoder.init, lambda params, frames: encoder.apply(params, self.standardised(frames))
        )

    def encoded(self, encoder: Encoder, params: Params) -> DoubleArray:
        """Compute an encoder's features of all frames, [n, d]."""
        return outputs(lambda frames: encoder.apply(params, frames), self.frames.images)

    def squared_error(self, predictions: Array, frames: Array) -> Array:
        """Compute the mean squared error of standardised pixels [b, pixels], [].

        The training frames' mean as the prediction has an error near one.
        """
        wanted = self.standardised(frames).reshape(len(frames), -1)
        return jnp.mean(jnp.square(predictions - wanted))


def make_problem(frames: Frames) -> Problem:
    """Split frames by time: whole later episodes are held out, where there are enough of them.

    The held-out frames begin with the first episode that starts between four fifths and nine tenths
    of the frames, or failing that at four fifths. No pair crosses an episode's end.

    Raises:
        InputError: If no pixel of the training frames ever changes.
    """
    images, episodes = frames
    low, high = (int(share * len(episodes)) for share in (_HELD_OUT_FROM, _HELD_OUT_BEFORE))
    starts = np.flatnonzero(np.diff(episodes)) + 1
    later = starts[(starts >= low) & (starts < high)]
    cut = int(later[0]) if len(later) else low
    pairs = np.flatnonzero(episodes[:-1] == episodes[1:])
    # Sums of whole numbers: exact in float64, in any order.
    mean = images[:cut].mean(axis=0, dtype=np.float64)
    squares = np.einsum("nij,nij->ij", images[:cut], images[:cut], dtype=np.float64)
    variance = float((squares / cut - np.square(mean)).mean())
    require(variance > 0.0, "frames that change", "the same frame throughout")
    training, held_out = pairs[pairs + 1 < cut], pairs[pairs >= cut]
    return Problem(frames, cut, training, held_out, mean.astype(np.float32), math.sqrt(variance))


def outputs(
    function: Callable[[Array], Array], images: ByteArray, block: int = _BLOCK_FRAMES
) -> DoubleArray:
    """Apply a function of frames [b, height, width, 1] (uint8) → [b, k] to every image, [n, k]."""
    compiled = jit(function)
    parts = []
    for start in range(0, len(images), block):
        part = images[start : start + block]
        # One shape, one compilation: the last block is filled up with its own last frame.
        filled = np.concatenate([part, np.repeat(part[-1:], block - len(part), axis=0)])
        parts.append(np.asarray(compiled(jnp.asarray(filled)[..., None]), np.float64)[: len(part)])
    return np.concatenate(parts)


@dataclasses.dataclass(frozen=True, eq=False)
class _PixelBlocks:
    """Training frames as centred rows of pixels (``subspace.RowBlocks``)."""

    problem: Problem

    @property
    def shape(self) -> tuple[int, int]:
        return self.problem.cut, self.problem.mean.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        images, mean = self.problem.frames.images, self.problem.mean.ravel()
        for start in range(0, self.problem.cut, _BLOCK_FRAMES):
            part = images[start : min(start + _BLOCK_FRAMES, self.problem.cut)]
            yield start, part.reshape(len(part), -1).astype(np.float32) - mean[None, :]


def principal_pixels(problem: Problem, count: int) -> tuple[DoubleArray, float]:
    """Compute principal components of the training frames' pixels, at all frames [n, count].

    Beside them is the share of the training frames' variance that they hold.

    Raises:
        InputError: If the frames have fewer components.
    """
    blocks = _PixelBlocks(problem)
    principal = randomized_svd(blocks, count)
    directions = project_rows(principal.basis, blocks) / principal.singular_values[:, None]

    def project(frames: Array) -> Array:
        centred = frames[..., 0].astype(jnp.float32) - jnp.asarray(problem.mean)[None]
        return matmul(centred.reshape(len(frames), -1), jnp.asarray(directions.T, jnp.float32))

    return outputs(project, problem.frames.images), float(principal.energy_captured()[-1])


def principal_components(values: DoubleArray, problem: Problem, count: int) -> DoubleArray:
    """Compute leading components [n, count] of features [n, k], by variance on training frames.

    Raises:
        InputError: If the features span fewer dimensions: what is left would be rounding.
    """
    centred = values - values[: problem.cut].mean(axis=0)
    _, deviations, directions = np.linalg.svd(centred[: problem.cut], full_matrices=False)
    rank = int(np.sum(deviations > 1e-5 * deviations[0]))
    require(rank >= count, f"successor features that span at least {count} dimensions", rank)
    components: DoubleArray = centred @ directions[:count].T
    return components


def successor_features(codes: DoubleArray, starts: IndexArray, discount: float) -> DoubleArray:
    """Compute successor features of a code, ψ(s) = E[Σ_{t≥0} γ^t c(S_t) | S_0 = s], linear in it.

    Least-squares temporal differences (Bradtke & Barto 1996) on x = (1, c): ψ = Wᵀx with
    E[x (x − γx')ᵀ] W = E[x cᵀ]. Only pairs [p] within an episode count, so the sums are those of
    an agent that plays on. Codes c and ψ are those at all frames, [n, k].
    """
    inputs = _with_constant(codes)
    first, second = inputs[starts], inputs[starts + 1]
    matrix = first.T @ (first - discount * second)
    # Codes may depend on each other or on the constant; the smallest solution is as good as any.
    weights, *_ = np.linalg.lstsq(matrix, first.T @ codes[starts])
    predicted: DoubleArray = inputs @ weights
    return predicted


class MethodFeatures(NamedTuple):
    """A method's features in order, with mean 0 and variance 1 on the training pairs.

    Values are those at all frames, [n, d]; then comes their slowness on training and on held-out
    pairs, [d] each.
    """

    label: str
    values: DoubleArray
    training: DoubleArray
    held_out: DoubleArray


def in_order(label: str, values: DoubleArray, problem: Problem, *, learned: bool) -> MethodFeatures:
    """Orthonormalise features on the training pairs, and measure their slowness on both sets.

    Held-out eigenvalues are those of the same functions, made orthogonal again on the held-out
    pairs one by one in the order of training: they need not rise. Each feature's sign makes its
    third moment positive, so that what is rare excites it.

    Features [n, d] that were ``learned`` by spectral inference keep their own order; of others, the
    slowest directions within their span come first (Rayleigh-Ritz).
    """
    values = _standardised(values, problem.training)
    # The constant is both methods' first function: its eigenvalue, 0, is the lowest there is.
    spectrum = jit(ordered_spectrum if learned else ritz_spectrum)(
        *pair_moments(values, problem.training)
    )
    functions = _with_constant(values) @ np.asarray(spectrum.transform, np.float64)[:, 1:]
    functions = _standardised(functions, problem.training)
    skewness = np.mean(functions[: problem.cut] ** 3, axis=0)
    functions = np.where(skewness < 0.0, -functions, functions)
    held_out = jit(ordered_spectrum)(*pair_moments(functions, problem.held_out))
    eigenvalues = (np.asarray(part.eigenvalues, np.float64)[1:] for part in (spectrum, held_out))
    return MethodFeatures(label, functions, *eigenvalues)


def pair_moments(values: DoubleArray, starts: IndexArray) -> tuple[Array, Array]:
    """Compute Σ and Π, [1 + d, 1 + d], of a constant and features [n, d] under ``Slowness``."""
    first, second = (_with_constant(values[starts + step]) for step in (0, 1))
    change = first - second
    covariance = (first.T @ first + second.T @ second) / (2 * len(starts))
    return (
        jnp.asarray(covariance.astype(np.float32)),
        jnp.asarray((change.T @ change / len(starts)).astype(np.float32)),
    )


def _with_constant(values: DoubleArray) -> DoubleArray:
    return np.concatenate([np.ones((len(values), 1)), values], axis=1)


def _standardised(values: DoubleArray, starts: IndexArray) -> DoubleArray:
    """Scale features to mean 0 and variance 1 over the frames of pairs; a constant stays 0."""
    seen = np.concatenate([values[starts], values[starts + 1]])
    deviation = seen.std(axis=0)
    scaled: DoubleArray = (values - seen.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    return scaled


def compare_spans(left: DoubleArray, right: DoubleArray) -> tuple[float, DoubleArray]:
    """Compute the subspace distance and the falling canonical correlations of features [m, d]."""
    bases = []
    for values in (left, right):
        centred = (values - values.mean(axis=0)).astype(np.float32)
        bases.append(orthonormal_basis(jnp.asarray(centred))[0])
    correlations = np.cos(np.asarray(principal_angles(*bases), np.float64))
    return float(subspace_distance(*bases)), correlations


def exciting_averages(values: DoubleArray, problem: Problem) -> dict[str, DoubleArray]:
    """Average the hundredth of all frames that excite each feature ``most``, and ``least``.

    Mean grey levels are [d, height, width].
    """
    count = max(1, round(_EXCITED_SHARE * len(values)))
    order = np.argsort(values, axis=0, kind="stable")
    images = problem.frames.images
    ends = {"most": order[-count:], "least": order[:count]}
    return {
        name: np.stack([images[np.sort(rows)].mean(axis=0) for rows in chosen.T])
        for name, chosen in ends.items()
    }


def _train(
    run: Run[Config],
    name: str,
    encoder: Encoder,
    objective: Objective,
    steps: int,
    evaluate: Callable[[Params], Mapping[str, Array]],
) -> TrainingResult:
    """Train one network in a folder of its own, on pairs of training frames."""
    config, every = run.config, steps // run.config.evaluations
    # Without the slow start, hidden units die in the first updates, and codes collapse.
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, steps // _WARM_UP_SHARE, steps
    )
    return train(
        encoder,
        objective,
        run.shared.source(),
        optimizer=optax.adam(schedule),
        steps=steps,
        rows=2 * config.pairs,
        seeds=[config.seed],
        evaluate=evaluate,
        evaluate_every=every,
        folder=run.training_folder(name, network=name),
        checkpoint_every=every,
        devices=run.devices,
        description=name.replace("-", " "),
        progress=run.progress,
    )


class Learned(NamedTuple):
    """A trained network: features of all frames, [n, d], and its training.

    Errors are the predictor's alone: held-out mean squared errors of the next frame, in units of
    the training pixels' variance, of the ``predictor``, the ``mean_frame`` and the
    ``frame_before``.
    """

    values: DoubleArray
    result: TrainingResult
    errors: dict[str, float]


def learn_slow_features(run: Run[Config], name: str) -> Learned:
    """Learn by spectral inference with the slowness operator, behind a constant first feature."""
    config, problem = run.config, run.shared
    encoder = problem.on_frames(WithConstant(problem.network(config, config.num_features)))
    measured = {
        "training": problem.measured(problem.training),
        "held_out": problem.measured(problem.held_out),
    }

    def evaluate(params: Params) -> Mapping[str, Array]:
        figures = {}
        for part, constants in measured.items():
            # Or XLA would work out, and slowly, what it can of these frames while it compiles.
            inputs = lax.optimization_barrier(constants)
            action = act(Slowness(), lambda frames: encoder.apply(params, frames), inputs)
            spectrum = ordered_spectrum(action.covariance, action.operator_matrix)
            for index in range(1, len(spectrum.eigenvalues)):
                figures[f"{part}_eigenvalue_{index}"] = spectrum.eigenvalues[index]
        return figures

    objective = Spin(config.num_features + 1, operator=Slowness())
    result = _train(run, name, encoder, objective, config.steps, evaluate)
    return Learned(problem.encoded(encoder, result.params())[:, 1:], result, {})


def learn_successor_features(run: Run[Config], name: str) -> Learned:
    """Train a next-frame predictor: frame → code → one hidden layer → pixels of the next frame.

    The prediction is of the mean over the random agent's actions: it is not told the action, as the
    successor features are of that agent too.

    Returns:
        Principal successor features of its code.
    """
    config, problem = run.config, run.shared
    to_code = problem.on_frames(problem.network(config, config.code_size))
    decoder = MLP(problem.mean.size, num_inputs=config.code_size, hidden=(config.hidden,))

    def init(key: Array) -> Params:
        keys = jax.random.split(key)
        return {"code": to_code.init(keys[0]), "decoder": decoder.init(keys[1])}

    encoder = FunctionEncoder(init, lambda params, frames: to_code.apply(params["code"], frames))

    @dataclasses.dataclass(frozen=True)
    class NextFrame(Objective):
        """The squared error of the prediction."""

        def loss(
            self, params: Params, encode: Encode, batch: Batch, state: tuple[()], key: Array
        ) -> tuple[Array, tuple[tuple[()], Metrics]]:
            del key  # Deterministic given the batch.
            first, second = jnp.split(batch.inputs, 2)
            predictions = decoder.apply(params["decoder"], encode(params, first))
            return problem.squared_error(predictions, second), (state, {})

    inputs = problem.measured(problem.held_out)

    def evaluate(params: Params) -> Mapping[str, Array]:
        first, second = jnp.split(lax.optimization_barrier(inputs), 2)
        predictions = decoder.apply(params["decoder"], encoder.apply(params, first))
        return {"held_out_error": problem.squared_error(predictions, second)}

    objective = NextFrame(config.code_size)
    result = _train(run, name, encoder, objective, config.predictor_steps, evaluate)
    codes = problem.encoded(encoder, result.params())
    successor = successor_features(codes, problem.training, config.discount)
    first, second = jnp.split(inputs, 2)
    unchanged = problem.standardised(first).reshape(len(first), -1)
    errors = {
        "predictor": float(result.history[-1]["held_out_error"][0]),
        "mean_frame": float(problem.squared_error(jnp.zeros_like(unchanged), second)),
        "frame_before": float(problem.squared_error(unchanged, second)),
    }
    return Learned(principal_components(successor, problem, config.num_features), result, errors)


def judge(slow: MethodFeatures, *, later_episodes: bool) -> list[Claim]:
    """Claim that slow features come in order, on training and on held-out pairs.

    Nothing can be told from a run so short that held-out frames are of no later episodes.
    """
    claims = []
    for name, eigenvalues in (("training", slow.training), ("held-out", slow.held_out)):
        steps = np.diff(eigenvalues)
        claims.append(
            Claim(
                statement=f"order of the slow features on {name} pairs",
                stated="eigenvalues rise",
                found=f"{int(np.sum(steps > 0))} of {len(steps)} steps rise",
                holds=bool(np.all(steps > 0)) if later_episodes else None,
            )
        )
    return claims


def report(run: Run[Config], found: Mapping[str, Learned]) -> Findings:
    """Order and compare the three methods' features, and draw what excites them."""
    config, problem = run.config, run.shared
    slow, predictor = found["slow-features"], found["predictor"]
    pixels, share = principal_pixels(problem, config.num_features)
    methods = [
        in_order("slow features", slow.values, problem, learned=True),
        in_order("PCA of pixels", pixels, problem, learned=False),
        in_order("successor features", predictor.values, problem, learned=False),
    ]
    spans = []
    for left, right in itertools.combinations(methods, 2):
        distance, cosines = compare_spans(left.values[problem.cut :], right.values[problem.cut :])
        named = {f"canonical_correlation_{k}": float(c) for k, c in enumerate(cosines, start=1)}
        spans.append(
            {"left": left.label, "right": right.label, "subspace_distance": distance, **named}
        )
    run.write_rows("spans", spans)
    errors, episodes = predictor.errors, int(problem.frames.episodes[-1]) + 1
    sums = ", ".join(f"{method.held_out.sum():.3g} ({method.label})" for method in methods)
    height, width = problem.mean.shape
    return Findings(
        abstract=f"{len(problem.frames.episodes):,} frames of a random agent in {config.game}, "
        f"{height} x {width} pixels, {episodes} episodes. Sums of the {config.num_features} "
        f"held-out slowness eigenvalues: {sums}.",
        claims=judge(methods[0], later_episodes=problem.later_episodes),
        sections=[
            Section(title="Goals"),
            Section(
                title="Frames that excite the features",
                text="Pfau et al. (2019) see clearer objects in slow features than in successor "
                "features. They judge by eye.",
                figures=[_show_frames(run, method) for method in methods],
            ),
            Section(
                title="Slowness",
                text="The eigenvalue of a feature is its mean squared change from a frame to the "
                "next over its variance: 0 stands still, 2 is unrelated from frame to frame. PCA's "
                "and successor features are the slowest directions within their spans, in order "
                "(Rayleigh-Ritz on training pairs); slow features keep the order in which they "
                "were learned. On held-out pairs, of later frames, the functions are made "
                "orthogonal again, one by one. Each method has one network at most, so nothing is "
                "known of how much the sums vary.",
                tables=[
                    Table(
                        ("features", "training pairs", "held-out pairs"),
                        [
                            (each.label, f"{each.training.sum():.4g}", f"{each.held_out.sum():.4g}")
                            for each in methods
                        ],
                        "Sums of the slowness eigenvalues; the smaller, the slower.",
                    )
                ],
                figures=[_show_eigenvalues(run, methods), _show_training(run, slow.result)],
            ),
            Section(
                title="How far the spans are apart",
                text=f"Successor features are discounted sums (γ = {config.discount:g}) of a "
                f"next-frame predictor's code of {config.code_size} numbers along the random "
                "agent's episodes, by least-squares temporal differences, linear in the code; "
                "their leading principal components are compared. The predictor sees one frame "
                f"and no action. Its held-out squared error is {errors['predictor']:.3f} of the "
                f"training pixels' variance; the mean frame's is {errors['mean_frame']:.3f} and "
                f"the previous frame's {errors['frame_before']:.3f}.\n\n"
                f"The principal components hold {share:.1%} of the pixels' variance.",
                tables=[_span_table(spans)],
            ),
        ],
        summary={
            "game": config.game,
            "frames": len(problem.frames.episodes),
            "episodes": episodes,
            "training_pairs": len(problem.training),
            "held_out_pairs": len(problem.held_out),
            "methods": {
                method.label: {
                    "training_eigenvalues": method.training.tolist(),
                    "held_out_eigenvalues": method.held_out.tolist(),
                }
                for method in methods
            },
            "comparisons": spans,
            "variance_of_pixels": share,
            "predictor": errors,
            "seconds": {
                "slow_features": round(slow.result.seconds, 1),
                "predictor": round(predictor.result.seconds, 1),
            },
        },
    )


def _span_table(spans: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for span in spans:
        left, right, distance, *cosines = span.values()
        rows.append((left, right, distance, ", ".join(f"{value:.2f}" for value in cosines)))
    return Table(
        ("features", "and", "subspace distance", "canonical correlations"),
        rows,
        "Spans of the features on held-out frames: distance 0 is equal, 1 orthogonal.",
    )


def _show_eigenvalues(run: Run[Config], methods: Sequence[MethodFeatures]) -> tuple[Path, str]:
    numbers = np.arange(1, run.config.num_features + 1)
    rows = [
        {
            "method": method.label,
            "feature": k,
            "training_eigenvalue": method.training[k - 1],
            "held_out_eigenvalue": method.held_out[k - 1],
        }
        for method in methods
        for k in numbers
    ]
    lines = {
        "training pairs": [
            Line(label=each.label, x=numbers, mean=each.training) for each in methods
        ],
        "held-out pairs": [
            Line(label=each.label, x=numbers, mean=each.held_out) for each in methods
        ],
    }
    figure = plot_panels(
        [Panel(title=name, lines=each) for name, each in lines.items()],
        x_label="feature",
        y_label=_SLOWNESS,
        x_ticks=numbers.tolist(),
    )
    return run.show("eigenvalues", "Slowness of every method's features.", rows, figure)


def _show_training(run: Run[Config], result: TrainingResult) -> tuple[Path, str]:
    history, numbers = result.history, range(1, run.config.num_features + 1)
    parts = {"training": "training pairs", "held_out": "held-out pairs"}
    rows = [
        {
            "step": record["step"],
            "seconds": record["seconds"],
            "feature": k,
            **{f"{part}_eigenvalue": record[f"{part}_eigenvalue_{k}"][0] for part in parts},
        }
        for record in history
        for k in numbers
    ]
    steps = [record["step"] for record in history]
    panels = []
    for part, title in parts.items():
        curves = {k: [record[f"{part}_eigenvalue_{k}"][0] for record in history] for k in numbers}
        lines = [Line(label=f"feature {k}", x=steps, mean=curve) for k, curve in curves.items()]
        panels.append(Panel(title=title, lines=lines))
    figure = plot_panels(panels, x_label="update", y_label=_SLOWNESS)
    caption = f"Slowness of the slow features over training, on up to {_MEASURED_PAIRS} pairs."
    return run.show("training", caption, rows, figure)


def _show_frames(run: Run[Config], method: MethodFeatures) -> tuple[Path, str]:
    problem, label = run.shared, method.label
    averages = exciting_averages(method.values, problem)
    apart = {name: images - problem.mean for name, images in averages.items()}
    rows = [
        {
            "method": label,
            "feature": index + 1,
            "held_out_eigenvalue": method.held_out[index],
            "smallest_value": method.values[:, index].min(),
            "largest_value": method.values[:, index].max(),
            **{
                f"{name}_apart_from_mean": float(np.sqrt(np.mean(np.square(images[index]))))
                for name, images in apart.items()
            },
        }
        for index in range(len(method.held_out))
    ]
    return run.show(
        f"frames_{label.lower().replace(' ', '_')}",
        f"{label[0].upper()}{label[1:]}: the average of the hundredth of all frames that excites "
        "each feature most, what sets it apart from the mean frame, and the same for the frames "
        "that excite it least. λ is the held-out eigenvalue; signs make a feature's third moment "
        "positive.",
        rows,
        draw_exciting_frames(averages["most"], apart, method.held_out),
    )


@styled
def draw_exciting_frames(
    most: DoubleArray, apart: Mapping[str, DoubleArray], eigenvalues: DoubleArray
) -> Figure:
    """Draw the average of the frames that excite each feature most, and what sets it apart.

    A row of grey averages [d, height, width]; then what sets them and those of the frames that
    excite it least apart from the mean frame, in colour. Colours of a column share one limit.
    """
    count, height = len(eigenvalues), _IMAGE_WIDTH * _SCREEN_ASPECT
    figure = Figure(figsize=(2.1 + _IMAGE_WIDTH * count, 0.5 + 3 * height))
    grid = figure.subplots(3, count, squeeze=False, gridspec_kw={"wspace": 0.04, "hspace": 0.04})
    for axes in grid.ravel():
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    # Pixels are stretched back to the screen's shape.
    shape: dict[str, Any] = {"aspect": _SCREEN_ASPECT, "origin": "upper"}
    for index in range(count):
        grid[0, index].imshow(most[index], cmap="gray", vmin=0, vmax=255, **shape)
        grid[0, index].set_title(f"{index + 1}\nλ = {eigenvalues[index]:.2g}", fontsize=8.5)
        limit = max(float(np.abs(images[index]).max()) for images in apart.values()) or 1.0
        colours = {"cmap": signed_colormap(), "vmin": -limit, "vmax": limit}
        for axes, images in zip(grid[1:, index], apart.values(), strict=True):
            axes.imshow(images[index], **colours, **shape)
    texts = ("most excited\n1 % of frames", "the same\nless the mean")
    for axes, text in zip(grid[:, 0], (*texts, "least excited\nless the mean"), strict=True):
        axes.set_ylabel(text, rotation=0, horizontalalignment="right", verticalalignment="center")
    figure.colorbar(
        ScalarMappable(Normalize(-1, 1), signed_colormap()),
        ax=grid[1:].ravel().tolist(),
        label="brightness relative to\nits column's largest",
        ticks=[-1, 0, 1],
        shrink=0.8,
        aspect=18,
        pad=0.01,
    )
    return figure


EXPERIMENT = Experiment(
    name="atari",
    title=lambda config: f"Atari: slow features of {config.game}",
    paper="after Pfau et al. 2019, Appendix C.3",
    presets=PRESETS,
    check=lambda config, _: require_game(config.game),
    prepare=lambda run: make_problem(
        recorded_frames(run.folder.path / "frames", run.config, progress=run.progress)
    ),
    cells=lambda run: {
        "slow-features": learn_slow_features,
        "predictor": learn_successor_features,
    },
    measure=lambda run, name, learn: learn(run, name),
    report=report,
    keeps_parts=False,
    stated="goal",
)
