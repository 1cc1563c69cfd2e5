"""Which runs of a sweep one compiled program can train together."""

import dataclasses
from typing import NamedTuple

from rlreps.config import options
from rlreps.configs import TrainingConfig
from rlreps.configs.sweep import FieldValue, SweepConfig, field_value, with_fields
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
    found: dict[TrainingConfig, list[Member]] = {}
    for index, point in enumerate(sweep.points):
        config = point.config
        numbers = Hyperparameters.of(config.objective, config.optimizer.learning_rate)
        defaults = _defaults(config)
        found.setdefault(with_fields(config, defaults), []).extend(
            Member(index, seed, numbers)
            for seed in range(config.seed, config.seed + config.num_seeds)
        )
    return [Group(config, tuple(members)) for config, members in found.items()]


def _defaults(config: TrainingConfig) -> dict[str, FieldValue]:
    """The defaults of the fields in which members may differ, of those that a run has."""
    cls = type(config.objective)
    default = TrainingConfig(objective=cls(), rows=10**6)
    names = {f"objective.{field.name}" for field in options(cls)}
    return {
        field: field_value(default, field)
        for field in _OF_MEMBERS
        if not field.startswith("objective.") or field in names
    }
