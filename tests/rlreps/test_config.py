import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import pytest

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
from rlreps.errors import InputError, require


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
        (lambda: ToyConfig(1, kind="c"), "kind to be one of a, b, got 'c'"),
        (lambda: ToyConfig(1, seed=2**31), r"seed in \[0, 2\*\*31\), got 2147483648"),
        (lambda: from_json(ToyConfig, {"steps": 1, "rows": 0}), "rows >= 2, got 0"),
    ],
)
def test_fields_check_what_a_user_gives(make, message):
    ToyConfig(1, kind=None, either=7, seed=2**31 - 1)
    with pytest.raises(InputError, match=f"^expected {message}"):
        make()


def test_sizes_are_filled_in_and_are_no_options():
    assert with_sizes(ToyMethod(rate=0.1), num_features=4, num_tasks=7) == ToyMethod(4, rate=0.1)
    assert [field.name for field in options(ToyMethod)] == ["rate", "ridge", "widths"]


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
