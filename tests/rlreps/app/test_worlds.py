"""Commands on worlds, and every other command on a world's truth."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlreps.app.jobs.train import Train
from rlreps.app.main import main
from rlreps.app.trained_runs import trained_store
from rlreps.runs.folder import RunFolder
from rlreps.successor import BoxGrid, save_matrix
from rlreps.successor import load as load_truth
from rlreps.training import TrainingConfig
from rlreps.worlds import World, load, named


@pytest.fixture
def picture(tmp_path, monkeypatch):
    """A world of 5 x 5 places with a picture of each, in a file; the working folder is its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLREPS_CACHE_DIR", str(tmp_path / "cache"))
    x, y = (part.ravel() for part in np.meshgrid(np.arange(5), np.arange(5)))
    ways = ((1, 0), (-1, 0), (0, 1), (0, -1))
    moved = [np.clip(y + up, 0, 4) * 5 + np.clip(x + right, 0, 4) for right, up in ways]
    frames = np.zeros((25, 10, 10, 1), np.uint8)
    for state in range(25):
        frames[state, 2 * y[state] : 2 * y[state] + 2, 2 * x[state] : 2 * x[state] + 2] = 255
    world = World.from_arrays(
        next_states=np.stack(moved, axis=1),
        rewards=np.zeros((25, 4)),
        observations=frames,
        coordinates=np.stack([x, y, 0 * x + (x > 2)], axis=1),
        names=("x", "y", "side"),
    )
    return str(world.save(tmp_path / "picture.npz"))


words = str.split


@pytest.mark.integration
def test_a_world_is_trained_on_audited_and_drawn(picture, capsys):
    given = f"{picture} --discount 0.9 --policy optimal --epsilon 0.5 --out store"
    main(["worlds", "truth", *words(given)])
    sizes = "--channels 4 --hidden 8 --num-features 3 --steps 5 --rows 25 --tasks 25"
    main(["train", "store", "--encoder", "convolutional", *words(sizes), "--out", "run"])
    capsys.readouterr()
    main(["evaluate", "run"])
    found = json.loads(capsys.readouterr().out)
    assert found["encoder"] == "convolutional"
    assert 0.0 < found["subspace_distance"] < 1.0
    main(["plot", "components", *words("store --runs run --d 2 --out maps.png")])
    np.save("features.npy", World.load(picture).observations.reshape(25, -1))
    main(["audit", *words("features.npy --truth store --out audited")])
    assert "in the span" in capsys.readouterr().out


LINE = BoxGrid((0.0,), (1.0,), (6,), ("x",))
PLANE = BoxGrid((0.0, 0.0), (1.0, 1.0), (2, 3), ("x", "y"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"observations": np.eye(4, 5, dtype="u1")}, {"observations": np.eye(4, 5, 1, dtype="u1")}),
        ({"grid": LINE, "cells": [0, 1, 2, 3]}, {"grid": PLANE, "cells": [0, 1, 2, 3]}),
        ({"grid": LINE, "cells": [0, 1, 2, 3]}, {"grid": LINE, "cells": [0, 1, 2, 5]}),
    ],
    ids=["observations", "grid", "cells"],
)
def test_a_store_of_other_inputs_of_encoders_is_not_the_one_of_a_run(before, after, tmp_path):
    matrix = np.random.default_rng(0).normal(size=(4, 3))
    place, run = tmp_path / "store", tmp_path / "run"
    save_matrix(place, matrix, **before)
    job = Train(store=place, config=TrainingConfig(num_features=2))
    described: dict[str, Any] = {"kind": job.kind, "config": job.describe()}
    folder = RunFolder.create_or_resume(run, **described, provenance=job.locate(run))
    assert trained_store(folder) == place
    assert not folder.describe_differences(job.describe())
    shutil.rmtree(place)
    save_matrix(place, matrix, **after)
    assert trained_store(folder) is None
    assert folder.describe_differences(job.describe())


def test_worlds_are_built_described_and_listed(picture, capsys):
    main(["worlds", "build", "cliffwalking"])
    built = json.loads(capsys.readouterr().out)
    assert (built["states"], built["terminal"], built["deterministic"]) == (38, 1, True)
    main(["worlds", "info", "cliffwalking", "--discount", "0.9"])
    told = json.loads(capsys.readouterr().out)
    assert told["digest"] == built["digest"] == load("cliffwalking").digest
    # Thirteen steps along the cliff at −1 each.
    assert told["optimal_value_at_the_start"] == pytest.approx(-(1 - 0.9**13) / 0.1)
    assert told["effective_horizon"] is None
    main(["worlds", "list"])
    listed = capsys.readouterr().out
    assert "in the cache" in listed.split("cliffwalking")[1].splitlines()[0]


def test_worlds_of_missing_packages_are_listed_with_their_extras(monkeypatch, capsys):
    monkeypatch.setattr(named.Recipe, "version", None)
    main(["worlds", "list"])
    line = capsys.readouterr().out.split("atari-pong-5")[1].splitlines()[0]
    assert line.split("ale-py")[1].strip().endswith('pip install "rlreps[atari]"')


def test_every_command_on_a_named_world_may_accept_another_version(
    picture, refused, monkeypatch, capsys
):
    other = {"cliffwalking": {"package": "gymnasium 0.1", "rules": "another"}}
    monkeypatch.setattr(named, "known_rules", lambda: other)
    for command in (["build"], ["info"], ["truth", "--out", "store"]):
        given = ("worlds", command[0], "cliffwalking", *command[1:])
        assert "with the rules of gymnasium 0.1, got others" in refused(*given)
        main([*given, "--any-version"])
        assert "38" in capsys.readouterr().out


def test_the_store_of_an_optimal_policy_names_its_share_of_random_actions(picture, refused, capsys):
    given = ["worlds", "truth", picture, *words("--policy optimal --out store --epsilon")]
    main([*given, "0.5"])
    settings = load_truth("store").settings
    assert (settings["policy"], settings["epsilon"]) == ("optimal", 0.5)
    capsys.readouterr()
    assert "expected epsilon=0.5, got 0.2" in refused(*given, "0.2")
    for command in (["truth", picture], ["sample", "--env", "world:taxi"]):
        message = refused("worlds", *command, *words("--epsilon 0.5 --out uniform"))
        assert message == "expected no epsilon for the uniform policy, which is random, got 0.5"
    assert not Path("uniform").exists()


def test_images_need_an_encoder_of_images_and_worlds_a_name(refused, picture, capsys):
    main(["worlds", "truth", picture, "--out", "store"])
    main(["svd", "store"])
    capsys.readouterr()
    said = refused("train", *words("store --num-features 3 --out run"))
    assert "expected vectors, or an encoder of images (convolutional)" in said
    main(["explore", *words("store --out page.html --frames 3 --quiet")])
    assert '"frames": {' in Path("page.html").read_text("utf-8")
    capsys.readouterr()
    assert "the name of a world to be one of" in refused("worlds", "info", "nowhere")
    assert "ends in .npz, got 'x.png'" in refused("worlds", "build", "taxi", "--out", "x.png")


@pytest.mark.integration
def test_agents_are_trained_in_a_world_s_compiled_copy(picture, capsys):
    toy = (
        "--steps 400 --num-envs 2 --evaluate-every 200 --checkpoint-every 200 --warmup 80 "
        "--batch-size 8 --capacity 400 --evaluation-episodes 4 --max-episode-steps 20 "
        "--encoder convolutional --channels 4 --hidden 8 --num-features 4 --out agents"
    )
    main(["agent", "train", "--env", f"world:{picture}", *words(toy)])
    assert "400 steps" in capsys.readouterr().out
    # A file outside the run is read only if the user names it.
    main(["agent", "evaluate", "agents", "--episodes", "2", "--env", f"world:{picture}"])
    assert json.loads(capsys.readouterr().out)["returns"] == [0.0]
