"""Configuration and presets of the hydrogen experiment."""

import dataclasses
import math
from typing import Literal, get_args

from rlreps.errors import require, require_choice, require_positive
from rlreps.training.optimizers import Schedule

SamplingName = Literal["radial", "uniform"]
InputsName = Literal["cartesian", "radial"]
NetworksName = Literal["separate", "shared"]
OptimizerName = Literal["adam", "rmsprop"]

NUM_LEVELS = 3
"""Energy levels that are sought: 1 + 3 + 5 eigenfunctions."""

NUM_FEATURES = NUM_LEVELS**2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to train, with the paper's batch of 128 by default.

    Attributes:
        name: What figures and tables call it.
        sampling: ``uniform`` in the box, or ``radial``: uniform in log(1 + r), weighed by the
            inverse of its density.
        inputs: What the networks see: ``cartesian`` (x, y) / D, or ``radial``
            (x/(1 + r), y/(1 + r), log(1 + r), r/D).
        networks: ``separate`` for each eigenfunction (block-sparse layers), or one with ``shared``
            layers.
        hidden: Widths of the hidden layers, of each network if separate.
        averaging_rate: β.
        rows: b, points of a batch.
        optimizer: ``adam``, or ``rmsprop`` with decay 0.999.
        learning_rate: Its initial learning rate.
        schedule: ``constant``, or ``cosine`` or ``linear`` decay to zero.
        steps: Updates.
    """

    name: str
    sampling: SamplingName = "radial"
    inputs: InputsName = "radial"
    networks: NetworksName = "separate"
    hidden: tuple[int, ...] = (32, 32)
    averaging_rate: float = 1.0
    rows: int = 128
    optimizer: OptimizerName = "adam"
    learning_rate: float = 0.01
    schedule: Schedule = "cosine"
    steps: int = 5000

    @property
    def is_published(self) -> bool:
        """Whether it is the paper's protocol, with its moving averages, for as long."""
        protocol = (self.sampling, self.inputs, self.optimizer)
        return (
            protocol == ("uniform", "cartesian", "rmsprop")
            and self.averaging_rate < 1.0
            and self.steps >= 1_000_000
        )

    def __post_init__(self) -> None:
        require_choice("sampling", self.sampling, get_args(SamplingName))
        require_choice("inputs", self.inputs, get_args(InputsName))
        require_choice("networks", self.networks, get_args(NetworksName))
        require_choice("optimizer", self.optimizer, get_args(OptimizerName))
        require_choice("schedule", self.schedule, get_args(Schedule))
        for width in self.hidden:
            require_positive("hidden layer widths", width)
        require_positive("rows", self.rows)
        require_positive("steps", self.steps)
        require(0.0 < self.averaging_rate <= 1.0, "averaging_rate in (0, 1]", self.averaging_rate)
        require(
            0.0 < self.learning_rate < math.inf, "a finite learning_rate > 0", self.learning_rate
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HydrogenConfig:
    """The hydrogen atom in two dimensions, H = −∇² − 1/|x| in a box.

    Attributes:
        contenders: Ways to train; ours first.
        num_seeds: Seeds 0 … num_seeds - 1 of each, trained together.
        half_width: D, half a side of the box [−D, D]², in the units of H.
        grid_points: Points a side of the grid solver, even: none lies on the singularity.
        evaluations: Measurements during training, after the one before it.
        tolerance: Relative error that every energy of every seed is to stay within.
    """

    contenders: tuple[Contender, ...]
    num_seeds: int
    half_width: float = 50.0
    grid_points: int = 128
    evaluations: int = 20
    tolerance: float = 0.05

    def __post_init__(self) -> None:
        require(len(self.contenders) >= 1, "at least one contender", len(self.contenders))
        names = [contender.name for contender in self.contenders]
        require(len(set(names)) == len(names), "contenders of different names", names)
        require_positive("num_seeds", self.num_seeds)
        require_positive("evaluations", self.evaluations)
        require(0.0 < self.half_width < math.inf, "a finite half_width > 0", self.half_width)
        even = self.grid_points % 2 == 0 and self.grid_points >= 8
        require(even, "an even number of grid_points >= 8", self.grid_points)
        for contender in self.contenders:
            require(
                contender.steps % self.evaluations == 0,
                f"steps to be a multiple of {self.evaluations} evaluations",
                contender.steps,
            )


def _ablations(steps: int) -> tuple[Contender, ...]:
    """Ours, and ours with one choice at a time put back to the paper's."""
    ours = Contender(name="ours", steps=steps)
    changes: dict[str, dict[str, object]] = {
        "β = 0.01": {"averaging_rate": 0.01},
        "uniform sampling": {"sampling": "uniform"},
        "Cartesian inputs": {"inputs": "cartesian"},
        "RMSProp": {"optimizer": "rmsprop"},
        "shared layers": {"networks": "shared", "hidden": (96, 96)},
    }
    others = (
        dataclasses.replace(ours, name=f"ours, but {what}", **change)  # type: ignore[arg-type]
        for what, change in changes.items()
    )
    return (ours, *others)


def _protocol(averaging_rate: float, *, steps: int, learning_rate: float) -> Contender:
    """The paper's protocol on networks of our size: uniform points, (x, y), RMSProp."""
    return Contender(
        name=f"Pfau et al., β = {averaging_rate:g}",
        sampling="uniform",
        inputs="cartesian",
        averaging_rate=averaging_rate,
        optimizer="rmsprop",
        learning_rate=learning_rate,
        schedule="constant",
        steps=steps,
    )


def _preset(steps: int, protocol_steps: int, learning_rate: float) -> tuple[Contender, ...]:
    protocols = (
        _protocol(rate, steps=protocol_steps, learning_rate=learning_rate) for rate in (0.01, 1.0)
    )
    return (*_ablations(steps), *protocols)


PRESETS: dict[str, HydrogenConfig] = {
    "smoke": HydrogenConfig(
        contenders=(
            Contender(name="ours", steps=300, hidden=(16, 16)),
            _protocol(0.01, steps=20, learning_rate=1e-3),
        ),
        num_seeds=2,
        grid_points=32,
        evaluations=5,
    ),
    # A rate of 1e-5, the paper's, would hardly move anything in so few updates.
    "laptop": HydrogenConfig(contenders=_preset(5000, 5000, 1e-3), num_seeds=6),
    "paper": HydrogenConfig(contenders=_preset(20_000, 1_000_000, 1e-5), num_seeds=10),
}
"""Preset name → configuration."""
