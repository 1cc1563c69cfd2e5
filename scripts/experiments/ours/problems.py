"""Problems that a new user may try first: environments, what is recorded, known scores.

Environments whose names have a colon, and those of Box2D, need the extra ``problems``.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.wrappers import (
    FilterObservation,
    FlattenObservation,
    FrameStackObservation,
    TransformObservation,
)

from rlreps.experiments.ours import controllers
from rlreps.experiments.ours.controllers import Policy, at_random, noisy
from rlreps.typing import DoubleArray

Env = gymnasium.Env[Any, Any]
Wrap = Callable[[Env], Env]

Choose = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""A policy: observations [m, ...] → actions [m] or [m, k]."""


class Beside(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Append irrelevant numbers to vectors: independent processes x' = memory · x + noise.

    Attributes:
        count: How many.
        scale: Their standard deviation.
        memory: Their lag-1 autocorrelation.
    """

    def __init__(self, env: Env, count: int, scale: float = 1.0, memory: float = 0.0) -> None:
        super().__init__(env)
        self.count, self.scale, self.memory = count, scale, memory
        self._numbers: DoubleArray | None = None
        seen: Any = env.observation_space
        ends = np.full(count, np.inf, np.float32)
        low, high = np.append(seen.low, -ends), np.append(seen.high, ends)
        self.observation_space = spaces.Box(low, high)

    def observation(self, observation: Any) -> Any:
        noise = self.env.unwrapped.np_random.normal(size=self.count)
        last = noise if self._numbers is None else self._numbers
        self._numbers = self.memory * last + np.sqrt(1.0 - self.memory**2) * noise
        return np.append(observation, self.scale * self._numbers).astype(np.float32)


def beside(count: int, scale: float = 1.0, memory: float = 0.0) -> Wrap:
    """Return a wrapper that appends irrelevant numbers (see ``Beside``)."""
    return lambda env: Beside(env, count, scale, memory)


def two_frames(*coordinates: int) -> Wrap:
    """Return a wrapper that observes some coordinates of this step and the one before."""
    chosen = list(coordinates)

    def wrap(env: Env) -> Env:
        seen: Any = env.observation_space
        part = spaces.Box(seen.low[chosen], seen.high[chosen], dtype=seen.dtype)
        shown = TransformObservation(env, lambda observation: observation[chosen], part)
        return FlattenObservation(FrameStackObservation(shown, 2))

    return wrap


def hand(env: Env) -> Env:
    """Observe a hand of Blackjack as three numbers."""
    numbers = spaces.Box(0.0, 32.0, (3,))
    return TransformObservation(env, lambda cards: np.array(cards, np.float32), numbers)


def place(env: Env) -> Env:
    """Observe a grid of MiniGrid as a dictionary of the agent's position and direction."""
    grid: Any = env.unwrapped
    most = max(grid.width, grid.height) - 1
    seen = {"direction": spaces.Discrete(4), "position": spaces.Box(0, most, (2,), np.int64)}
    return TransformObservation(
        env,
        lambda _: {"direction": grid.agent_dir, "position": np.array(grid.agent_pos)},
        spaces.Dict(seen),
    )


def position_and_velocity(env: Env) -> Env:
    """Observe only the entry ``observation`` of a dictionary, as a vector."""
    return FlattenObservation(FilterObservation(env, ["observation"]))


def upright(observations: npt.NDArray[Any]) -> DoubleArray:
    """Reward a pendulum for (cos θ, sin θ, speed), [m, 3]: -(θ² + 0.1 speed²), [m].

    The task's own reward also subtracts 0.001 torque², and depends on the state before the step.
    """
    cosine, sine, speed = np.asarray(observations, np.float64).T
    return np.asarray(-(np.arctan2(sine, cosine) ** 2 + 0.1 * speed**2))


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem: steps are recorded, then a reward is given and a policy is judged.

    Attributes:
        environment: Its name in Gymnasium.
        steps: Number of recorded steps.
        solved: The score that counts as solved. A score is the mean undiscounted return, or the
            share of episodes that terminate.
        discount: γ.
        policy: What takes the recorded steps; None takes random ones.
        wrap: Wrapper of the environment, recorded or judged.
        options: Options of the environment.
        recorded: Further options while steps are recorded.
        judged: Further options while policies are judged.
        reward: Reward of the states reached [m, ...] → [m]; None gives the recorded rewards.
        ending: Whether the score is the share of episodes that terminate. The return of random
            actions may be so low that a policy which never arrives would lie above half of the way.
        episodes: Number of episodes that judge a policy.
        kept_aside: Whether defaults may not be tuned on the problem.
    """

    environment: str
    steps: int
    solved: float
    discount: float = 0.99
    policy: Policy | None = None
    wrap: Wrap | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    recorded: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    judged: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reward: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None
    ending: bool = False
    episodes: int = 20
    kept_aside: bool = False

    def record(self) -> "Recorded":
        """Make the environment as it is recorded."""
        return Recorded(self._made(self.recorded))

    def log_policy(self, seed: int) -> Choose | None:
        """Return the recorded policy for observations [m, ...]; None for random steps."""
        policy, rng = self.policy, np.random.default_rng(seed)
        if policy is None:
            return None
        return lambda seen: np.array([policy(each, rng) for each in seen])

    def judge(self) -> Env:
        """Make the environment as policies see it: dictionaries are flattened."""
        env = numbers(self._made(self.judged))
        return Ending(env) if self.ending else env

    def _made(self, further: Mapping[str, Any]) -> Env:
        options = {"disable_env_checker": True, **self.options, **further}
        env = gymnasium.make(self.environment, **options)
        return env if self.wrap is None else self.wrap(env)


class Recorded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keep the rewards of all steps.

    Attributes:
        rewards: The rewards so far.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.rewards: list[float] = []

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        taken = super().step(action)
        self.rewards.append(float(taken[1]))
        return taken


class Ending(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reward termination alone, by 1."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, _, terminated, truncated, info = super().step(action)
        return seen, float(terminated), terminated, truncated, info


def numbers(env: Env) -> Env:
    """Flatten observations that are dictionaries or tuples."""
    several = isinstance(env.observation_space, spaces.Dict | spaces.Tuple)
    return FlattenObservation(env) if several else env


def play(make: Callable[[], Env], choose: Choose | None, starts: Sequence[int]) -> DoubleArray:
    """Play an episode from each seed of ``starts``, in parallel; return undiscounted returns.

    ``make`` makes an environment. Without ``choose``, actions are random.
    """
    copies: Any = gymnasium.vector.SyncVectorEnv([make] * len(starts))
    with contextlib.closing(copies):
        copies.action_space.seed(starts[0])
        seen, _ = copies.reset(seed=list(starts))
        returns, alive = np.zeros(len(starts)), np.ones(len(starts), np.bool_)
        while alive.any():
            actions = copies.action_space.sample() if choose is None else choose(seen)
            seen, rewards, terminated, truncated, _ = copies.step(actions)
            returns += np.where(alive, rewards, 0.0)
            alive &= ~(terminated | truncated)
    return returns


_MAZE = "gymnasium_robotics:PointMaze_UMaze-v3"
# Episodes end at the goal, so that the score is the share of goals reached.
_REACHING: Mapping[str, Any] = {"continuing_task": False}
_ONE_GOAL: Mapping[str, Any] = {
    "maze_map": [
        [1, 1, 1, 1, 1],
        [1, "r", "r", "r", 1],
        [1, 1, 1, "r", 1],
        [1, "g", "r", "r", 1],
        [1, 1, 1, 1, 1],
    ]
}
_CUT: Mapping[str, Any] = {"max_episode_steps": 5}
_CAPPED: Mapping[str, Any] = {"max_episode_steps": 200}
_NO_SLIP: Mapping[str, Any] = {"is_slippery": False}
_LONG: Any = {"episodes": 10}
_SUITE = "shimmy:dm_control/{}-v0"
_aside = partial(Problem, kept_aside=True)


def _log(environment: str, solved: float, policy: Policy, **more: Any) -> Problem:
    """Return a problem with 20,000 steps of a controller."""
    return Problem(environment, 20_000, solved, policy=policy, **more)


# Solved scores are ``reward_threshold`` in Gymnasium unless a comment says otherwise. Scores in
# dm_control are about those of D4PG in Tassa et al. (2018, "DeepMind Control Suite").
PROBLEMS: Mapping[str, Problem] = {
    "CartPole": Problem("CartPole-v1", 10_000, 475.0),
    # Swings up from any start in some 150 (docs/results/control.md).
    "Pendulum": Problem("Pendulum-v1", 20_000, -200.0, reward=upright),
    "Acrobot": Problem("Acrobot-v1", 50_000, -100.0),
    "MountainCar": Problem("MountainCar-v0", 50_000, -110.0),
    # Best play loses about 0.045 in this variant without a bonus for naturals.
    "Blackjack": Problem("Blackjack-v1", 20_000, -0.05, wrap=hand, episodes=2_000),
    "Pendulum as two frames": Problem("Pendulum-v1", 10_000, -200.0, wrap=two_frames(0, 1)),
    "CartPole beside 20 noise numbers": Problem("CartPole-v1", 10_000, 475.0, wrap=beside(20)),
    "LunarLander": Problem("LunarLander-v3", 50_000, 200.0),
    "FrozenLake 8x8": Problem("FrozenLake8x8-v1", 50_000, 0.85, episodes=200),
    "PointMaze U": Problem(_MAZE, 50_000, 1.0, judged=_REACHING, episodes=50),
    "Pendulum cut after 5 steps": Problem(
        "Pendulum-v1", 20_000, -200.0, recorded=_CUT, reward=upright
    ),
    "dm_control cartpole swingup": Problem(
        _SUITE.format("cartpole-swingup"), 50_000, 850.0, **_LONG
    ),
    "dm_control point_mass easy": Problem(_SUITE.format("point_mass-easy"), 20_000, 900.0, **_LONG),
    "Reacher": Problem("Reacher-v5", 50_000, -3.75),
    "HalfCheetah": Problem("HalfCheetah-v5", 50_000, 4_800.0, **_LONG),
    "CliffWalking": _aside("CliffWalking-v1", 50_000, 1.0, options=_CAPPED, ending=True),
    # Six steps lead to the goal.
    "FrozenLake 4x4, no slip": _aside("FrozenLake-v1", 20_000, 1.0, options=_NO_SLIP),
    "Taxi": _aside("Taxi-v4", 50_000, 1.0, ending=True, episodes=100),
    "CartPole as two frames without speeds": _aside(
        "CartPole-v1", 20_000, 475.0, wrap=two_frames(0, 2)
    ),
    "CartPole beside a slow large number": _aside(
        "CartPole-v1", 20_000, 475.0, wrap=beside(1, scale=1_000.0, memory=0.98)
    ),
    "Acrobot beside 10 noise numbers": _aside("Acrobot-v1", 50_000, -100.0, wrap=beside(10)),
    "MountainCarContinuous": _aside("MountainCarContinuous-v0", 50_000, 90.0),
    "InvertedPendulum": _aside("InvertedPendulum-v5", 10_000, 950.0, **_LONG),
    "InvertedDoublePendulum": _aside("InvertedDoublePendulum-v5", 20_000, 9_100.0, **_LONG),
    "Swimmer": _aside("Swimmer-v5", 20_000, 360.0, **_LONG),
    "PointMaze U, one goal": _aside(
        _MAZE,
        20_000,
        1.0,
        wrap=position_and_velocity,
        options=_ONE_GOAL,
        judged=_REACHING,
        episodes=50,
    ),
    "dm_control cartpole balance": _aside(
        _SUITE.format("cartpole-balance"), 20_000, 950.0, **_LONG
    ),
    "dm_control reacher easy": _aside(_SUITE.format("reacher-easy"), 20_000, 950.0, **_LONG),
    # The 11 of 256 steps to the goal leave 1 - 0.9 · 11 / 256.
    "MiniGrid Empty": _aside("minigrid:MiniGrid-Empty-8x8-v0", 20_000, 0.95, wrap=place),
    "CartPole, log": _log("CartPole-v1", 475.0, at_random(0.1, 2, controllers.balance_weakly)),
    "MountainCar, log": _log("MountainCar-v0", -110.0, at_random(0.1, 3, controllers.follow_speed)),
    "Acrobot, log": _log("Acrobot-v1", -100.0, at_random(0.1, 3, controllers.pump)),
    "Pendulum, log": _log("Pendulum-v1", -200.0, noisy(0.3, 2.0, controllers.swing_up)),
    "MountainCarContinuous, log": _log(
        "MountainCarContinuous-v0", 90.0, noisy(0.3, 1.0, lambda s: controllers.follow_speed(s) - 1)
    ),
    "LunarLander, log": _log("LunarLander-v3", 200.0, at_random(0.1, 4, controllers.land(False))),
    "LunarLanderContinuous, log": _log(
        "LunarLander-v3",
        200.0,
        noisy(0.1, 1.0, controllers.land(True)),
        options={"continuous": True},
    ),
    "Reacher, log": _log("Reacher-v5", -3.75, noisy(0.1, 1.0, controllers.reach), kept_aside=True),
    "PointMaze U, log": _log(
        _MAZE,
        1.0,
        noisy(0.3, 1.0, controllers.walk_u),
        judged=_REACHING,
        episodes=50,
        kept_aside=True,
    ),
    "dm_control cartpole balance, log": _log(
        _SUITE.format("cartpole-balance"),
        950.0,
        noisy(0.3, 1.0, controllers.balance),
        kept_aside=True,
        **_LONG,
    ),
}
"""Name → problem. Problems were kept aside before any default was tuned on the others."""
