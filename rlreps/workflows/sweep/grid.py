"""Which runs of a sweep one compiled program can train together."""

import dataclasses
from typing import NamedTuple

from rlreps.configs import TrainingConfig
from rlreps.configs.sweep import SweepConfig, field_value, with_fields
from rlreps.training.hyperparameters import HYPERPARAMETER_FIELDS, Hyperparameters

_OF_MEMBERS = (*HYPERPARAMETER_FIELDS, "seed", "num_seeds")
"""Fields in which the members of one program may differ."""


class Member(NamedTuple):
    """One run among those of a program.

    Attributes:
        point: Index of its point in the grid.
        seed: Its seed.
        hyperparameters: Its numbers.
    """

    point: int
    seed: int
    hyperparameters: Hyperparameters


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that one compiled program trains.

    Attributes:
        config: All that they share; fields in which they may differ are the defaults.
        members: The runs, in the order of the grid's points and their seeds.
    """

    config: TrainingConfig
    members: tuple[Member, ...]


def groups_of(sweep: SweepConfig) -> list[Group]:
    """The runs of a sweep by program, in the order in which the grid first needs each.

    Points that differ in seeds and in ``HYPERPARAMETER_FIELDS`` alone share a program: nothing else
    leaves every shape and every operation as they are.
    """
    defaults = {field: field_value(TrainingConfig(), field) for field in _OF_MEMBERS}
    found: dict[TrainingConfig, list[Member]] = {}
    for index, point in enumerate(sweep.points):
        config = point.config
        numbers = Hyperparameters.of(config.objective, config.optimizer.learning_rate)
        found.setdefault(with_fields(config, defaults), []).extend(
            Member(index, seed, numbers)
            for seed in range(config.seed, config.seed + config.num_seeds)
        )
    return [Group(config, tuple(members)) for config, members in found.items()]
