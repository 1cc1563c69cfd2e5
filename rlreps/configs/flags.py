"""The command line's flags of an objective: all methods' options side by side."""

from typing import Literal

from rlreps.config import options
from rlreps.losses import OBJECTIVES, Objective
from rlreps.losses.danskin import FeatureNorm

MethodName = Literal[
    "danskin_chunked",
    "danskin_empirical",
    "danskin_lissa",
    "explicit",
    "large_batch",
    "naive",
    "oracle",
    "spin",
]


def objective_from_flags(
    *,
    method: MethodName = "large_batch",
    gradient_rows: int | None = None,
    weight_rows: int | None = None,
    covariance_rows: int | None = None,
    kappa0: float = 1.9,
    feature_norm: FeatureNorm = "batch",
    permutations: int = 1,
    whitening: bool = False,
    groups: int = 3,
    chunks: int = 4,
    chunk_step: float = 0.5,
    gauge: float = 1.0,
    chunked_ridge: float = 1e-2,
    weight_learning_rate: float | None = None,
    precondition: float | None = 1e-2,
    leave_one_out: bool = True,
    averaging_rate: float = 1.0,
    jacobian_rows_at_once: int | None = None,
) -> Objective:
    """Build the objective that flags describe; options that its method does not have are ignored.

    Args:
        method: The method.
        gradient_rows: N, rows at which the gradient is taken (Danskin methods and naive).
        weight_rows: M, rows behind each weight estimate's right-hand side.
        covariance_rows: J, rows behind each inverse covariance estimate. With all three None, the
            batch is split evenly over the roles.
        kappa0: κ0 of LISSA's step size κ = κ0 / max‖φ‖², in (0, 2).
        feature_norm: max‖φ‖² over the estimate's own rows (``batch``), or a running average
            where that is larger (``running``).
        permutations: Times the rows exchange roles within one step; 1 uses each row once.
        whitening: Whiten features by a running covariance (our extension; the loss is invariant).
        groups: Independent weight estimates of ``danskin_chunked``, at least 3.
        chunks: Terms of each of its series; a chunk has rows / (groups · chunks) rows.
        chunk_step: Step of its series in (0, 1), relative to features near white.
        gauge: Weight of its term that keeps the features near white; their span is left free.
        chunked_ridge: Ridge of its gradient preconditioner, relative to the mean eigenvalue.
        weight_learning_rate: Learning rate of ``explicit``'s stored weights (Adam); None takes the
            encoder's.
        precondition: Ridge of ``large_batch``'s gradient preconditioner, relative to the mean
            eigenvalue of the running WWᵀ (our extension); None leaves the gradient as it is.
        leave_one_out: Residuals of ``large_batch`` from weights fitted without the row itself (our
            extension).
        averaging_rate: β of ``spin``, weight of a batch in its moving averages; 1 averages nothing
            (below, one backward pass for each pair of features and as much memory).
        jacobian_rows_at_once: How many of those backward passes are made together; None makes all.
    """
    given = {**locals()}
    cls = OBJECTIVES[given.pop("method")]
    ridge = given.pop("chunked_ridge")
    if method == "danskin_chunked":
        given["ridge"] = ridge
    known = {field.name for field in options(cls)}
    return cls(**{name: value for name, value in given.items() if name in known})
