"""The floor of a fit's distance, on chains whose floors are known."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def script(load):
    return load("perfect_fit_distance")


def test_a_ring_of_equal_states_has_no_floor_but_for_an_estimated_policy(script):
    """Every difference keeps the Fourier functions, the singular vectors of any circulant."""
    n = 9
    moves = np.stack([np.roll(np.eye(n), step, axis=1) for step in (-1, 1)])
    *exact, estimated = script.floors(moves, 0.9, 2, steps=180).values()
    np.testing.assert_allclose(exact, 0.0, atol=1e-12)
    assert 1e-4 < estimated < 0.5


def test_the_visits_are_most_of_the_floor_in_sutton(script, capsys):
    script.main(bins=8, components=5)
    lines = capsys.readouterr().out.splitlines()
    afterwards, successor, by_action, visits, _ = (float(line.split()[-1]) for line in lines)
    assert afterwards < 1e-4
    assert visits > 5 * by_action > 0.0
    assert successor < 0.01
