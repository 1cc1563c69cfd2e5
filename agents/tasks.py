"""Tasks from replay: sums of cumulants along sequences, or pairs of states, and an objective.

``make_auxiliary_task`` puts together an objective of ``rlreps.losses`` and what it learns from:
task columns (cumulants and discounts) with targets from sequences, or pairs of states. The result
is a dataclass of pure methods that any agent can use, whatever its network and replay are;
``docs/how-to/own-agent.md`` shows how.

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

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.agents.auxiliary import LEFT_OUT, AuxiliaryConfig, AuxiliaryTask
from rlreps.agents.auxiliary_targets import TargetMoments, monte_carlo_targets, standardise_targets
from rlreps.agents.replay import ReplayRows, episode_window
from rlreps.batch import Batch, Clip
from rlreps.config import with_sizes
from rlreps.cumulants import Cells, Cumulants
from rlreps.encoders import Encoder
from rlreps.errors import require, require_positive, warn_user
from rlreps.losses import CumulantDifferences, Objective
from rlreps.losses.base import Encode, Metrics, Params, in_single_precision
from rlreps.numerics import DecayedMean, as_inputs

_MOST_DIMENSIONS = 3
"""Largest number of coordinates for ``Cells``: with more, most cells are never visited."""

_NUM_TASKS = 64


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
        shape, zero = (self.num_tasks,), jnp.zeros((), jnp.float32)
        return AuxiliaryState(
            cumulants=self.family.init(cumulant_key, self.num_tasks),
            discounts=jax.random.uniform(discount_key, shape, jnp.float32, *self.discounts),
            moments=DecayedMean(TargetMoments(jnp.zeros(shape, jnp.float32), zero), zero),
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
            InputError: For observations of another shape or type than the task was made for, or
                rows without actions where targets need them.
        """
        seen, encode = _checked(rows, self), in_single_precision(encode)
        cumulants = self.cumulants(state.cumulants, seen)
        targets = monte_carlo_targets(cumulants, state.discounts, episode_window(rows))
        standardised, moments = standardise_targets(state.moments, targets)
        inputs: Any = seen[:, 0]
        if self.num_actions is not None:
            require(rows.action is not None, "rows with actions, for targets per_action", "none")
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
    last state of the episode or the sequence, if they end before. A terminal state counts as if the
    episode stayed there for ever. Temporal differences need its features, so pairs that stay there
    take the place of others: of half as many as the other sequences' pairs that lead to a terminal
    state, drawn whatever they lead to. So s⁺ given s has its distribution. Objectives see flat
    float observations.

    Attributes:
        objective: The objective.
        discount: γ.
        observation: Shape and dtype of an observation.
    """

    objective: Objective
    discount: float
    observation: jax.ShapeDtypeStruct

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
        """Compute the objective's loss on one pair of each sequence.

        Raises:
            InputError: For observations of another shape or type than the task was made for.
        """
        seen, encode = _checked(rows, self), in_single_precision(encode)
        window = episode_window(rows)
        step_key, stay_key, loss_key = jax.random.split(key, 3)
        count, every = self.sequences, jnp.arange(self.sequences)
        # At least one: the number of trials up to and with the first success.
        steps = jax.random.geometric(step_key, 1.0 - self.discount, (count,), jnp.int32)
        reached = jnp.minimum(steps, window.end)
        # A pair's own end has no part in whether it is replaced.
        ended = window.terminal & (steps >= window.end)
        before = jnp.cumsum(ended, dtype=jnp.int32)
        others = (before[-1] - ended.astype(jnp.int32)).astype(jnp.float32)
        chosen_key, which_key = jax.random.split(stay_key)
        stays = jax.random.bernoulli(chosen_key, others / (2.0 * (count - 1)))
        # The terminal state of any sequence; without one, no pair is replaced.
        drawn = jax.random.randint(which_key, (count,), 0, jnp.maximum(before[-1], 1), jnp.int32)
        which = jnp.searchsorted(before, drawn, side="right").astype(jnp.int32)
        of = jnp.where(stays, which, every)
        ends = seen[of, jnp.where(stays, reached[of], 0)], seen[of, reached[of]]
        pair = Clip(tuple(as_inputs(each).reshape(count, -1) for each in ends))

        def encode_flat(params: Params, seen: Array) -> Array:
            return encode(params, seen.reshape(-1, *self.observation.shape))

        batch = Batch(pair, jnp.zeros((count, 0)))
        return self.objective.loss(params, encode_flat, batch, state, loss_key)


def _checked(rows: ReplayRows, task: "RepresentationTask | PairTask") -> Array:
    """Return the observations of a task's rows, [sequences, length, *observation]."""
    seen, expected = rows.observation, (task.sequences, task.length, *task.observation.shape)
    axes = "sequences, rows of each (horizon; 2 for pairs at pair_discount 0), observation"
    require(seen.shape == expected, f"observations of shape {expected} ({axes})", seen.shape)
    kind = f"observations of type {task.observation.dtype.name} (observation_dtype)"
    require(seen.dtype == task.observation.dtype, kind, seen.dtype.name)
    return jnp.asarray(seen)


def _by_action(encode: Encode, num_actions: int) -> Encode:
    """Make the encoder (s, a) → e_a ⊗ φ(s), [b, a d], of pairs (observations, actions [b]).

    Weights [a d, t] on these features consist of a block [d, t], a head, for each action. Features
    of an action outside [0, a) are NaN.
    """

    def encode_pairs(params: Params, inputs: tuple[Array, Array]) -> Array:
        observations, actions = inputs
        features = encode(params, observations)
        known = (actions >= 0) & (actions < num_actions)
        chosen = jax.nn.one_hot(actions, num_actions, dtype=features.dtype)
        chosen = jnp.where(known[:, None], chosen, jnp.nan)
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
        config: The configuration, without a ``head``, which is a part of the network.
        num_features: d, features of the torso.
        observation_shape: Shape of one observation; bounded coordinates lie in [0, 1], or are
            bytes.
        observation_dtype: Dtype of observations in replay.
        num_actions: Number of the agent's actions; required for targets per action.
        encoder: The torso, whose parameters ``spin`` with ``averaging_rate`` < 1 and objectives
            with a target network need.
        learning_rate: Rate of ``explicit``'s stored weights, unless the configuration has one.

    Warns:
        FitWarning: If more than 5 % of the states of pairs would come after the sequences.

    Raises:
        InputError: For an objective that needs exact expectations, too few sequences for it,
            observations that the tasks cannot take, or a head.
    """
    require_positive("num_features", num_features)
    if num_actions is not None:
        require_positive("num_actions", num_actions)
    config.require_objective()
    layers = "head=(): give the task what layers of your own make of the features"
    require(not config.head, layers, config.head)
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
    observation = jax.ShapeDtypeStruct(observation_shape, observation_dtype)
    objective = config.objective
    if isinstance(objective, CumulantDifferences):
        own = with_sizes(objective.cumulants, num_inputs=inputs)
        count = config.num_tasks or objective.num_cumulants
        objective = dataclasses.replace(objective, cumulants=own, num_cumulants=count)
    objective = with_sizes(
        objective,
        num_features=seen_features,
        num_tasks=num_tasks,
        encoder=encoder,
        encoder_learning_rate=learning_rate,
    )
    if objective.needs_clips:
        cut = config.pair_discount ** (config.length - 1)
        if cut > LEFT_OUT:
            warn_user(
                f"pairs within sequences of {config.length} rows: {cut:.0%} of the later states "
                f"would come after the last row at pair_discount {config.pair_discount:g}, and are "
                "the last row's state; take more rows (horizon), or horizon=None"
            )
        return PairTask(
            sequences=sequences,
            length=config.length,
            objective=objective,
            discount=config.pair_discount,
            observation=observation,
        )
    return RepresentationTask(
        sequences=sequences,
        length=config.length,
        objective=objective,
        family=family,
        num_tasks=num_tasks,
        discounts=(config.discount_low, config.discount_high),
        observation=observation,
        num_actions=num_actions if config.per_action else None,
    )
