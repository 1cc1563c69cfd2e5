"""How a successor representation is fitted: methods and their options."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

from rlreps.config import (
    as_json,
    checked,
    configurable,
    from_json,
    interval,
    leaf,
    name_of,
    options,
    positive,
    registry,
)
from rlreps.cumulants import CUMULANTS, Cells, Cumulants
from rlreps.encoders import ENCODERS, Convolutional, Encoder
from rlreps.errors import InputError, require, require_choice
from rlreps.losses import OBJECTIVES, LargeBatch, Objective
from rlreps.successor.observed import Observed
from rlreps.training.optimizers import Optimizer

BehaviourName = Literal["estimated", "uniform"]

MOST_FEATURES = 4096
"""Largest number of features d or p: dense systems of several times this size are solved."""


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class LeastSquaresFit:
    """Solve linear equations (see ``rlreps.successor.least_squares``).

    Indices of states get one feature each. Short vectors get random Fourier features.

    Attributes:
        max_features: Largest number of features φ of the state, p.
        width: Length scale of the kernel, in standard deviations of the observations times the root
            of the number of coordinates. None takes the widest of 1, 1/2 and 1/4 whose error on
            held-out episodes is within 1.5 times the least.
        regularisation: λ; None takes the least of 10⁻⁶ … 10⁻³ within 1.1 times the least error.
    """

    max_features: int = interval(f"[2, {MOST_FEATURES}]", 800)
    width: float | None = interval("(0, inf)", None)
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
        orthonormality: Weight of the regulariser that keeps B orthonormal.
    """

    averaging_rate: float = interval("(0, 1]", 0.1)
    orthonormality: float = interval("[0, inf)", 0.0)


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeSums:
    """Train F by any objective of the toolkit on Monte-Carlo sums along episodes.

    Rows are (s, a); columns are discounted sums of cumulants of the states that follow. Least
    squares in the features of the trained network then replace its last layer.

    **Bias.** A sum that a cut ends k rows after its start lacks up to γᵏ of its mass, which is
    1/(1 − γ). Starts with γᵏ > ``tolerance`` are left out unless their episode terminates. If a
    time limit cuts some episodes, starts near the limit are kept only in the episodes that do
    terminate, so terminal states weigh too much.

    Attributes:
        objective: The objective that trains F.
        cumulants: Functions of the state reached, as encoders see it, scaled to [0, 1]. Indices of
            states are places (i + 1/2)/n on a line. None is ``Cells`` that tell all indices apart,
            or ``RandomFourier`` for other observations.
        num_cumulants: Number of columns; ``Cells`` sets its own.
        tolerance: Largest share of the mass that a start may lack, in (0, 1).
    """

    objective: Objective = leaf(LargeBatch(precondition=1e-2, leave_one_out=True))
    cumulants: Cumulants | None = leaf(None)
    num_cumulants: int = positive(256)
    tolerance: float = interval("(0, 1)", 0.05)

    def __post_init__(self) -> None:
        of_entries = not self.objective.needs_clips
        require(of_entries, "an objective of entries (OBJECTIVES)", self.objective.title)


FitMethod: TypeAlias = LeastSquaresFit | TemporalDifferences | EpisodeSums

FIT_METHODS: dict[str, type] = {
    "least_squares": LeastSquaresFit,
    "td": TemporalDifferences,
    "monte_carlo": EpisodeSums,
}
"""Name → method."""

FIT_ENCODERS: dict[str, type[Encoder]] = {**ENCODERS, **registry(Convolutional)}
"""Name → encoder."""

CLASSES: dict[str, type] = {
    **OBJECTIVES,
    **CUMULANTS,
    **FIT_ENCODERS,
    **registry(Cells, *FIT_METHODS.values()),
}
"""Name → class, for everything that a stored configuration can name."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How a successor representation is fitted.

    Attributes:
        num_features: d.
        discount: γ, in (0, 1).
        method: Least squares, temporal differences or sums along episodes. None is least squares
            for indices of states and vectors of at most eight numbers, else temporal differences.
        encoder: The encoder of F (with a head for each action) and of B. None takes the one that
            fits the observations (``Observed.default_encoder``). Least squares use none.
        optimizer: The optimizer of both networks; None takes a learning rate of 0.02 for tables and
            0.001 for networks.
        steps: Updates of the networks; None is 5,000. Least squares make none.
        rows: Transitions drawn per update of the networks; None is 512.
        seed: Decides everything random.
        behaviour: Whether the data's policy is estimated (by counts for indices of states, else by
            a regression) or known to be uniform.
    """

    num_features: int = positive(64)
    discount: float = interval("(0, 1)", 0.95)
    method: FitMethod | None = None
    encoder: Encoder | None = None
    optimizer: Optimizer | None = None
    steps: int | None = positive(None)
    rows: int | None = positive(None, least=2)
    seed: int = interval("[0, 2**31)", 0)
    behaviour: BehaviourName = "estimated"

    def __post_init__(self) -> None:
        require(
            self.num_features <= MOST_FEATURES,
            f"num_features of at most {MOST_FEATURES}",
            self.num_features,
        )
        for name, kind, said in (
            ("encoder", Encoder, "an Encoder"),
            ("optimizer", Optimizer, "an Optimizer"),
            (
                "method",
                FitMethod,
                f"one of {', '.join(kind.__name__ for kind in get_args(FitMethod))}",
            ),
        ):
            value = getattr(self, name)
            require(value is None or isinstance(value, kind), f"{name} to be {said}", value)

    @property
    def uses_network(self) -> bool:
        """Tell whether a network is trained."""
        return not isinstance(self.method, LeastSquaresFit)

    def require_stored(self) -> None:
        """Raise an ``InputError`` if a part of the method has no name to store in a file."""
        if isinstance(self.method, EpisodeSums):
            for part in (self.method.objective, self.method.cumulants):
                known = CLASSES.get(name_of(type(part))) is type(part)
                require(known, "an objective and cumulants of the toolkit, to store a fit", part)

    @classmethod
    def stored(
        cls, stored: Mapping[str, Any], given: Mapping[str, Encoder | None], path: Path | str
    ) -> tuple["FitConfig", Observed, dict[str, Encoder | None]]:
        """Rebuild a configuration, the kind of its data and its encoders from a run's folder.

        Args:
            stored: The description of the run.
            given: The user's own ``encoder`` and ``backward_encoder``, if any.
            path: The folder, for messages.
        """
        rest, encoders = dict(stored), dict(given)
        for name in given:
            found = rest.pop(name)
            is_own = found is not None and found.get("own", False)
            require_own(is_own, given[name], f"{name}=", path)
            if found is not None and not is_own:
                fields = {key: value for key, value in found.items() if key != "name"}
                encoders[name] = from_json(CLASSES[found["name"]], fields, CLASSES)
        observed = from_json(Observed, rest.pop("observed"))
        kind = rest.pop("behaviour")
        rest.pop("data")
        named = {**rest, "behaviour": "uniform" if kind == "own" else kind}
        config = from_json(cls, named, CLASSES)
        return dataclasses.replace(config, encoder=encoders["encoder"]), observed, encoders


def require_own(needed: bool, given: object, name: str, path: Path | str) -> None:
    """Raise if a part of the user's own is missing, or given where the fit used none."""
    place = f"for the representation of {path}"
    require(not needed or given is not None, f"{name} {place}", "none")
    require(needed or given is None, f"no {name} {place}, which was not fitted with one", given)


def configured(config: FitConfig | None, given: Mapping[str, Any]) -> FitConfig:
    """Build a configuration from options of ``FitConfig`` and of its method.

    Raises:
        InputError: For options that neither has.
    """
    rest, base = dict(given), FitConfig() if config is None else config
    method = rest.pop("method", base.method)
    if isinstance(method, str):
        require_choice("method", method, list(FIT_METHODS))
        method = FIT_METHODS[method]()
    own = {field.name for field in dataclasses.fields(FitConfig)} - {"method"}
    if method is None:
        needing = [
            kind
            for kind in FIT_METHODS.values()
            if rest.keys() & ({field.name for field in options(kind)} - own)
        ]
        method = needing[0]() if len(needing) == 1 else None
    of_method = set() if method is None else {field.name for field in options(method)}
    unknown = sorted(rest.keys() - own - of_method)
    if unknown:
        raise InputError(
            f"expected options of fit ({', '.join(sorted(own))}) or of its method "
            f"({', '.join(sorted(of_method)) or 'none given'}), got {', '.join(unknown)}"
        )
    chosen = {name: rest.pop(name) for name in list(rest) if name in of_method}
    if chosen:
        method = dataclasses.replace(method, **chosen)
    return dataclasses.replace(base, method=method, **rest)


def named_encoder(encoder: Encoder | None) -> dict[str, Any] | None:
    """Describe an encoder as JSON values; the user's own encoder by its class alone."""
    if encoder is None:
        return None
    if CLASSES.get(encoder.name) is type(encoder):
        return cast(dict[str, Any], as_json(encoder))
    return {"name": encoder.name, "own": True}
