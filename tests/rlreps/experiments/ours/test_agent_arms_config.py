import dataclasses

import pytest

from rlreps.agents import AgentConfig, AuxiliaryConfig
from rlreps.errors import InputError
from rlreps.experiments.ours.agent_arms_config import NO_TASK, ComparedAgents
from rlreps.losses import Explicit, Spin

EXPLICIT = AuxiliaryConfig(objective=Explicit(), weight=0.5, num_tasks=7)
COMPARED = ComparedAgents(
    base=AgentConfig(auxiliary=AuxiliaryConfig(weight=3.0, num_tasks=9)),
    tasks=(EXPLICIT, AuxiliaryConfig(objective=Spin(), weight=0.1)),
    threshold=-1.0,
)


def test_arms_differ_in_their_auxiliary_task_alone_and_the_first_has_none():
    arms = COMPARED.arms()
    assert list(arms) == [NO_TASK, "explicit", "spin"]
    assert arms[NO_TASK].auxiliary.weight == 0.0
    assert arms["explicit"].auxiliary == EXPLICIT
    for config in arms.values():
        assert dataclasses.replace(config, auxiliary=COMPARED.base.auxiliary) == COMPARED.base


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ()}, "at least one auxiliary task"),
        ({"tasks": (EXPLICIT, EXPLICIT)}, "different objectives"),
        ({"tasks": (dataclasses.replace(EXPLICIT, weight=0.0),)}, "auxiliary weight > 0"),
        ({"tasks": (dataclasses.replace(EXPLICIT, horizon=5_000),)}, "replay capacity|warmup"),
        ({"threshold": float("nan")}, "finite threshold"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(COMPARED, **change)
