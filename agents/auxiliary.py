"""Auxiliary tasks: representation objectives on an agent's features, fed from its replay.

``make_auxiliary_task`` puts together task columns (cumulants and discounts), targets from sequences
and an objective of ``rlreps.losses``. The result is a pair of pure functions that any agent can
use, whatever its network and replay are:

    task = make_auxiliary_task(AuxiliaryConfig(), num_features=32, observation_shape=(4,))
    state = task.init(key)

    def loss(params, target_params, rows, state, key):
        side, (state, metrics) = task.loss(params, target_params, encode, rows, state, key)
        return my_loss(params) + 0.1 * side, state

with ``encode(params, observations [b, ...]) → features [b, 32]`` and ``rows`` of ``task.sequences``
sequences of ``task.length`` rows: ``observed_rows(observations, terminated, last)`` makes them from
arrays. A task of one's own is any other ``AuxiliaryTask``.

**What objectives assume, and how replay meets it.** All take the rows of a batch for independent
draws of (s_0, targets); a row here is a sequence.

- ``danskin_lissa``, ``danskin_empirical``, ``danskin_chunked``: rows of different roles must be
  independent: the gradient is a product of estimates from different rows, whose mean is then the
  product of theirs.
- ``naive`` and ``large_batch``: one estimate from all rows, whose own noise biases the gradient by
  O(d / b), independent or not; dependent rows make that larger, as if there were fewer.
- ``explicit``: the gradient is linear in a row's targets, given weights of the past: rows need only
  be identically distributed.
- losses on pairs of states (``spin`` with ``Slowness``): refused, as a row is a single state.
- ``spin``: the kernel ψ(s)ᵀψ(s') over pairs of different rows must be that of independent states:
  dependent pairs look like structure.

Starts of sequences must be drawn independently and uniformly from the buffer. Given the buffer, and
the state of the task, rows are then independent and identically distributed, so that whatever is
unbiased is so for the distribution in the buffer. That a buffer holds neighbours in time, and that
sequences that overlap share their futures, makes the buffer a worse sample of the environment, not
the gradient a biased one of the buffer; it takes a buffer that is small beside what a batch draws
from it (and the same row drawn twice) to matter. Prioritised draws are not independent of the
targets: they do not feed auxiliary tasks. Everything else that rows of a batch have in common is
of earlier batches: the averages that centre and scale targets, and the predictor that continues
them. So given the past no row depends on another.

**Units.** Targets are centred by running means and divided by one running standard deviation
(``standardise``), so that the weight of a loss has no unit. That is right for every objective:
column means would make the constant function a principal component, and a common factor changes no
subspace. What has to be learned drifts a little with the averages, which the weights that
``explicit`` stores, and the moments that ``spin`` averages, follow. Targets that a prediction
continues are fitted as they are, before that.

**Features** of a network are far from white. ``danskin_lissa``'s series converges slowly there, and
its features grow; ``whitening`` and several ``permutations`` help (``DanskinLissa``).
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.agents.replay import Rows, Window, episode_window, rows_at
from rlreps.config import registry, with_sizes
from rlreps.cumulants import Cells, Cumulants, RandomFourier, RandomIndicators
from rlreps.encoders import Encoder
from rlreps.errors import require, require_choice, require_interval, require_positive
from rlreps.losses import OBJECTIVES, LargeBatch, Objective, Spin
from rlreps.losses.base import Batch, Encode, Metrics, Params, in_single_precision
from rlreps.losses.least_squares import least_squares_weights
from rlreps.numerics import matmul

TASKS: dict[str, type[Cumulants]] = registry(Cells, RandomFourier, RandomIndicators)
"""Name → family of cumulants that task columns can have: those with known bounds."""

AUXILIARY_OBJECTIVES: dict[str, type[Objective]] = {
    name: cls for name, cls in OBJECTIVES.items() if not cls().needs_population
}
"""Name → objective that replay can feed: those that need no exact expectations."""

TargetName = Literal["bootstrapped", "monte_carlo"]
Remembered = Literal["all", "warmup"]

_MOST_DIMENSIONS = 3
"""Coordinates beyond which cells of a grid are too many to be visited."""

_ROWS_A_PASS = 8
"""Rows of a sequence that are added in one pass over the sums."""

_LEFT_OUT = 0.05
"""Largest share of a discounted sum beyond the horizon that is chosen for it."""

_DECAY = 0.99
_RELATIVE_FLOOR = 1e-5
"""Standard deviation below which, relative to the means, columns are constant but for rounding."""


_NUM_TASKS = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuxiliaryConfig:
    """An auxiliary task: a representation objective on the torso's features, fed from replay.

    Attributes:
        objective: The objective.
        weight: Weight of its gradient at the torso beside that of the temporal-difference loss; 0
            is no auxiliary task.
        relative: Whether the weight is in units of the other gradient's norm: the task's is scaled
            to the same running norm at the torso before it is weighed, so that one weight means
            the same for every objective, unit of targets and scale of rewards.
        head: Units of hidden layers of a head of the task's own, between the torso's features and
            as many that the objective sees; none shows it the torso's. ``explicit`` has linear
            weights of its own behind either.
        tasks: Cumulants behind the task columns, one of ``TASKS``.
        num_tasks: Task columns, drawn once at the start, 64 by default; ``Cells`` sets its own.
        discount_low: Each column's discount is drawn uniformly from an interval; its lower end.
        discount_high: Its upper end.
        targets: Discounted sums along replayed sequences (``monte_carlo``), or continued beyond
            them by a prediction from the target network's features (``bootstrapped``).
        horizon: Rows of a sequence. Monte-Carlo targets leave out a share γ^horizon of what sums
            to infinity could be; None is the fewest rows that leave out at most 5 % at the largest
            discount, 299 at 0.99.
        sequences: Sequences of an update, each of which gives a row of the objective's batch.
        per_action: Teach ψ(s, a), of the first action of a sequence and of the policies behind the
            replay from then on, in place of ψ(s): the objective's weights are a head for each
            action, and the torso's features are what the heads share. A batch has rows of every
            action only as often as replay does.
        remembered: Of which rows sequences are: ``all`` that replay holds, so that targets follow
            the agent's changing policy; or those of the ``warmup`` alone, whose policy is the
            uniformly random one where ``epsilon_start`` is 1, so that targets stay as they are.
    """

    objective: Objective = dataclasses.field(
        default=LargeBatch(precondition=1e-2, leave_one_out=True)
    )
    weight: float = 0.0
    relative: bool = True
    head: tuple[int, ...] = ()
    tasks: Cumulants = dataclasses.field(default=RandomFourier(length_scale=0.2))
    num_tasks: int | None = None
    discount_low: float = 0.9
    discount_high: float = 0.99
    targets: TargetName = "monte_carlo"
    horizon: int | None = 32
    sequences: int = 256
    per_action: bool = False
    remembered: Remembered = "all"

    def __post_init__(self) -> None:
        require_interval("auxiliary weight", self.weight, "[0, inf)")
        families = f"auxiliary tasks to be one of {', '.join(TASKS)}"
        require(type(self.tasks) in TASKS.values(), families, self.tasks)
        require_choice("targets", self.targets, get_args(TargetName))
        require_choice("remembered", self.remembered, get_args(Remembered))
        require(
            0.0 <= self.discount_low <= self.discount_high < 1.0,
            "discounts 0 <= discount_low <= discount_high < 1",
            (self.discount_low, self.discount_high),
        )
        counts = {"num_tasks": self.num_tasks, "horizon": self.length, "sequences": self.sequences}
        for name, count in counts.items():
            if count is not None:
                require_positive(name, count)
        require(
            not (self.per_action and isinstance(self.objective, Spin)),
            "an objective with weights, a head for each action, for targets per_action",
            self.objective.name,
        )
        require(all(units >= 1 for units in self.head), "units >= 1 in a head's layers", self.head)
        require(
            not isinstance(self.tasks, Cells) or self.num_tasks is None,
            "no num_tasks for cells, each of which is a task",
            self.num_tasks,
        )
        if self.weight > 0.0:
            self.require_objective()

    @property
    def length(self) -> int:
        """Rows of a sequence."""
        if self.horizon is not None:
            return self.horizon
        high = self.discount_high
        return math.ceil(math.log(_LEFT_OUT) / math.log(high)) if high > 0.0 else 1

    def require_objective(self) -> None:
        """Raise an ``InputError`` unless the objective can learn from so many sequences."""
        require(
            not self.objective.needs_population,
            "an auxiliary objective that needs no exact expectations",
            self.objective.name,
        )
        require(
            not self.objective.needs_clips,
            "an auxiliary objective on single states, which rows of replay are",
            f"{self.objective.name} on pairs or clips of states",
        )
        # How many features there are is not known here: check for the fewest.
        with_sizes(self.objective, num_features=1).require_rows(self.sequences)


def as_inputs(observations: Array) -> Array:
    """Convert observations to float32; bytes are divided by 255."""
    scale = 1.0 / 255.0 if observations.dtype == jnp.uint8 else 1.0
    return observations.astype(jnp.float32) * scale


class ColumnParams(NamedTuple):
    """Parameters of task columns.

    Attributes:
        cumulants: Parameters of the cumulants' family.
        discounts: γ, [t], each uniform over an interval.
    """

    cumulants: Any
    discounts: Array


class TaskColumns(NamedTuple):
    """Columns of an auxiliary task: cumulants and discounts.

    Column k has a cumulant c_k, a function of observations, and a discount γ_k, both drawn once at
    the start; it asks for ψ_k(s) = E Σ_{j≥0} γ_k^j c_k(S_j), S_0 = s, under the policies that
    filled the replay. Columns of larger discounts are larger and count for more, as in the
    successor measure.

    Attributes:
        num_tasks: t.
        bounds: Between what the cumulants' values lie; the first is <= 0 and the second >= 0.
        init: key → parameters.
        apply: (parameters, observations [..., *observation]) → cumulants [..., t] (float32). Bytes
            are divided by 255, as the torso sees them.
    """

    num_tasks: int
    bounds: tuple[float, float]
    init: Callable[[Array], ColumnParams]
    apply: Callable[[ColumnParams, Array], Array]


def make_task_columns(config: AuxiliaryConfig, observation_shape: Sequence[int]) -> TaskColumns:
    """Make the task columns that a configuration names.

    Args:
        config: Their kind, number and discounts.
        observation_shape: Of one observation. Images are flattened for random networks and waves;
            ``Cells`` divide vectors alone, each coordinate from 0 to 1.

    Raises:
        InputError: For ``Cells`` of anything but vectors of at most three coordinates.
    """
    rank, inputs = len(observation_shape), math.prod(observation_shape)
    family = with_sizes(config.tasks, num_inputs=inputs)
    num_tasks, bounds = config.num_tasks or _NUM_TASKS, (0.0, 1.0)
    if isinstance(family, Cells):
        require(
            rank == 1 and inputs <= _MOST_DIMENSIONS,
            f"observations that are vectors of at most {_MOST_DIMENSIONS} coordinates, for "
            "auxiliary tasks cells",
            f"shape {tuple(observation_shape)}",
        )
        num_tasks = family.num_cells
    elif isinstance(family, RandomFourier):
        bounds = (-math.sqrt(2.0), math.sqrt(2.0))

    def init(key: Array) -> ColumnParams:
        cumulant_key, discount_key = jax.random.split(key)
        low, high = config.discount_low, config.discount_high
        discounts = jax.random.uniform(discount_key, (num_tasks,), jnp.float32, low, high)
        return ColumnParams(family.init(cumulant_key, num_tasks), discounts)

    def apply(params: ColumnParams, observations: Array) -> Array:
        leading = observations.shape[: observations.ndim - rank]
        flat = as_inputs(observations).reshape(*leading, -1)
        return family.apply(params.cumulants, flat)

    return TaskColumns(num_tasks, bounds, init, apply)


# Targets: discounted sums along sequences. Symbols: s_0 ... s_m the observations of a sequence's
# first episode, m the last that was seen, c_k the cumulants, γ_k the columns' discounts, φ⁻ the
# target network's features.


def monte_carlo_targets(cumulants: Array, discounts: Array, window: Window) -> Array:
    """Compute Σ_{j=0}^m γ_k^j c_k(s_j), [b, t].

    Exact where the task ended at s_m, as nothing comes after. A time limit or the sequence's end
    cuts the sum: the rest is taken for 0, which is off by γ_k^{m+1} ψ_k(s_{m+1}). For sequences of
    l rows that no episode's end cuts, the targets are Σ_{j<l} γ^j P^j c without bias, short of ψ by
    (γP)^l ψ: at most a share γ^l of the largest |c| / (1 − γ).

    Args:
        cumulants: c at every row, [b, l, t]; beyond the episode they are not looked at.
        discounts: γ, [t].
        window: Which rows belong to the first one's episode.
    """
    return _discounted_sums(cumulants, discounts, window.seen)


def bootstrapped_targets(
    cumulants: Array, discounts: Array, window: Window, predictions: Array, predicted: Array
) -> Array:
    """Compute Σ_{j<m} γ_k^j c_k(s_j) + γ_k^m v_k(s_m), [b, t].

    v is a prediction of ψ(s_m), or c(s_m) itself where the task ended there. Neither a time limit
    nor the sequence's end biases the sums then, but the error of predictions does, times γ^m.

    Args:
        cumulants: c at every row, [b, l, t].
        discounts: γ, [t].
        window: Which rows belong to the first one's episode.
        predictions: Of ψ at the last row that was seen, [b, t].
        predicted: Whether there are predictions yet, []; without, sums are those of
            ``monte_carlo_targets``.
    """
    continued = predicted & ~window.terminal
    steps = jnp.arange(window.seen.shape[1], dtype=jnp.int32)
    replaced = continued[:, None] & (steps[None, :] == window.end[:, None])
    powers = jnp.power(discounts[None, :], window.end[:, None].astype(discounts.dtype))
    beyond = jnp.where(continued[:, None], powers * predictions, 0.0)
    return _discounted_sums(cumulants, discounts, window.seen & ~replaced) + beyond


def _discounted_sums(cumulants: Array, discounts: Array, counted: Array) -> Array:
    """Sum γ_k^j c_k(s_j) over the rows that count, [b, t]."""
    length = cumulants.shape[1]

    # Row by row from the end, G_j = c(s_j) + γ G_{j+1}: of all [b, l, t] products at once, XLA
    # would make a second array as large as the cumulants. It fuses several rows into one pass.
    def add(index: Array, sums: Array) -> Array:
        row = length - 1 - index
        values = lax.dynamic_index_in_dim(cumulants, row, 1, keepdims=False)
        counts = lax.dynamic_index_in_dim(counted, row, 1)
        return jnp.where(counts, values, 0.0) + discounts[None] * sums

    start = jnp.zeros_like(cumulants[:, 0])
    sums: Array = lax.fori_loop(0, length, add, start, unroll=min(length, _ROWS_A_PASS))
    return sums


class Predictor(NamedTuple):
    """A linear map of features.

    Attributes:
        weights: W̄, [d, t].
        intercept: [t].
    """

    weights: Array
    intercept: Array


def fit_predictor(features: Array, targets: Array, ridge: float = 1e-4) -> Predictor:
    """Fit a least-squares map of features [b, d] to targets [b, t], with an intercept.

    Args:
        features: φ⁻.
        targets: What to predict.
        ridge: Tikhonov term on the weights, relative to the mean eigenvalue of the features'
            covariance; the intercept has none.
    """
    feature_mean = jnp.mean(features, axis=0)
    target_mean = jnp.mean(targets, axis=0)
    weights = least_squares_weights(
        features - feature_mean[None], targets - target_mean[None], ridge
    )
    return Predictor(weights, target_mean - matmul(feature_mean, weights))


def predict(predictor: Predictor, features: Array) -> Array:
    """Compute φ⁻ᵀW̄ + intercept, [b, t], at features [b, d]."""
    predictions: Array = matmul(features, predictor.weights) + predictor.intercept[None]
    return predictions


class TargetMoments(NamedTuple):
    """Decayed sums over batches, which divided by their weight are averages without start-up bias.

    Attributes:
        mean: Of each column's mean, [t].
        variance: Of the variance within a batch, averaged over columns, [].
        weight: Total weight behind them, []; 0 before the first batch.
    """

    mean: Array
    variance: Array
    weight: Array


def init_moments(num_tasks: int) -> TargetMoments:
    """Make moments of t columns before the first batch."""
    zero = jnp.zeros((), jnp.float32)
    return TargetMoments(jnp.zeros((num_tasks,), jnp.float32), zero, zero)


def standardise(moments: TargetMoments, targets: Array) -> tuple[Array, TargetMoments]:
    """Subtract each column's running mean and divide all by one running standard deviation.

    One deviation, so that columns keep their relative sizes and the principal subspace stays that
    of the centred Ψ; none of its own would make a weight mean the same for all tasks. Averages are
    those of the batches before: given these, rows of a batch stay independent of each other, which
    their own mean would undo. The first batch has none before it and takes its own.

    Args:
        moments: Averages over the batches before.
        targets: ψ of this batch, [b, t].

    Returns:
        The standardised targets, and the averages with this batch.
    """
    batch_mean = jnp.mean(targets, axis=0)
    # About the batch's own mean: while bootstrapped targets grow, their drift is no spread.
    batch_variance = jnp.mean(jnp.square(targets - batch_mean[None]))
    updated = TargetMoments(
        mean=_DECAY * moments.mean + (1.0 - _DECAY) * batch_mean,
        variance=_DECAY * moments.variance + (1.0 - _DECAY) * batch_variance,
        weight=_DECAY * moments.weight + (1.0 - _DECAY),
    )
    started = moments.weight > 0.0
    held = TargetMoments(
        *(jnp.where(started, old, new) for old, new in zip(moments, updated, strict=True))
    )
    mean = held.mean / held.weight
    floor = _RELATIVE_FLOOR**2 * jnp.mean(jnp.square(mean)) + float(np.finfo(np.float32).tiny)
    scale = jnp.sqrt(held.variance / held.weight + floor)
    return (targets - mean[None]) / scale, updated


class AuxiliaryTask(NamedTuple):
    """Something else that a torso learns from replay.

    Attributes:
        init: key → state, a pytree of arrays.
        loss: (torso's parameters, the target network's, encode, rows [sequences, length, ...],
            state, key) → (scalar, (state, metrics)), to be differentiated in the first. No first
            row is ``last``. The scalar is not yet weighed.
        sequences: Sequences that an update wants.
        length: Rows of each.
    """

    init: Callable[[Array], Any]
    loss: Callable[[Params, Params, Encode, Rows, Any, Array], tuple[Array, tuple[Any, Metrics]]]
    sequences: int
    length: int


class LastTargets(NamedTuple):
    """Targets of the update before, to which the predictor of bootstrapped targets is fitted.

    Attributes:
        observations: First rows, [b, *observation].
        targets: Theirs, not standardised, [b, t].
        known: Whether there was one, [].
    """

    observations: Array
    targets: Array
    known: Array


class AuxiliaryState(NamedTuple):
    """All that a task remembers.

    Attributes:
        columns: The task columns' parameters; drawn once.
        moments: Running averages of targets.
        last: ``LastTargets``, or () for Monte-Carlo targets.
        objective: The objective's state.
    """

    columns: ColumnParams
    moments: TargetMoments
    last: Any
    objective: Any


def make_auxiliary_task(
    config: AuxiliaryConfig,
    *,
    num_features: int,
    observation_shape: tuple[int, ...],
    observation_dtype: Any = jnp.float32,
    num_actions: int | None = None,
    encoder: Encoder | None = None,
    learning_rate: float = 1e-3,
) -> AuxiliaryTask:
    """Make the auxiliary task that a configuration describes; its weight is left to the caller.

    Args:
        config: The configuration.
        num_features: d, features of the torso.
        observation_shape: Of one observation; bounded coordinates lie in [0, 1], or are bytes.
        observation_dtype: Of observations in replay.
        num_actions: Of the agent; needed for targets per action.
        encoder: The torso, whose parameters ``spin`` needs with ``averaging_rate`` < 1.
        learning_rate: Of ``explicit``'s stored weights, where the configuration names none.

    Raises:
        InputError: For an objective that needs exact expectations or pairs of states, too few
            sequences for it or for the fit of bootstrapped targets, or observations that the tasks
            cannot take.
    """
    require_positive("num_features", num_features)
    config.require_objective()
    sequences = config.sequences
    require(sequences >= 2, "sequences >= 2, whose spread gives targets their unit", sequences)
    seen_features = num_features
    if config.per_action:
        require(num_actions is not None, "num_actions for targets per_action", num_actions)
        seen_features *= num_actions or 1
    with_sizes(config.objective, num_features=seen_features).require_rows(sequences)
    bootstraps = config.targets == "bootstrapped"
    if bootstraps:
        enough = f"sequences > {num_features}, more than features, for bootstrapped targets"
        require(sequences > num_features, enough, sequences)
        require(config.length >= 2, "horizon >= 2 for bootstrapped targets", config.length)
    columns = make_task_columns(config, observation_shape)
    objective = with_sizes(
        config.objective,
        num_features=seen_features,
        num_tasks=columns.num_tasks,
        encoder=encoder,
        encoder_learning_rate=learning_rate,
    )
    expected = (sequences, config.length, *observation_shape)
    dtype = jnp.dtype(observation_dtype).name

    def init(key: Array) -> AuxiliaryState:
        column_key, objective_key = jax.random.split(key)
        last = LastTargets(
            observations=jnp.zeros((sequences, *observation_shape), observation_dtype),
            targets=jnp.zeros((sequences, columns.num_tasks), jnp.float32),
            known=jnp.zeros((), bool),
        )
        return AuxiliaryState(
            columns=columns.init(column_key),
            moments=init_moments(columns.num_tasks),
            last=last if bootstraps else (),
            objective=objective.init(objective_key),
        )

    def loss(
        params: Params,
        target_params: Params,
        encode: Encode,
        rows: Rows,
        state: AuxiliaryState,
        key: Array,
    ) -> tuple[Array, tuple[AuxiliaryState, Metrics]]:
        seen = rows.observation
        require(seen.shape == expected, f"observations of shape {expected}", seen.shape)
        kind = f"observations of type {dtype} (observation_dtype)"
        require(seen.dtype.name == dtype, kind, seen.dtype.name)
        encode = in_single_precision(encode)  # The prediction is fitted to features, too.
        # Targets are data: nothing is differentiated through them.
        targets, last = lax.stop_gradient(
            _targets(columns, partial(encode, target_params), rows, state)
        )
        standardised, moments = standardise(state.moments, targets)
        inputs: Any = seen[:, 0]
        if config.per_action:
            inputs = (inputs, rows.action[:, 0])
            encode = _by_action(encode, num_actions or 1)
        batch = Batch(inputs, standardised, jnp.arange(columns.num_tasks, dtype=jnp.int32))
        value, (objective_state, metrics) = objective.loss(
            params, encode, batch, state.objective, key
        )
        return value, (AuxiliaryState(state.columns, moments, last, objective_state), metrics)

    return AuxiliaryTask(init, loss, sequences, config.length)


def _by_action(encode: Encode, num_actions: int) -> Encode:
    """Make the encoder (s, a) → e_a ⊗ φ(s), [b, a d], of pairs (observations, actions [b]).

    Weights [a d, t] on these features are a block [d, t] for each action: a head of its own.
    """

    def encode_pairs(params: Params, inputs: tuple[Array, Array]) -> Array:
        observations, actions = inputs
        features = encode(params, observations)
        chosen = jax.nn.one_hot(actions, num_actions, dtype=features.dtype)
        return (chosen[:, :, None] * features[:, None, :]).reshape(len(actions), -1)

    return encode_pairs


def _targets(
    columns: TaskColumns, features: Callable[[Array], Array], rows: Rows, state: AuxiliaryState
) -> tuple[Array, Any]:
    """Compute targets [b, t], and what the next update's predictor is to be fitted to.

    Predictions of ψ at the sequences' ends are one step of fitted value iteration an update:
    targets → their least-squares fit → predictions → new targets. What is carried from one update
    to the next is the data of the fit, not its weights W̄, which mean nothing for another target
    network's features: refitted with the features at hand, just before they are used, predictions
    change by no more than what these features cannot express. The price beside keeping W̄ is one
    batch of observations in the state, and no time: the features of the earlier rows are computed
    in place of this batch's.

    A least-squares fit may expand what it is fitted to where sequences end at states that they
    seldom start from, so that iteration need not contract. ψ lies between the cumulants' bounds
    over 1 − γ: predictions are brought back into that interval, which leaves the fixed point as it
    is and keeps everything bounded.

    Args:
        columns: The task columns.
        features: φ⁻, the target network's features of observations.
        rows: Sequences.
        state: The task's state.
    """
    window = episode_window(rows)
    cumulants = columns.apply(state.columns, rows.observation)
    discounts, last = state.columns.discounts, state.last
    if not isinstance(last, LastTargets):
        return monte_carlo_targets(cumulants, discounts, window), ()
    predictor = fit_predictor(features(last.observations), last.targets)
    ends = rows_at(rows.observation, window.end)
    low, high = (bound / (1.0 - discounts)[None] for bound in columns.bounds)
    predictions = jnp.clip(predict(predictor, features(ends)), low, high)
    targets = bootstrapped_targets(cumulants, discounts, window, predictions, last.known)
    return targets, LastTargets(rows.observation[:, 0], targets, jnp.ones((), bool))
