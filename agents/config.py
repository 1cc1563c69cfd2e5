"""Configurations of agents, their replay, their auxiliary tasks and their training runs."""

import dataclasses
import math
from typing import Annotated, Literal, get_args

import tyro

from rlreps.config import with_sizes
from rlreps.configs import EncoderConfig
from rlreps.configs.flags import objective_from_flags
from rlreps.errors import require, require_choice, require_positive
from rlreps.losses import LargeBatch, Objective

TaskName = Literal["cells", "random_fourier", "random_indicators"]
TargetName = Literal["bootstrapped", "monte_carlo"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """The agent's memory.

    Attributes:
        capacity: Rows it holds, of all environments together.
        prioritised: Draw sequences in proportion to their last error (Schaul et al. 2016) in place
            of uniformly.
        priority_exponent: α of the priorities.
        importance_exponent: β of the weights that correct for them.
    """

    capacity: int = 50_000
    prioritised: bool = False
    priority_exponent: float = 0.6
    importance_exponent: float = 0.4

    def __post_init__(self) -> None:
        require_positive("capacity", self.capacity)
        for name in ("priority_exponent", "importance_exponent"):
            value = getattr(self, name)
            require(0.0 <= value <= 1.0, f"{name} in [0, 1]", value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig:
    """A deep Q-network (Mnih et al. 2015), double by default (van Hasselt et al. 2016).

    Attributes:
        double: Choose the next action by the online network and value it by the target network.
        n_step: Rewards of a transition before its value is bootstrapped.
        discount: γ, in [0, 1).
        learning_rate: Adam's.
        adam_epsilon: Adam's ε.
        max_gradient_norm: Global norm beyond which gradients are scaled down.
        huber_delta: Where the loss of a temporal-difference error turns from square to linear.
        target_every: Updates between copies of the parameters to the target network.
        reward_scale: What rewards are multiplied by before they are learned from.
        batch_size: Transitions of an update.
        warmup: Environment steps before the first update.
        steps_per_update: Environment steps from one update to the next.
        epsilon_start: Share of random actions at first.
        epsilon_end: Share of random actions in the end.
        epsilon_steps: Environment steps over which it falls, linearly.
        freeze_torso: Learn the values' read-out alone, from features as they are.
    """

    double: bool = True
    n_step: int = 1
    discount: float = 0.99
    learning_rate: float = 1e-3
    adam_epsilon: float = 1e-5
    max_gradient_norm: float = 10.0
    huber_delta: float = 1.0
    target_every: int = 250
    reward_scale: float = 1.0
    batch_size: int = 64
    warmup: int = 1_000
    steps_per_update: int = 4
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_steps: int = 10_000
    freeze_torso: bool = False

    def __post_init__(self) -> None:
        for name in (
            "n_step",
            "target_every",
            "batch_size",
            "warmup",
            "steps_per_update",
            "epsilon_steps",
        ):
            require_positive(name, getattr(self, name))
        require(0.0 <= self.discount < 1.0, "discount in [0, 1)", self.discount)
        for name in (
            "learning_rate",
            "adam_epsilon",
            "max_gradient_norm",
            "huber_delta",
            "reward_scale",
        ):
            value = getattr(self, name)
            require(0.0 < value < math.inf, f"a finite {name} > 0", value)
        for name in ("epsilon_start", "epsilon_end"):
            require(0.0 <= getattr(self, name) <= 1.0, f"{name} in [0, 1]", getattr(self, name))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuxiliaryConfig:
    """An auxiliary task: a representation objective on the torso's features, fed from replay.

    Attributes:
        objective: The objective.
        weight: What its loss counts beside the temporal-difference loss; 0 is no auxiliary task.
        tasks: Cumulants behind the task columns: indicators of the ``cells`` of a grid over the
            observations, thresholded random networks (``random_indicators``), or random waves
            (``random_fourier``).
        num_tasks: Task columns, drawn once at the start; ignored by ``cells``.
        cells_per_axis: Cells of the grid along each coordinate (``cells``).
        length_scale: Of the waves, in units of the observations (``random_fourier``).
        discount_low: Each column's discount is drawn uniformly from an interval; its lower end.
        discount_high: Its upper end.
        targets: Discounted sums along replayed sequences (``monte_carlo``), or continued beyond
            them by a prediction from the target network's features (``bootstrapped``).
        horizon: Rows of a sequence.
        sequences: Sequences of an update, each of which gives a row of the objective's batch.
    """

    objective: Annotated[Objective, tyro.conf.arg(constructor=objective_from_flags)] = LargeBatch(
        precondition=1e-2, leave_one_out=True
    )
    weight: Annotated[float, tyro.conf.arg(name="auxiliary-weight")] = 0.0
    tasks: Annotated[TaskName, tyro.conf.arg(name="auxiliary-tasks")] = "random_fourier"
    num_tasks: int = 64
    cells_per_axis: int = 10
    length_scale: float = 0.2
    discount_low: float = 0.9
    discount_high: float = 0.99
    targets: TargetName = "monte_carlo"
    horizon: int = 32
    sequences: int = 256

    def __post_init__(self) -> None:
        require(0.0 <= self.weight < math.inf, "a finite auxiliary weight >= 0", self.weight)
        require_choice("auxiliary tasks", self.tasks, get_args(TaskName))
        require_choice("targets", self.targets, get_args(TargetName))
        for name in ("num_tasks", "cells_per_axis", "horizon", "sequences"):
            require_positive(name, getattr(self, name))
        require(0.0 < self.length_scale < math.inf, "a finite length_scale > 0", self.length_scale)
        require(
            0.0 <= self.discount_low <= self.discount_high < 1.0,
            "discounts 0 <= discount_low <= discount_high < 1",
            (self.discount_low, self.discount_high),
        )
        if self.weight > 0.0:
            require(
                not self.objective.needs_population,
                "an auxiliary objective that needs no exact expectations",
                self.objective.name,
            )
            # How many features there are is not known here: check for the fewest.
            with_sizes(self.objective, num_features=1).require_rows(self.sequences)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """A training run of agents that differ in their seeds alone.

    Attributes:
        environment: ``puddle-world`` or ``puddle-world:ARENA`` (compiled), the id of a Gymnasium
            environment, or ``dm_env:MODULE:FUNCTION`` for what a function without arguments makes.
        encoder: The torso.
        num_features: d, its features; values are linear in them.
        dqn: The agent.
        replay: Its memory.
        auxiliary: Its auxiliary task.
        num_envs: Environments that each agent acts in at a time.
        max_episode_steps: Steps after which an episode is cut where the environment has no limit
            of its own, as those of Gymnasium mostly have.
        steps: Environment steps of each agent.
        evaluate_every: Environment steps between evaluations.
        evaluation_episodes: Episodes of an evaluation, apart from training.
        checkpoint_every: Environment steps between checkpoints; a multiple of ``evaluate_every``.
            Environments other than PuddleWorld begin new episodes there, as their state cannot be
            saved.
        seed: Seed of the first agent.
        num_seeds: Agents, with seeds ``seed`` ... ``seed + num_seeds - 1``.
    """

    environment: Annotated[str, tyro.conf.arg(name="env")] = "puddle-world"
    encoder: EncoderConfig = dataclasses.field(
        default_factory=lambda: EncoderConfig(name="mlp", hidden=(64, 64))
    )
    num_features: int = 32
    dqn: DQNConfig = dataclasses.field(default_factory=DQNConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=ReplayConfig)
    auxiliary: AuxiliaryConfig = dataclasses.field(default_factory=AuxiliaryConfig)
    num_envs: int = 4
    max_episode_steps: int = 200
    steps: int = 100_000
    evaluate_every: int = 5_000
    evaluation_episodes: int = 32
    checkpoint_every: int = 25_000
    seed: int = 0
    num_seeds: int = 1

    def __post_init__(self) -> None:
        for name in (
            "num_features",
            "num_envs",
            "max_episode_steps",
            "steps",
            "evaluate_every",
            "evaluation_episodes",
            "num_seeds",
        ):
            require_positive(name, getattr(self, name))
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)
        require(
            not (self.dqn.freeze_torso and self.auxiliary.weight > 0.0),
            "no auxiliary task where the torso is frozen",
            self.auxiliary.weight,
        )
        require(self.encoder.name != "tabular", "a torso of observations", self.encoder.name)
        require(
            self.dqn.steps_per_update % self.num_envs == 0,
            f"steps_per_update to be a multiple of num_envs ({self.num_envs})",
            self.dqn.steps_per_update,
        )
        self._require_multiples()
        self._require_memory()

    def _require_multiples(self) -> None:
        period = self.dqn.steps_per_update
        for name in ("warmup", "evaluate_every", "steps", "checkpoint_every"):
            value = self.dqn.warmup if name == "warmup" else getattr(self, name)
            of, unit = (
                (self.evaluate_every, "evaluate_every")
                if name in ("steps", "checkpoint_every")
                else (period, "steps_per_update")
            )
            fits = value >= 1 and value % of == 0
            require(fits, f"{name} to be a multiple of {unit} ({of})", value)

        require(
            self.dqn.warmup < self.steps,
            f"a warmup of less than the run's {self.steps} steps",
            self.dqn.warmup,
        )

    def _require_memory(self) -> None:
        """The shortest memory of one environment must hold a sequence, and warm-up fill it."""
        longest = self.sequence_length + 1
        least = longest * self.num_envs
        require(
            self.replay.capacity >= least,
            f"a replay capacity of at least {least} rows, a sequence of {longest} for each of "
            f"{self.num_envs} environments",
            self.replay.capacity,
        )
        require(
            self.dqn.warmup >= least,
            f"a warmup of at least {least} steps, a sequence of {longest} for each of "
            f"{self.num_envs} environments",
            self.dqn.warmup,
        )

    @property
    def sequence_length(self) -> int:
        """Rows of the longest sequence that is drawn from replay."""
        horizon = self.auxiliary.horizon if self.auxiliary.weight > 0.0 else 1
        return max(self.dqn.n_step + 1, horizon)
