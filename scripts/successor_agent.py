"""Successor features in front of an agent that knows nothing of them, in plain Gymnasium.

    python scripts/successor_agent.py [--episodes N] [--seed SEED]

Places on a ring are seen through random codes that say nothing of where they are. Features are
fitted to steps without rewards; then the same linear Q-learning learns to reach a goal twice: from
the codes, and from the features that ``RepresentationObservation`` shows in their place. The agent
is written against Gymnasium alone; one of any other library would stand in the same place.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from rlreps.successor import RepresentationObservation, Transitions, fit

PLACES, CODE, LIMIT = 40, 16, 200


class CodedRing(gymnasium.Env[np.ndarray, Any]):
    """Places on a ring, seen as random codes; the goal is opposite to the start.

    Args:
        task: Whether the goal ends the episode and each step costs 1.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (CODE,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, *, task: bool) -> None:
        self.task = task
        self.codes = np.random.default_rng(0).normal(size=(PLACES, CODE)).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, Any]:
        super().reset(seed=seed)
        self.steps, self.place = 0, 0 if self.task else int(self.np_random.integers(PLACES))
        return self.codes[self.place], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Any]:
        self.steps, self.place = self.steps + 1, (self.place + 2 * int(action) - 1) % PLACES
        at_goal = self.task and self.place == PLACES // 2
        return self.codes[self.place], -1.0 * self.task, at_goal, self.steps >= LIMIT, {}


def q_learning(environment: gymnasium.Env[Any, Any], episodes: int, seed: int) -> list[float]:
    """Learn linear action values by normalised steps, ε = 0.1; return each episode's return."""
    generator = np.random.default_rng(seed)
    weights = np.zeros((2, *environment.observation_space.shape))  # type: ignore[misc]
    returns = []
    for episode in range(episodes):
        state, _ = environment.reset(seed=seed if episode == 0 else None)
        total, over = 0.0, False
        while not over:
            values = weights @ state
            greedy = int(generator.choice(np.flatnonzero(values == values.max())))
            action = int(generator.integers(2)) if generator.random() < 0.1 else greedy
            following, reward, terminated, truncated, _ = environment.step(action)
            target = float(reward) + (0.0 if terminated else 0.98 * (weights @ following).max())
            error = target - values[action]
            weights[action] += 0.5 * error * state / (1e-8 + state @ state)
            state, total, over = following, total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Compare both observations; return the mean return of the last ten episodes of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--steps", type=int, default=10_000, help="steps without rewards")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    free = Transitions.collect(CodedRing(task=False), steps=options.steps, seed=options.seed)
    rep = fit(
        free,
        num_features=24,
        discount=0.9,
        method="least_squares",
        behaviour="uniform",
        seed=options.seed,
    )
    # Unscaled: this agent moves the weights of all features by steps of one size.
    environments: dict[str, gymnasium.Env[Any, Any]] = {
        "codes": CodedRing(task=True),
        "features": RepresentationObservation(CodedRing(task=True), rep, scaling="none"),
    }
    last = {}
    for name, environment in environments.items():
        returns = q_learning(environment, options.episodes, options.seed)
        last[name] = float(np.mean(returns[-10:]))
        print(f"{name}: mean return of the last ten episodes {last[name]:.1f}")
    print(f"shortest way: {-PLACES / 2:.1f}")
    return last


if __name__ == "__main__":
    main()
