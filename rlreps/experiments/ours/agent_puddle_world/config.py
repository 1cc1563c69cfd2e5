"""Configuration and presets of the experiment on agents in PuddleWorld."""

import dataclasses

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig, ReplayConfig
from rlreps.encoders import FourierMLP
from rlreps.errors import require, require_positive
from rlreps.experiments.ours.agent_arms_config import ComparedAgents
from rlreps.losses import DanskinLissa, Explicit, LargeBatch, Spin


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentPuddleWorldConfig(ComparedAgents):
    """Deep Q-networks in PuddleWorld without an auxiliary task, and with each of several.

    Attributes:
        components: Principal components of torsos that are shown, at most ten.
    """

    components: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("components", self.components)
        name = self.base.environment.partition(":")[0]
        require(name == "puddle-world", "the environment puddle-world", self.base.environment)

    @property
    def title(self) -> str:
        """The environment, as a reader wants it."""
        arena = self.base.environment.partition(":")[2]
        return f"PuddleWorld, arena {arena}" if arena else "PuddleWorld"


OBJECTIVES = (
    LargeBatch(precondition=1e-2, leave_one_out=True),
    DanskinLissa(whitening=True, permutations=8),
    Explicit(),
    Spin(),
)
"""What auxiliary tasks learn by; features of an agent are far from white."""

WEIGHTS = {"large_batch": 0.1, "danskin_lissa": 0.1, "explicit": 0.1, "spin": 0.1}
"""Objective → weight of its loss beside the temporal-difference loss."""

TASK = AuxiliaryConfig(
    tasks="random_fourier",
    num_tasks=32,
    discount_low=0.8,
    discount_high=0.95,
    horizon=16,
    sequences=128,
)
"""Task columns and targets, the same for every objective."""

THRESHOLD = -40.0
"""Return whose samples are counted."""

LAPTOP = AgentConfig(
    environment="puddle-world",
    encoder=FourierMLP(hidden=(64, 64), frequencies=4),
    num_features=32,
    # Sutton's penalties reach -40 a step: scaled, an error of one step of -1 is within the Huber
    # loss's square part, and values stay near 1.
    dqn=DQNConfig(reward_scale=0.1, n_step=5, warmup=5_000),
    num_envs=4,
    steps=100_000,
    evaluate_every=5_000,
    evaluation_episodes=32,
    checkpoint_every=25_000,
    num_seeds=10,
)
"""What the agents of the preset laptop have in common."""

SMOKE = dataclasses.replace(
    LAPTOP,
    encoder=FourierMLP(hidden=(16, 16), frequencies=2),
    num_features=8,
    # Steps to warm up are those of an evaluation: one program less to compile.
    dqn=dataclasses.replace(LAPTOP.dqn, warmup=500, batch_size=16, epsilon_steps=500),
    replay=ReplayConfig(capacity=2_000),
    max_episode_steps=50,
    steps=2_000,
    evaluate_every=500,
    evaluation_episodes=4,
    checkpoint_every=1_000,
    num_seeds=2,
)

PAPER = dataclasses.replace(
    LAPTOP,
    encoder=FourierMLP(hidden=(256, 256), frequencies=4),
    num_features=64,
    steps=500_000,
    evaluate_every=10_000,
    evaluation_episodes=100,
    checkpoint_every=100_000,
    num_seeds=30,
)


def _tasks(task: AuxiliaryConfig, *names: str) -> tuple[AuxiliaryConfig, ...]:
    """Auxiliary tasks of the named objectives."""
    return tuple(
        dataclasses.replace(task, objective=objective, weight=WEIGHTS[objective.name])
        for objective in OBJECTIVES
        if objective.name in names
    )


PRESETS: dict[str, AgentPuddleWorldConfig] = {
    "smoke": AgentPuddleWorldConfig(
        base=SMOKE,
        tasks=_tasks(
            dataclasses.replace(TASK, num_tasks=8, horizon=8, sequences=32),
            "large_batch",
            "explicit",
        ),
        threshold=THRESHOLD,
        components=3,
    ),
    "laptop": AgentPuddleWorldConfig(
        base=LAPTOP, tasks=_tasks(TASK, *WEIGHTS), threshold=THRESHOLD
    ),
    "paper": AgentPuddleWorldConfig(base=PAPER, tasks=_tasks(TASK, *WEIGHTS), threshold=THRESHOLD),
}
"""Preset name → configuration."""
