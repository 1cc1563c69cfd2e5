"""Auxiliary tasks: representation objectives on an agent's features, fed from its replay.

``make_auxiliary_task`` puts together task columns (cumulants and discounts), targets from sequences
and an objective of ``rlreps.losses``. The result is a dataclass of pure methods that any agent can
use, whatever its network and replay are:

    task = make_auxiliary_task(AuxiliaryConfig(), num_features=32, observation_shape=(4,))
    state = task.init(key)

    def loss(params, target_params, rows, state, key):
        side, (state, metrics) = task.loss(params, target_params, encode, rows, state, key)
        return my_loss(params) + 0.1 * side, state

with ``encode(params, observations [b, ...]) → features [b, 32]`` and ``rows`` of ``task.sequences``
sequences of ``task.length`` rows: ``observed_rows(observations, terminated, last)`` makes them from
arrays. A task of one's own is a subclass of ``AuxiliaryTask``.

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

import abc
import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.agents.replay import Rows, episode_window, rows_at
from rlreps.agents.targets import (
    ColumnParams,
    TaskColumns,
    bootstrapped_targets,
    fit_predictor,
    init_moments,
    monte_carlo_targets,
    standardise,
)
from rlreps.config import checked, positive, registry, with_sizes
from rlreps.cumulants import Cells, Cumulants, RandomFourier, RandomIndicators
from rlreps.encoders import Encoder
from rlreps.errors import require, require_interval, require_positive
from rlreps.losses import OBJECTIVES, LargeBatch, Objective, Spin
from rlreps.losses.base import Batch, Encode, Metrics, Params, in_single_precision
from rlreps.numerics import DecayedMean

TASKS: dict[str, type[Cumulants]] = registry(Cells, RandomFourier, RandomIndicators)
"""Name → family of cumulants that task columns can have: those with known bounds."""

AUXILIARY_OBJECTIVES: dict[str, type[Objective]] = {
    name: cls for name, cls in OBJECTIVES.items() if not cls().needs_population
}
"""Name → objective that replay can feed: those that need no exact expectations."""

_MOST_DIMENSIONS = 3
"""Coordinates beyond which cells of a grid are too many to be visited."""

_LEFT_OUT = 0.05
"""Largest share of a discounted sum beyond the horizon that is chosen for it."""

_NUM_TASKS = 64

_DECAY = 0.99
"""Decay of the averages of the gradients' squared norms at each update."""


@checked
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
    num_tasks: int | None = positive(None)
    discount_low: float = 0.9
    discount_high: float = 0.99
    targets: Literal["bootstrapped", "monte_carlo"] = "monte_carlo"
    horizon: int | None = positive(32)
    sequences: int = positive(256)
    per_action: bool = False
    remembered: Literal["all", "warmup"] = "all"

    def __post_init__(self) -> None:
        require_interval("auxiliary weight", self.weight, "[0, inf)")
        families = f"auxiliary tasks to be one of {', '.join(TASKS)}"
        require(type(self.tasks) in TASKS.values(), families, self.tasks)
        require(
            0.0 <= self.discount_low <= self.discount_high < 1.0,
            "discounts 0 <= discount_low <= discount_high < 1",
            (self.discount_low, self.discount_high),
        )
        require(
            not (self.per_action and isinstance(self.objective, Spin)),
            "an objective with weights, a head for each action, for targets per_action",
            self.objective.name,
        )
        require(all(units >= 1 for units in self.head), "units >= 1 in a head's layers", self.head)
        fits = not isinstance(self.tasks, Cells) or self.num_tasks is None
        require(fits, "no num_tasks for cells, each of which is a task", self.num_tasks)
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuxiliaryTask(abc.ABC):
    """Something else that a torso learns from replay.

    Attributes:
        sequences: Sequences that an update wants.
        length: Rows of each.
    """

    sequences: int
    length: int

    @abc.abstractmethod
    def init(self, key: Array) -> Any:
        """Make the task's state, a pytree of arrays."""

    @abc.abstractmethod
    def loss(
        self,
        params: Params,
        target_params: Params,
        encode: Encode,
        rows: Rows,
        state: Any,
        key: Array,
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute a scalar, not yet weighed, to be differentiated in ``params``.

        Args:
            params: The torso's parameters.
            target_params: The target network's.
            encode: (parameters, observations [b, ...]) → features [b, d].
            rows: [sequences, length, ...]; no first row is ``last``.
            state: The task's state.
            key: Random key.

        Returns:
            The scalar, and with it the new state and metrics.
        """


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
        moments: Running averages of the targets' ``Moments``.
        last: ``LastTargets``, or () for Monte-Carlo targets.
        objective: The objective's state.
    """

    columns: ColumnParams
    moments: DecayedMean
    last: Any
    objective: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepresentationTask(AuxiliaryTask):
    """An objective on targets from replay; ``make_auxiliary_task`` makes it.

    Attributes:
        objective: The objective.
        columns: Its task columns.
        observation: Shape and dtype of an observation.
        bootstraps: Whether sums are continued by a prediction beyond the sequences.
        num_actions: Actions, each of which has a head of its own; None teaches ψ(s).
    """

    objective: Objective
    columns: TaskColumns
    observation: jax.ShapeDtypeStruct
    bootstraps: bool = False
    num_actions: int | None = None

    def init(self, key: Array) -> AuxiliaryState:
        """Draw the columns and make the objective's state."""
        column_key, objective_key = jax.random.split(key)
        count, seen = self.sequences, self.observation
        last = LastTargets(
            observations=jnp.zeros((count, *seen.shape), seen.dtype),
            targets=jnp.zeros((count, self.columns.num_tasks), jnp.float32),
            known=jnp.zeros((), bool),
        )
        return AuxiliaryState(
            columns=self.columns.init(column_key),
            moments=init_moments(self.columns.num_tasks),
            last=last if self.bootstraps else (),
            objective=self.objective.init(objective_key),
        )

    def loss(
        self,
        params: Params,
        target_params: Params,
        encode: Encode,
        rows: Rows,
        state: AuxiliaryState,
        key: Array,
    ) -> tuple[Array, tuple[AuxiliaryState, Metrics]]:
        """Compute the objective's loss on standardised targets.

        Raises:
            InputError: For observations of another shape or type than the task was made for.
        """
        seen, expected = rows.observation, (self.sequences, self.length, *self.observation.shape)
        require(seen.shape == expected, f"observations of shape {expected}", seen.shape)
        kind = f"observations of type {self.observation.dtype.name} (observation_dtype)"
        require(seen.dtype == self.observation.dtype, kind, seen.dtype.name)
        encode = in_single_precision(encode)  # The prediction is fitted to features, too.
        # Targets are data: nothing is differentiated through them.
        targets, last = lax.stop_gradient(self.targets(partial(encode, target_params), rows, state))
        standardised, moments = standardise(state.moments, targets)
        inputs: Any = seen[:, 0]
        if self.num_actions is not None:
            inputs, encode = (inputs, rows.action[:, 0]), _by_action(encode, self.num_actions)
        tasks = jnp.arange(self.columns.num_tasks, dtype=jnp.int32)
        value, (objective_state, metrics) = self.objective.loss(
            params, encode, Batch(inputs, standardised, tasks), state.objective, key
        )
        return value, (AuxiliaryState(state.columns, moments, last, objective_state), metrics)

    def targets(
        self, features: Callable[[Array], Array], rows: Rows, state: AuxiliaryState
    ) -> tuple[Array, Any]:
        """Compute targets [b, t], and what the next update's predictor is to be fitted to.

        Predictions of ψ at the sequences' ends are one step of fitted value iteration an update:
        targets → their least-squares fit → predictions → new targets. What is carried from one
        update to the next is the data of the fit, not its weights W̄, which mean nothing for
        another target network's features: refitted with the features at hand, just before they are
        used, predictions change by no more than what these features cannot express. The price
        beside keeping W̄ is one batch of observations in the state, and no time: the features of
        the earlier rows are computed in place of this batch's.

        A least-squares fit may expand what it is fitted to where sequences end at states that they
        seldom start from, so that iteration need not contract. ψ lies between the cumulants' bounds
        over 1 − γ: predictions are brought back into that interval, which leaves the fixed point as
        it is and keeps everything bounded.

        Args:
            features: φ⁻, the target network's features of observations.
            rows: Sequences.
            state: The task's state.
        """
        window = episode_window(rows)
        cumulants = self.columns.apply(state.columns, rows.observation)
        discounts, last = state.columns.discounts, state.last
        if not self.bootstraps:
            return monte_carlo_targets(cumulants, discounts, window), ()
        predictor = fit_predictor(features(last.observations), last.targets)
        ends = rows_at(rows.observation, window.end)
        low, high = (bound / (1.0 - discounts)[None] for bound in self.columns.bounds)
        predictions = jnp.clip(predictor.predict(features(ends)), low, high)
        targets = bootstrapped_targets(cumulants, discounts, window, predictions, last.known)
        return targets, LastTargets(rows.observation[:, 0], targets, jnp.ones((), bool))


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


def make_task_columns(config: AuxiliaryConfig, observation_shape: Sequence[int]) -> TaskColumns:
    """Make the task columns that a configuration names.

    Args:
        config: Their kind, number and discounts.
        observation_shape: Shape of one observation. Images are flattened for random networks and
            waves; ``Cells`` divide vectors alone, each coordinate from 0 to 1.

    Raises:
        InputError: For ``Cells`` of anything but vectors of at most three coordinates.
    """
    rank, inputs = len(observation_shape), math.prod(observation_shape)
    family, num_tasks = with_sizes(config.tasks, num_inputs=inputs), config.num_tasks or _NUM_TASKS
    if isinstance(family, Cells):
        require(
            rank == 1 and inputs <= _MOST_DIMENSIONS,
            f"observations that are vectors of at most {_MOST_DIMENSIONS} coordinates, for "
            "auxiliary tasks cells",
            f"shape {tuple(observation_shape)}",
        )
        num_tasks = family.num_cells
    interval = (config.discount_low, config.discount_high)
    return TaskColumns(family=family, num_tasks=num_tasks, discounts=interval, rank=rank)


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
        observation_shape: Shape of one observation; bounded coordinates lie in [0, 1], or are
            bytes.
        observation_dtype: Dtype of observations in replay.
        num_actions: Number of the agent's actions; needed for targets per action.
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
    return RepresentationTask(
        sequences=sequences,
        length=config.length,
        objective=objective,
        columns=columns,
        observation=jax.ShapeDtypeStruct(observation_shape, observation_dtype),
        bootstraps=bootstraps,
        num_actions=num_actions if config.per_action else None,
    )


class GradientNorms(NamedTuple):
    """Decayed sums of squared norms of two gradients at the torso; their weights are the same.

    Attributes:
        values: Sum for the temporal-difference loss, [].
        auxiliary: Sum for the auxiliary task, [].
    """

    values: Array
    auxiliary: Array

    def add(self, values: Params, auxiliary: Params) -> "GradientNorms":
        """Return the sums after an update with these gradients."""
        squares = (sum_of_squares(values), sum_of_squares(auxiliary))
        return GradientNorms(*(_DECAY * old + new for old, new in zip(self, squares, strict=True)))

    @property
    def auxiliary_to_values(self) -> Array:
        """Ratio of the root mean squares, []; between the ends of what single precision squares."""
        least = float(np.finfo(np.float32).tiny)
        # Roots before the quotient, which else can be subnormal, flushed to 0: explicit weights
        # start at 0, and so does the task's gradient.
        values, auxiliary = (jnp.sqrt(jnp.maximum(norm, least)) for norm in self)
        return auxiliary / values


def sum_of_squares(tree: Params) -> Array:
    """Sum the squares of all numbers of a pytree, []."""
    squares = (jnp.sum(jnp.square(leaf), dtype=jnp.float32) for leaf in jax.tree.leaves(tree))
    return sum(squares, jnp.zeros((), jnp.float32))
