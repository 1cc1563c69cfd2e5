"""The commands below ``rlreps agent``, from training to pictures, and everything they refuse."""

import json
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from rlreps.app.generation import generate
from rlreps.app.main import main
from rlreps.runs.folder import RunFolder
from rlreps.successor.measure.methods import MonteCarlo

words = str.split
TOY = words(
    "--hidden 16 --num-features 8 --steps 400 --evaluate-every 200 --checkpoint-every 200 "
    "--warmup 80 --batch-size 8 --capacity 400 --evaluation-episodes 4 --num-seeds 2 "
    "--epsilon-steps 300 --max-episode-steps 30 --num-envs 2 --auxiliary-weight 0.1 --horizon 8 "
    "--sequences 16 --num-tasks 8 --quiet"
)


@pytest.fixture(scope="module")
def puddle_world(tmp_path_factory):
    """A run in PuddleWorld; tests that change it copy it first."""
    out = tmp_path_factory.mktemp("agents") / "puddle_world"
    main(["agent", "train", "--out", str(out), *TOY])
    return out


IMAGES = {"name": "image", "size": 16, "bins": None}
ALWAYS = ("effective_rank", "dormant_share")
TRUTH = ("leading_distance", "subspace_distance")
SEEN = (
    "--env puddle-world:two_room --observation image --image-size 16 --encoder convolutional "
    "--channels 4 4 --per-action --auxiliary-head 8 --no-relative-weight "
    "--horizon None --discount-low 0.5 --discount-high 0.7 --method danskin-empirical"
)
CASES = {
    # Options, what the configuration then holds, measures, and the size of an episode's pictures.
    "puddles": ("", {"environment": "puddle-world", "goal": None}, (*TRUTH, *ALWAYS), (256, 256)),
    "images": (SEEN, {"observation": IMAGES}, ALWAYS, (256, 256)),
    # Of 600 x 400 and as it is.
    "gymnasium": ("--env CartPole-v1", {"environment": "CartPole-v1"}, ALWAYS, (320, 213)),
}


@pytest.mark.integration
@pytest.mark.parametrize("case", CASES)
def test_agents_from_training_to_pictures(rlreps, puddle_world, case, tmp_path):
    options, stored, measures, size = CASES[case]
    run, on_host = tmp_path / "run", case == "gymnasium"
    if not options:
        shutil.copytree(puddle_world, run)
    train = ("agent", "train", "--out", run, *TOY, *options.split())
    said = rlreps(*train)
    folder = RunFolder(run)
    config, summary = folder.config, folder.read_summary()
    assert {name: config[name] for name in stored} == stored
    task = config["auxiliary"]["objective"]["name"]
    assert said.startswith(f"{config['environment']}, auxiliary task {task}: 2 x 400 steps in ")
    written = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert rlreps(*train) == said  # Finished: nothing is done again, and the table is the same.
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == written
    assert f"2 x {summary['steps']} steps" in (run / "report.html").read_text()
    # Names of modules to import are not taken from the folder.
    named = ("--env", config["environment"]) if on_host else ()
    evaluate = ("agent", "evaluate", run, "--episodes", "4", *named)
    found = json.loads(rlreps(*evaluate))
    assert (found["step"], found["episodes"]) == (400, 4)
    assert found["return"]["mean"] == pytest.approx(np.mean(found["returns"]))
    assert set(found["measures"]) == set(measures)
    for name, measure in found["measures"].items():
        assert measure["values"] == pytest.approx(summary[name], rel=1e-3)
    pictures = tmp_path / "pictures"
    said = rlreps("agent", "render", run, "--out", pictures, "--seed-index", "1", *named)
    names = ["learning-curves.png", "episode.gif"]
    if not on_host:
        names[1:1] = ["policy-and-value.png"] + ["components.png"] * (measures != ALWAYS)
    assert said.splitlines() == [f"wrote {pictures / name}" for name in names]
    with Image.open(pictures / "episode.gif") as image:
        assert image.size == size


@pytest.mark.integration
def test_torsos_are_measured_against_a_store(rlreps, refused, toy_store, tmp_path):
    store = shutil.copytree(toy_store, tmp_path / "store")
    run = tmp_path / "run"
    rlreps("agent", "train", "--out", run, "--store", store, *TOY)
    folder = RunFolder(run)
    assert folder.config["ground_truth"]["bins"] == 8
    distances = folder.read_summary()["subspace_distance"]
    found = json.loads(rlreps("agent", "evaluate", run, "--episodes", "1"))
    assert found["measures"]["subspace_distance"]["values"] == pytest.approx(distances, rel=1e-3)
    # Without the store it is another run.
    message = refused("agent", "train", "--out", run, *TOY)
    assert message.startswith(f"{run} holds another run: expected ground_truth")
    shutil.rmtree(store)
    message = refused("agent", "evaluate", run)
    assert message.startswith(f"expected the ground truth that {run} was measured against in ")
    again = json.loads(rlreps("agent", "evaluate", run, "--episodes", "1", "--store", toy_store))
    assert again["measures"]["subspace_distance"]["values"] == pytest.approx(distances, rel=1e-3)


BAD_ARGUMENTS = {
    "--observation image": "expected observations that are vectors, for the torso mlp;",
    "--method spin --per-action": "expected an objective with weights, a head for each action, fo",
    "--method spin --sequences 7": "expected rows >= 8, as many as features, for av",
    "--env CartPole-v1 --goal 0.2 0.5 0.1": "expected a goal for puddle-world alone, got 'CartPol",
    "--env dm_env:rlreps.envs:none": "expected a function that makes a dm_env.Environm",
    "--auxiliary-tasks cells --length-scale 1": "expected an option of rlreps agent train, got --l",
}


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS)
def test_agents_that_cannot_be_trained_are_one_line_and_no_folder(refused, tmp_path, arguments):
    run = tmp_path / "run"
    message = refused("agent", "train", "--out", run, *TOY, *arguments.split())
    assert message.startswith(BAD_ARGUMENTS[arguments])
    assert not run.exists()


def test_stores_of_another_arena_or_centred_over_tasks_alone_are_refused(
    refused, toy_store, tmp_path
):
    rows = MonteCarlo(bins=4, rollouts=4, horizon=4, centring="rows")
    generate(rows, tmp_path / "rows")
    for arena, store, message in (
        ("empty", toy_store, "a store of the arena of puddle-world:empty, got {"),
        ("sutton", tmp_path / "rows", "a store that is centred over states (columns or both), got"),
    ):
        arguments = ("--env", f"puddle-world:{arena}", "--store", store)
        found = refused("agent", "train", "--out", tmp_path / "run", *TOY, *arguments)
        assert found.startswith(f"expected {message}")


@pytest.mark.integration
def test_folders_that_do_not_fit_are_refused(refused, puddle_world, tmp_path):
    run = shutil.copytree(puddle_world, tmp_path / "run")
    message = refused("agent", "train", "--out", run, *TOY, "--seed", "3")
    assert message == f"{run} holds another run: expected seed=0, got 3"
    message = refused("agent", "evaluate", tmp_path / "nowhere")
    assert message.startswith("expected a run's config.json, got No such file or directory")
    assert refused("agent", "evaluate", run, "--episodes", "0") == "expected episodes >= 1, got 0"
    message = refused("agent", "render", run, "--seed-index", "2")
    assert message == "expected a seed index in [0, 1], got 2"
    shutil.rmtree(run / "checkpoints")
    for command in ("evaluate", "render"):
        assert refused("agent", command, run).startswith("expected a checkpoint in ")


@pytest.mark.parametrize(
    ("package", "environment", "remedy"),
    [
        ("rlax", "puddle-world", 'pip install "rlreps[agents]"'),
        ("Box2D", "LunarLander-v3", "pip install"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(
    refused, tmp_path, monkeypatch, package, environment, remedy
):
    for name in [*sys.modules]:
        if name.startswith((package, "gymnasium.envs.box2d")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    said = refused("agent", "train", "--env", environment, "--out", tmp_path / "run")
    assert said.startswith("expected ")
    assert package.lower().replace("_", "-") in said.lower()
    assert remedy in said
