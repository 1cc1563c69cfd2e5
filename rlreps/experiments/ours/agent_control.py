"""Agents in classic control: a sanity bar for plain agents, and no auxiliary task against some.

Environments run on the host. LunarLander needs ``pip install "rlreps[box2d]"``.
"""

import dataclasses
import math

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig, ReplayConfig
from rlreps.agents.environments import describe
from rlreps.cumulants import RandomFourier
from rlreps.encoders import MLP, FourierMLP
from rlreps.errors import require
from rlreps.experiments.harness import Claim, Experiment, Findings, Run, in_path
from rlreps.experiments.ours.agent_arms import (
    FEWEST_SEEDS,
    Arm,
    ArmRuns,
    ComparedAgents,
    Comparison,
    comparison_sections,
    overall_improvement,
    probability_text,
    train_arm,
)
from rlreps.losses import LargeBatch
from rlreps.report.page import Section
from rlreps.report.table import format_number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    """A goal for plain agents, as a check of the agents themselves.

    Attributes:
        environment: Its name in Gymnasium.
        mean_return: Mean return of an evaluation, at least.
        share: Share of the agents that are to reach it.
        steps: Environment steps within which they are to.
    """

    environment: str = "CartPole-v1"
    mean_return: float = 475.0
    share: float = 0.9
    steps: int = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
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
    tasks=RandomFourier(length_scale=0.5),
    num_tasks=32,
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
        schedule="constant",
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
    # Found by hand, on other seeds. An agent that has learned to stand sees little else: small
    # gradients (of rewards scaled down, clipped, and with a large epsilon of Adam), falls that
    # random actions cause, and a memory that forgets nothing keep it standing.
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
    dqn=dataclasses.replace(_COMMON.dqn, epsilon_steps=50_000, epsilon_end=0.1),
)

LUNAR_LANDER = dataclasses.replace(
    _COMMON,
    environment="LunarLander-v3",
    encoder=MLP(hidden=(128, 128)),
    dqn=dataclasses.replace(_COMMON.dqn, n_step=3, epsilon_steps=50_000),
    # Too few to solve it; evaluations of up to 1,000 steps take most of the time.
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

_ALL = (CARTPOLE, ACROBOT, MOUNTAIN_CAR, LUNAR_LANDER)

PRESETS = {
    "smoke": Config(
        environments=_compared(
            _SMOKE, task=dataclasses.replace(TASK, num_tasks=8, horizon=8, sequences=32)
        )
    ),
    "laptop": Config(environments=_compared(*_ALL)),
    "paper": Config(environments=_compared(*map(_longer, _ALL))),
}


def bar_claims(bar: Bar, plain: ArmRuns) -> list[Claim]:
    """Claim that enough plain agents reach the bar within its steps and end there.

    Fewer than ten agents give no verdict. Agents that stopped earlier can reach the bar, but
    neither miss it nor stay there.
    """
    returns = plain.returns[:, plain.steps <= bar.steps]
    reached = returns >= bar.mean_return
    count, whole = len(reached), bool(plain.steps[-1] >= bar.steps)
    needed = math.ceil(bar.share * count - 1e-9)
    some, last = int(reached.any(axis=1).sum()), int(reached[:, -1].sum())
    lowest = format_number(float(returns[:, -1].min()))
    verdicts = {
        "at some evaluation": (f"{some} of {count}", some >= needed, whole or some >= needed),
        "at the last of them": (f"{last} of {count}; lowest {lowest}", last >= needed, whole),
    }
    return [
        Claim(
            statement=f"{bar.environment}: a mean return of at least "
            f"{format_number(bar.mean_return)} by plain agents within {bar.steps:,} steps, {when}",
            stated=f"at least {100 * bar.share:.0f} % of the agents ({needed} of {count})",
            found=said,
            holds=holds if told and count >= FEWEST_SEEDS else None,
        )
        for when, (said, holds, told) in verdicts.items()
    ]


def check(config: Config, _: None) -> None:
    """Refuse environments that cannot be made before the first agents are trained."""
    for compared in config.environments:
        describe(compared.base.environment)


def cells(run: Run[Config]) -> dict[str, Arm]:
    """List the arms of every environment."""
    return {
        f"{in_path(compared.base.environment)}/{in_path(label)}": Arm(label=label, config=agents)
        for compared in run.config.environments
        for label, agents in compared.arms().items()
    }


def report(run: Run[Config], found: dict[str, ArmRuns]) -> Findings:
    """Compare the arms of every environment, and plain agents with the bar."""
    comparisons = {
        compared.base.environment: Comparison(
            environment=compared.base.environment,
            threshold=compared.threshold,
            runs=[
                arm for arm in found.values() if arm.config.environment == compared.base.environment
            ],
        )
        for compared in run.config.environments
    }
    every, bar = list(comparisons.values()), run.config.bar
    first, overall = every[0].baseline, overall_improvement(every)
    abstract = f"Deep Q-networks in {', '.join(comparisons)}: {len(first.returns)} agents an arm."
    if len(every) > 1:
        for label, probability in overall.items():
            abstract += (
                f" Probability that {label} improves on {first.label} in mean return over "
                f"training, over all environments: {probability_text(probability)}."
            )
    goal = Section(
        title="Goal",
        text="A check of the agents themselves: they are to solve what is known to be easy. "
        "Environments are named as in Gymnasium, and the return whose samples are counted is that "
        "at which Gymnasium's registry calls the environment solved. Evaluations are greedy and "
        "apart from training. Probabilities of improvement over all environments are means over "
        "environments, with agents resampled environment by environment.",
    )
    return Findings(
        abstract=abstract,
        claims=bar_claims(bar, comparisons[bar.environment].baseline),
        sections=[goal, *comparison_sections(run, every)],
        summary={
            "comparisons": [each.summary() for each in every],
            "overall": {label: each._asdict() for label, each in overall.items()},
        },
    )


EXPERIMENT = Experiment(
    name="agent-control",
    title="Agents in classic control",
    paper="Our own experiment; intervals follow Agarwal et al. 2021.",
    presets=PRESETS,
    cells=cells,
    measure=train_arm,
    report=report,
    check=check,
    keeps_parts=False,
    stated="our goal",
)
