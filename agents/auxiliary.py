"""Auxiliary tasks: representation objectives on an agent's features, fed from its replay.

``make_auxiliary_task`` puts together task columns, targets from sequences and an objective of
``rlreps.losses``. What comes out is a pair of pure functions that any agent can use, whatever its
network and replay are::

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
(``standardisation``), so that the weight of a loss has no unit. That is right for every objective:
column means would make the constant function a principal component, and a common factor changes no
subspace. What has to be learned drifts a little with the averages, which the weights that
``explicit`` stores, and the moments that ``spin`` averages, follow. Targets that a prediction
continues are fitted as they are, before that.

**Features** of a network are far from white. ``danskin_lissa``'s series converges slowly there, and
its features grow; ``whitening`` and several ``permutations`` help (``DanskinLissa``).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.agents.config import AuxiliaryConfig
from rlreps.agents.rows import Rows, Window, episode_window, rows_at
from rlreps.agents.standardisation import TargetMoments, init_moments, standardise
from rlreps.agents.targets import bootstrapped_targets, fit_predictor, monte_carlo_targets, predict
from rlreps.agents.task_columns import ColumnParams, TaskColumns, make_task_columns
from rlreps.config import with_sizes
from rlreps.errors import require, require_positive
from rlreps.losses.base import Batch, Encode, Metrics, Params
from rlreps.losses.spectral import Initialiser


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
    """The update's before, which the predictor of bootstrapped targets is fitted to.

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
        columns: The task columns; drawn once.
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
    encoder: Initialiser | None = None,
    learning_rate: float = 1e-3,
) -> AuxiliaryTask:
    """The auxiliary task that a configuration describes; its weight is left to the caller.

    Args:
        config: The configuration.
        num_features: d, features of the torso.
        observation_shape: Of one observation; bounded coordinates lie in [0, 1], or are bytes.
        observation_dtype: Of observations in replay.
        encoder: The torso, whose parameters ``spin`` needs with ``averaging_rate`` < 1.
        learning_rate: Of ``explicit``'s stored weights, where the configuration names none.

    Raises:
        InputError: For an objective that needs exact expectations, too few sequences for it or for
            the fit of bootstrapped targets, or observations that the tasks cannot take.
    """
    _require_sequences(config, num_features)
    columns = make_task_columns(config, observation_shape)
    objective = with_sizes(
        config.objective,
        num_features=num_features,
        num_tasks=columns.num_tasks,
        encoder=encoder,
        encoder_learning_rate=learning_rate,
    )
    bootstraps = config.targets == "bootstrapped"

    def init(key: Array) -> AuxiliaryState:
        column_key, objective_key = jax.random.split(key)
        shape = (config.sequences, *observation_shape)
        last = LastTargets(
            observations=jnp.zeros(shape, observation_dtype),
            targets=jnp.zeros((config.sequences, columns.num_tasks), jnp.float32),
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
        _require_rows_of(rows, config, observation_shape, observation_dtype)
        first = rows.observation[:, 0]
        # Targets are data: nothing is differentiated through them.
        targets, last = lax.stop_gradient(_targets(columns, encode, target_params, rows, state))
        standardised, moments = standardise(state.moments, targets)
        batch = Batch(first, standardised, jnp.arange(columns.num_tasks, dtype=jnp.int32))
        value, (objective_state, metrics) = objective.loss(
            params, encode, batch, state.objective, key
        )
        return value, (AuxiliaryState(state.columns, moments, last, objective_state), metrics)

    return AuxiliaryTask(init, loss, config.sequences, config.horizon)


def _targets(
    columns: TaskColumns,
    encode: Encode,
    target_params: Params,
    rows: Rows,
    state: AuxiliaryState,
) -> tuple[Array, Any]:
    """Targets [b, t], and what the next update's predictor is to be fitted to."""
    window = episode_window(rows)
    cumulants = columns.apply(state.columns, rows.observation)
    discounts = state.columns.discounts
    if not isinstance(state.last, LastTargets):
        return monte_carlo_targets(cumulants, discounts, window), ()
    predictions = _predictions(
        columns, lambda seen: encode(target_params, seen), rows, window, state.last, discounts
    )
    known = state.last.known
    targets = bootstrapped_targets(cumulants, discounts, window, predictions, known)
    return targets, LastTargets(rows.observation[:, 0], targets, jnp.ones((), bool))


def _predictions(
    columns: TaskColumns,
    features: Callable[[Array], Array],
    rows: Rows,
    window: Window,
    last: LastTargets,
    discounts: Array,
) -> Array:
    """Predictions of ψ at the sequences' ends, [b, t].

    One step of fitted value iteration an update: targets → their least-squares fit → predictions →
    new targets. What is carried from one update to the next is the data of the fit, not its weights
    W̄, which mean nothing for another target network's features: refitted with the features at
    hand, just before they are used, predictions change by no more than what these features cannot
    express. The price beside keeping W̄ is one batch of observations in the state, and no time: the
    features of the earlier rows are computed in place of this batch's.

    A least-squares fit may expand what it is fitted to where sequences end at states that they
    seldom start from, so that iteration need not contract. ψ lies between the cumulants' bounds
    over 1 − γ: predictions are brought back into that interval, which leaves the fixed point as it
    is and keeps everything bounded.
    """
    predictor = fit_predictor(features(last.observations), last.targets)
    ends = rows_at(rows.observation, window.end)
    low, high = (bound / (1.0 - discounts)[None] for bound in columns.bounds)
    return jnp.clip(predict(predictor, features(ends)), low, high)


def _require_sequences(config: AuxiliaryConfig, num_features: int) -> None:
    """Raises an ``InputError`` unless there are sequences enough for all that is done with them."""
    require_positive("num_features", num_features)
    objective, sequences = config.objective, config.sequences
    require(
        not objective.needs_population,
        "an auxiliary objective that needs no exact expectations",
        objective.name,
    )
    require(sequences >= 2, "sequences >= 2, whose spread gives targets their unit", sequences)
    with_sizes(objective, num_features=num_features).require_rows(sequences)
    if config.targets == "bootstrapped":
        rows = f"sequences > {num_features}, more than features, for bootstrapped targets"
        require(sequences > num_features, rows, sequences)
        require(config.horizon >= 2, "horizon >= 2 for bootstrapped targets", config.horizon)


def _require_rows_of(
    rows: Rows, config: AuxiliaryConfig, observation_shape: tuple[int, ...], dtype: Any
) -> None:
    """Raises an ``InputError`` unless rows are those that the task was made for."""
    expected = (config.sequences, config.horizon, *observation_shape)
    shape = rows.observation.shape
    require(shape == expected, f"observations of shape {expected}", shape)
    got, wanted = rows.observation.dtype.name, jnp.dtype(dtype).name
    require(got == wanted, f"observations of type {wanted} (observation_dtype)", got)
