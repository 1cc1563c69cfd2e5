"""Tells Gymnasium about PuddleWorld. Imports neither JAX nor the environment itself."""

import gymnasium

ENV_ID = "rlreps/PuddleWorld-v0"
"""The id for ``gymnasium.make`` and ``gymnasium.make_vec``."""

MAX_EPISODE_STEPS = 1000
"""Steps after which Gymnasium truncates an episode, unless told otherwise."""


def register() -> None:
    """Register ``ENV_ID``; a second call changes nothing.

    Runs when ``rlreps.envs`` is imported. ``gymnasium.make("rlreps.envs:rlreps/PuddleWorld-v0")``
    does the import by itself.
    """
    if ENV_ID in gymnasium.registry:
        return
    gymnasium.register(
        id=ENV_ID,
        entry_point="rlreps.envs.gymnasium_adapter:PuddleWorldEnv",
        vector_entry_point="rlreps.envs.gymnasium_adapter:PuddleWorldVectorEnv",
        max_episode_steps=MAX_EPISODE_STEPS,
    )
