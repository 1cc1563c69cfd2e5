"""Register the environments with Gymnasium, without importing JAX or the environments."""

from typing import Any, NamedTuple

import gymnasium


class Registered(NamedTuple):
    """The classes and arguments behind an id.

    Attributes:
        prefix: the beginning of the names of its classes.
        arguments: arguments of the classes.
        max_episode_steps: steps after which Gymnasium truncates an episode by default.
    """

    prefix: str
    arguments: dict[str, Any]
    max_episode_steps: int


MAZE_STEPS = 300
"""Steps after which an episode in a maze is truncated."""

MAZES = {
    "FiveCorridors": "five_corridors",
    "Spiral": "spiral",
    "FourRooms": "four_rooms",
    "TwoRoom": "two_room",
}
"""Name in an id → arena, for arenas that have their own ids."""

ENV_IDS = {
    "rlreps/PuddleWorld-v0": Registered("PuddleWorld", {}, 1000),
    "rlreps/BouncingBalls-v0": Registered("BouncingBalls", {}, 1000),
    **{
        f"rlreps/{name}-v0": Registered("PuddleWorld", {"arena": arena}, MAZE_STEPS)
        for name, arena in MAZES.items()
    },
}
"""The ids for ``gymnasium.make`` and ``gymnasium.make_vec``."""


def register() -> None:
    """Register ``ENV_IDS``; a second call changes nothing.

    It runs when ``rlreps.envs`` is imported.
    ``gymnasium.make("rlreps.envs:rlreps/PuddleWorld-v0")`` imports the package itself.
    """
    for env_id, (prefix, arguments, max_episode_steps) in ENV_IDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point=f"rlreps.envs.gymnasium_adapter:{prefix}Env",
                vector_entry_point=f"rlreps.envs.gymnasium_adapter:{prefix}VectorEnv",
                max_episode_steps=max_episode_steps,
                kwargs=arguments,
            )
