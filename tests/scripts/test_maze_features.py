"""The example of features for agents of other libraries."""

import importlib
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlreps.envs import Code
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.tabular import exact_components


@pytest.fixture
def example(monkeypatch):
    folder = Path(__file__).parents[2] / "scripts" / "examples" / "other_agents"
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module("maze_features")


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")
@pytest.mark.integration
def test_the_maze_shows_codes_and_features_in_which_neighbours_are_near(example):
    env = gymnasium.make("maze_features:MazeWithFeatures-v0")
    check_env(env, skip_render_check=True)
    seen, _ = env.reset(seed=0)
    assert seen.shape == (32,)
    codes = Code().table()
    features = example.features_of_codes()
    np.testing.assert_array_equal(seen[16:], features[seen[:16].tobytes()])
    # Most cells were visited; their features predict their exact components.
    known = [cell for cell, code in enumerate(codes) if code.tobytes() in features]
    assert len(known) > 380
    exact = exact_components(mazes.cell_world("five_corridors"), 4, 0.95)
    rows = np.array([features[codes[cell].tobytes()] for cell in known])
    fitted = rows @ np.linalg.lstsq(rows, exact[known], rcond=None)[0]
    assert np.sum((fitted - exact[known]) ** 2) < 0.2 * np.sum(exact[known] ** 2)
