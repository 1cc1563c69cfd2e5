"""Options come from the dataclasses that they configure."""

import dataclasses
import pathlib
from typing import Any, Literal

import pytest
from tyro.conf import Positional

from rlreps.cli.options import Choice, parse
from rlreps.config import configurable, registry, size
from rlreps.errors import InputError, require_interval


@configurable
@dataclasses.dataclass(frozen=True)
class LargeToy:
    """Fit weights.

    Attributes:
        num_features: d.
        precondition: The ridge.
        leave_one_out: Leave rows out.
    """

    num_features: int = size(10)
    _: dataclasses.KW_ONLY
    precondition: float | None = None
    leave_one_out: bool = False


@configurable
@dataclasses.dataclass(frozen=True)
class ExplicitToy:
    """Store weights.

    Attributes:
        rate: Learning rate of the weights.
    """

    rate: float | None = None

    def __post_init__(self):
        require_interval("rate", self.rate, "(0, inf)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """One run.

    Attributes:
        objective: The objective.
        steps: Updates.
        hidden: Widths.
        spacing: Of the grid.
    """

    objective: Any = dataclasses.field(default_factory=lambda: LargeToy(precondition=0.01))
    steps: int = 100
    hidden: tuple[int, ...] = (3,)
    spacing: Literal["even", "log_scale"] = "even"


@dataclasses.dataclass(frozen=True)
class Train:
    """Train on a store.

    Attributes:
        store: Folder of the store.
        config: The run.
    """

    store: Positional[pathlib.Path]
    config: Config = dataclasses.field(default_factory=Config)


def run(text):
    return parse(
        Train,
        text.split(),
        "rlreps train",
        {Any: Choice("method", registry(LargeToy, ExplicitToy))},
        {"Config.steps": "updates"},
    )


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("s", Config()),
        ("s --method large-toy", Config()),
        (
            "s --method=large_toy --leave_one_out --precondition None",
            Config(objective=LargeToy(leave_one_out=True)),
        ),
        ("s --method explicit_toy --rate 2", Config(objective=ExplicitToy(2.0))),
        ("s --spacing log-scale", Config(spacing="log_scale")),
        ("s --updates 3 --hidden 4 5", Config(steps=3, hidden=(4, 5))),
    ],
)
def test_arguments_become_the_thing_itself(text, config):
    assert run(text) == Train(pathlib.Path("s"), config)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "s --method explicit-toy --leave-one-out",
            "got --leave-one-out; options of explicit_toy: --rate",
        ),
        ("s --spacing wide", "expected spacing to be one of even, log_scale, got 'wide'"),
        ("s --updates x", "--updates"),
        ("", "Missing"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_one_line(text, message):
    with pytest.raises(InputError) as raised:
        run(text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_help_lists_the_options_of_the_chosen_class_with_their_descriptions(capsys):
    with pytest.raises(SystemExit) as ending:
        run("--method explicit_toy --help")
    assert ending.value.code == 0
    said = capsys.readouterr().out
    assert "Learning rate of the weights." in said
    described, _, listed = said.partition("Options of each --")
    assert "--leave-one-out" not in described
    assert "--leave-one-out" in listed
    assert "(default: None)" not in said
