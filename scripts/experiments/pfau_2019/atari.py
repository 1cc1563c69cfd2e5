"""Frames of an Atari game: slow features, successor features and pixels (Pfau et al. 2019, C.3).

A random agent plays two sets of frames: one trains, the other tests. A spectral inference network
learns slow features. Another network predicts the next frame; a third learns, by temporal
differences, successor features of the predictor's code, whose principal components Machado et al.
(2018) call eigenpurposes. For each feature, and for each principal component of the pixels, the
test frames with the largest and with the smallest values are averaged: Figs. 4 to 11. The paper
judges them by eye.

The authors' code (its Atari example) settles the convolutions and the stacks of frames, which the
paper leaves open; public readings of Machado et al.'s Fig. 2 settle the other layers. Deviations
are the choices that no source settles. Numbers cannot tell whether one method's objects are clearer
than another's. The experiment counts the features whose two averages differ by more than in all 99
cases in which the feature is shifted in time against the frames (a p-value of 1 %). The
size of a difference does not count: principal components of pixels maximise it by construction.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jax import Array, lax
from matplotlib.figure import Figure

from rlreps.config import with_sizes
from rlreps.encoders import Convolutional, Params, WithConstant
from rlreps.experiments.pfau_2019.frames import FrameSplit, make_game, record_frames
from rlreps.experiments.pfau_2019.responses import (
    average_images,
    extremes,
    find_constant,
    mean_pixel_difference,
    mean_pixel_differences_by_chance,
)
from rlreps.experiments.pfau_2019.successor_features import SuccessorDifferences, SuccessorNetwork
from rlreps.losses import Batch, Spin
from rlreps.operators import Slowness, act
from rlreps.plotting import plot_reconstructions, plot_signed_images
from rlreps.stats import Verdict
from rlreps.study import (
    STEP,
    Claim,
    Curve,
    Drawn,
    Experiment,
    Frame,
    Metric,
    Results,
    Run,
    Tabulated,
    design_of,
    in_path,
    replace_nested,
)
from rlreps.subspace import RandomizedSVD, centre_in_place, ordered_spectrum
from rlreps.training import RMSProp, TrainingResult, train

FloatArray = npt.NDArray[np.float32]

SPIN, SUCCESSOR, PIXELS = "SpIN", "successor features", "PCA of pixels"

_KERNEL = 6
_MEASURED_PAIRS = 256
"""Number of held-out pairs for each point of a learning curve."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Slow features of a random agent's frames, successor features and principal components.

    Attributes:
        game: A game of the Arcade Learning Environment, such as ``MsPacman``.
        num_frames: Frames that train; num_frames x size² bytes on disk and on the device.
        held_out_frames: Frames that test, of other episodes.
        size: Height and width of a frame in pixels, after area-averaging.
        stack: Consecutive frames that a network sees together.
        num_features: Slow features after the constant, and principal components.
        hidden: Width of the slow features' hidden layer.
        clips: Clips in an update of the slow features.
        clip_frames: Consecutive frames of a clip, in ``clip_frames - stack + 1`` stacks.
        objective: Objective of the slow features, as in the paper.
        optimizer: Optimizer of the slow features.
        steps: Number of updates of the slow features.
        code_size: Size of the next-frame predictor's code, and number of successor features.
        code_hidden: Width of the hidden layers of predictor and successor network.
        transitions: Transitions in an update of the predictor and the successor network.
        target_every: Updates between copies to the target network of temporal differences.
        extremes: Number of test frames to average at each end of a feature.
        evaluations: Points of each learning curve after its start.
        seed: Seed of the agent, the networks and the batches.
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
    objective: Spin = Spin(
        averaging_rate=0.01, shifted=False, starts_at_identity=True, jacobian_rows_at_once=3
    )
    optimizer: RMSProp = RMSProp(learning_rate=1e-6, schedule="constant", decay=0.999)
    steps: int = 1_000_000
    code_size: int = 2048
    code_hidden: int = 1024
    discount: float = 0.99
    transitions: int = 32
    successor_optimizer: RMSProp = RMSProp(learning_rate=1e-4, schedule="constant")
    successor_steps: int = 300_000
    target_every: int = 10_000
    extremes: int = 100
    evaluations: int = 50
    seed: int = 0

    def network(self, num_features: int, hidden: int) -> Convolutional:
        """Build the encoder of Machado et al. (2018) with its two last layers of given widths."""
        return Convolutional(
            num_features,
            frame_shape=(self.size, self.size, self.stack),
            channels=self.channels,
            hidden=hidden,
            kernel_size=_KERNEL,
            unpadded=1,
        )

    def successor_network(self, num_actions: int) -> SuccessorNetwork:
        """Build the next-frame predictor with the successor features of its code."""
        return SuccessorNetwork(self.network(self.code_size, self.code_hidden), num_actions)


# All presets run the same methods. Smaller presets have fewer frames, smaller networks, and fewer
# updates at higher learning rates (not tuned), which require a shifted operator.
PAPER = Config()
_LAPTOP = replace_nested(
    PAPER,
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
    "smoke": replace_nested(
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
        # In so few updates, a moving average that starts at 1 would not come down.
        successor_optimizer=RMSProp(learning_rate=1e-3, schedule="linear", initial_scale=0.0),
        successor_steps=60,
        target_every=20,
        extremes=10,
        evaluations=3,
    ),
    "laptop": _LAPTOP,
    "paper": PAPER,
}


def prepare(run: Run[Config]) -> FrameSplit:
    """Play or read both sets of frames, each by an agent of its own seed."""
    config = run.config
    counts = {"training": config.num_frames, "held-out": config.held_out_frames}
    training, held_out = (
        record_frames(
            run.folder.path / "frames" / name,
            config.game,
            config.size,
            count,
            2 * config.seed + index,
        )
        for index, (name, count) in enumerate(counts.items())
    )
    return FrameSplit.of(training, held_out, config.stack)


def pairs(run: Run[Config]) -> Batch:
    """Draw the held-out pairs of stacks for learning curves."""
    frames: FrameSplit = run.shared
    key = jax.random.key(run.config.seed)
    return frames.clips(frames.held_out, 2).sample(key, _MEASURED_PAIRS, 1)


def measure(run: Run[Config], name: str, method: str) -> dict[str, Any]:
    """Learn a method's features, and compare the test frames at both of their ends.

    Returns:
        ``pictures``, averages of the test frames with the smallest and the largest values of each
        feature, [2, d, height, width]; and a ``frame`` with a row for each feature, and a row for
        each measurement during training.
    """
    config = run.config
    values, training = METHODS[method](run, name)
    images = run.shared.held_out.newest(config.stack)
    chosen = extremes(values, config.extremes)
    pictures = average_images(images, chosen)
    distances, most = (
        mean_pixel_difference(pictures),
        mean_pixel_differences_by_chance(images, chosen).max(axis=0),
    )
    columns = {
        "apart": distances,
        "most_by_chance": most,
        "told": distances > most,
        "constant": find_constant(values),
    }
    features = Frame.grid(columns, method=method, feature=range(1, 1 + config.num_features))
    curves: list[Frame] = []
    if training is not None:
        wide = Frame.of_history(training.history, [config.seed], method=method)
        curves = [
            wide.adding(curve=name.replace("_", " "), held_out=column)
            for name, column in sorted(wide.columns.items())
            if name.startswith(("eigenvalue", "next_frame", "temporal_difference"))
        ]
    return {"pictures": pictures, "frame": Frame.concat([*curves, features])}


Learned = tuple[FloatArray, TrainingResult | None]
"""Features of the test frames [m, d], and their network's training."""


def slow_features(run: Run[Config], name: str) -> Learned:
    """Learn by spectral inference with the slowness operator, behind a constant first feature."""
    config, frames, measured = run.config, run.shared, pairs(run)
    encoder = WithConstant(config.network(config.num_features, config.hidden))
    objective = with_sizes(
        config.objective,
        num_features=config.num_features + 1,
        operator=Slowness(),
        encoder=encoder,
    )

    def evaluate(params: Params) -> Mapping[str, Array]:
        # Otherwise XLA would fold these frames as constants, which makes compilation slow.
        inputs = lax.optimization_barrier(measured.inputs)
        action = act(Slowness(), lambda stacks: encoder.apply(params, stacks), inputs)
        eigenvalues = ordered_spectrum(action.covariance, action.operator_matrix).eigenvalues
        return {f"eigenvalue_{k}": eigenvalues[k] for k in range(1, config.num_features + 1)}

    result = train(
        encoder,
        objective,
        frames.clips(frames.training, config.clip_frames - config.stack + 1),
        optimizer=config.optimizer,
        rows=config.clips,
        seeds=[config.seed],
        evaluate=evaluate,
        **run.training(name, config.steps, config.evaluations, network=name),
    )
    # Eigenfunctions use the moving averages, as in the paper's listing; the weight of the averages
    # scales all of them alike.
    state = result.state.objective.total
    transform = ordered_spectrum(state.covariance[0], state.operator_matrix[0]).transform[:, 1:]
    features = frames.encoded(lambda stacks: encoder.apply(result.params(), stacks))
    return features @ np.asarray(transform), result


def successor_features(run: Run[Config], name: str) -> Learned:
    """Learn successor features of a next-frame predictor's code, and take their components."""
    config, frames, measured = run.config, run.shared, pairs(run)
    encoder = config.successor_network(frames.num_actions)
    objective = SuccessorDifferences(
        num_features=config.code_size,
        network=encoder,
        discount=config.discount,
        target_every=config.target_every,
    )

    result = train(
        encoder,
        objective,
        frames.clips(frames.training, 2),
        optimizer=config.successor_optimizer,
        rows=config.transitions,
        seeds=[config.seed],
        evaluate=lambda params: objective.errors(params, lax.optimization_barrier(measured)),
        **run.training(name, config.successor_steps, config.evaluations, network=name),
    )
    params = result.params()
    successors = frames.encoded(
        lambda stacks: encoder.successor(params, encoder.apply(params, stacks))
    )
    return principal_components(successors, config.num_features), result


def pixel_components(run: Run[Config], name: str) -> Learned:
    """Take the principal components of pixels."""
    images = run.shared.held_out.newest(run.config.stack)
    pixels = images.reshape(len(images), -1).astype(np.float32)
    return principal_components(pixels, run.config.num_features), None


def principal_components(rows: FloatArray, count: int) -> FloatArray:
    """Centre rows [m, k]; compute the leading principal components' values at them [m, d]."""
    centre_in_place(rows)
    return RandomizedSVD(rank=count).decompose(rows).basis


METHODS = {SPIN: slow_features, SUCCESSOR: successor_features, PIXELS: pixel_components}


def tells_ends_apart(results: Results[Config]) -> Verdict:
    """Judge the paper's finding: the ends of nearly all slow features differ, of others few.

    A test counts the features whose two averages differ. The test may be more sensitive than the
    eye and count more features, and there is one network of each kind. The count can therefore
    refute "nearly all", but not confirm the finding.
    """
    total = results.config.num_features
    spin, successor = (
        len(results.frame.where(method=method, told=True)) for method in (SPIN, SUCCESSOR)
    )
    return Verdict(
        False if spin < total - 1 else None,
        f"{spin} of {total} of SpIN's, {successor} of {total} of successor features'",
    )


def are_given(column: Iterable[object]) -> list[bool]:
    """Tell which rows have a value in a column."""
    return [each is not None for each in column]


def draw_frames(results: Results[Config]) -> tuple[None, Figure]:
    """Draw the averages at both ends."""
    frames = {
        f"{method}\n{end}": results.found[in_path(method)]["pictures"][place] / 255.0
        for method in METHODS
        for end, place in (("largest", 1), ("smallest", 0))
    }
    return None, plot_reconstructions(frames)


def draw_differences(results: Results[Config]) -> tuple[None, Figure]:
    """Draw the differences of the averages at both ends."""
    titles = [str(k) for k in range(1, results.config.num_features + 1)]
    pictures = {method: results.found[in_path(method)]["pictures"] for method in METHODS}
    differences = {method: largest - smallest for method, (smallest, largest) in pictures.items()}
    return None, plot_signed_images(differences, titles=titles)


EXPERIMENT = Experiment(
    name="atari",
    title="Atari: slow features and successor features",
    paper="Pfau et al. 2019, Appendix C.3",
    presets=PRESETS,
    # Refuses a missing game.
    check=lambda config, _: make_game(config.game).close(),
    prepare=prepare,
    cells=lambda run: {in_path(method): method for method in METHODS},
    measure=measure,
    value=Metric(value="held_out", label="eigenvalue, or share of variance", log=True),
    claims=[
        Claim(
            "Features whose extreme test frames differ in {config.game}, one network of "
            "each kind (our stand-in for the eye; does not hold if two or more of SpIN's are "
            "alike, and confirms nothing)",
            "nearly all of SpIN's, for many games few of successor features' (C.3)",
            tells_ends_apart,
        )
    ],
    decided_on=PAPER,
    free=("game", "seed", "evaluations"),
    sections={
        "Extreme frames": [
            design_of(__doc__),
            Tabulated(
                name="extremes",
                rows=lambda r: r.frame.where(feature=are_given).rows(
                    "method", "feature", "apart", "most_by_chance", "told", "constant"
                ),
                caption="Root mean squared difference of a feature's two averages, in grey levels, "
                "and the largest such difference by chance. A feature whose network died is "
                "constant.",
            ),
            Drawn(
                name="frames",
                caption="The average of the {config.extremes} test frames with the largest "
                "values of each feature and of the {config.extremes} with the smallest. "
                "A feature is a column, the first on the left. Its sign is arbitrary.",
                draw=draw_frames,
            ),
            Drawn(
                name="differences",
                caption="The average of the test frames with the largest values of each "
                "feature minus the average of those with the smallest.",
                draw=draw_differences,
            ),
        ],
        "Training": [
            Curve(
                name="training",
                caption=f"On {_MEASURED_PAIRS} held-out pairs: the slow features' eigenvalues, "
                "which SpIN minimises (0: a feature never changes, 2: consecutive frames are "
                "unrelated); the squared errors of the next frame and of temporal differences, "
                "divided by the variance of their targets.",
                x=STEP,
                line="curve",
                panel="method",
                of={"curve": are_given},
                keys=("seed",),
                axes={"share_y": False},
            ),
        ],
    },
    # JSON cannot hold pictures.
    keeps_parts=False,
    deviations={
        "initial weights": "Machado et al. initialise as Oh et al. (2015), and the paper does not "
        "say how SpIN's weights are initialised; here all weights are LeCun-normal, as SpIN's in "
        "the authors' code.",
        "scale of inputs": "Not specified by the paper; the authors' example feeds grey levels 0 … "
        "255. Here the mean training frame is subtracted, and the result divided by 255.",
        "frames": "Not specified; here ALE/<game>-v5 with its defaults: every fourth frame, "
        "actions repeated with probability 1/4.",
        "held-out frames": "The paper does not say how they were chosen; here another agent plays "
        "them after its own reset, so no episode is in both sets.",
        "stacks of a clip": "Not specified; here a clip's ten frames make seven stacks of four. "
        "Thirteen frames would make ten.",
        "γ of the successor features": "Not specified by the paper; here 0.99.",
        "decay of the successor network's RMSProp": "Not specified by the paper; here 0.9.",
        "activation of an eigenpurpose": "Not specified; here the activation of the centred "
        "successor features. The other reading is the activation of the code.",
    },
)
