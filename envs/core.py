"""The contract between an environment and everything that rolls it out."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax


class TimeStep(NamedTuple):
    """What one step of an environment gives back.

    Attributes:
        state: the state after the step, whatever pytree the environment uses.
        observation: what the agent sees of that state.
        reward: scalar reward of the step.
        terminated: scalar bool, the task itself has ended: no value lies beyond this state.
        truncated: scalar bool, a time limit has cut the episode: values go on beyond this state.
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
        """How many discrete actions there are; they are numbered from 0."""

    def reset(self, key: jax.Array) -> Any:
        """Draw a start state with ``key``."""

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> TimeStep:
        """Take ``action`` (an integer scalar) in ``state``; ``key`` decides what is random."""

    def observe(self, state: Any) -> jax.Array:
        """Return what an agent sees of ``state``."""
