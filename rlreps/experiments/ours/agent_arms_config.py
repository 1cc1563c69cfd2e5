"""Agents that differ in their auxiliary task alone, as experiments compare them."""

import dataclasses
import math

from rlreps.agents import AgentConfig, AuxiliaryConfig
from rlreps.errors import require
from rlreps.report.method_names import method_name

NO_TASK = "no auxiliary task"
"""Label of the first arm, which the others are compared with."""

FEWEST_SEEDS = 10
"""Agents of each arm below which no verdict is given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedAgents:
    """Agents in one environment: without an auxiliary task, and with each of several.

    Attributes:
        base: All that they have in common; its own auxiliary task counts for nothing.
        tasks: Auxiliary tasks, of different objectives and of weight > 0.
        threshold: Return whose samples are counted, undiscounted.
    """

    base: AgentConfig
    tasks: tuple[AuxiliaryConfig, ...]
    threshold: float

    def __post_init__(self) -> None:
        require(len(self.tasks) >= 1, "at least one auxiliary task", self.tasks)
        require(math.isfinite(self.threshold), "a finite threshold", self.threshold)
        names = [task.objective.name for task in self.tasks]
        require(len(set(names)) == len(names), "auxiliary tasks of different objectives", names)
        for task in self.tasks:
            require(task.weight > 0.0, "an auxiliary weight > 0 of every task", task.weight)
        self.arms()

    def arms(self) -> dict[str, AgentConfig]:
        """Label → agents, those without an auxiliary task first."""
        none = dataclasses.replace(self.base.auxiliary, weight=0.0)
        return {
            NO_TASK: dataclasses.replace(self.base, auxiliary=none),
            **{
                method_name(task.objective.name): dataclasses.replace(self.base, auxiliary=task)
                for task in self.tasks
            },
        }
