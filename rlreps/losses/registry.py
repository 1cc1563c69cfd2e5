"""The one dictionary from a method's name to its objective."""

from collections.abc import Callable
from typing import Any, NamedTuple

import optax

from rlreps.configs import ObjectiveConfig
from rlreps.errors import InputError
from rlreps.losses.base import Objective
from rlreps.losses.danskin import Roles, danskin_empirical, danskin_lissa, naive
from rlreps.losses.danskin_chunked import danskin_chunked
from rlreps.losses.explicit import explicit
from rlreps.losses.large_batch import large_batch
from rlreps.losses.oracle import oracle
from rlreps.losses.spectral import spectral
from rlreps.operators import target_kernel
from rlreps.training.hyperparameters import Hyperparameters


class Problem(NamedTuple):
    """What an objective has to know of the run it serves.

    Attributes:
        num_features: d.
        num_tasks: Columns of the matrix; None where every batch brings tasks of its own.
        hyperparameters: The numbers that runs of one compiled program may differ in.
        parameters: Shapes of the encoder's parameters, for objectives that keep as many numbers;
            None where there are none.
    """

    num_features: int
    num_tasks: int | None
    hyperparameters: Hyperparameters
    parameters: Any | None = None


Build = Callable[[ObjectiveConfig, Problem], Objective]


def _roles(config: ObjectiveConfig) -> Roles | None:
    rows = (config.gradient_rows, config.weight_rows, config.covariance_rows)
    if rows[0] is None or rows[1] is None or rows[2] is None:
        return None
    return Roles(rows[0], rows[1], rows[2])


def _danskin_lissa(config: ObjectiveConfig, problem: Problem) -> Objective:
    return danskin_lissa(
        problem.num_features,
        roles=_roles(config),
        kappa0=problem.hyperparameters.kappa0,
        feature_norm=config.feature_norm,
        permutations=config.permutations,
        whitening=config.whitening,
    )


def _danskin_chunked(config: ObjectiveConfig, problem: Problem) -> Objective:
    return danskin_chunked(
        problem.num_features,
        groups=config.groups,
        chunks=config.chunks,
        chunk_step=config.chunk_step,
        gauge=config.gauge,
        precondition_ridge=config.chunked_ridge,
    )


def _by_pseudo_inverse(build: Callable[..., Objective]) -> Build:
    """The builder of a method whose Ĉ is a pseudo-inverse of the rows' own covariance."""

    def objective(config: ObjectiveConfig, problem: Problem) -> Objective:
        return build(
            problem.num_features,
            roles=_roles(config),
            permutations=config.permutations,
            whitening=config.whitening,
        )

    return objective


def _explicit(config: ObjectiveConfig, problem: Problem) -> Objective:
    if problem.num_tasks is None:
        raise InputError(
            "expected a matrix with task columns to store weights for (method explicit), got a "
            "live source, whose tasks never come twice"
        )
    return explicit(
        problem.num_features,
        problem.num_tasks,
        optimizer=optax.adam(problem.hyperparameters.weight_learning_rate),
    )


def _spin(config: ObjectiveConfig, problem: Problem) -> Objective:
    # ΨΨᵀ, whose largest eigenvalues are wanted.
    return spectral(
        problem.num_features,
        -target_kernel(),
        averaging_rate=config.averaging_rate,
        parameters=problem.parameters,
        jacobian_rows_at_once=config.jacobian_rows_at_once,
    )


OBJECTIVES: dict[str, Build] = {
    "danskin_chunked": _danskin_chunked,
    "danskin_empirical": _by_pseudo_inverse(danskin_empirical),
    "danskin_lissa": _danskin_lissa,
    "explicit": _explicit,
    "large_batch": lambda config, problem: large_batch(
        problem.num_features,
        precondition=config.precondition,
        leave_one_out=config.leave_one_out,
    ),
    "naive": _by_pseudo_inverse(naive),
    "oracle": lambda config, problem: oracle(),
    "spin": _spin,
}
"""Method name → objective for a configuration and a problem."""


def make_objective(config: ObjectiveConfig, problem: Problem) -> Objective:
    """The objective that a configuration names.

    Raises:
        InputError: For sizes below 1, or a method that needs task columns where there are none.
    """
    return OBJECTIVES[config.name](config, problem)
