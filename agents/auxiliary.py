"""Auxiliary tasks: representation objectives on an agent's features, fed from its replay.

``make_auxiliary_task`` puts together task columns (cumulants and discounts), targets from sequences
and an objective of ``rlreps.losses``. The result is a dataclass of pure methods that any agent can
use, whatever its network and replay are; ``docs/how-to/own-agent.md`` shows how. Your own task is
a subclass of ``AuxiliaryTask``.

**Rows of a batch.** All objectives assume that the rows of a batch are independent draws of
(s_0, targets); a row here is a sequence. Starts of sequences must be drawn independently and
uniformly from the buffer. Given the buffer and the state of the task, rows are then independent and
identically distributed, and unbiased estimates stay unbiased for the distribution in the buffer.
Neighbours in time and overlapping sequences make the buffer a worse sample of the environment, but
do not bias the gradient for the buffer. Rows of a batch share only the averages that centre and
scale targets, which come from earlier batches.

**Features** of a network are far from white. The series of ``danskin_lissa`` then converges slowly
and the network's features grow; ``whitening`` and several ``permutations`` help (``DanskinLissa``).
"""

import abc
import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from rlreps.agents.network import QNetwork
from rlreps.agents.replay import ReplayRows, as_inputs, episode_window
from rlreps.agents.targets import init_moments, monte_carlo_targets, standardise
from rlreps.batch import Batch, Clip
from rlreps.config import checked, interval, positive, registry, with_sizes
from rlreps.cumulants import Cells, Cumulants, RandomFourier, RandomIndicators
from rlreps.encoders import Encoder
from rlreps.errors import require, require_interval, require_positive
from rlreps.losses import OBJECTIVES, PAIR_OBJECTIVES, LargeBatch, Objective, Spin
from rlreps.losses.base import Encode, Metrics, Params, in_single_precision
from rlreps.numerics import DecayedMean

TASKS: dict[str, type[Cumulants]] = registry(Cells, RandomFourier, RandomIndicators)
"""Name → family of cumulants for task columns; the families have known bounds."""

AUXILIARY_OBJECTIVES: dict[str, type[Objective]] = {
    name: cls
    for name, cls in {**OBJECTIVES, **PAIR_OBJECTIVES}.items()
    if not cls().needs_population
}
"""Name → objective that replay can feed, since it needs no exact expectations."""

_MOST_DIMENSIONS = 3
"""Largest number of coordinates for ``Cells``: with more, most cells are never visited."""

_LEFT_OUT = 0.05
"""Largest share of a discounted sum that a default horizon leaves out."""

_NUM_TASKS = 64

_DECAY = 0.99
"""Decay of the averages of the gradients' squared norms at each update."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class AuxiliaryConfig:
    """An auxiliary task: a representation objective on the torso's features, fed from replay.

    Attributes:
        objective: The objective.
        weight: Weight of its gradient at the torso relative to the temporal-difference loss; 0 is
            no auxiliary task.
        relative: Whether the weight is in units of the norm of the temporal-difference gradient.
            The task's gradient is then scaled to the same running norm at the torso before
            weighing, so that one weight means the same for every objective, unit of targets and
            scale of rewards.
        head: Units of the hidden layers of the task's own head, which maps the torso's features to
            as many features for the objective; empty gives the objective the torso's features.
            ``explicit`` adds linear weights of its own in both cases.
        tasks: Cumulants behind the task columns, one of ``TASKS``.
        num_tasks: Task columns, drawn once at the start, 64 by default; ``Cells`` sets its own.
        discount_low: Lower end of the interval from which each column's discount is drawn
            uniformly.
        discount_high: Upper end of the interval.
        horizon: Rows of a sequence. Its targets leave out a share γ^horizon of infinite
            sums; None is the smallest number of rows that leaves out at most 5 % at the largest
            discount, 299 at 0.99.
        sequences: Number of sequences in an update; each gives a row of the objective's batch.
        pair_discount: γ of the pairs (s, s⁺) that an objective on pairs sees: s⁺ is a state of the
            same sequence, 1 + k steps later with probability (1 − γ)γᵏ; 0 takes the next state.
            Objectives with a discount of their own expect the next state.
        per_action: Teach ψ(s, a) instead of ψ(s): a is the first action of a sequence, and later
            actions follow the policies behind the replay. The objective has a head of weights for
            each action, on the same features of the torso. Actions occur in a batch as often as in
            replay.
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
    horizon: int | None = positive(32)
    sequences: int = positive(256)
    pair_discount: float = interval("[0, 1)", 0.0)
    per_action: bool = False

    def __post_init__(self) -> None:
        require_interval("auxiliary weight", self.weight, "[0, inf)")
        families = f"auxiliary tasks to be one of {', '.join(TASKS)}"
        require(type(self.tasks) in TASKS.values(), families, self.tasks)
        require(
            0.0 <= self.discount_low <= self.discount_high < 1.0,
            "discounts 0 <= discount_low <= discount_high < 1",
            (self.discount_low, self.discount_high),
        )
        weighted = not (isinstance(self.objective, Spin) or self.objective.needs_clips)
        require(
            weighted or not self.per_action,
            "an objective with weights, a head for each action, for targets per_action",
            self.objective.name,
        )
        require(all(units >= 1 for units in self.head), "units >= 1 in a head's layers", self.head)
        fits = not isinstance(self.tasks, Cells) or self.num_tasks is None
        require(fits, "no num_tasks for cells, since each cell is a task", self.num_tasks)
        if self.weight > 0.0:
            self.require_objective()

    @property
    def length(self) -> int:
        """Number of rows of a sequence."""
        if self.objective.needs_clips and self.pair_discount == 0.0:
            return 2
        if self.horizon is not None:
            return self.horizon
        high = self.discount_high
        return math.ceil(math.log(_LEFT_OUT) / math.log(high)) if high > 0.0 else 1

    def require_objective(self) -> None:
        """Raise an ``InputError`` unless the objective can learn from this many sequences."""
        require(
            not self.objective.needs_population,
            "an auxiliary objective that needs no exact expectations",
            self.objective.name,
        )
        # The number of features is not known here: check for the smallest.
        with_sizes(self.objective, num_features=1).require_rows(self.sequences)


class GradientNorms(NamedTuple):
    """Sums of squared norms of two gradients at the torso, which decay at the same rate.

    Attributes:
        values: Sum for the temporal-difference loss, [].
        auxiliary: Sum for the auxiliary task, [].
    """

    values: Array
    auxiliary: Array

    def add(self, values: Params, auxiliary: Params) -> "GradientNorms":
        """Return the sums after an update with these gradients."""
        squares = (optax.tree.norm(tree, squared=True) for tree in (values, auxiliary))
        return GradientNorms(*(_DECAY * old + new for old, new in zip(self, squares, strict=True)))

    @property
    def auxiliary_to_values(self) -> Array:
        """Ratio of the root mean squares, []; limited to what single precision can square."""
        least = float(np.finfo(np.float32).tiny)
        # Take roots before dividing: the quotient may be subnormal and flushed to 0, since explicit
        # weights start at 0 and so does the task's gradient.
        values, auxiliary = (jnp.sqrt(jnp.maximum(norm, least)) for norm in self)
        return auxiliary / values


class SideGradient(NamedTuple):
    """An auxiliary task's part in an update, before weighing.

    Attributes:
        gradients: Gradients by name of the network's parameters: ``torso``, and ``auxiliary_head``
            if there is one.
        state: The task's state after the update.
        metrics: The task's metrics.
    """

    gradients: Params
    state: Any
    metrics: Metrics

    def added_to(
        self, gradients: Params, norms: GradientNorms, config: AuxiliaryConfig
    ) -> tuple[Params, GradientNorms, Metrics]:
        """Add the gradient, times its weight, to the gradient of the temporal-difference loss.

        If the weight is ``relative``, it is first divided by the ratio of the root mean square
        norms of the two gradients at the torso, running averages of decay 0.99 that include this
        update. This update has a weight of 1 % in the averages. So the norm of the added gradient
        is at most ten times the weight times the average norm of the other gradient, whatever the
        earlier gradients were. The factor depends slightly on the rows of this update.

        Returns:
            The joint gradient, the new norms, and metrics.
        """
        norms = norms.add(gradients["torso"], self.gradients["torso"])
        ratio = norms.auxiliary_to_values
        factor = config.weight / ratio if config.relative else jnp.float32(config.weight)
        joint = {
            name: jax.tree.map(lambda own, other: own + factor * other, gradients[name], part)
            for name, part in self.gradients.items()
        }
        return {**gradients, **joint}, norms, {**self.metrics, "gradient_ratio": ratio}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuxiliaryTask(abc.ABC):
    """Another task that a torso learns from replay.

    Attributes:
        sequences: Number of sequences in an update.
        length: Rows of each sequence.
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
        rows: ReplayRows,
        state: Any,
        key: Array,
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute a scalar, before weighing, to be differentiated in ``params``.

        Args:
            params: The torso's parameters.
            target_params: The target network's parameters.
            encode: (parameters, observations [b, ...]) → features [b, d].
            rows: [sequences, length, ...]; no first row is ``last``.
            state: The task's state.
            key: Random key.

        Returns:
            The scalar, and with it the new state and metrics.
        """

    def gradient(
        self,
        network: QNetwork,
        params: Params,
        target_params: Params,
        rows: ReplayRows,
        state: Any,
        key: Array,
    ) -> SideGradient:
        """Compute the gradient in the parameters of a Q-network; arguments as for ``loss``.

        Metrics get the prefix ``auxiliary_``.
        """
        gradient_of = jax.value_and_grad(self.loss, has_aux=True)
        (loss, (state, reported)), gradient = gradient_of(
            network.auxiliary_params(params),
            network.auxiliary_params(target_params),
            network.auxiliary_features,
            rows,
            state,
            key,
        )
        # In one type, so that a loop can average them.
        metrics = {
            f"auxiliary_{name}": jnp.asarray(value, jnp.float32) for name, value in reported.items()
        }
        by_name = gradient if network.auxiliary_head is not None else {"torso": gradient}
        return SideGradient(by_name, state, {**metrics, "auxiliary_loss": loss})


class AuxiliaryState(NamedTuple):
    """The state of a task.

    Attributes:
        cumulants: Parameters of the cumulants; drawn once.
        discounts: γ of each column, [t]; drawn once.
        moments: Running averages of ``TargetMoments``.
        objective: The objective's state.
    """

    cumulants: Any
    discounts: Array
    moments: DecayedMean
    objective: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepresentationTask(AuxiliaryTask):
    """An objective on targets from replay; ``make_auxiliary_task`` makes it.

    Column k of the targets has a cumulant c_k, a function of observations, and a discount γ_k, both
    drawn once at the start. The targets estimate ψ_k(s) = E Σ_{j≥0} γ_k^j c_k(S_j), S_0 = s, under
    the policies that filled the replay. Columns with larger discounts are larger and weigh more, as
    in the successor measure.

    Attributes:
        objective: The objective.
        family: The cumulants.
        num_tasks: t, number of columns.
        discounts: Interval over which discounts are uniform.
        observation: Shape and dtype of an observation.
        num_actions: Number of actions, each with its own head; None teaches ψ(s).
    """

    objective: Objective
    family: Cumulants
    num_tasks: int
    discounts: tuple[float, float]
    observation: jax.ShapeDtypeStruct
    num_actions: int | None = None

    def init(self, key: Array) -> AuxiliaryState:
        """Draw the columns and make the objective's state."""
        column_key, objective_key = jax.random.split(key)
        cumulant_key, discount_key = jax.random.split(column_key)
        return AuxiliaryState(
            cumulants=self.family.init(cumulant_key, self.num_tasks),
            discounts=jax.random.uniform(
                discount_key, (self.num_tasks,), jnp.float32, *self.discounts
            ),
            moments=init_moments(self.num_tasks),
            objective=self.objective.init(objective_key),
        )

    def cumulants(self, params: Any, observations: Array) -> Array:
        """Compute cumulants [..., t] (float32) of observations [..., *observation], flattened."""
        leading = observations.shape[: observations.ndim - len(self.observation.shape)]
        return self.family.apply(params, as_inputs(observations).reshape(*leading, -1))

    def loss(
        self,
        params: Params,
        target_params: Params,
        encode: Encode,
        rows: ReplayRows,
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
        encode = in_single_precision(encode)
        cumulants = self.cumulants(state.cumulants, seen)
        targets = monte_carlo_targets(cumulants, state.discounts, episode_window(rows))
        standardised, moments = standardise(state.moments, targets)
        inputs: Any = seen[:, 0]
        if self.num_actions is not None:
            inputs, encode = (inputs, rows.action[:, 0]), _by_action(encode, self.num_actions)
        tasks = jnp.arange(self.num_tasks, dtype=jnp.int32)
        value, (objective_state, metrics) = self.objective.loss(
            params, encode, Batch(inputs, standardised, tasks), state.objective, key
        )
        return value, (state._replace(moments=moments, objective=objective_state), metrics)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairTask(AuxiliaryTask):
    """An objective on pairs (s, s⁺) of states of an episode, drawn along sequences of replay.

    s is a sequence's first state, and s⁺ comes 1 + k steps later with P(k) = (1 − γ)γᵏ, or is the
    last state of the episode or the sequence, if they end before. Objectives see flat float
    observations.

    Attributes:
        objective: The objective.
        discount: γ.
    """

    objective: Objective
    discount: float

    def init(self, key: Array) -> Any:
        """Make the objective's state."""
        return self.objective.init(key)

    def loss(
        self,
        params: Params,
        target_params: Params,
        encode: Encode,
        rows: ReplayRows,
        state: Any,
        key: Array,
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute the objective's loss on one pair of each sequence."""
        step_key, loss_key = jax.random.split(key)
        count, shape = len(rows.observation), rows.observation.shape[2:]
        # At least one: the number of trials up to and with the first success.
        steps = jax.random.geometric(step_key, 1.0 - self.discount, (count,), jnp.int32)
        reached = jnp.minimum(steps, episode_window(rows).end)
        ends = rows.observation[:, 0], rows.observation[jnp.arange(count), reached]
        pair = Clip(tuple(as_inputs(seen).reshape(count, -1) for seen in ends))

        def encode_flat(params: Params, seen: Array) -> Array:
            return encode(params, seen.reshape(-1, *shape))

        batch = Batch(pair, jnp.zeros((count, 0)))
        return self.objective.loss(params, encode_flat, batch, state, loss_key)


def _by_action(encode: Encode, num_actions: int) -> Encode:
    """Make the encoder (s, a) → e_a ⊗ φ(s), [b, a d], of pairs (observations, actions [b]).

    Weights [a d, t] on these features consist of a block [d, t], a head, for each action.
    """

    def encode_pairs(params: Params, inputs: tuple[Array, Array]) -> Array:
        observations, actions = inputs
        features = encode(params, observations)
        chosen = jax.nn.one_hot(actions, num_actions, dtype=features.dtype)
        return (chosen[:, :, None] * features[:, None, :]).reshape(len(actions), -1)

    return encode_pairs


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
    """Make the auxiliary task that a configuration describes; the caller applies its weight.

    Args:
        config: The configuration.
        num_features: d, features of the torso.
        observation_shape: Shape of one observation; bounded coordinates lie in [0, 1], or are
            bytes.
        observation_dtype: Dtype of observations in replay.
        num_actions: Number of the agent's actions; required for targets per action.
        encoder: The torso, whose parameters ``spin`` with ``averaging_rate`` < 1 and objectives with
            a target network need.
        learning_rate: Rate of ``explicit``'s stored weights, unless the configuration has one.

    Raises:
        InputError: For an objective that needs exact expectations, too few sequences for it, or
            observations that the tasks cannot take.
    """
    require_positive("num_features", num_features)
    if num_actions is not None:
        require_positive("num_actions", num_actions)
    config.require_objective()
    sequences = config.sequences
    require(sequences >= 2, "sequences >= 2, since their spread scales targets", sequences)
    seen_features = num_features
    if config.per_action:
        require(num_actions is not None, "num_actions for targets per_action", num_actions)
        seen_features *= num_actions or 1
    with_sizes(config.objective, num_features=seen_features).require_rows(sequences)
    inputs, num_tasks = math.prod(observation_shape), config.num_tasks or _NUM_TASKS
    family = with_sizes(config.tasks, num_inputs=inputs)
    if isinstance(family, Cells):
        require(
            len(observation_shape) == 1 and inputs <= _MOST_DIMENSIONS,
            f"observations that are vectors of at most {_MOST_DIMENSIONS} coordinates, for "
            "auxiliary tasks cells",
            f"shape {observation_shape}",
        )
        num_tasks = family.num_cells
    objective = with_sizes(
        config.objective,
        num_features=seen_features,
        num_tasks=num_tasks,
        encoder=encoder,
        encoder_learning_rate=learning_rate,
        cumulants=family,
    )
    if objective.needs_clips:
        return PairTask(
            sequences=sequences,
            length=config.length,
            objective=objective,
            discount=config.pair_discount,
        )
    return RepresentationTask(
        sequences=sequences,
        length=config.length,
        objective=objective,
        family=family,
        num_tasks=num_tasks,
        discounts=(config.discount_low, config.discount_high),
        observation=jax.ShapeDtypeStruct(observation_shape, observation_dtype),
        num_actions=num_actions if config.per_action else None,
    )
