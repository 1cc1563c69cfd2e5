"""Classic control from random steps: rewards, evaluation, verdicts; its smoke preset."""

import csv
import dataclasses
import json

import gymnasium
import numpy as np
import pytest

from rlreps.experiments.ours import control
from rlreps.experiments.ours.control import DQN, EXPERIMENT, FIT, PRESETS, RANDOM, TASKS
from rlreps.successor import Transitions


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
    np.testing.assert_allclose(control.play(task, choose, starts), sums, rtol=1e-6)
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


def test_random_actions_are_those_of_the_starts_and_differ_between_copies():
    first, again, others = (control.play("CartPole-v1", None, range(a, a + 20)) for a in (0, 0, 50))
    np.testing.assert_array_equal(first, again)
    assert len({*first}) > 5
    assert (first != others).any()
    assert 15 < first.mean() < 35


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
        ([500.0] * 5, True),
        ([480.0, 490.0, 485.0, 495.0, 500.0], True),
        ([500.0, 500.0, 500.0, 500.0, 400.0], None),
        ([300.0, 310.0, 290.0, 300.0, 320.0], False),
        ([500.0] * 4, None),
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
    assert goal.stated == "at least 475, by the 95 % interval over seeds"
    assert "DQN 9.00 [9.00, 9.00]" in goal.found
    assert time.holds is (True if holds else None)


def test_the_fit_is_given_random_steps_and_the_tasks_reward_alone(monkeypatch):
    given = {}

    class Stub:
        def task(self, *, reward):
            return reward

        def policy(self, task, *, improvements):
            given.update(task=task, improvements=improvements)
            return balance

    def fit(data, **options):
        given.update(data=data, options=options)
        return Stub()

    monkeypatch.setattr(control, "fit", fit)
    config = PRESETS["laptop"]
    config = dataclasses.replace(config, agents=dataclasses.replace(config.agents, steps=10_000))
    environment, policy, seconds = control.fitted(config, "CartPole-v1", 7)
    assert (environment, policy) == ("CartPole-v1", balance)
    assert given["options"] == {"num_features": 64, "discount": 0.99}
    assert (given["task"], given["improvements"]) == (TASKS["CartPole-v1"].reward, None)
    data = given["data"]
    assert isinstance(data, Transitions)
    assert len(data) == 10_000
    assert abs(data.action.mean() - 0.5) < 0.02
    assert list(seconds) == ["collect_seconds", "fit_seconds", "policy_seconds"]


# Few steps: the fit warns.
@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")
@pytest.mark.experiments
def test_the_smoke_preset_is_judged_drawn_and_resumed(tmp_path):
    out = tmp_path / "run"
    summary = EXPERIMENT.run(PRESETS["smoke"], out, progress=False)
    assert [claim["holds"] for claim in summary["claims"]] == [None, True]
    returns = summary["returns"]["CartPole-v1"]
    assert {*returns} == {FIT, DQN, RANDOM}
    assert returns[FIT][0] > 2 * returns[RANDOM][0]
    with (out / "results" / "returns.csv").open(newline="") as lines:
        rows = {row["way"]: row for row in csv.DictReader(lines)}
    assert float(rows[FIT]["return"]) == returns[FIT][0]
    assert float(rows[FIT]["fit_seconds"]) > 0.0
    assert float(rows[DQN]["train_seconds"]) > 0.0
    assert (out / "figures" / "returns.png").exists()
    assert "CartPole-v1: mean return of the fit" in (out / "report.html").read_text()

    # What was measured is not measured again.
    kept = {path: path.read_bytes() for path in (out / "parts").iterdir()}
    assert {path.stem for path in kept} == {f"CartPole-v1-{way}-700" for way in (FIT, DQN, RANDOM)}
    (out / "summary.json").unlink()
    (out / "parts" / "CartPole-v1-DQN-700.json").unlink()
    again = EXPERIMENT.run(PRESETS["smoke"], out, progress=False)
    assert json.dumps(again["returns"]) == json.dumps(summary["returns"])
    assert {path: path.read_bytes() for path in kept} == kept
