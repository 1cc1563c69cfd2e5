"""Classic control from random steps: rewards, evaluation, verdicts; its smoke preset."""

import dataclasses
import functools

import gymnasium
import numpy as np
import pytest

from rlreps.experiments.ours import control
from rlreps.experiments.ours.control import DQN, EXPERIMENT, FIT, PRESETS, RANDOM, TASKS


def episode(environment, choose, seed):
    """Play one episode by hand; return its observations, actions and rewards."""
    with gymnasium.make(environment) as one:
        seen, _ = one.reset(seed=seed)
        record, over = [], False
        while not over:
            action = choose(seen[None])[0]
            before = seen
            seen, reward, terminated, truncated, _ = one.step(action)
            over = terminated or truncated
            record.append((before, action, reward, terminated))
    return record


def balance(seen):
    """Push to where the pole leans."""
    return (seen[:, 2] > 0).astype(int)


def swing(seen):
    """Accelerate along the movement."""
    return np.where(seen[:, 1] > 0, 2, 0)


def push(seen):
    return 2.0 * np.sign(seen[:, 2:]).astype(np.float32)


@pytest.mark.parametrize(
    ("task", "choose"),
    [
        ("CartPole-v1", balance),
        ("Pendulum-v1", push),
        ("MountainCar-v0", swing),
        ("Acrobot-v1", lambda seen: np.where(seen[:, 4] > 0, 0, 2)),
    ],
)
def test_returns_are_those_of_episodes_played_one_by_one_and_rewards_are_the_tasks(task, choose):
    starts = [3, 14, 15]
    records = [episode(task, choose, seed) for seed in starts]
    sums = [sum(float(reward) for *_, reward, _ in record) for record in records]
    make = functools.partial(gymnasium.make, task)
    np.testing.assert_allclose(control.play(make, choose, starts), sums, rtol=1e-6)
    # Episodes of several lengths: what follows an end counts no more.
    assert task == "Pendulum-v1" or len({*map(len, records)}) > 1
    for record in records:
        before, actions, rewards, terminated = (
            np.array(part) for part in zip(*record, strict=True)
        )
        named = TASKS[task].reward(before)
        assert named.shape == (len(record),)
        if task == "Pendulum-v1":
            rewards = rewards.ravel() + 0.001 * actions.ravel() ** 2
        # Acrobot alone gives 0 for arriving at its end.
        rewards = rewards - (terminated if task == "Acrobot-v1" else 0.0)
        np.testing.assert_allclose(named, rewards, atol=1e-5)


def test_five_torques_are_those_of_the_pendulum():
    for action, torque in enumerate((-2.0, -1.0, 0.0, 1.0, 2.0)):
        with gymnasium.make(control.FIVE_TORQUES) as five, gymnasium.make("Pendulum-v1") as whole:
            assert five.action_space.n == 5
            assert (five.reset(seed=0)[0] == whole.reset(seed=0)[0]).all()
            (seen, reward, *_), (other, expected, *_) = five.step(action), whole.step([torque])
            np.testing.assert_allclose(seen, other, rtol=1e-6)
            assert reward == pytest.approx(expected)
    assert gymnasium.spec(control.FIVE_TORQUES).max_episode_steps == 200


@pytest.mark.parametrize(
    ("returns", "holds"),
    [
        ([500.0, 499.0, 500.0, 498.0, 500.0], True),
        # Five equal outcomes decide nothing.
        ([500.0] * 5, None),
        ([500.0, 500.0, 500.0, 500.0, 400.0], None),
        ([300.0, 310.0, 290.0, 300.0, 320.0], False),
    ],
)
def test_a_goal_is_judged_by_the_interval_over_at_least_five_seeds(judge, returns, holds):
    config = dataclasses.replace(PRESETS["laptop"], tasks=("CartPole-v1",))
    given = [
        {"task": "CartPole-v1", "way": way, "seed": seed, "return": found}
        | {"fit_seconds": 60.0, "policy_seconds": slow}
        for way, each in ((FIT, returns), (DQN, [9.0] * 5), (RANDOM, [20.0] * 5))
        for seed, found in enumerate(each)
        for slow in (59.0 if holds else 61.0,)
    ]
    goal, time = judge(EXPERIMENT, config, given)
    assert goal.holds is holds
    assert time.holds is (None if holds else False)
