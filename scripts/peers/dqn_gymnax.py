"""Compiled DQN in gymnax's CartPole-v1, with equal options."""

import sys
import types
from typing import Any

import numpy as np

TITLE = "Compiled DQN"
WORK = (
    "A whole training of one compiled DQN in gymnax's CartPole-v1: {steps:,} steps in {envs} "
    "environments, an update of 128 transitions after each step of all environments from step "
    "10,000, hidden layers of 120 and 84, one-step targets. The share of random actions falls to "
    "5 % by half of the steps. The call that counts as warm runs a compiled program again."
)
PACKAGES = ("rlreps", "jax", "gymnax", "rejax", "flashbax")
SIZES = {"steps": 100_000, "envs": 10, "seed": 0}
RATE, WARMUP, BATCH, CAPACITY, EVERY = 1e-3, 10_000, 128, 10_000, 500


def prepare(envs: int, **_: Any) -> None:
    """Make no data, which the environment makes; refuse unequal periods of target networks."""
    if EVERY % envs:
        raise ValueError(f"expected a number of envs that divides {EVERY}, got {envs}")


def train_whole(environment: str, steps: int, envs: int, seed: int, **options: Any) -> Any:
    """Train by the program that agents' runs use, in one chunk, without evaluations.

    Layers, replay and batches are those of purejaxrl and CleanRL; ``options`` are of ``DQNConfig``.
    """
    import jax

    from rlreps.agents import AgentConfig, DQNConfig, ReplayConfig, make_program
    from rlreps.encoders import MLP

    dqn = DQNConfig(
        double=False,
        n_step=1,
        schedule="constant",
        adam_epsilon=1e-8,
        batch_size=BATCH,
        # They count from the end of the warm-up.
        epsilon_steps=steps // 2 - options["warmup"],
        **options,
    )
    config = AgentConfig(
        environment=environment,
        encoder=MLP(hidden=(120,)),
        num_features=84,
        dqn=dqn,
        replay=ReplayConfig(capacity=CAPACITY),
        num_envs=envs,
        steps=steps,
        evaluate_every=steps,
        seed=seed,
    )
    program = make_program(config)

    def work() -> Any:
        state, _ = program.advance(program.init(), 0, steps)
        jax.block_until_ready(state)
        return lambda: np.mean(program.play(state, steps))

    return work


def ours(_data: None, steps: int, envs: int, seed: int, **_: Any) -> Any:
    """Train with an update after each step of all environments."""
    options = {"steps_per_update": envs, "target_every": EVERY // envs}
    given = {"learning_rate": RATE, "warmup": WARMUP, **options}
    return train_whole("gymnax:CartPole-v1", steps, envs, seed, **given)


def rejax(_data: None, steps: int, envs: int, seed: int, **_: Any) -> Any:
    """Train with rejax, which updates after each step of all environments."""
    import jax
    from rejax import DQN
    from rejax.networks import DiscreteQNetwork, EpsilonGreedyPolicy

    agent = DQN.create(
        env="CartPole-v1",
        num_envs=envs,
        learning_rate=RATE,
        batch_size=BATCH,
        buffer_size=CAPACITY,
        fill_buffer=WARMUP,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
        target_update_freq=EVERY,
        polyak=0.0,
        ddqn=False,
        exploration_fraction=0.5,
    )
    sizes = {"hidden_layer_sizes": (120, 84), "action_dim": 2, "activation": jax.nn.relu}
    agent = agent.replace(agent=EpsilonGreedyPolicy(DiscreteQNetwork)(**sizes))
    evaluate = agent.eval_callback
    train = jax.jit(lambda key: agent.replace(eval_callback=lambda *_: ()).train(key)[0])
    play = jax.jit(lambda state, key: evaluate(agent, state, key)[1].mean())

    def work() -> Any:
        state = jax.block_until_ready(train(jax.random.key(seed)))
        return lambda: play(state, jax.random.key(1))

    return work


def purejaxrl(_data: None, steps: int, envs: int, seed: int, **_: Any) -> Any:
    """Train with the checkout's own function; it reports returns of training alone."""
    import jax

    # The checkout imports a logger that it does not use here, and an older name of JAX.
    sys.modules.setdefault("wandb", types.ModuleType("wandb"))
    jax.tree_map = jax.tree.map
    from purejaxrl.dqn import make_train

    given = {
        "ENV_NAME": "CartPole-v1",
        "NUM_ENVS": envs,
        "BUFFER_SIZE": CAPACITY,
        "BUFFER_BATCH_SIZE": BATCH,
        "TOTAL_TIMESTEPS": steps,
        "EPSILON_START": 1.0,
        "EPSILON_FINISH": 0.05,
        "EPSILON_ANNEAL_TIME": steps // 2,
        "TARGET_UPDATE_INTERVAL": EVERY,
        "LR": RATE,
        "LEARNING_STARTS": WARMUP,
        "TRAINING_INTERVAL": envs,
        "GAMMA": 0.99,
        "TAU": 1.0,
    }
    train = jax.jit(make_train(given))

    def work() -> Any:
        returns = jax.block_until_ready(train(jax.random.key(seed)))["metrics"]["returns"]
        return lambda: np.mean(returns[-500:])

    return work


SIDES = {"rlreps agent": ours, "rejax DQN": rejax, "purejaxrl DQN": purejaxrl}


def quality(_data: None, result: Any, **_: Any) -> dict[str, float]:
    """Return the mean return of greedy episodes (purejaxrl: of its last training episodes)."""
    return {"return": result()}
