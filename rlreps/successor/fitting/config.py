"""Methods that fit a successor representation, and their options, given and filled in."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from rlreps.config import (
    as_json,
    checked,
    configurable,
    interval,
    options,
    positive,
)
from rlreps.encoders import EVERY_ENCODER, Encoder, Tabular
from rlreps.errors import InputError, require, require_choice
from rlreps.successor.fitting.observed import Observed
from rlreps.training.optimizers import Optimizer

Axes = Literal["coordinates", "principal"]

BehaviourName = Literal["estimated", "uniform"]

MOST_FEATURES = 4096
"""Largest number of features d or p: dense systems of several times this size are solved."""


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class LeastSquaresFit:
    """Solve linear equations (see ``rlreps.successor.fitting.least_squares``).

    Indices of states get one feature each. Short vectors get random Fourier features.

    Attributes:
        max_features: Largest number of features φ of the state, p; at most 800 for a box.
        width: Length scale of the kernel along its axes. The unit is the standard deviation along
            an axis times the root of the number of axes. None searches 1, 1/2 and 1/4.
        axes: Whether the kernel is along the coordinates of observations or along the principal
            axes of the data, which whitens them. None searches both. Of the kernels whose error on
            held-out episodes is at most 1.1 times the smallest, the one counts that predicts the
            changes of observations best.
        regularisation: λ; None takes the smallest of 10⁻⁶ … 10⁻³ whose error is at most 1.1 times
            the smallest error.
    """

    max_features: int = interval(f"[2, {MOST_FEATURES}]", 800)
    width: float | None = interval("(0, inf)", None)
    axes: Axes | None = None
    regularisation: float | None = interval("(0, inf)", None)


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class TemporalDifferences:
    """Train forward-backward networks on single transitions (see ``ForwardBackwardLoss``).

    The next action is the data's own. Nothing follows a terminated row. Where a record was cut, the
    target averages over actions, weighted by the data's action frequencies or by the user's policy.
    Least squares in the features of the trained networks then replace their last layer.

    Attributes:
        averaging_rate: Share of the new parameters in the target network's average at each update.
    """

    averaging_rate: float = interval("(0, 1]", 0.1)


FitMethod: TypeAlias = LeastSquaresFit | TemporalDifferences

FIT_METHODS: dict[str, type[FitMethod]] = {
    "least_squares": LeastSquaresFit,
    "td": TemporalDifferences,
}
"""Name → method."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How a successor representation is fitted.

    Attributes:
        num_features: d.
        discount: γ, in (0, 1).
        method: None is least squares for vectors of at most 70 numbers and for indices of states
            with discrete actions, else temporal differences.
        encoder: The encoder of F (with a head for each feature of an action) and of B. None takes
            the one that fits the observations (``Observed.default_encoder``). Least squares use
            none.
        optimizer: The optimizer of both networks; None takes a learning rate of 0.02 for tables and
            0.001 for networks.
        steps: Updates of the networks; None is 5,000. Least squares make none.
        rows: Transitions drawn per update of the networks; None is 512.
        seed: Seed of all random numbers.
        behaviour: Whether the data's policy is estimated (by counts for indices of states, else by
            a regression) or known to be uniform.
    """

    num_features: int = positive(64, most=MOST_FEATURES)
    discount: float = interval("(0, 1)", 0.95)
    method: FitMethod | None = None
    encoder: Encoder | None = None
    optimizer: Optimizer | None = None
    steps: int | None = positive(None)
    rows: int | None = positive(None, least=2)
    seed: int = interval("[0, 2**31)", 0)
    behaviour: BehaviourName = "estimated"


def configured(config: FitConfig | None, given: Mapping[str, Any]) -> FitConfig:
    """Build a configuration from options of ``FitConfig`` and of its method; refuse others."""
    rest, base = dict(given), FitConfig() if config is None else config
    method = rest.pop("method", base.method)
    if isinstance(method, str):
        require_choice("method", method, list(FIT_METHODS))
        method = FIT_METHODS[method]()
    own = {field.name for field in dataclasses.fields(FitConfig)} - {"method"}
    of = {kind: {field.name for field in options(kind)} for kind in FIT_METHODS.values()}
    if method is None:
        # The first method that has one of the given options is taken.
        method = next((kind() for kind in of if rest.keys() & of[kind]), None)
    of_method = of.get(type(method), set())
    unknown = sorted(rest.keys() - own - of_method)
    if unknown:
        raise InputError(
            f"expected options of fit ({', '.join(sorted(own))}) or of its method "
            f"({', '.join(sorted(of_method)) or 'none given'}), got {', '.join(unknown)}"
        )
    chosen = {name: rest.pop(name) for name in of_method & rest.keys()}
    if method is not None and chosen:
        method = dataclasses.replace(method, **chosen)
    return dataclasses.replace(base, method=method, **rest)


_OF_NETWORKS = ("encoder", "optimizer", "steps", "rows")
"""Options of networks alone."""


def describe_options(config: FitConfig) -> dict[str, Any]:
    """Describe options as JSON values; the user's own encoder by its class alone."""
    described, encoder = as_json(config), config.encoder
    described |= {name: described.pop(name) for name in _OF_NETWORKS}
    if encoder is not None and EVERY_ENCODER.get(encoder.name) is not type(encoder):
        described["encoder"] = {"name": encoder.name, "own": True}
    return dict(described)


def resolve(config: FitConfig, observed: Observed) -> FitConfig:
    """Fill in the options that are None; refuse options of networks with least squares.

    Least squares leave the options of networks None.
    """
    method, found = config.method, {**vars(config)}
    if method is None:
        small = observed.is_small and config.encoder is None
        method = LeastSquaresFit() if small else TemporalDifferences()
    if isinstance(method, LeastSquaresFit):
        for name in _OF_NETWORKS:
            wanted = f"no {name} with method least_squares, which trains no network"
            require(found[name] is None, wanted, found[name])
    else:
        encoder = observed.default_encoder if config.encoder is None else config.encoder
        rate = 0.02 if isinstance(encoder, Tabular) else 1e-3
        found |= {
            "encoder": encoder,
            "optimizer": config.optimizer or Optimizer(learning_rate=rate),
            "steps": config.steps or 5_000,
            "rows": config.rows or 512,
        }
    return FitConfig(**{**found, "method": method})
