"""Options come from the dataclasses that they configure."""

import dataclasses
from pathlib import Path

import pytest

from rlreps.agents.auxiliary import TASKS
from rlreps.cli import parse_command
from rlreps.cumulants import CUMULANTS
from rlreps.encoders import ENCODERS, MLP
from rlreps.errors import InputError
from rlreps.losses import OBJECTIVES, LargeBatch
from rlreps.training import Optimizer
from rlreps.workflows.train import TrainingConfig

TRAIN = ["train", "store", "--out", "run"]


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("", {}),
        # The default's options stay only where the class is the default's.
        ("--method large-batch", {}),
        (
            "--method=large_batch --leave_one_out --precondition None",
            {"objective": LargeBatch(leave_one_out=True)},
        ),
        ("--states uniform", {"states": "uniform"}),
        ("--optimizer sgd", {"optimizer": Optimizer(name="sgd")}),
        ("--encoder mlp --hidden 4 5", {"encoder": MLP(hidden=(4, 5))}),
    ],
)
def test_arguments_become_the_thing_itself(text, changes):
    found = parse_command([*TRAIN, *text.split()])
    assert (found.store, found.out, found.devices) == (Path("store"), Path("run"), None)
    assert found.config == dataclasses.replace(TrainingConfig(), **changes)


@pytest.mark.parametrize(
    ("command", "flag", "names"),
    [
        ("train store", "method", OBJECTIVES),
        ("train store", "encoder", ENCODERS),
        ("train-live", "cumulants", CUMULANTS),
        ("agent train --auxiliary-weight 0.1", "auxiliary-tasks", TASKS),
    ],
)
def test_every_choice_of_a_command_can_be_parsed(command, flag, names):
    for name in names:
        parse_command([*command.split(), "--out", "run", f"--{flag}", name.replace("_", "-")])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "train store --out run --method explicit --leave-one-out",
            "got --leave-one-out; options of fourier_mlp: ",
        ),
        ("train --out run", "Missing"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_one_line(arguments, message):
    with pytest.raises(InputError) as raised:
        parse_command(arguments.split())
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
