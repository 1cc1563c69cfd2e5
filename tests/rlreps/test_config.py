import dataclasses
import importlib
import inspect
import json
import math
import pkgutil
from pathlib import Path
from typing import Literal, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlreps
import rlreps.agents
import rlreps.envs
from rlreps.agents import prior_of
from rlreps.app import export_run, run_job
from rlreps.config import (
    as_json,
    checked,
    configurable,
    from_json,
    interval,
    options,
    positive,
    registry,
    size,
    with_sizes,
)
from rlreps.cumulants import Discs
from rlreps.encoders import MLP
from rlreps.envs import load_arena
from rlreps.errors import InputError, require
from rlreps.losses import Naive
from rlreps.plotting import over_runs, series_style
from rlreps.runs import progress_bar
from rlreps.sources import draw_rows_and_tasks, puddle_world_source
from rlreps.subspace import components_kept
from rlreps.successor import create_or_resume
from rlreps.successor.truth.store import create_estimates
from rlreps.training import Optimizer, learner_for, make_learner, train
from rlreps.worlds import estimate_arena


@configurable
@dataclasses.dataclass(frozen=True)
class ToyMethod:
    num_features: int = size(10)
    _: dataclasses.KW_ONLY
    rate: float = interval("(0, 2)", 0.5)
    ridge: float | None = interval("(0, inf)", None)
    widths: tuple[int, ...] = (3, 4)

    def __post_init__(self):
        require(self.num_features <= len(self.widths) * 10, "widths enough", self.widths)


@dataclasses.dataclass(frozen=True)
class ToyRun:
    method: ToyMethod = ToyMethod()
    steps: int = 3
    follow_up: "ToyFollowUp | None" = None


@dataclasses.dataclass(frozen=True)
class ToyFollowUp:
    name: str = "adam"


def test_numbers_are_leaves_and_the_rest_is_structure():
    assert jax.tree.leaves(ToyMethod(rate=0.1, ridge=2.0)) == [0.1, 2.0]
    assert jax.tree.leaves(ToyMethod(rate=0.1)) == [0.1]


def test_a_program_may_vary_numbers_and_checks_only_see_what_a_user_wrote():
    many = ToyMethod(rate=jnp.array([0.1, 5.0]))
    doubled = jax.vmap(lambda method: 2 * method.rate)(many)
    assert doubled.tolist() == pytest.approx([0.2, 10.0])
    with pytest.raises(InputError, match=r"expected rate in \(0, 2\), got 5.0"):
        ToyMethod(rate=5.0)


@checked
@dataclasses.dataclass(frozen=True)
class ToyConfig:
    steps: int
    rows: int | None = positive(None, least=2, most=3000)
    kind: Literal["a", "b"] | None = "a"
    either: Literal["all"] | int = "all"
    version: Literal[1, 2] = 1
    place: Path = Path("here")
    seed: int = interval("[0, 2**31)", 0)
    method: ToyMethod = ToyMethod()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ToyMethod(0), "num_features >= 1, got 0"),
        (lambda: ToyMethod(rate=2.0), r"rate in \(0, 2\), got 2.0"),
        (lambda: ToyMethod(rate=float("nan")), r"rate in \(0, 2\), got nan"),
        (lambda: ToyMethod(ridge=0), r"ridge in \(0, inf\), got 0"),
        (lambda: ToyMethod(30), "widths enough"),
        (lambda: ToyConfig(1, 1), "rows >= 2, got 1"),
        (lambda: ToyConfig(1, rows=3001), "rows <= 3,000, got 3001"),
        (lambda: ToyConfig(1, kind="c"), "kind to be one of a, b or None, got 'c'"),
        (lambda: ToyConfig(1, seed=2**31), r"seed in \[0, 2\*\*31\), got 2147483648"),
        (lambda: from_json(ToyConfig, {"steps": 1, "rows": 0}), "rows >= 2, got 0"),
        (lambda: ToyConfig(None), "steps to be an integer, got None"),
        (lambda: ToyConfig(1, either="none"), "either to be one of all or an integer, got 'none'"),
        (lambda: ToyConfig(1, method="toy"), "method to be of type ToyMethod, got 'toy'"),
        (lambda: ToyConfig(1, version=True), "version to be one of 1, 2, got True"),
        (lambda: ToyConfig(1, place=5), "place to be a path, got 5"),
        (lambda: ToyMethod(rate="1"), "rate to be a number, got '1'"),
        (lambda: ToyMethod(rate=np.array("x")), r"rate to be a number, got array\('x'"),
        (lambda: ToyMethod(rate=np.array(True)), r"rate to be a number, got array\(True\)"),
        (lambda: ToyMethod(rate=np.float64(2)), r"rate in \(0, 2\), got np.float64\(2.0\)"),
        (lambda: ToyMethod(widths=[3]), r"widths to be a tuple of integers, got \[3\]"),
    ],
)
def test_fields_check_what_a_user_gives(make, message):
    ToyConfig(1, kind=None, either=7, seed=2**31 - 1, version=2, place="there")
    with pytest.raises(InputError, match=f"^expected {message}"):
        make()


def public_objects():
    """List what packages export, except those of studies, whose inputs are their own."""
    for root in (rlreps, rlreps.agents, rlreps.envs):
        walked = pkgutil.walk_packages(root.__path__, f"{root.__name__}.")
        names = [module.name for module in walked if module.ispkg]
        for name in (root.__name__, *names):
            if not {"experiments", "stats", "study"} & {*name.split(".")}:
                module = importlib.import_module(name)
                exported = getattr(module, "__all__", dir(module))
                yield from (getattr(module, each) for each in exported if each[0] != "_")


def public_dataclasses():
    """List the dataclasses that packages export, except those of experiments."""
    found = {each for each in public_objects() if isinstance(each, type)}
    return {cls for cls in found if dataclasses.is_dataclass(cls) and not inspect.isabstract(cls)}


def test_every_public_field_that_is_an_integer_refuses_other_values():
    fields = [
        (cls, field.name, hint)
        for cls in public_dataclasses()
        for field in dataclasses.fields(cls)
        if field.init and (hint := get_type_hints(cls)[field.name]) in (int, int | None)
    ]
    assert len(fields) > 120
    for cls, name, hint in fields:
        for wrong in (2.5, "3", True, math.nan, *([None] if hint is int else [])):
            # Other fields are missing: values are checked first.
            with pytest.raises(InputError, match=f"expected {name}.*, got "):
                cls(**{name: wrong})
        message = ""
        try:
            cls(**{name: np.int64(2)})
        except (TypeError, ValueError) as error:  # Other fields are missing or do not fit.
            message = str(error)
        assert f"{name} to be an" not in message, cls


def public_functions():
    """List the functions that packages export, compiled ones too, except those of experiments."""
    return {
        each
        for each in public_objects()
        if inspect.isfunction(inspect.unwrap(each)) and each.__module__.startswith("rlreps.")
    }


WITH = {
    puddle_world_source: {"environment": load_arena("empty"), "cumulants": Discs()},
    train: {"encoder": MLP(), "objective": Naive(), "optimizer": Optimizer()},
    create_estimates: {"path": "nowhere", "shape": (2, 2)},
    create_or_resume: {"shape": (2, 2)},
    estimate_arena: {"arena": "empty"},
}
"""Function → values of parameters that it checks before its integers."""

CHECKED_LATER = {(prior_of, "improvements"), (export_run, "seed"), (run_job, "jobs")}
"""By the representation, by the run and by the job."""

WITHOUT = {
    *(components_kept, draw_rows_and_tasks, learner_for, make_learner),
    *(over_runs, progress_bar, series_style),
}
"""Functions that only experiments call; sizes of data that were checked reach them."""


def test_every_parameter_of_a_public_function_that_is_an_integer_refuses_other_values():
    parameters = [
        (function, name, signature)
        for function in public_functions() - WITHOUT
        for signature in [inspect.signature(function).parameters]
        for name in signature
        if signature[name].annotation in (int, int | None)
    ]
    assert len(parameters) > 25
    for function, name, signature in parameters:
        if (function, name) in CHECKED_LATER:
            continue
        required = {
            each.name: {int: 2, float: 0.5}.get(each.annotation)
            for each in signature.values()
            if each.default is each.empty
        }
        for wrong in (2.5, "3", True):
            with pytest.raises(InputError, match=f"^expected {name} to be an int"):
                function(**{**required, **WITH.get(function, {}), name: wrong})


def test_sizes_are_filled_in_and_are_no_options():
    assert with_sizes(ToyMethod(rate=0.1), num_features=4, num_tasks=7) == ToyMethod(4, rate=0.1)
    assert [field.name for field in options(ToyMethod)] == ["rate", "ridge", "widths"]


def test_json_has_no_numbers_of_numpy():
    assert json.dumps(as_json(ToyRun(ToyMethod(rate=np.float32(0.5)), steps=np.int64(2))))


def test_json_names_the_class_and_comes_back():
    run = ToyRun(ToyMethod(rate=0.1, widths=(5,)))
    stored = as_json(run)
    assert stored == {
        "method": {"name": "toy_method", "rate": 0.1, "ridge": None, "widths": [5]},
        "steps": 3,
        "follow_up": None,
    }
    assert from_json(ToyRun, stored, registry(ToyMethod)) == run
    run = dataclasses.replace(run, follow_up=ToyFollowUp("sgd"))
    assert from_json(ToyRun, as_json(run), registry(ToyMethod)) == run
    with pytest.raises(InputError, match=r"ToyMethod, got .*momentum"):
        from_json(ToyRun, {"method": {"name": "toy_method", "momentum": 1}}, registry(ToyMethod))
