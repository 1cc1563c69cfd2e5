"""Fixed action values to which an agent adds the values that it learns.

Q(s, a) = prior(s, a) + learned(s, a). The last layer of the learned part starts at 0, so an agent
begins with the greedy policy of its prior and learns corrections from its own steps. A prior of a
successor representation makes this policy the representation's policy for a task
(``SuccessorRepresentation.policy``).
"""

import math
import numbers
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.agents.features import fitted_features, state_numbers
from rlreps.agents.replay import as_inputs
from rlreps.errors import InputError, require
from rlreps.losses.base import Params
from rlreps.successor.fitting.basis import FourierBasis, UnitVectors
from rlreps.successor.fitting.representation import SuccessorRepresentation, Task

_BELOW = 0.01
"""Distance of untried actions below the smallest value, as a share of the range of values."""


class Prior(NamedTuple):
    """Action values that no gradient changes; a pytree.

    Priors of several agents are one ``Prior`` whose leaves have a leading seed axis.

    Attributes:
        parts: Tables in the form of ``fitted`` of ``WithFitted``; the smallest of their values
            counts.
        elsewhere: Value of all actions at an observation that no table holds, [].
        discount: γ of the values, [].
    """

    parts: tuple[Params, ...]
    elsewhere: Any
    discount: Any

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return int(self.parts[0]["weights"].shape[-1])

    def values(self, observations: Array) -> Array:
        """Compute action values [b, a] at observations [b, ...]."""
        seen = as_inputs(observations).reshape(len(observations), -1)
        values = [fitted_features(part, seen) for part in self.parts]
        least: Array = jnp.min(jnp.stack(values), axis=0)
        return least + self.elsewhere


def prior_of(
    representation: SuccessorRepresentation,
    task: Task,
    improvements: int | None = 1,
    *,
    observations: Any = None,
    scale: float = 1.0,
    shift: float = 0.0,
) -> Prior:
    """Make a prior of a representation's action values for a task.

    Its greedy policy is ``representation.policy(task, improvements)``. For indices of states, an
    action that was not tried in a state has a value just below all other values. A state in which
    no transition starts has the mean value of the others, for all actions.

    Args:
        representation: A fit by least squares, with discrete actions that all occur in its data and
            the agent's discount.
        task: The reward.
        improvements: As for ``policy``.
        observations: What the agent sees in each state, [n, ...], for a fit to indices of states.
            Observations of other states have the mean value too.
        scale: Factor of the values, such as the agent's ``reward_scale``.
        shift: Added to the scaled values.

    Raises:
        InputError: For another kind of fit, actions that do not occur, or ``observations`` that are
            missing, equal in two states or do not fit, or a scale or shift that is not finite.
    """
    for name, value in (("scale", scale), ("shift", shift)):
        require(isinstance(value, numbers.Real) and math.isfinite(value), f"a finite {name}", value)
    rows, count = representation.solution.rows, representation.observed.num_actions
    require(count is not None, "discrete actions", "a box")
    assert count is not None
    taken = np.unique(rows.action)
    require(len(taken) == count, f"transitions with all {count} actions", taken.tolist())
    found = representation.improved_values(task, improvements).parts
    discount = np.float32(representation.config.discount)
    basis = found[0][0]
    if isinstance(basis, UnitVectors):
        require(
            observations is not None and len(observations) == basis.num_states,
            f"observations= of all {basis.num_states} states",
            None if observations is None else np.shape(observations),
        )
        seen: Any = np.asarray(observations)
        flat = as_inputs(seen).reshape(len(seen), -1)
        table, mean = _table(flat, scale * found[0][1] + shift, rows)
        return Prior((table,), mean, discount)
    if not isinstance(basis, FourierBasis):
        raise InputError(f"expected a fit by least squares, got {type(basis).__name__}")
    require(observations is None, "no observations= for a fit to vectors", np.shape(observations))
    parts = []
    for each, weights in found:
        names = ("mean", "frequencies", "phases")
        scaled = scale * weights
        scaled[-1] += shift  # The last feature is the constant.
        parts.append({**{name: getattr(each, name) for name in names}, "weights": scaled})
    return Prior(tuple(parts), np.float32(0.0), discount)


def _table(seen: Any, values: np.ndarray, rows: Any) -> tuple[Params, np.float32]:
    """Make a table of the values [n, a] of counted states, seen as [n, c], less their mean."""
    tried = np.zeros(values.shape, np.bool_)
    tried[rows.observation, rows.action] = True
    known = values[tried]
    low, high, mean = float(known.min()), float(known.max()), float(known.mean())
    values = np.where(tried, values, low - _BELOW * (high - low))
    values = np.where(tried.any(axis=1)[:, None], values - mean, 0.0).astype(np.float32)
    numbers = state_numbers(np.asarray(seen))
    different = len(np.unique(numbers))
    require(different == len(numbers), f"{len(numbers)} different observations", different)
    order = np.argsort(numbers, kind="stable")
    return {"states": numbers[order], "weights": values[order]}, np.float32(mean)
