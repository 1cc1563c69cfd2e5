"""Environments of gymnax (Lange 2022), compiled together with agents."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from rlreps.config import import_extra
from rlreps.envs.core import TimeStep, pytree_dataclass
from rlreps.errors import InputError, require
from rlreps.files import parse_json
from rlreps.typing import DoubleArray

PREFIX = "gymnax:"
"""Prefix of the names of gymnax environments."""


LARGEST_RANGE = 2e6
"""A coordinate with a larger range counts as unbounded: scaling would make it zero."""


class GymnaxState(NamedTuple):
    """A state of gymnax and what an agent sees of it."""

    inner: Any
    observation: jax.Array


@pytree_dataclass(static=("environment",))
@dataclasses.dataclass(frozen=True, kw_only=True)
class GymnaxEnvironment:
    """An environment of gymnax 1.0 or later behind the contract ``Environment``.

    Observations are float32. Coordinates with bounds of at most 10⁶ are scaled to [0, 1], and
    indices become unit vectors.

    Attributes:
        environment: the environment, with discrete actions, and observations in one array or
            discrete.
        params: its parameters.
        least: lower bounds of coordinates, subtracted from observations, [*observation]; 0 for an
            unbounded coordinate.
        width: ranges of coordinates, divisors of the differences, [*observation]; 1 for an
            unbounded coordinate. None for discrete observations.

    Raises:
        InputError: If actions are not discrete, observations neither discrete nor one array, or
            ``max_steps_in_episode`` is not a whole number.
    """

    environment: Any
    params: Any
    least: Any = dataclasses.field(default=None, init=False, repr=False, compare=False)
    width: Any = dataclasses.field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        actions = self.environment.action_space(self.params)
        require(hasattr(actions, "n"), "an environment with discrete actions", actions)
        steps = self.params.max_steps_in_episode
        whole = math.isfinite(steps) and int(steps) == steps
        require(whole, "a whole number as max_steps_in_episode", steps)
        seen = self.environment.observation_space(self.params)
        if hasattr(seen, "n"):
            return
        require(hasattr(seen, "low"), "observations in one array of numbers", seen)
        low, high = (np.broadcast_to(bound, seen.shape) for bound in (seen.low, seen.high))
        for name, value in zip(("least", "width"), scale_of(low, high), strict=True):
            object.__setattr__(self, name, value.astype(np.float32))

    @property
    def num_actions(self) -> int:
        """Number of discrete actions, numbered from 0."""
        return int(self.environment.action_space(self.params).n)

    @property
    def max_steps(self) -> int:
        """Steps after which an episode is truncated."""
        return int(self.params.max_steps_in_episode)

    def reset(self, key: jax.Array) -> GymnaxState:
        """Draw a start state."""
        seen, inner = self.environment.reset_env(key, self.params)
        # A reset may return Python numbers where a step returns arrays.
        typed = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), inner)
        return GymnaxState(typed, self._scaled(seen))

    def step(self, key: jax.Array, state: GymnaxState, action: jax.Array) -> TimeStep:
        """Take an action, without gymnax's reset at an episode's end."""
        seen, after, reward, terminated, _ = self.environment.step_env(
            key, state.inner, action, self.params
        )
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state.inner)
        state = GymnaxState(after, self._scaled(seen))
        return TimeStep(
            state=state,
            observation=state.observation,
            reward=jnp.asarray(reward, jnp.float32),
            terminated=jnp.asarray(terminated, bool),
            truncated=jnp.asarray(self.environment.is_truncated(after, self.params), bool),
        )

    def observe(self, state: GymnaxState) -> jax.Array:
        """Return what an agent sees."""
        return state.observation

    def _scaled(self, seen: Any) -> jax.Array:
        if self.width is None:
            indices = self.environment.observation_space(self.params).n
            return jax.nn.one_hot(seen, indices, dtype=jnp.float32)
        scaled: jax.Array = (jnp.asarray(seen, jnp.float32) - self.least) / self.width
        return scaled


def gymnax_environment(name: str) -> GymnaxEnvironment:
    """Make the environment of a name ``gymnax:ID`` or ``gymnax:ID:option=value,...``.

    Options are parameters of the environment, such as ``max_steps_in_episode``, or arguments of its
    class, such as ``use_visual_obs`` of ``FourRooms-misc``. Values are numbers, true or false. A
    parameter takes the type of its default.

    Raises:
        InputError: If the environment or an option is unknown; a value is neither a number nor a
            boolean, or not of its parameter's type; the environment cannot be loaded, has actions
            or observations that ``GymnaxEnvironment`` does not take, or an episode of a fractional
            number of steps; or the package gymnax is not installed.
    """
    gymnax = import_extra("gymnax", "gymnax", name)
    _, identifier, *rest = name.split(":", 2)
    known = ", ".join(gymnax.registered_envs)
    require(identifier in gymnax.registered_envs, f"an environment of gymnax ({known})", identifier)
    pairs = [pair.partition("=") for pair in ",".join(rest).split(",") if pair]
    try:
        options = {option: parse_json(value.encode(), option) for option, _, value in pairs}
        for option, value in options.items():
            finite = isinstance(value, bool | int | float) and math.isfinite(value)
            require(finite, f"a finite number or bool as {option}", value)
        default = gymnax.make(identifier)[1]
        fields = {field.name for field in dataclasses.fields(default)}
        given = {key: value for key, value in options.items() if key not in fields}
        environment, params = gymnax.make(identifier, **given)
    except InputError:
        raise
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"expected {PREFIX}ID:option=value,..., got {name!r}: {error}") from error
    changed = {
        key: _of_type(value, getattr(params, key), key)
        for key, value in options.items()
        if key in fields
    }
    return GymnaxEnvironment(environment=environment, params=params.replace(**changed))


def _of_type(value: Any, default: Any, name: str) -> Any:
    """Return an option as a number of its default's type; JAX does not mix types in branches."""
    kind = type(default) if isinstance(default, bool | int | float) else type(value)
    whole = isinstance(value, bool) == (kind is bool) and kind(value) == value
    require(whole, f"{name} of type {kind.__name__}", value)
    return kind(value)


def scale_of(low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[DoubleArray, DoubleArray]:
    """Return the offset and the divisor of each coordinate; 0 and 1 if it is unbounded."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bounded = np.isfinite(low) & np.isfinite(high) & (low < high)
    low, high = np.where(bounded, low, 0.0), np.where(bounded, high, 1.0)
    bounded &= high / 2.0 - low / 2.0 <= LARGEST_RANGE / 2.0  # Differences may overflow.
    low, high = np.where(bounded, low, 0.0), np.where(bounded, high, 1.0)
    return low, high - low
