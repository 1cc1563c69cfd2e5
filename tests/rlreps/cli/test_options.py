"""Options come from the dataclasses that they configure."""

import dataclasses
from pathlib import Path

import pytest

from rlreps.cli import main, parse_command
from rlreps.encoders import MLP
from rlreps.errors import InputError
from rlreps.losses import Explicit, LargeBatch
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
        (
            "--method explicit --weight-learning-rate 2",
            {"objective": Explicit(weight_learning_rate=2.0)},
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
    ("arguments", "message"),
    [
        (
            "train store --out run --method explicit --leave-one-out",
            "got --leave-one-out; options of fourier_mlp: ",
        ),
        ("train store --out run --states wide", "states to be one of centres, uniform, got 'wide'"),
        ("train store --out run --steps x", "--steps"),
        ("train --out run", "Missing"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_one_line(arguments, message):
    with pytest.raises(InputError) as raised:
        parse_command(arguments.split())
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_help_lists_the_options_of_the_chosen_class_with_their_descriptions(capsys):
    with pytest.raises(SystemExit) as ending:
        main(["train", "--method", "explicit", "--help"])
    assert ending.value.code == 0
    said = capsys.readouterr().out
    described, _, listed = said.partition("Options of each --")
    assert "--weight-learning-rate" in described
    assert "--leave-one-out" not in described
    assert "--leave-one-out" in listed
    assert "(default: None)" not in said
