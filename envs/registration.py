"""Tells Gymnasium about the environments. Imports neither JAX nor the environments themselves."""

import gymnasium

ENV_IDS = {
    "rlreps/PuddleWorld-v0": "PuddleWorld",
    "rlreps/BouncingBalls-v0": "BouncingBalls",
}
"""The ids for ``gymnasium.make`` and ``gymnasium.make_vec``, and what their classes begin with."""

MAX_EPISODE_STEPS = 1000
"""Steps after which Gymnasium truncates an episode, unless told otherwise."""


def register() -> None:
    """Register ``ENV_IDS``; a second call changes nothing.

    Runs when ``rlreps.envs`` is imported. ``gymnasium.make("rlreps.envs:rlreps/PuddleWorld-v0")``
    does the import by itself.
    """
    for env_id, name in ENV_IDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point=f"rlreps.envs.gymnasium_adapter:{name}Env",
                vector_entry_point=f"rlreps.envs.gymnasium_adapter:{name}VectorEnv",
                max_episode_steps=MAX_EPISODE_STEPS,
            )
