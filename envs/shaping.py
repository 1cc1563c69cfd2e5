"""Potential-based reward shaping of an environment in pure JAX."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from rlreps.envs.core import Environment, TimeStep, as_number, pytree_dataclass
from rlreps.errors import require


@pytree_dataclass()
@dataclass(frozen=True)
class ShapedEnvironment:
    """An environment with rewards r + γ Φ(s') - Φ(s) (Ng, Harada & Russell 1999).

    Terminal states have potential 0 whatever Φ says: with another potential, reaching a terminal
    state would have a value of its own, and optimal policies could change. A truncation cuts the
    episode but not the task, so Φ(s') counts there, like the value after it. Shaping changes the
    n-step sums of an episode by γⁿ Φ(s_n) - Φ(s_0), where the first term is 0 at a terminal state.
    It changes the optimal action values of every state by -Φ(s).

    Attributes:
        environment: the environment.
        potential: state → Φ, a scalar; call ``environment.observe`` in it for what an agent sees. A
            ``jax.tree_util.Partial`` exposes its arrays to JAX, so that copies may differ.
        discount: γ of the agent that learns from the rewards, in [0, 1].

    Raises:
        InputError: a discount outside its range, or a potential that is not a function.
    """

    environment: Environment
    potential: Callable[[Any], jax.Array]
    discount: float

    def __post_init__(self) -> None:
        require(callable(self.potential), "a function as potential", self.potential)
        object.__setattr__(self, "discount", as_number(self.discount, "discount", "[0, 1]"))
        if jax.tree_util.all_leaves([self.potential]):
            # JAX does not take a plain function as a leaf: it belongs to the structure.
            object.__setattr__(self, "potential", jax.tree_util.Partial(self.potential))

    @property
    def num_actions(self) -> int:
        """Number of discrete actions of the environment."""
        return self.environment.num_actions

    def reset(self, key: jax.Array) -> Any:
        """Draw a start state."""
        return self.environment.reset(key)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> TimeStep:
        """Take an action; the step is the environment's, except for its reward."""
        taken = self.environment.step(key, state, action)
        following = jnp.where(taken.terminated, 0.0, self.potential(taken.state))
        bonus = self.discount * following - self.potential(state)
        return taken._replace(reward=(taken.reward + bonus).astype(taken.reward.dtype))

    def observe(self, state: Any) -> jax.Array:
        """Return what an agent sees of a state."""
        return self.environment.observe(state)
