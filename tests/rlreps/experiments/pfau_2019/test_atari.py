import dataclasses
import itertools
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.pfau_2019 import atari, frames
from rlreps.experiments.pfau_2019.atari import PRESETS
from rlreps.study import Run

SMOKE = PRESETS["smoke"]


def test_training_and_test_frames_are_played_by_agents_of_their_own(tmp_path, monkeypatch):
    seeds = []

    def agent(game, seed):
        seeds.append((game, seed))
        yield from ((np.full((21, 16), step, np.uint8), 0, 0) for step in itertools.count(seed))

    monkeypatch.setattr(frames, "random_agent", agent)
    config = dataclasses.replace(SMOKE, num_frames=60, held_out_frames=30, seed=3)
    folder = types.SimpleNamespace(path=tmp_path)
    problem = atari.prepare(Run(config, folder))
    assert seeds == [("MsPacman", 6), ("MsPacman", 7)]
    np.testing.assert_array_equal(problem.training.images[:, 0, 0], 6 + np.arange(60))
    np.testing.assert_array_equal(problem.held_out.images[:, 0, 0], 7 + np.arange(30))
    np.testing.assert_allclose(problem.mean, 6 + 29.5)


def test_the_papers_network_has_the_published_shapes():
    config = PRESETS["paper"]
    network = config.successor_network(9)
    params = jax.eval_shape(network.init, jax.random.key(0))
    shapes = jax.tree.map(lambda leaf: leaf.shape, params)
    assert [layer["kernel"] for layer in shapes["code"]] == [
        *((6, 6, 4, 64), (6, 6, 64, 64), (6, 6, 64, 64)),
        *((6400, 1024), (1024, 2048)),
    ]
    assert [layer["kernel"] for layer in shapes["decoder"]] == [
        *((9, 2048), (2048, 1024), (1024, 6400)),
        *((3, 3, 64, 256), (3, 3, 64, 256), (3, 3, 64, 4)),
    ]
    assert [layer["kernel"] for layer in shapes["successor"]] == [(2048, 1024), (1024, 2048)]
    code, actions = (jax.ShapeDtypeStruct((2, n), jnp.float32) for n in (2048, 9))
    assert jax.eval_shape(network.predict, params, code, actions).shape == (2, 84, 84)
    slow = jax.eval_shape(
        config.network(config.num_features, config.hidden).init, jax.random.key(0)
    )
    assert [layer["kernel"].shape for layer in slow[3:]] == [(6400, 128), (128, 5)]


def test_the_verdict_is_of_the_papers_protocol_and_of_what_it_says(judge):
    paper = PRESETS["paper"]

    def verdict(config, spin, successor):
        told = {atari.SPIN: spin, atari.SUCCESSOR: successor, atari.PIXELS: 5}
        rows = [
            {"method": method, "feature": k, "told": k <= count}
            for method, count in told.items()
            for k in range(1, 6)
        ]
        (claim,) = judge(atari.EXPERIMENT, config, rows)
        return claim.holds

    # The count can refute the finding alone.
    counts = {(4, 2): None, (5, 3): None, (4, 5): None, (3, 0): False}
    assert {each: verdict(paper, *each) for each in counts} == counts
    assert verdict(dataclasses.replace(paper, game="Seaquest", seed=2), 3, 1) is False
    assert verdict(dataclasses.replace(paper, steps=500_000), 3, 1) is None


def test_the_paper_preset_is_the_papers(check_protocol):
    published = {
        "num_frames": 500_000,
        "held_out_frames": 64_000,
        # Machado et al. (2018), to whom the paper refers.
        "channels": [64, 64, 64],
        "code_hidden": 1024,
        "code_size": 2048,
        "hidden": 128,
        "num_features": 5,
        "extremes": 100,
        # As in C.2.
        "clips": 24,
        "clip_frames": 10,
        "steps": 1_000_000,
        "optimizer.name": "rmsprop",
        "optimizer.learning_rate": 1e-6,
        "optimizer.decay": 0.999,
        "objective.name": "spin",
        "objective.averaging_rate": 0.01,
        # Algorithm 1 and Eq. 14.
        "objective.masked": True,
        "objective.starts_at_identity": True,
        "objective.shifted": False,
        "transitions": 32,
        "successor_steps": 300_000,
        "target_every": 10_000,
        "successor_optimizer.name": "rmsprop",
        "successor_optimizer.learning_rate": 1e-4,
    }
    check_protocol("atari", published)


def test_a_game_that_cannot_be_played_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    unknown = dataclasses.replace(SMOKE, game="Seequest")
    with pytest.raises(InputError, match=r"made from 'ALE/Seequest-v5', got .*Seaquest"):
        atari.EXPERIMENT.run(unknown, tmp_path / "run")
    monkeypatch.setitem(sys.modules, "ale_py", None)  # The import system's own "not there".
    with pytest.raises(InputError, match=r'ale-py for .*, got none: pip install "rlreps\[atari\]"'):
        atari.EXPERIMENT.run(SMOKE, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
