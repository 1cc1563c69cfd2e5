"""Options of a fit after those that were None have been filled in from the data."""

import dataclasses
from typing import Any

from rlreps.config import as_json
from rlreps.encoders import Encoder, Tabular
from rlreps.errors import require
from rlreps.successor.fitting.methods import (
    FIT_ENCODERS,
    BehaviourName,
    FitConfig,
    FitMethod,
    LeastSquaresFit,
    TemporalDifferences,
)
from rlreps.successor.fitting.observed import Observed
from rlreps.training.optimizers import Optimizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """How networks are trained.

    Attributes:
        encoder: The encoder of F and of B.
        optimizer: The optimizer of both.
        steps: Updates.
        rows: Transitions drawn per update.
    """

    encoder: Encoder
    optimizer: Optimizer
    steps: int
    rows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolvedConfig:
    """How a successor representation is fitted to some data; see ``FitConfig``.

    Attributes:
        num_features: d.
        discount: γ.
        method: The method.
        training: How networks are trained; None for least squares.
        seed: Seed of all random numbers.
        behaviour: Whether the data's policy is estimated or known to be uniform.
    """

    num_features: int
    discount: float
    method: FitMethod
    training: Training | None
    seed: int
    behaviour: BehaviourName

    def stored(self) -> dict[str, Any]:
        """Describe the options as JSON values, under the names of ``FitConfig``."""
        stored = as_json(self)
        training = stored.pop("training")
        if self.training is None:
            return {**stored, **{f.name: None for f in dataclasses.fields(Training)}}
        return {**stored, **training, "encoder": describe_encoder(self.training.encoder)}


def resolve(config: FitConfig, observed: Observed) -> ResolvedConfig:
    """Fill in the options that are None.

    Raises:
        InputError: For an option of networks with least squares.
    """
    method = config.method
    if method is None:
        small = observed.is_small and config.encoder is None
        method = LeastSquaresFit() if small else TemporalDifferences()
    training = None
    if isinstance(method, LeastSquaresFit):
        for name in (field.name for field in dataclasses.fields(Training)):
            wanted = f"no {name} with method least_squares, which trains no network"
            require(getattr(config, name) is None, wanted, getattr(config, name))
    else:
        encoder = observed.default_encoder if config.encoder is None else config.encoder
        rate = 0.02 if isinstance(encoder, Tabular) else 1e-3
        training = Training(
            encoder=encoder,
            optimizer=config.optimizer or Optimizer(learning_rate=rate),
            steps=config.steps or 5_000,
            rows=config.rows or 512,
        )
    return ResolvedConfig(
        num_features=config.num_features,
        discount=config.discount,
        method=method,
        training=training,
        seed=config.seed,
        behaviour=config.behaviour,
    )


def describe_encoder(encoder: Encoder) -> dict[str, Any]:
    """Describe an encoder as JSON values; the user's own encoder by its class alone."""
    if FIT_ENCODERS.get(encoder.name) is type(encoder):
        found: dict[str, Any] = as_json(encoder)
        return found
    return {"name": encoder.name, "own": True}
