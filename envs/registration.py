"""Register the environments with Gymnasium, without importing JAX or the environments."""

from typing import Any

import gymnasium

MAZE_STEPS = 300
"""Steps after which an episode in a maze is truncated."""

MAZES = {
    "FiveCorridors": "five_corridors",
    "Spiral": "spiral",
    "FourRooms": "four_rooms",
    "TwoRoom": "two_room",
}
"""Name in an id → arena, for arenas that have their own ids."""

ENV_IDS: dict[str, tuple[dict[str, Any], int]] = {
    "rlreps/PuddleWorld-v0": ({}, 1000),
    **{f"rlreps/{name}-v0": ({"arena": arena}, MAZE_STEPS) for name, arena in MAZES.items()},
}
"""Ids for ``gymnasium.make`` and ``make_vec`` → arguments, and the time limit of an episode."""


def register() -> None:
    """Register ``ENV_IDS``; a second call changes nothing.

    It runs when ``rlreps.envs`` is imported.
    ``gymnasium.make("rlreps.envs:rlreps/PuddleWorld-v0")`` imports the package itself.
    """
    for env_id, (arguments, limit) in ENV_IDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="rlreps.envs.to_gymnasium:PuddleWorldEnv",
                vector_entry_point="rlreps.envs.to_gymnasium:PuddleWorldVectorEnv",
                max_episode_steps=limit,
                kwargs=arguments,
            )
