"""DQN in Gymnasium's CartPole-v1, one environment, with equal options."""

from typing import Any

import numpy as np

TITLE = "DQN in Gymnasium"
WORK = (
    "DQN in Gymnasium's CartPole-v1, one environment: hidden layers of 64 and 64, an update of 64 "
    "transitions every four steps, one-step targets, 5 % of "
    "random actions. Each of {calls} calls trains for {steps:,} steps; the first begins with 1,000 "
    "random steps without updates."
)
PACKAGES = ("rlreps", "jax", "gymnasium", "stable-baselines3", "torch")
SIZES = {"steps": 10_000, "seed": 0}
RATE, EPISODES = 1e-3, 16


def prepare(**_: Any) -> None:
    """Make nothing: the environment makes the data."""


def ours(_data: None, steps: int, calls: int, seed: int, **_: Any) -> Any:
    """Train an agent on the host loop, in one chunk a call."""
    import jax

    from rlreps.agents import AgentConfig, DQNConfig, make_program
    from rlreps.encoders import MLP

    total = steps * calls
    dqn = DQNConfig(
        double=False,
        n_step=1,
        learning_rate=RATE,
        schedule="constant",
        huber_delta=1.0,  # That of Stable-Baselines3.
        epsilon_steps=1,
    )
    config = AgentConfig(
        environment="CartPole-v1",
        encoder=MLP(hidden=(64,)),
        num_features=64,
        dqn=dqn,
        num_envs=1,
        steps=total,
        evaluate_every=steps,
        evaluation_episodes=EPISODES,
        seed=seed,
    )
    program = make_program(config)
    state, done = program.init(), 0

    def work() -> Any:
        nonlocal state, done
        state, _ = program.advance(state, done, steps)
        done += steps
        jax.block_until_ready(state)
        return lambda: np.mean(program.play(state, done))

    return work


def stable_baselines(_data: None, steps: int, seed: int, **_: Any) -> Any:
    """Train an agent of Stable-Baselines3 with the same options."""
    import gymnasium
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)  # More threads only slow networks of this size.
    model = DQN(
        "MlpPolicy",
        gymnasium.make("CartPole-v1"),
        learning_rate=RATE,
        buffer_size=100_000,
        learning_starts=1_000,
        batch_size=64,
        train_freq=4,
        gradient_steps=1,
        target_update_interval=1_000,
        exploration_fraction=1e-9,
        exploration_final_eps=0.05,
        policy_kwargs={"net_arch": [64, 64]},
        seed=seed,
    )

    def work() -> Any:
        model.learn(steps, reset_num_timesteps=False)
        environment = gymnasium.make("CartPole-v1")
        return lambda: evaluate_policy(model, environment, EPISODES, warn=False)[0]

    return work


SIDES = {"rlreps agent": ours, "Stable-Baselines3 DQN": stable_baselines}


def quality(_data: None, result: Any, **_: Any) -> dict[str, float]:
    """Return the mean return of greedy episodes."""
    return {"return": result()}
