import dataclasses

import jax
import jax.numpy as jnp
import pytest

from rlreps.config import (
    as_json,
    configurable,
    from_json,
    name_of,
    options,
    registry,
    size,
    with_sizes,
)
from rlreps.errors import InputError, require_interval


@configurable
@dataclasses.dataclass(frozen=True)
class ToyMethod:
    num_features: int = size(10)
    _: dataclasses.KW_ONLY
    rate: float = 0.5
    ridge: float | None = None
    widths: tuple[int, ...] = (3, 4)

    def __post_init__(self):
        require_interval("rate", self.rate, "(0, 2)")


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


def test_names():
    class FourierMLP: ...

    class DanskinLissa: ...

    assert [name_of(FourierMLP), name_of(DanskinLissa)] == ["fourier_mlp", "danskin_lissa"]


@pytest.mark.parametrize(
    ("value", "interval", "fits"),
    [(0.0, "[0, 1]", True), (0.0, "(0, 1]", False), (1.0, "[0, 1)", False), (3, "[1, inf)", True)],
)
def test_intervals(value, interval, fits):
    if fits:
        require_interval("x", value, interval)
    else:
        with pytest.raises(InputError):
            require_interval("x", value, interval)
    with pytest.raises(InputError):
        require_interval("x", float("nan"), interval)
