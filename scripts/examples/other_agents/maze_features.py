"""Features of a maze beside its codes, for agents of other libraries.

    pip install stable-baselines3
    python scripts/examples/other_agents/maze_features.py

Agents see a random code of their cell, which does not show which cells are neighbours. The features
are fitted to 30,000 random steps without rewards, which count as steps of the agent. Importing this
module registers ``MazeWithFeatures-v0``, which every library that calls ``gymnasium.make`` can use,
such as CleanRL:

    PYTHONPATH=scripts/examples/other_agents \
        python cleanrl/dqn.py --env-id maze_features:MazeWithFeatures-v0
"""

import dataclasses
import functools

import gymnasium
import numpy as np

from rlreps.envs import Code, load_arena
from rlreps.successor import Transitions, fit

FREE_STEPS = 30_000
MAZE = {"arena": "five_corridors", "observation": Code(), "goal": (0.9, 0.9, 0.08)}


@functools.cache
def features_of_codes(seed=0):
    """Return a dictionary: the bytes of a code → the features of its cell."""
    world = load_arena(MAZE["arena"], observation=MAZE["observation"])
    data = Transitions.collect(world, steps=FREE_STEPS, copies=100, seed=seed)
    both = np.concatenate([data.observation, data.next_observation])
    codes, states = np.unique(both, axis=0, return_inverse=True)
    before, after = states.reshape(2, -1)
    counted = dataclasses.replace(
        data, observation=before, next_observation=after, num_states=len(codes)
    )
    rep = fit(counted, behaviour="uniform", num_features=16)
    features = rep.features(np.arange(len(codes)), scaling="singular")
    features = features / np.sqrt(np.mean(np.square(features)))
    return {code.tobytes(): row for code, row in zip(codes, np.float32(features), strict=True)}


class WithFeatures(gymnasium.ObservationWrapper):
    """Append the features of a code to it; they are 0 for a code that the data do not contain."""

    def __init__(self, env, seed):
        super().__init__(env)
        self.features = features_of_codes(seed)
        self.size = len(next(iter(self.features.values())))
        shape = (env.observation_space.shape[0] + self.size,)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)

    def observation(self, code):
        features = self.features.get(code.tobytes(), np.zeros(self.size, np.float32))
        return np.concatenate([code, features])


def make(features=True, seed=0):
    """Make the maze, with features that are fitted to the steps of a seed or without features."""
    maze = gymnasium.make("rlreps/PuddleWorld-v0", max_episode_steps=300, **MAZE)
    return WithFeatures(maze, seed) if features else maze


gymnasium.register("MazeWithFeatures-v0", make)


def main(steps=90_000, seeds=3):
    """Train agents of Stable-Baselines3 with features and without, at equal total steps."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    for features, used in ((True, FREE_STEPS), (False, 0)):
        returns = []
        for seed in range(seeds):
            agent = DQN("MlpPolicy", make(features, seed), learning_rate=1e-3, seed=seed)
            agent.learn(steps - used)
            evaluation = Monitor(make(features, seed))
            evaluation.reset(seed=1_000 + seed)
            returns.append(evaluate_policy(agent, evaluation, n_eval_episodes=20)[0])
        name = "with features" if features else "codes alone"
        print(f"{name}: mean returns {', '.join(f'{each:.0f}' for each in returns)}")


if __name__ == "__main__":
    main()
