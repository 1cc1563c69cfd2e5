"""Configuration and presets of the experiment on agents in classic control."""

import dataclasses

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig, ReplayConfig
from rlreps.encoders import MLP, FourierMLP
from rlreps.errors import require
from rlreps.experiments.ours.agent_arms_config import ComparedAgents
from rlreps.losses import LargeBatch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    """What plain agents are to reach, as a check of the agents themselves.

    Attributes:
        environment: Where.
        mean_return: Mean return of an evaluation, at least.
        share: Share of the agents that are to reach it.
        steps: Environment steps within which they are to.
    """

    environment: str = "CartPole-v1"
    mean_return: float = 475.0
    share: float = 0.9
    steps: int = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentControlConfig:
    """Deep Q-networks in several environments, without an auxiliary task and with some.

    Attributes:
        environments: The agents of each environment.
        bar: What those without an auxiliary task are to reach.
    """

    environments: tuple[ComparedAgents, ...]
    bar: Bar = dataclasses.field(default_factory=Bar)

    def __post_init__(self) -> None:
        names = [each.base.environment for each in self.environments]
        require(len(names) >= 1, "at least one environment", names)
        require(len(set(names)) == len(names), "different environments", names)
        require(
            self.bar.environment in names,
            f"{self.bar.environment}, of the sanity bar, among the environments",
            names,
        )


TASK = AuxiliaryConfig(
    objective=LargeBatch(precondition=1e-2, leave_one_out=True),
    weight=0.1,
    num_tasks=32,
    length_scale=0.5,
    discount_low=0.8,
    discount_high=0.98,
    horizon=16,
    sequences=128,
)
"""The auxiliary task, the same in every environment."""

_COMMON = AgentConfig(
    environment="CartPole-v1",
    encoder=MLP(hidden=(64, 64)),
    num_features=64,
    dqn=DQNConfig(
        learning_rate=1e-3,
        adam_epsilon=1e-3,
        reward_scale=0.02,
        n_step=5,
        target_every=100,
        steps_per_update=8,
        warmup=1_000,
    ),
    replay=ReplayConfig(capacity=100_000),
    num_envs=8,
    steps=100_000,
    evaluate_every=5_000,
    evaluation_episodes=16,
    checkpoint_every=50_000,
    seed=100,
    num_seeds=10,
)

CARTPOLE = dataclasses.replace(
    _COMMON,
    # Found by hand, on other seeds. An agent that has learned to stand sees little else: what keeps
    # it standing are small gradients (of rewards scaled down, clipped, and with a large epsilon of
    # Adam), falls that random actions cause, and a memory that forgets nothing.
    dqn=dataclasses.replace(
        _COMMON.dqn,
        max_gradient_norm=1.0,
        reward_scale=0.01,
        target_every=50,
        batch_size=128,
        steps_per_update=4,
        epsilon_end=0.1,
    ),
    num_envs=4,
    seed=300,
)
"""What agents without and with an auxiliary task have in common, and so below."""

ACROBOT = dataclasses.replace(
    _COMMON,
    environment="Acrobot-v1",
    # All of its coordinates are bounded, so that cosines of them make sense.
    encoder=FourierMLP(hidden=(64, 64), frequencies=2),
)

MOUNTAIN_CAR = dataclasses.replace(
    _COMMON,
    environment="MountainCar-v0",
    encoder=FourierMLP(hidden=(64, 64), frequencies=4),
    dqn=dataclasses.replace(ACROBOT.dqn, epsilon_steps=50_000, epsilon_end=0.1),
)

LUNAR_LANDER = dataclasses.replace(
    _COMMON,
    environment="LunarLander-v3",
    encoder=MLP(hidden=(128, 128)),
    dqn=dataclasses.replace(ACROBOT.dqn, n_step=3, epsilon_steps=50_000),
    # Too few to solve it; evaluations of up to 1,000 steps are what takes the time.
    evaluate_every=20_000,
    checkpoint_every=100_000,
)

THRESHOLDS = {
    "CartPole-v1": 475.0,
    "Acrobot-v1": -100.0,
    "MountainCar-v0": -110.0,
    "LunarLander-v3": 200.0,
}
"""Returns at which Gymnasium's registry calls an environment solved."""


def _compared(*agents: AgentConfig, task: AuxiliaryConfig = TASK) -> tuple[ComparedAgents, ...]:
    return tuple(
        ComparedAgents(base=base, tasks=(task,), threshold=THRESHOLDS[base.environment])
        for base in agents
    )


def _longer(base: AgentConfig) -> AgentConfig:
    """More agents, which learn for longer and are looked at more closely."""
    return dataclasses.replace(
        base,
        replay=ReplayConfig(capacity=5 * base.replay.capacity),
        num_seeds=30,
        steps=5 * base.steps,
        evaluation_episodes=100,
    )


_SMOKE = dataclasses.replace(
    CARTPOLE,
    encoder=MLP(hidden=(16,)),
    num_features=8,
    # Steps to warm up are those of an evaluation, so that updates begin with a fresh program.
    dqn=dataclasses.replace(CARTPOLE.dqn, warmup=240, batch_size=16, epsilon_steps=240),
    replay=ReplayConfig(capacity=1_000),
    steps=960,
    evaluate_every=240,
    evaluation_episodes=2,
    checkpoint_every=480,
    num_seeds=2,
)

PRESETS: dict[str, AgentControlConfig] = {
    "smoke": AgentControlConfig(
        environments=_compared(
            _SMOKE, task=dataclasses.replace(TASK, num_tasks=8, horizon=8, sequences=32)
        )
    ),
    "laptop": AgentControlConfig(
        environments=_compared(CARTPOLE, ACROBOT, MOUNTAIN_CAR, LUNAR_LANDER)
    ),
    "paper": AgentControlConfig(
        environments=_compared(*map(_longer, (CARTPOLE, ACROBOT, MOUNTAIN_CAR, LUNAR_LANDER)))
    ),
}
"""Preset name → configuration; LunarLander needs ``pip install "rlreps[box2d]"``."""
