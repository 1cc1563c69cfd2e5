"""Torsos that know the successor measure before agents learn the task with them.

Objectives determine the span of features and leave the rest free. A linear read-out of values that
learns by gradients does not: it learns directions in which features hardly vary last. So encoders
are scaled before agents start from them: ``singular``, principal components as large as their
singular values, in which distances between states are those of the successor measure; ``white``,
all directions alike; or ``none``, as training left them. An invertible map keeps the span, and a
network's last layer takes it up.
"""

import contextlib
import dataclasses
import math
from typing import Any, Literal, get_args

import jax
import numpy as np
from numpy.typing import ArrayLike

from rlreps.agents import AgentConfig
from rlreps.agents.trainer import make_trainer
from rlreps.encoders import MLP, FourierMLP
from rlreps.errors import require, require_choice, require_positive
from rlreps.experiments.harness import Claim, Experiment, Findings, Run, in_path
from rlreps.experiments.ours import agent_puddle_world
from rlreps.experiments.ours.agent_arms import (
    Arm,
    ArmRuns,
    Comparison,
    advantage,
    comparison_sections,
    improvement_claims,
    interquartile,
    map_figures,
    signed,
    train_arm,
)
from rlreps.losses import LargeBatch
from rlreps.report.page import Section
from rlreps.report.table import format_number
from rlreps.runs.folder import RunFolder
from rlreps.subspace import PrincipalSubspace
from rlreps.successor.ground_truth import GroundTruth
from rlreps.successor.measure import SuccessorMeasure, Transition
from rlreps.successor.store import open_store
from rlreps.training import Optimizer
from rlreps.workflows.agents import StartingTorsos
from rlreps.workflows.evaluate import load_encoder
from rlreps.workflows.ground_truths import own_ground_truth
from rlreps.workflows.train import TrainingConfig, describe_matrix, run_training

SCRATCH = "learning from scratch"
FINE_TUNED = "pre-trained, fine-tuned"
FROZEN = "pre-trained, frozen"
RANDOM = "random, frozen"
"""Labels of the arms."""

Scaling = Literal["singular", "white", "none"]

_LEAST = 1e-6
"""Singular value, relative to the largest, below which a direction counts as rounding."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Agents whose torsos start from encoders of the successor measure, or do not.

    Attributes:
        successor: The successor measure, of the random policy in the agents' arena.
        pretraining: How encoders learn it: one for each agent, of the torso's shape.
        base: The agents, without an auxiliary task.
        threshold: Return whose samples are counted, undiscounted.
        scaling: What is done to the features of all torsos that agents start from: ``singular``,
            ``white`` or ``none``.
        components: Principal components of torsos to show, at most ten.
    """

    successor: SuccessorMeasure
    pretraining: TrainingConfig
    base: AgentConfig
    threshold: float = -40.0
    scaling: Scaling = "singular"
    components: int = 6

    def __post_init__(self) -> None:
        require(math.isfinite(self.threshold), "a finite threshold", self.threshold)
        require_positive("components", self.components)
        require_choice("scaling", self.scaling, get_args(Scaling))
        weight = self.base.auxiliary.weight
        require(weight == 0.0, "agents without an auxiliary task", weight)
        require(not self.base.dqn.freeze_torso, "agents that learn their torso", "freeze_torso")
        name, _, arena = self.base.environment.partition(":")
        require(name == "puddle-world", "the environment puddle-world", self.base.environment)
        require(
            self.successor.arena == (arena or "sutton"),
            f"a successor measure of {self.base.environment}",
            self.successor.arena,
        )
        # The last layer of these can take up a linear map.
        perceptron = isinstance(self.base.encoder, (FourierMLP, MLP))
        require(perceptron, "one of the encoders fourier_mlp, mlp", self.base.encoder)
        for field in ("encoder", "num_features", "seed", "num_seeds"):
            ours, theirs = getattr(self.pretraining, field), getattr(self.base, field)
            require(ours == theirs, f"pretraining.{field} = {theirs!r}, the agents'", ours)

    def arms(self) -> dict[str, AgentConfig]:
        """Return label → agents; those that learn from scratch first."""
        frozen = dataclasses.replace(
            self.base, dqn=dataclasses.replace(self.base.dqn, freeze_torso=True)
        )
        return {SCRATCH: self.base, FINE_TUNED: self.base, FROZEN: frozen, RANDOM: frozen}


def _preset(
    successor: SuccessorMeasure,
    base: AgentConfig,
    *,
    rows: int,
    steps: int,
    evaluate_every: int = 200,
    checkpoint_every: int = 1_000,
) -> Config:
    pretraining = TrainingConfig(
        encoder=base.encoder,
        objective=LargeBatch(precondition=1e-2, leave_one_out=True),
        optimizer=Optimizer(learning_rate=2e-3, schedule="linear"),
        num_features=base.num_features,
        steps=steps,
        rows=rows,
        tasks=rows,
        num_seeds=base.num_seeds,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
    )
    return Config(successor=successor, pretraining=pretraining, base=base)


_SMOKE = dataclasses.replace(
    agent_puddle_world.SMOKE,
    encoder=FourierMLP(hidden=(16,), frequencies=2),
    num_features=12,
    steps=1_500,
    checkpoint_every=1_500,
)
_PAPER = dataclasses.replace(
    agent_puddle_world.PAPER,
    encoder=FourierMLP(hidden=(256, 256), frequencies=8),
    num_features=124,
)

PRESETS = {
    "smoke": dataclasses.replace(
        _preset(
            Transition(bins=12, points=64, horizon=200),
            _SMOKE,
            rows=100,
            steps=300,
            evaluate_every=100,
            checkpoint_every=300,
        ),
        components=3,
    ),
    "laptop": _preset(Transition(bins=50), agent_puddle_world.LAPTOP, rows=500, steps=2_000),
    "paper": _preset(Transition(bins=100), _PAPER, rows=1_000, steps=4_000),
}


def rescaled(
    params: Any, features: ArrayLike, scaling: Scaling, principal: PrincipalSubspace
) -> list[dict[str, Any]]:
    """Map networks to the same networks with features of mean 0 and another scale.

    - ``white``: covariance I. The map is the symmetric one, Σ^(-1/2): no other moves the features
      less (ZCA).
    - ``singular``: left singular vectors of the measure's projection on the span, times their
      singular values, and one factor with which the mean square of all features is 1. An encoder
      that spans the d leading components has them, largest first.
    - ``none``: as they are, without even their means taken off.

    Directions that features do not have stay without.

    Args:
        params: Of perceptrons, a list of layers ``{"kernel": [seeds, h, d], "bias": [seeds, d]}``.
        features: φ of all states, [seeds, n, d].
        scaling: Which.
        principal: The measure's leading components and singular values, at the same states.

    Returns:
        New parameters, NumPy arrays.
    """
    layers = [{name: np.asarray(values) for name, values in layer.items()} for layer in params]
    if scaling == "none":
        return layers
    table = np.asarray(features, np.float64)
    means = table.mean(axis=1)
    left, values, rows = np.linalg.svd(table - means[:, None], full_matrices=False)
    known = values > _LEAST * values[:, :1]
    inverses = np.where(known, 1.0 / np.where(known, values, 1.0), 0.0)
    states, size = table.shape[1:]
    if scaling == "white":
        after = math.sqrt(states) * rows
    else:
        measure = np.asarray(principal.basis, np.float64) * np.asarray(principal.singular_values)
        projected = np.where(known[:, :, None], left.mT @ measure, 0.0)
        vectors, sizes, _ = np.linalg.svd(projected, full_matrices=False)
        kept = np.zeros((len(table), size, size))
        kept[:, :, : sizes.shape[1]] = vectors * sizes[:, None]
        after = kept * np.sqrt(states * size / np.sum(sizes**2, axis=1))[:, None, None]
    maps = (rows.mT * inverses[:, None]) @ after
    last = layers[-1]
    kernels, biases = (np.asarray(last[name], np.float64) for name in ("kernel", "bias"))
    last["kernel"] = (kernels @ maps).astype(np.float32)
    last["bias"] = np.einsum("sd,sde->se", biases - means, maps).astype(np.float32)
    return layers


def prepare(run: Run[Config]) -> tuple[GroundTruth, dict[str, Any], dict[str, StartingTorsos]]:
    """Generate the successor measure in ``successor``, and train encoders in ``pretraining``.

    Returns:
        The successor measure, the summary of the pre-training, and label → torsos with scaled
        features that agents start from: the encoders, or the torsos that they would have had.
    """
    config, home = run.config, run.folder.path / "pretraining"
    ground = own_ground_truth(
        config.successor, run.folder, config.pretraining.num_features, progress=run.progress
    )
    summary = run_training(
        config.pretraining,
        ground.path,
        home,
        truth=ground.truth,
        devices=run.devices,
        progress=run.progress,
    )
    trained = load_encoder(RunFolder(home), ground.truth)
    matrix = describe_matrix(open_store(ground.path))["checksum"]
    origin = (
        f"encoders of the successor measure {matrix}, after {trained.step} updates, scaled: "
        f"{config.scaling}"
    )
    with contextlib.closing(make_trainer(config.base)) as trainer:
        fresh = trainer.init().memory.learner.params["torso"]
        encode = jax.jit(jax.vmap(trainer.agent.network.features, in_axes=(0, None)))
        features = encode(fresh, ground.truth.coordinates)

    def scaled(params: Any, features: ArrayLike) -> Any:
        return rescaled(params, features, config.scaling, ground.truth.principal)

    encoders = StartingTorsos(scaled(trained.params, trained.features()), origin)
    random = StartingTorsos(scaled(fresh, features), f"fresh torsos, scaled: {config.scaling}")
    starts = {FINE_TUNED: encoders, FROZEN: encoders, RANDOM: random}
    return ground.truth, dict(summary), starts


def cells(run: Run[Config]) -> dict[str, Arm]:
    """List the arms with the torsos that they start from."""
    truth, _, starts = run.shared
    return {
        in_path(label): Arm(label=label, config=agents, start=starts.get(label), truth=truth)
        for label, agents in run.config.arms().items()
    }


_SAID: dict[Scaling, str] = {
    "singular": "A linear map makes their features principal components as large as their singular "
    "values, which changes no span.",
    "white": "A linear map makes their features white over the grid, which changes no span.",
    "none": "Their features stay as pre-training left them.",
}


def transfer_claims(comparison: Comparison) -> list[Claim]:
    """Claim that pre-training helps against learning from scratch, and frozen against chance."""
    runs = {run.label: run for run in comparison.runs}
    found = advantage(runs[FROZEN], runs[RANDOM], comparison.threshold)
    return [
        *improvement_claims(
            comparison, subject="use of pre-trained torsos", labels=(FINE_TUNED, FROZEN)
        ),
        Claim(
            statement=f"{comparison.environment}: frozen torsos beat random frozen ones in mean "
            "return over training if they are pre-trained",
            stated="a 95 % interval of differences by seed that excludes 0, one comparison",
            found=signed(found.mean_return),
            holds=found.better_return if comparison.enough_seeds else None,
        ),
    ]


def report(run: Run[Config], found: dict[str, ArmRuns]) -> Findings:
    """Compare the arms."""
    config, (truth, trained, _) = run.config, run.shared
    base, bins = config.base, config.successor.bins
    comparison = Comparison(
        environment="PuddleWorld", threshold=config.threshold, runs=list(found.values())
    )
    means = "; ".join(f"{arm.label}: {interquartile(arm.mean_returns)}" for arm in comparison.runs)
    goals = Section(
        title="Goals",
        text=f"{base.num_seeds} encoders with {base.num_features} features learn the successor "
        f"measure of the random policy on a grid of {bins} x {bins} cells "
        f"({config.pretraining.objective.title}, {config.pretraining.steps:,} "
        "updates), to a mean subspace distance of "
        f"{format_number(trained['subspace_distance'])} to as many components. "
        f"{_SAID[config.scaling]} Each is the torso that one agent starts "
        "from, with a fresh read-out of the values: it learns on (fine-tuned), or stays as it is "
        "(frozen). Agents that learn from scratch have fresh torsos of the same shape. Random, "
        "frozen torsos are scaled alike, and only the read-out learns. Pre-training knows the "
        "dynamics, but neither goal nor penalties, and took no step of the agents' own: counts of "
        "environment steps leave it out. Fewer than ten agents an arm give no verdict; here there "
        f"are {base.num_seeds}.",
    )
    shown = [arm for arm in comparison.runs if arm.label != RANDOM]
    maps = Section(
        title="What agents have learned",
        text="The first agent that learned from scratch and those of the pre-trained torsos. "
        "Pre-training determines the span of the features; it leaves free the principal components "
        "within it, in the order of variance.",
        figures=map_figures(run, shown, truth, config.components),
    )
    return Findings(
        abstract=f"{base.num_seeds} agents an arm, {base.steps:,} environment steps each. Mean "
        f"return over training (interquartile mean over agents with its 95 % interval): {means}.",
        claims=transfer_claims(comparison),
        sections=[goals, *comparison_sections(run, [comparison]), maps],
        summary={"pretraining": trained, "comparisons": [comparison.summary()]},
    )


EXPERIMENT = Experiment(
    name="representation-transfer",
    title="Agents whose torsos know the successor measure",
    paper="Our own experiment; intervals follow Agarwal et al. 2021.",
    presets=PRESETS,
    cells=cells,
    measure=train_arm,
    report=report,
    prepare=prepare,
    keeps_parts=False,
    stated="our goal",
)
