"""Tells Gymnasium about the environments. Imports neither JAX nor the environments themselves."""

from typing import Any, NamedTuple

import gymnasium


class Registered(NamedTuple):
    """What an id stands for.

    Attributes:
        prefix: what the names of its classes begin with.
        arguments: of the classes.
        max_episode_steps: steps after which Gymnasium truncates an episode, unless told otherwise.
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
"""Names of ids → arenas that have ids of their own."""

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

    Runs when ``rlreps.envs`` is imported. ``gymnasium.make("rlreps.envs:rlreps/PuddleWorld-v0")``
    does the import by itself.
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
