"""Configurations of encoders, objectives, optimizers and training runs."""

import dataclasses
import math
from typing import Annotated, Literal, get_args

import tyro

from rlreps.errors import require, require_choice, require_positive

EncoderName = Literal["cosine", "fourier_mlp", "mlp", "tabular"]
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
OptimizerName = Literal["adam", "rmsprop", "sgd"]
ScheduleName = Literal["constant", "cosine", "linear"]
FeatureNormName = Literal["batch", "running"]

_WEIGHT_ESTIMATES = {"danskin_empirical": 2, "danskin_lissa": 2, "naive": 1}
"""Methods that share a batch's rows out over roles → weight estimates, each with its own rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """A state encoder φ: S → R^d.

    Attributes:
        name: ``mlp`` (coordinates in), ``fourier_mlp`` (cosines of the coordinates beside them),
            ``cosine`` (a linear map of products of cosines) or ``tabular`` (one free feature vector
            per state).
        hidden: Widths of the hidden ReLU layers.
        frequencies: Cosines per coordinate, cos(jπx) for j = 1 … frequencies
            (``fourier_mlp``, ``cosine``).
    """

    name: Annotated[EncoderName, tyro.conf.arg(name="encoder")] = "fourier_mlp"
    hidden: tuple[int, ...] = (256, 256)
    frequencies: int = 8

    def __post_init__(self) -> None:
        require_choice("encoder", self.name, get_args(EncoderName))
        for width in self.hidden:
            require_positive("hidden layer widths", width)
        require_positive("frequencies", self.frequencies)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """A representation objective and its options; options that do not apply are ignored.

    Attributes:
        name: The method.
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

    name: Annotated[MethodName, tyro.conf.arg(name="method")] = "large_batch"
    gradient_rows: int | None = None
    weight_rows: int | None = None
    covariance_rows: int | None = None
    kappa0: float = 1.9
    feature_norm: FeatureNormName = "batch"
    permutations: int = 1
    whitening: bool = False
    groups: int = 3
    chunks: int = 4
    chunk_step: float = 0.5
    gauge: float = 1.0
    chunked_ridge: float = 1e-2
    weight_learning_rate: float | None = None
    precondition: float | None = None
    leave_one_out: bool = False
    averaging_rate: float = 1.0
    jacobian_rows_at_once: int | None = None

    def __post_init__(self) -> None:
        require_choice("method", self.name, get_args(MethodName))
        require_choice("feature_norm", self.feature_norm, get_args(FeatureNormName))
        given = (self.gradient_rows, self.weight_rows, self.covariance_rows)
        require(
            all(rows is None for rows in given) or all(rows is not None for rows in given),
            "gradient_rows, weight_rows and covariance_rows all given or all None",
            given,
        )
        for rows in given:
            if rows is not None:
                require_positive("gradient_rows, weight_rows and covariance_rows", rows)
        require(0.0 < self.kappa0 < 2.0, "kappa0 strictly between 0 and 2", self.kappa0)
        require_positive("permutations", self.permutations)
        require(self.groups >= 3, "groups >= 3", self.groups)
        require_positive("chunks", self.chunks)
        require(0.0 < self.chunk_step < 1.0, "chunk_step strictly between 0 and 1", self.chunk_step)
        require(0.0 <= self.gauge < math.inf, "a finite gauge >= 0", self.gauge)
        require(0.0 < self.chunked_ridge < math.inf, "a finite ridge > 0", self.chunked_ridge)
        rate = self.weight_learning_rate
        require(
            rate is None or (rate > 0.0 and math.isfinite(rate)),
            "a finite weight_learning_rate > 0",
            rate,
        )
        require(
            self.precondition is None or 0.0 < self.precondition < math.inf,
            "a finite precondition > 0",
            self.precondition,
        )
        require(0.0 < self.averaging_rate <= 1.0, "averaging_rate in (0, 1]", self.averaging_rate)
        if self.jacobian_rows_at_once is not None:
            require_positive("jacobian_rows_at_once", self.jacobian_rows_at_once)

    def require_batch(self, rows: int) -> None:
        """Raises an ``InputError`` unless a batch of this many rows fills the method's roles."""
        if self.name == "danskin_chunked":
            least = self.groups * self.chunks
            require(rows >= least, f"rows >= {least}, one for each chunk of {self.name}", rows)
        if self.name == "spin":
            require(rows >= 2, "rows >= 2, for pairs of them (method spin)", rows)
        if self.name not in _WEIGHT_ESTIMATES:
            return
        estimates = _WEIGHT_ESTIMATES[self.name]
        given = (self.gradient_rows, self.weight_rows, self.covariance_rows)
        if given[0] is None or given[1] is None or given[2] is None:
            least = 1 + 2 * estimates
            require(rows >= least, f"rows >= {least}, one for each role of {self.name}", rows)
        else:
            needed = given[0] + estimates * (given[1] + given[2])
            require(rows == needed, f"rows = {needed}, the sum over {self.name}'s roles", rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The encoder's optimizer.

    Attributes:
        name: An optax optimizer.
        learning_rate: Its (initial) learning rate.
        schedule: ``constant``, or ``cosine`` or ``linear`` decay to zero over the run.
    """

    name: Annotated[OptimizerName, tyro.conf.arg(name="optimizer")] = "adam"
    learning_rate: float = 2e-3
    schedule: ScheduleName = "linear"

    def __post_init__(self) -> None:
        require_choice("optimizer", self.name, get_args(OptimizerName))
        require_choice("schedule", self.schedule, get_args(ScheduleName))
        require(
            self.learning_rate > 0.0 and math.isfinite(self.learning_rate),
            "a finite learning_rate > 0",
            self.learning_rate,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """One training run: an encoder trained on entries of a stored matrix.

    The defaults are the recommended recipe: what a network reaches soonest (README, Recipes).

    Attributes:
        encoder: The encoder.
        objective: The objective.
        optimizer: The optimizer.
        num_features: d, features of the encoder.
        steps: Updates.
        rows: b, states drawn per update, all roles together.
        tasks: t, columns drawn per update.
        seed: Seed of the first run.
        num_seeds: Independent runs trained together, seeds ``seed`` … ``seed + num_seeds - 1``.
        evaluate_every: Updates between evaluations against the ground truth.
        checkpoint_every: Updates between checkpoints; a multiple of ``evaluate_every``.
    """

    encoder: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    objective: ObjectiveConfig = dataclasses.field(
        default_factory=lambda: ObjectiveConfig(precondition=1e-2, leave_one_out=True)
    )
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    num_features: int = 10
    steps: int = 1000
    rows: int = 1000
    tasks: int = 1000
    seed: int = 0
    num_seeds: int = 1
    evaluate_every: int = 100
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        for name in ("num_features", "steps", "rows", "tasks", "num_seeds", "evaluate_every"):
            require_positive(name, getattr(self, name))
        require(
            self.checkpoint_every >= 1 and self.checkpoint_every % self.evaluate_every == 0,
            f"checkpoint_every to be a multiple of evaluate_every ({self.evaluate_every})",
            self.checkpoint_every,
        )
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)
        self.objective.require_batch(self.rows)
