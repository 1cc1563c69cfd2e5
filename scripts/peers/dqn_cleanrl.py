"""DQN in Gymnasium's CartPole-v1, one environment, with the options of CleanRL's script."""

import contextlib
import io
import runpy
import sys
import tempfile
from typing import Any

import numpy as np
from dqn_gymnax import BATCH, CAPACITY, train_whole

TITLE = "DQN with the options of CleanRL"
WORK = (
    "A whole training of DQN in Gymnasium's CartPole-v1, one environment, {steps:,} steps: hidden "
    "layers of 120 and 84, an update of 128 transitions every ten steps from step 1,000, one-step "
    "targets. The share of random actions falls to 5 % by half of the steps. CleanRL's script "
    "compiles in every call."
)
PACKAGES = ("rlreps", "jax", "flax", "gymnasium", "torch")
SIZES = {"steps": 20_000, "seed": 0}
RATE, WARMUP, EVERY, TARGET_EVERY = 2.5e-4, 1_000, 10, 500
EPISODES = 32


def prepare(**_: Any) -> None:
    """Make nothing: the environment makes the data."""


def ours(_data: None, steps: int, seed: int, **_: Any) -> Any:
    """Train an agent on the host loop."""
    options = {"steps_per_update": EVERY, "target_every": TARGET_EVERY // EVERY}
    given = {"learning_rate": RATE, "warmup": WARMUP, **options}
    return train_whole("CartPole-v1", steps, 1, seed, **given)


def cleanrl(_data: None, steps: int, seed: int, **_: Any) -> Any:
    """Run the script of the checkout."""
    words = {
        "--seed": seed,
        "--total-timesteps": steps,
        "--learning-rate": RATE,
        "--buffer-size": CAPACITY,
        "--batch-size": BATCH,
        "--learning-starts": WARMUP,
        "--train-frequency": EVERY,
        "--target-network-frequency": TARGET_EVERY,
    }

    def play(trained: dict[str, Any]) -> float:
        """Play greedy episodes with what the script has learned."""
        import gymnasium

        environment, total = gymnasium.make("CartPole-v1"), 0.0
        for episode in range(EPISODES):
            (seen, _), ended = environment.reset(seed=10_000 + episode), False
            while not ended:
                values = trained["q_network"].apply(trained["q_state"].params, seen[None])
                seen, reward, *ends, _ = environment.step(int(np.argmax(values)))
                total, ended = total + float(reward), any(ends)
        return total / EPISODES

    def work() -> Any:
        sys.argv = ["dqn_jax.py", *(str(part) for pair in words.items() for part in pair)]
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.chdir(folder),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            trained = runpy.run_module("cleanrl.dqn_jax", run_name="__main__")
        return lambda: play(trained)

    return work


SIDES = {"rlreps agent": ours, "CleanRL dqn_jax": cleanrl}


def quality(_data: None, result: Any, **_: Any) -> dict[str, float]:
    """Return the mean return of greedy episodes."""
    return {"return": result()}
