"""Auxiliary tasks: representation objectives on an agent's features, fed from its replay.

``make_auxiliary_task`` (``tasks``) makes the task that a configuration describes. Your own task is
a subclass of ``AuxiliaryTask``.
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
from rlreps.agents.replay import ReplayRows
from rlreps.config import checked, interval, positive, registry, with_sizes
from rlreps.cumulants import Cells, Cumulants, RandomFourier, RandomIndicators
from rlreps.errors import require, require_interval
from rlreps.losses import OBJECTIVES, PAIR_OBJECTIVES, LargeBatch, Objective, Spin
from rlreps.losses.base import Encode, Metrics, Params

TASKS: dict[str, type[Cumulants]] = registry(Cells, RandomFourier, RandomIndicators)
"""Name → family of cumulants for task columns; the families have known bounds."""

AUXILIARY_OBJECTIVES: dict[str, type[Objective]] = {
    name: cls
    for name, cls in {**OBJECTIVES, **PAIR_OBJECTIVES}.items()
    if not cls().needs_population
}
"""Name → objective that replay can feed, since it needs no exact expectations."""

LEFT_OUT = 0.05
"""Largest share of a discounted sum that a default horizon leaves out."""

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
        tasks: Cumulants behind the task columns, one of ``TASKS``. Objectives on pairs have their
            own cumulants, if any.
        num_tasks: Task columns, drawn once at the start, 64 by default; ``Cells`` sets its own.
        discount_low: Lower end of the interval from which each column's discount is drawn
            uniformly.
        discount_high: Upper end of the interval.
        horizon: Rows of a sequence. Its targets leave out a share γ^horizon of infinite
            sums, and its pairs bring states that come later to the last row; None is the smallest
            number of rows for which this share is at most 5 % at the largest discount, 299 at
            0.99, or at ``pair_discount``, 300.
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
        pairs = self.objective.needs_clips
        high = self.pair_discount if pairs else self.discount_high
        # The first row of a sequence is the pairs' own.
        return pairs + (math.ceil(math.log(LEFT_OUT) / math.log(high)) if high > 0.0 else 1)

    def require_objective(self) -> None:
        """Raise an ``InputError`` unless the objective can learn from this many sequences."""
        objective, name = self.objective, self.objective.name
        exact = "an auxiliary objective that needs no exact expectations"
        require(not objective.needs_population, exact, name)
        if objective.needs_clips:
            own = getattr(objective, "discount", None)
            next_state = f"pair_discount 0, the next state, for {name} with its own discount"
            require(own is None or self.pair_discount == 0.0, next_state, self.pair_discount)
            require(self.length >= 2, "a horizon of 2 rows or more, for pairs", self.length)
        # The number of features is not known here: check for the smallest.
        with_sizes(objective, num_features=1).require_rows(self.sequences)


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


class AuxiliaryGradient(NamedTuple):
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
    ) -> AuxiliaryGradient:
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
        return AuxiliaryGradient(by_name, state, {**metrics, "auxiliary_loss": loss})
