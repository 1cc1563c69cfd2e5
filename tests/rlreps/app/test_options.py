"""Options come from the dataclasses that they configure."""

import dataclasses
import importlib
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

import rlreps.app.main
from rlreps.app.command_options import command_class
from rlreps.app.commands import every_command
from rlreps.app.main import parse_command
from rlreps.app.options import Options
from rlreps.encoders import MLP
from rlreps.errors import InputError
from rlreps.losses import LargeBatch
from rlreps.training import Optimizer
from rlreps.training.config import TrainingConfig

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


def test_objectives_and_agents_have_discounts_of_their_own():
    words = "agent train --auxiliary-weight 0.1 --method td_low_rank --discount 0.9"
    config = parse_command([*words.split(), "--method-discount", "0.7", "--out", "run"]).config
    assert (config.dqn.discount, config.auxiliary.objective.discount) == (0.9, 0.7)


def test_negative_numbers_are_values_and_none_is_no_path():
    words = "plot env --out figure.png --goal 0.1 -2e-1 .3"
    assert parse_command(words.split()).goal == (0.1, -0.2, 0.3)
    assert parse_command(["evaluate", "run", "--store", "None"]).store is None


@pytest.mark.parametrize(
    ("words", "description"),
    [
        ("svd --help", "extra columns of the Gaussian test panel"),
        ("train --method danskin-lissa --help", "a running average of the batches' maxima"),
    ],
)
def test_help_describes_options_whatever_the_form_of_the_docstring(words, description, capsys):
    with pytest.raises(SystemExit, match="0"):
        parse_command(words.split())
    assert description in " ".join(capsys.readouterr().out.split())


def options_of(command):
    """Yield the options of a command: the defaults, and those of each class that it offers."""
    home, _, leaf = every_command()[command][0].partition(":")
    module = importlib.import_module(f"rlreps.{home}")
    of_experiment = home == "app.experiments"
    cls = module.command_of(leaf) if of_experiment else command_class(getattr(module, leaf))
    parts = [getattr(module, part, {}) for part in ("CHOICES", "NAMES", "NEEDS")]
    found = Options([], command, *parts)
    found.add(cls)
    yield found
    for flag, classes in found.menus:
        for name in classes:
            found = Options([f"--{flag}", name], command, *parts)
            found.add(cls)
            yield found


@pytest.mark.parametrize("command", every_command())
def test_every_option_refuses_a_wrong_value_in_one_line(command, capsys):
    wrong, seen = {int: "2.5", float: "x1"}, set()
    for found in options_of(command):
        chosen = [*found.arguments]
        for flag, hint in found.flags.items():
            kinds = {hint, *get_args(hint)}
            texts = [wrong[kind] for kind in kinds & {*wrong}]
            texts += ["0x"] * (get_origin(hint) is Literal) + ["1"] * (hint is bool)
            if (flag, str(hint)) in seen or not flag.startswith("--"):
                continue
            seen.add((flag, str(hint)))
            for text in texts:
                found.arguments = [*chosen, f"{flag}={text}"]
                said = rf"^argument {flag}[^:]*: (expected .*, got|ignored .*) '{text}'$"
                with pytest.raises(InputError, match=said):
                    found.parse()
    with pytest.raises(SystemExit) as ending:
        rlreps.app.main.main([*command.split(), *(found.arguments or ["--wrong"])])
    assert ending.value.code == 2
    assert capsys.readouterr().err.startswith("rlreps: error: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "train store --out run --method explicit --leave-one-out",
            "got --leave-one-out; options of fourier_mlp: ",
        ),
        ("train --out run", "the following arguments are required: STORE"),
        ("train store", "the following arguments are required: --out"),
        ("train store --out=", "argument --out: expected a path, got ''"),
        ("train store --out run --steps", "argument --steps: expected one argument"),
        ("train store more --out run", "expected no further arguments of rlreps train, got 'more'"),
        ("train store -x --out run", "expected an option of rlreps train, got -x"),
        ("agent train --out run --goal 1 2", "argument --goal: expected 3 arguments"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_one_line(arguments, message):
    with pytest.raises(InputError) as raised:
        parse_command(arguments.split())
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
