"""The contract between environments and the code that rolls them out, and shared helpers."""

import dataclasses
import numbers
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import GetAttrKey

from rlreps.errors import require, require_interval


class TimeStep(NamedTuple):
    """Outcome of one step of an environment.

    Attributes:
        state: the state after the step, whatever pytree the environment uses.
        observation: what the agent sees of the state.
        reward: scalar reward of the step.
        terminated: scalar bool, the task itself has ended: this state has no future value.
        truncated: scalar bool, a time limit has cut the episode: this state has future value.
    """

    state: Any
    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array


@runtime_checkable
class Environment(Protocol):
    """A pure environment: no hidden state, one copy at a time; callers ``vmap``.

    An environment is a frozen dataclass of parameters registered as a pytree, so that it may be
    closed over or passed through ``jit``. No method branches in Python on an array's value.
    """

    @property
    def num_actions(self) -> int:
        """Number of discrete actions, numbered from 0."""

    def reset(self, key: jax.Array) -> Any:
        """Draw a start state with ``key``."""

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> TimeStep:
        """Take ``action`` (an integer scalar) in ``state``; ``key`` decides what is random."""

    def observe(self, state: Any) -> jax.Array:
        """Return what an agent sees of ``state``."""


T = TypeVar("T")


def pytree_dataclass(*, static: tuple[str, ...] = ()) -> Callable[[type[T]], type[T]]:
    """Register a dataclass as a pytree whose children are its fields in order.

    JAX rebuilds nodes around tracers and placeholders. ``jax.tree_util.register_dataclass`` does so
    through the constructor, which would run ``__post_init__`` on them. Here the fields are set
    directly, so that ``__post_init__`` may check and normalise a user's values.

    Args:
        static: fields that belong to the structure and not to the leaves; they must be hashable.
            Any field that holds a bool also belongs to the structure.

    Returns:
        A class decorator, to be placed above ``@dataclass(frozen=True)``.
    """

    def register(cls: type[T]) -> type[T]:
        names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]

        def flatten(node: T) -> tuple[list[tuple[GetAttrKey, Any]], tuple[tuple[str, Any], ...]]:
            values = vars(node)
            fixed = [name for name in names if name in static or isinstance(values[name], bool)]
            children = [(GetAttrKey(name), values[name]) for name in names if name not in fixed]
            return children, tuple((name, values[name]) for name in fixed)

        def unflatten(fixed: tuple[tuple[str, Any], ...], children: Iterable[Any]) -> T:
            node, given = object.__new__(cls), dict(fixed)
            rest = (name for name in names if name not in given)
            vars(node).update(given, **dict(zip(rest, children, strict=True)))
            return node

        jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
        return cls

    return register


def as_number(value: Any, name: str, within: str = "[-1000, 1000]") -> Any:
    """Return a number in an interval as a Python float; arrays (and tracers) pass unchecked.

    Python floats are weakly typed, so the same parameters serve float32 and float64 positions.
    With numbers beyond 1,000, float32 would not resolve the unit square.
    """
    if isinstance(value, jax.Array):
        return value
    # bool is an int to Python, but `radius = true` in a file is a mistake.
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    require(real, f"{name} to be a number", value)
    require_interval(name, value, within)
    return float(value)


def as_point(value: Any, name: str) -> tuple[Any, Any]:
    """Return ``value`` as a pair of finite Python floats."""
    pair = isinstance(value, Iterable) and len(coordinates := tuple(value)) == 2
    require(pair, f"{name} to be two numbers [x, y]", value)
    return as_number(coordinates[0], name), as_number(coordinates[1], name)


def make_streams(seeds: Iterable[int]) -> jax.Array:
    """Return one key for each of the seeds, which may be of any size.

    Raises:
        InputError: For seeds below 0.
    """
    rest = [int(seed) for seed in seeds]
    require(min(rest, default=0) >= 0, "seeds >= 0", min(rest, default=0))
    words = np.array([seed % 2**32 for seed in rest], np.uint32)
    keys = jax.vmap(jax.random.key)(words)
    # A key consists of 32 bits: higher bits are folded in.
    while any(rest := [seed >> 32 for seed in rest]):
        words = np.array([seed % 2**32 for seed in rest], np.uint32)
        keys = jnp.where(np.array(rest) > 0, jax.vmap(jax.random.fold_in)(keys, words), keys)
    return keys


@jax.jit
def reset_stream(environment: Environment, stream: jax.Array) -> tuple[jax.Array, Any, jax.Array]:
    """Start an episode; return the stream's next key, the state and its observation."""
    stream, key = jax.random.split(stream)
    state = environment.reset(key)
    return stream, state, environment.observe(state)


@jax.jit
def step_stream(
    environment: Environment, stream: jax.Array, state: Any, action: jax.Array
) -> tuple[jax.Array, TimeStep]:
    """Take a step; return the stream's next key and the step's outcome."""
    stream, key = jax.random.split(stream)
    return stream, environment.step(key, state, action)


def step_or_reset(
    environment: Environment,
    keys: jax.Array,
    states: Any,
    actions: jax.Array,
    ended: jax.Array,
    anywhere: jax.Array,
) -> TimeStep:
    """Step each copy whose episode goes on; ignore the action of the others and reset them.

    This is Gymnasium's next-step autoreset; a reset has reward 0.

    Args:
        environment: the environment.
        keys: one for each copy, [n].
        states: [n, ...].
        actions: [n].
        ended: whether the step before ended a copy's episode, [n].
        anywhere: whether the step before ended any episode, [], including episodes of other copies
            in the same program. Resets are drawn only then, since they take more time than steps.
    """
    taken = jax.vmap(environment.step)(keys, states, actions)

    def with_resets(taken: TimeStep) -> TimeStep:
        fresh = jax.vmap(environment.reset)(keys)
        never = jnp.zeros_like(ended)
        seen = jax.vmap(environment.observe)(fresh)
        begun = TimeStep(fresh, seen, jnp.zeros_like(taken.reward), never, never)
        chosen: TimeStep = jax.vmap(
            lambda ended, *steps: jax.tree.map(partial(jnp.where, ended), *steps)
        )(ended, begun, taken)
        return chosen

    stepped: TimeStep = jax.lax.cond(anywhere, with_resets, lambda same: same, taken)
    return stepped


def observation_struct(environment: Environment) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of an observation, without computing one."""
    struct: jax.ShapeDtypeStruct = jax.eval_shape(
        lambda: environment.observe(environment.reset(jax.random.key(0)))
    )
    return struct
