"""The worked example of other environments, at its smallest."""

import re

import jax
import numpy as np
import pytest

from rlreps.envs import Environment


@pytest.fixture(scope="module")
def rooms(load):
    return load("four_rooms")


@pytest.fixture(scope="module")
def example(load):
    return load("other_environments")


def test_four_rooms_meets_the_contract_and_its_walls_hold(rooms):
    environment = rooms.four_rooms()
    assert isinstance(environment, Environment)
    assert environment.targets.shape == (104, 4)
    positions = np.asarray(environment.positions)
    moves = positions[np.asarray(environment.targets)] - positions[:, None]
    steps = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
    stays = np.all(moves == 0, axis=2)
    assert np.all(stays | np.all(moves == steps, axis=2))
    # In the lower left corner of the lowest room only up and right are open.
    np.testing.assert_array_equal(positions[0], [1, 1])
    np.testing.assert_array_equal(stays[0], [False, False, True, True])


def test_an_action_slips_into_each_other_one_with_probability_one_ninth(rooms):
    environment = rooms.four_rooms()
    middle = int(np.flatnonzero((np.asarray(environment.positions) == [3, 3]).all(axis=1))[0])
    keys = jax.random.split(jax.random.key(0), 20_000)
    step = jax.jit(jax.vmap(lambda key: environment.step(key, np.int32(middle), np.int32(1)).state))
    reached = np.asarray(step(keys))
    shares = [np.mean(reached == target) for target in environment.targets[middle]]
    np.testing.assert_allclose(shares, [1 / 9, 2 / 3, 1 / 9, 1 / 9], atol=0.015)


def test_the_exact_measure_solves_the_bellman_equation(rooms):
    environment = rooms.four_rooms()
    measure = rooms.exact_four_rooms(environment, 0.9, 400)
    successor = measure[np.asarray(environment.targets)].mean(axis=1)
    np.testing.assert_allclose(measure, np.eye(104) + 0.9 * successor, atol=1e-12)


def test_pendulum_angles_are_recovered_from_their_cosines_and_sines(example):
    angles = np.array([-3.0, -0.5, 0.0, 2.0])
    observations = np.stack([np.cos(angles), np.sin(angles), np.full(4, 1.5)], axis=1)
    states = example.pendulum_state(observations)
    np.testing.assert_allclose(states, np.stack([angles, np.full(4, 1.5)], axis=1))


@pytest.mark.integration
def test_the_smoke_setting_measures_trains_and_draws_every_environment(example, tmp_path, capsys):
    example.main(["--out", str(tmp_path), "--smoke"])
    printed = capsys.readouterr().out
    error, expected = re.search(r"error ([\d.]+) .* halves ([\d.]+)", printed).groups()
    assert 0.5 < float(error) / float(expected) < 2.0
    distances = re.findall(r"(\w+): .* subspace distance ([\d.]+) .* about ([\d.]+) from", printed)
    assert [name for name, _, _ in distances] == ["four_rooms", "mountain_car", "pendulum"]
    for name, distance, noise in distances:
        # Six random directions among so many states would be at 0.9 or more.
        assert float(distance) < 0.6
        assert 0.0 < float(noise) < 0.25
        assert (tmp_path / f"{name}.png").stat().st_size > 20_000
