"""PuddleWorld: a unit square with puddles that slow an agent down, or stop it.

Sources: Sutton (1996), "Generalization in reinforcement learning: successful examples using sparse
coarse coding" (the arena, and the optional task); Le Lan et al. (2023), "A novel stochastic
gradient descent algorithm for learning principal subspaces", App. C.3 (puddles that slow the agent
instead of costing it reward).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.envs.core import TimeStep, as_number, pytree_dataclass
from rlreps.envs.geometry import ConvexPolygon, Disc, Shape
from rlreps.envs.observations import Observation, Position, as_observation
from rlreps.errors import InputError, require, require_positive

GOAL_SUM = 1.9
"""The goal corner: all points with x + y of at least this."""

_CORNER = ConvexPolygon(((GOAL_SUM - 1.0, 1.0), (1.0, GOAL_SUM - 1.0), (1.0, 1.0)))

PENALTY_PER_DEPTH = 400.0
"""Reward lost per unit of depth in a puddle (Sutton 1996)."""

RESET_DRAWS = 32
"""Number of draws to find a start position outside the walls."""

MOST_EDGES = 200
"""Largest number of edges of all puddles (a disc or capsule has one). Programs hold a formula for
each: they took 11 s to compile for 200 edges of rectangles and 59 s for 400."""

_EDGE_ROUNDINGS = 64.0
"""Distance, in machine epsilons, that moves keep from the square's edges if there are walls: more
than the rounding that shapes allow an agent at their edge (``geometry._rounding``)."""

_Path = tuple[jax.Array, jax.Array]
"""Origin [2] and displacement [2]."""


@pytree_dataclass()
@dataclass(frozen=True)
class Puddle:
    """A region that slows movement.

    Attributes:
        shape: the convex region.
        multiplier: speed inside as a fraction of the speed outside, in [0, 1]; 0 is a wall.
        may_be_wall: whether the multiplier is 0, or an array of unknown value.

    Raises:
        InputError: not a shape, or the multiplier is outside [0, 1].
    """

    shape: Shape
    multiplier: float
    may_be_wall: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        known = isinstance(self.shape, Shape)
        require(known, "a shape (Capsule, Disc or ConvexPolygon)", self.shape)
        multiplier = as_number(self.multiplier, "multiplier", "[0, 1]")
        object.__setattr__(self, "multiplier", multiplier)
        may_be_wall = isinstance(multiplier, jax.Array) or multiplier <= 0.0
        object.__setattr__(self, "may_be_wall", may_be_wall)


class PuddleWorldState(NamedTuple):
    """The agent's position (x, y) [2] in the unit square, and its steps (int32) in the episode."""

    position: jax.Array
    steps: jax.Array


@pytree_dataclass(static=("max_steps", "observation"))
@dataclass(frozen=True, kw_only=True)
class PuddleWorld:
    """The dynamics, and a task if switched on. By default, rewards are 0 and episodes never end.

    An agent never enters a wall by more than rounding, and can always leave a wall's edge. An agent
    that starts deeper inside a wall stays where it is. A wall that ends on the square's edge, or
    touches it, leaves no gap there. Walls that meet in a corner alone leave one: let them overlap,
    or share an edge. Walls have to be 1e-5 wide to stop agents.

    Attributes:
        puddles: applied in this order, each to the move that the previous one left.
        step_size: length of a move before noise, in units of the square's side.
        noise: standard deviation of the Gaussian noise added to each axis of a move.
        goal: what terminates the episode. True: reaching the corner x + y >= 1.9. A disc, or
            (x, y, radius): reaching the disc, in which no episode starts unless it covers almost
            all of the square (``reset``). A move reaches a goal if it ends there.
        step_penalty: whether each step costs a reward of 1.
        puddle_penalty: whether a step costs 400 times the depth of its end position in the deepest
            puddle. Walls do not count.
        max_steps: steps after which an episode is truncated; None for never.
        observation: what an agent sees: ``Position``, ``Code`` or ``Image``, or the name of one.
        backdrop: the part of the observation that is drawn in advance.

    Raises:
        InputError: a value outside its range, or a goal centred where no agent can be.
    """

    puddles: tuple[Puddle, ...] = ()
    step_size: float = 0.05
    noise: float = 0.01
    goal: bool | Disc = False
    step_penalty: bool = False
    puddle_penalty: bool = False
    max_steps: int | None = None
    observation: Observation = field(default=Position())
    backdrop: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        puddles = tuple(self.puddles) if isinstance(self.puddles, Iterable) else (self.puddles,)
        for puddle in puddles:
            require(isinstance(puddle, Puddle), "puddles to be Puddle instances", puddle)
        edges = sum(len(getattr(puddle.shape, "vertices", (None,))) for puddle in puddles)
        most = f"at most {MOST_EDGES} edges of all puddles, discs and capsules counting as one"
        require(edges <= MOST_EDGES, most, edges)
        object.__setattr__(self, "puddles", puddles)
        for name, within in (("step_size", "(0, 1000]"), ("noise", "[0, 1000]")):
            object.__setattr__(self, name, as_number(getattr(self, name), name, within))
        for name in ("step_penalty", "puddle_penalty"):
            value = getattr(self, name)
            require(isinstance(value, bool), f"{name} to be a bool", value)
        if self.max_steps is not None:
            require_positive("max_steps", self.max_steps)
        object.__setattr__(self, "goal", self._checked_goal())
        object.__setattr__(self, "observation", as_observation(self.observation))
        object.__setattr__(self, "backdrop", self.observation.backdrop(self))

    @property
    def num_actions(self) -> int:
        """0 up (+y), 1 right (+x), 2 down, 3 left."""
        return 4

    @property
    def walls(self) -> tuple[Shape, ...]:
        """The shapes of the puddles that are walls; multipliers must not be traced."""
        return tuple(puddle.shape for puddle in self.puddles if puddle.multiplier <= 0.0)

    @property
    def goal_region(self) -> Shape | None:
        """The region that an agent has to reach; None without a goal."""
        if isinstance(self.goal, bool):
            return _CORNER if self.goal else None
        return self.goal

    def with_task(self) -> "PuddleWorld":
        """Return the same world with goal, step penalty and puddle penalty switched on.

        The goal is the world's own, or the corner.
        """
        return replace(self, goal=self.goal or True, step_penalty=True, puddle_penalty=True)

    def reset(self, key: jax.Array) -> PuddleWorldState:
        """Draw a start position, uniform over the square outside the walls and a goal's disc.

        The start is the first of ``RESET_DRAWS`` uniform draws that lies outside both. If no draw
        does, the start is the first draw. If walls and goal cover half of the square, this happens
        with probability 2^-32.
        """
        draws = jax.random.uniform(key, (RESET_DRAWS, 2))
        free = jax.vmap(self._is_start)(draws)
        return PuddleWorldState(draws[jnp.argmax(free)], jnp.zeros((), jnp.int32))

    def step(self, key: jax.Array, state: PuddleWorldState, action: jax.Array) -> TimeStep:
        """Move once. Spends ``key`` on one ``jax.random.normal(key, (2,))``, the move's noise.

        Args:
            key: a PRNG key.
            state: the current state.
            action: integer scalar in {0, 1, 2, 3}; other values are not checked.

        Returns:
            The new state, its observation, and the reward and flags of the task: reward 0 and
            False if the task is switched off.
        """
        noise = jax.random.normal(key, (2,), state.position.dtype)
        position = self.move(state.position, action, noise)
        steps = state.steps + 1
        return TimeStep(
            state=PuddleWorldState(position, steps),
            observation=self.observe_position(position),
            reward=self._reward(position),
            terminated=self._terminated(position),
            truncated=jnp.asarray(False) if self.max_steps is None else steps >= self.max_steps,
        )

    def observe(self, state: PuddleWorldState) -> jax.Array:
        """Return what an agent sees of a state; see ``observation``."""
        return self.observe_position(state.position)

    def observe_position(self, position: jax.Array) -> jax.Array:
        """Return what an agent sees at a position [2]."""
        return self.observation.observe(position, self.backdrop)

    def move(self, position: jax.Array, action: jax.Array, noise: jax.Array) -> jax.Array:
        """Return where a move ends: the deterministic part of ``step``.

        The move plus noise is clipped to the square, then each puddle shortens it. The length that
        reaches a puddle is a budget; a stretch inside costs 1 / multiplier per unit length, and the
        move ends where the budget is spent.

        If there are walls, moves begin and end a small distance inside the square (8e-6 in
        float32). Agents may move along a wall's edge. On the square's edge, they could therefore
        pass a wall that ends there.

        Args:
            position: [2], in the unit square.
            action: integer scalar in {0, 1, 2, 3}.
            noise: [2], standard normal draws; scaled by ``self.noise`` here.

        Returns:
            [2], the new position, of the dtype of ``position``.
        """
        dtype = position.dtype
        # 0 up, 1 right, 2 down, 3 left, as arithmetic: a table would be a gather in a hot loop.
        action = jnp.asarray(action)
        signed = (1 - (action & 2)).astype(dtype) * self.step_size
        right = (action & 1).astype(dtype) * signed
        direction = jnp.stack([right, signed - right])
        target = position + direction + self.noise * noise
        path = within = position, jnp.clip(target, 0.0, 1.0) - position
        low: float | jax.Array = 0.0
        walls = [puddle.multiplier <= 0.0 for puddle in self.puddles if puddle.may_be_wall]
        if walls:
            margin = _EDGE_ROUNDINGS * float(np.finfo(dtype).eps)
            low = jnp.where(reduce(or_, walls), margin, 0.0).astype(dtype)
            start, end = (jnp.clip(point, low, 1.0 - low) for point in (position, target))
            within = start, end - start
        origin, displacement = within
        fraction = self._travelled_fraction(path, within)
        return jnp.clip(origin + fraction * displacement, low, 1.0 - low)

    def _travelled_fraction(self, path: _Path, within: _Path) -> jax.Array:
        """Return the fraction of a path that is left after every puddle shortened it.

        Walls apply to the path ``within`` the square, other puddles to the path up to its edges.

        Let B be the budget, m the multiplier, and let the path be inside from e to l (all but m in
        fractions of the displacement). The move ends inside, at e + m (B - e), if this does not
        exceed l. Otherwise it leaves the puddle and ends at B - (l - e)(1 - m) / m. The second
        value is the larger one exactly when the move leaves.
        """
        budget = jnp.ones_like(path[1][0])
        for puddle in self.puddles:
            speed = puddle.multiplier
            seen = path
            if puddle.may_be_wall:
                stops = speed <= 0.0
                seen = jnp.where(stops, within[0], path[0]), jnp.where(stops, within[1], path[1])
            enter, leave = puddle.shape.interval(*seen)
            entered = jnp.minimum(enter, budget)
            inside = jnp.maximum(jnp.minimum(leave, budget) - entered, 0.0)
            # A large finite cost for a wall: an infinite cost times a length of 0 would be NaN.
            cost = (1.0 - speed) / jnp.maximum(speed, 1e-18)
            budget = jnp.maximum(entered + speed * (budget - entered), budget - inside * cost)
        return budget

    def _checked_goal(self) -> bool | Disc:
        """Return the goal as a bool or a disc whose centre is in the square, outside the walls."""
        goal: Any = self.goal
        if isinstance(goal, bool):
            return goal
        if isinstance(goal, Sequence) and not isinstance(goal, str) and len(goal) == 3:
            goal = Disc((goal[0], goal[1]), goal[2])
        if not isinstance(goal, Disc):
            raise InputError(f"expected goal to be a bool or a disc (x, y, radius), got {goal!r}")
        numbers = jax.tree.leaves((goal, self.puddles))
        if any(isinstance(number, jax.Array) for number in numbers):
            return goal
        with jax.ensure_compile_time_eval():
            free = bool(self._is_free(jnp.asarray(goal.centre, jnp.float32)))
        inside = free and all(0.0 <= coordinate <= 1.0 for coordinate in goal.centre)
        expected = "the goal's centre to be in the unit square, outside the walls"
        require(inside, expected, list(goal.centre))
        return goal

    def _is_start(self, position: jax.Array) -> jax.Array:
        free = self._is_free(position)
        return free & (self.goal.depth(position) <= 0.0) if isinstance(self.goal, Disc) else free

    def _is_free(self, position: jax.Array) -> jax.Array:
        blocked = jnp.asarray(False)
        for puddle in self.puddles:
            blocked |= (puddle.shape.depth(position) > 0.0) & (puddle.multiplier <= 0.0)
        return ~blocked

    def _reward(self, position: jax.Array) -> jax.Array:
        reward = jnp.full((), -1.0 if self.step_penalty else 0.0, position.dtype)
        if not self.puddle_penalty:
            return reward
        deepest = jnp.zeros((), position.dtype)
        for puddle in self.puddles:
            depth = jnp.where(puddle.multiplier > 0.0, puddle.shape.depth(position), 0.0)
            deepest = jnp.maximum(deepest, depth)
        return reward - PENALTY_PER_DEPTH * deepest

    def _terminated(self, position: jax.Array) -> jax.Array:
        if isinstance(self.goal, Disc):
            return self.goal.depth(position) > 0.0
        if not self.goal:
            return jnp.asarray(False)
        return position[0] + position[1] >= GOAL_SUM
