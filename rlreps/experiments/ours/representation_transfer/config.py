"""Configuration and presets of the experiment on pre-trained torsos."""

import dataclasses
import math

from rlreps.agents import AgentConfig, DQNConfig, ReplayConfig
from rlreps.encoders import FourierMLP
from rlreps.errors import require, require_positive
from rlreps.losses import LargeBatch
from rlreps.successor.measure import SuccessorMeasure, Transition
from rlreps.training import Optimizer
from rlreps.workflows.train import TrainingConfig

SCRATCH = "learning from scratch"
FINE_TUNED = "pre-trained, fine-tuned"
FROZEN = "pre-trained, frozen"
RANDOM = "random, frozen"
"""Labels of the arms."""

_PERCEPTRONS = ("fourier_mlp", "mlp")
"""Encoders whose last layer can take up a linear map."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepresentationTransferConfig:
    """Agents whose torsos start from encoders of the successor measure, or do not.

    Attributes:
        successor: The successor measure, of the random policy in the agents' arena.
        pretraining: How encoders learn it: one for each agent, of the torso's shape.
        base: The agents, without an auxiliary task.
        threshold: Return whose samples are counted, undiscounted.
        components: Principal components of torsos that are shown, at most ten.
    """

    successor: SuccessorMeasure
    pretraining: TrainingConfig
    base: AgentConfig
    threshold: float
    components: int = 6

    def __post_init__(self) -> None:
        require(math.isfinite(self.threshold), "a finite threshold", self.threshold)
        require_positive("components", self.components)
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
        encoder = self.base.encoder.name
        require(encoder in _PERCEPTRONS, f"one of the encoders {', '.join(_PERCEPTRONS)}", encoder)
        for field in ("encoder", "num_features", "seed", "num_seeds"):
            ours, theirs = getattr(self.pretraining, field), getattr(self.base, field)
            require(ours == theirs, f"pretraining.{field} = {theirs!r}, the agents'", ours)

    def arms(self) -> dict[str, AgentConfig]:
        """Label → agents; those that learn from scratch first."""
        frozen = dataclasses.replace(
            self.base, dqn=dataclasses.replace(self.base.dqn, freeze_torso=True)
        )
        return {SCRATCH: self.base, FINE_TUNED: self.base, FROZEN: frozen, RANDOM: frozen}


ENCODER = FourierMLP(hidden=(64, 64), frequencies=4)
"""Torso and encoder alike; see the README's recipes."""

FEATURES = 32
"""Their features."""

THRESHOLD = -40.0
"""Return whose samples are counted."""

AGENTS = AgentConfig(
    environment="puddle-world",
    encoder=ENCODER,
    num_features=FEATURES,
    dqn=DQNConfig(reward_scale=0.1, n_step=5, warmup=5_000),
    num_envs=4,
    steps=100_000,
    evaluate_every=5_000,
    evaluation_episodes=32,
    checkpoint_every=25_000,
    num_seeds=10,
)
"""What the agents of the preset laptop have in common."""

PRETRAINING = TrainingConfig(
    encoder=ENCODER,
    objective=LargeBatch(precondition=1e-2, leave_one_out=True),
    optimizer=Optimizer(learning_rate=2e-3, schedule="linear"),
    num_features=FEATURES,
    steps=2_000,
    rows=500,
    tasks=500,
    evaluate_every=200,
    checkpoint_every=1_000,
    num_seeds=10,
)
"""How the encoders of the preset laptop are trained."""

_SMALL = FourierMLP(hidden=(16,), frequencies=2)

PRESETS: dict[str, RepresentationTransferConfig] = {
    "smoke": RepresentationTransferConfig(
        successor=Transition(bins=12, points=64, horizon=200),
        pretraining=dataclasses.replace(
            PRETRAINING,
            encoder=_SMALL,
            num_features=12,
            steps=300,
            rows=100,
            tasks=100,
            evaluate_every=100,
            checkpoint_every=300,
            num_seeds=2,
        ),
        base=dataclasses.replace(
            AGENTS,
            encoder=_SMALL,
            num_features=12,
            # Steps to warm up are those of an evaluation: one program less to compile.
            dqn=dataclasses.replace(AGENTS.dqn, warmup=500, batch_size=16, epsilon_steps=500),
            replay=ReplayConfig(capacity=2_000),
            max_episode_steps=50,
            steps=1_500,
            evaluate_every=500,
            evaluation_episodes=4,
            checkpoint_every=1_500,
            num_seeds=2,
        ),
        threshold=THRESHOLD,
        components=3,
    ),
    "laptop": RepresentationTransferConfig(
        successor=Transition(bins=50),
        pretraining=PRETRAINING,
        base=AGENTS,
        threshold=THRESHOLD,
    ),
    "paper": RepresentationTransferConfig(
        successor=Transition(bins=100),
        pretraining=dataclasses.replace(
            PRETRAINING,
            encoder=FourierMLP(hidden=(256, 256), frequencies=8),
            num_features=124,
            steps=4_000,
            rows=1_000,
            tasks=1_000,
            num_seeds=30,
        ),
        base=dataclasses.replace(
            AGENTS,
            encoder=FourierMLP(hidden=(256, 256), frequencies=8),
            num_features=124,
            steps=500_000,
            evaluate_every=10_000,
            evaluation_episodes=100,
            checkpoint_every=100_000,
            num_seeds=30,
        ),
        threshold=THRESHOLD,
    ),
}
"""Preset name → configuration."""
