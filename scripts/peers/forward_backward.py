"""Values of a walk whose values are known, beside one-step forward-backward representations."""

import types
from typing import Any

import numpy as np
import successor_values as walk

TITLE = "Forward-backward representation"
WORK = (
    "Values of a reward from {rows:,} recorded steps of the reflected random walk: by temporal "
    "differences solved for {features:,} random Fourier features (with a check on held-out "
    "episodes and singular functions), and by {updates:,} updates of forward-backward networks "
    "with {batch} steps in each, layers of {width} and {width}, and {latent} dimensions: those of "
    'rlreps (`fit(method="td")`), whose last layer is then solved for, and those of one-step FB '
    "(Zheng et al. 2026), whose update also trains a small policy network."
)
PACKAGES = ("rlreps", "jax", "flax", "distrax", "numpy", "scipy")
SIZES = {
    **walk.SIZES,
    "updates": 10_000,
    "batch": 256,
    "width": 64,
    "latent": 32,
    "rate": 1e-3,
    "seed": 0,
}
prepare = walk.prepare


def networks(data: np.ndarray, **sizes: Any) -> Any:
    """Train our networks, and ask them for the values of the reward."""
    from rlreps.encoders import FourierMLP
    from rlreps.successor import fit
    from rlreps.training import Optimizer

    steps, own = walk.recorded(data), types.SimpleNamespace(**sizes)

    def work() -> np.ndarray:
        rep = fit(
            steps,
            num_features=own.latent,
            discount=own.discount,
            method="td",
            encoder=FourierMLP(hidden=(own.width, own.width)),
            optimizer=Optimizer(learning_rate=own.rate),
            steps=own.updates,
            rows=own.batch,
            seed=own.seed,
        )
        return rep.values(walk.tests(), rep.task(reward=walk.reward))

    return work


def theirs(data: np.ndarray, **sizes: Any) -> Any:
    """Train the networks of the checkout, and ask them for the values of the reward."""
    from agents.onestep_fb import OneStepFBAgent, get_config

    own = types.SimpleNamespace(**sizes)
    actions = np.zeros((len(data), 1), np.float32)
    places = data.astype(np.float32)
    steps = {
        "observations": places[:-1],
        "actions": actions[1:],
        "next_observations": places[1:],
        "next_actions": actions[1:],
    }
    config = get_config()
    config.update(
        lr=own.rate,
        batch_size=own.batch,
        discount=own.discount,
        latent_dim=own.latent,
        forward_repr_hidden_dims=(own.width, own.width),
        backward_repr_hidden_dims=(own.width, own.width),
        actor_hidden_dims=(8, 8),
    )
    untrained = OneStepFBAgent.create(own.seed, {k: v[:1] for k, v in steps.items()}, config)

    def work() -> np.ndarray:
        agent, rng = untrained, np.random.default_rng(own.seed)
        for _ in range(own.updates):
            rows = rng.integers(0, len(places) - 1, own.batch)
            agent, _ = agent.update({name: part[rows] for name, part in steps.items()})
        backward = agent.network.select("backward_repr")(places, actions=actions)
        weights = np.mean(backward * walk.reward(data)[:, None], axis=0)
        now = walk.tests()
        given = now.astype(np.float32), None
        forward = agent.network.select("forward_repr")(*given, actions=actions[: len(now)])
        # Their measure begins with the present state and sums to one.
        values = np.mean(forward, axis=0) @ weights / (1.0 - own.discount)
        return (values - walk.reward(now)) / own.discount

    return work


SIDES = {"rlreps fit": walk.ours, "rlreps networks": networks, "one-step FB": theirs}
quality = walk.quality
