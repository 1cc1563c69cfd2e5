"""The commands below ``rlreps agent``, from training to pictures, and everything they refuse."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from rlreps import cli
from rlreps.runs.folder import RunFolder

words = str.split
TOY = words(
    "--hidden 16 --num-features 8 --steps 400 --evaluate-every 200 --checkpoint-every 200 "
    "--warmup 80 --batch-size 8 --capacity 400 --evaluation-episodes 4 --num-seeds 2 "
    "--epsilon-steps 300 --max-episode-steps 30 --num-envs 2 --auxiliary-weight 0.1 --horizon 8 "
    "--sequences 16 --num-tasks 8 --quiet"
)
DM_ENV = "dm_env:rlreps.envs:PuddleWorldDmEnv"


@pytest.fixture(scope="module")
def puddle_world(tmp_path_factory):
    """A run in PuddleWorld, and what its training printed; tests that change it copy it first."""
    out = tmp_path_factory.mktemp("agents") / "puddle_world"
    cli.main(["agent", "train", "--out", str(out), *TOY])
    return out


def assert_summary_is_shown(said, out, measures):
    summary = json.loads((out / "summary.json").read_text())
    assert f"2 x {summary['steps']} steps" in said
    assert "interquartile mean of returns, last evaluation: " in said
    for name in measures:
        assert len(summary[name]) == 2
    rows = [line.split() for line in said.splitlines() if line.strip()[:2] in ("0 ", "1 ")]
    assert [row[0] for row in rows] == ["0", "1"]
    assert all(len(row) == 4 + len(measures) for row in rows)


def assert_evaluation(found, step, episodes, measures, task="large_batch"):
    assert (found["step"], found["episodes"]) == (step, episodes)
    assert found["auxiliary"] == task
    assert found["return"]["mean"] == pytest.approx(np.mean(found["returns"]))
    assert found["return"]["runs"] == len(found["returns"]) == 2
    low, high = (found["return"][f"interquartile_mean_{end}"] for end in ("low", "high"))
    assert low <= found["return"]["interquartile_mean"] <= high
    assert set(found["measures"]) == set(measures)
    for measure in found["measures"].values():
        assert measure["mean"] == pytest.approx(np.mean(measure["values"]))


def frames_of(path):
    with Image.open(path) as image:
        return image.n_frames, image.size


def assert_report_shows_the_run(run):
    page, summary = (run / "report.html").read_text(), RunFolder(run).read_summary()
    with Image.open(run / "figures" / "learning-curves.png") as image:
        assert min(image.size) > 300
    assert "data:image/png;base64," in page
    for value in (f"2 x {summary['steps']} steps", *map(str, summary["best_steps"])):
        assert value in page


ALWAYS = ("effective_rank", "dormant_share", "probe_error")


@pytest.mark.integration
def test_agents_in_puddle_world_from_training_to_pictures(rlreps, puddle_world, tmp_path):
    run = shutil.copytree(puddle_world, tmp_path / "run")
    # Finished: nothing is done again, and the table is the same.
    said = rlreps("agent", "train", "--out", run, *TOY)
    assert said.startswith("puddle-world, auxiliary task large_batch: 2 x 400 steps in ")
    measures = ("leading_distance", "subspace_distance", *ALWAYS)
    assert_summary_is_shown(said, run, measures)
    assert_report_shows_the_run(run)
    found = json.loads(rlreps("agent", "evaluate", run, "--episodes", "5"))
    assert_evaluation(found, 400, 5, measures)
    summary = RunFolder(run).read_summary()
    for name in measures:
        # The same torsos; the probe of what an episode is worth is random but for its seed.
        assert found["measures"][name]["values"] == pytest.approx(summary[name], rel=1e-3)
    # Of episodes that training never saw, and the same every time. (A seed may end both at the
    # limit outside all puddles: the same return.)
    again = [json.loads(rlreps("agent", "evaluate", run, "--episodes", "4")) for _ in range(2)]
    assert again[0] == again[1]
    assert again[0]["returns"] != summary["final_returns"]
    found = json.loads(rlreps("agent", "evaluate", run, "--episodes", "4", "--best"))
    assert found["step"] == summary["best_steps"]
    said = rlreps("agent", "render", run, "--seed-index", "1", "--best")
    names = ["episode.gif", "policy-and-value.png", "components.png", "learning-curves.png"]
    assert said.splitlines() == [f"wrote {run / 'figures' / name}" for name in names]
    frames, size = frames_of(run / "figures" / "episode.gif")
    assert size == (256, 256)
    assert 1 <= frames <= 41
    for name in names[1:]:
        with Image.open(run / "figures" / name) as image:
            assert min(image.size) > 300


@pytest.mark.integration
def test_agents_on_the_host_from_training_to_pictures(rlreps, tmp_path):
    environment, run, pictures = DM_ENV, tmp_path / "run", tmp_path / "pictures"
    said = rlreps("agent", "train", "--env", environment, "--out", run, *TOY)
    assert said.startswith(f"{environment}, auxiliary task large_batch: 2 x 400 steps in ")
    assert_summary_is_shown(said, run, ALWAYS)
    named = ("--env", environment)
    found = json.loads(rlreps("agent", "evaluate", run, "--episodes", "5", *named))
    assert found["environment"] == environment
    assert_evaluation(found, 400, 5, ALWAYS)
    said = rlreps("agent", "render", run, "--out", pictures, *named).splitlines()
    names = ("episode.gif", "learning-curves.png")
    assert said == [f"wrote {pictures / name}" for name in names]
    assert [path.name for path in (run / "figures").iterdir()] == ["learning-curves.png"]
    frames, size = frames_of(pictures / "episode.gif")
    assert size == (256, 256)
    assert frames >= 2


@pytest.mark.integration
def test_agents_in_a_maze_see_codes_and_have_a_goal_of_their_own(rlreps, tmp_path):
    run = tmp_path / "run"
    maze = words(
        "--env puddle-world:five_corridors --observation code --code-bins 10 --goal 0.1 0.5 0.08"
    )
    rlreps("agent", "train", "--out", run, *maze, *TOY)
    config = RunFolder(run).config
    assert config["observation"] == {"name": "code", "size": 16, "bins": 10, "seed": 0}
    assert config["goal"] == config["arena"]["goal"] == [0.1, 0.5, 0.08]
    assert config["arena"]["observation"] == config["observation"]
    summary = RunFolder(run).read_summary()
    found = json.loads(rlreps("agent", "evaluate", run, "--episodes", "5"))
    assert_evaluation(found, 400, 5, ALWAYS)
    assert found["measures"]["probe_error"]["values"] == pytest.approx(
        summary["probe_error"], rel=1e-3
    )
    said = rlreps("agent", "render", run).splitlines()
    names = ("episode.gif", "policy-and-value.png", "learning-curves.png")
    assert [line for line in said if line.startswith("wrote")] == [
        f"wrote {run / 'figures' / name}" for name in names
    ]
    (note,) = (line for line in said if line.startswith("note"))
    assert "no ground truth comes with puddle-world:five_corridors" in note


@pytest.mark.integration
def test_agents_see_walls_as_images_and_a_task_has_a_head_and_the_discounts_horizon(
    rlreps, tmp_path
):
    run = tmp_path / "run"
    seen = "--observation image --image-size 16 --encoder convolutional --channels 4 4"
    options = "--per-action --auxiliary-head 8 --no-relative-weight --normalise-features"
    horizon = "--horizon None --discount-low 0.5 --discount-high 0.7 --method danskin-empirical"
    given = words(f"--env puddle-world:two_room {seen} {options} {horizon}")
    rlreps("agent", "train", "--out", run, *TOY, *given)
    folder = RunFolder(run)
    assert folder.config["observation"] == {"name": "image", "size": 16}
    task = folder.config["auxiliary"]
    assert (task["per_action"], task["head"], task["relative"]) == (True, [8], False)
    assert task["horizon"] is None
    assert all(ratio > 0.0 for ratio in folder.read_metrics()[-1]["gradient_ratio"])
    found = json.loads(rlreps("agent", "evaluate", run, "--episodes", "2"))
    assert_evaluation(found, 400, 2, ALWAYS, task="danskin_empirical")


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
    assert "name one to measure against (--store)" in message
    again = json.loads(rlreps("agent", "evaluate", run, "--episodes", "1", "--store", toy_store))
    assert again["measures"]["subspace_distance"]["values"] == pytest.approx(distances, rel=1e-3)


BAD_ARGUMENTS = {
    "--env Pendulum-v1": "expected Pendulum-v1 to have discrete actions, got Box(-2.0, 2.0",
    "--env rlreps/BouncingBalls-v0": "expected observations that are vectors, for the torso mlp;",
    "--capacity 17": "expected a replay capacity of at least 18 rows, a sequence of 9 for each of ",
    "--auxiliary-weight 0": "expected --auxiliary-weight > 0 with --horizon, ",
    "--method spin --per-action": "expected an objective with weights, a head for each action, fo",
    "--auxiliary-rows warmup --capacity 300": "expected a replay capacity >= 400, all steps, to ",
    "--auxiliary-weight -1": "expected auxiliary weight in [0, inf), got -1.0",
    "--auxiliary-weight nan": "expected auxiliary weight in [0, inf), got nan",
    "--method magic": "expected method to be one of danskin_chunked, danskin_empirical, ",
    "--method oracle": "expected method to be one of danskin_chunked, danskin_empirical, danskin_l",
    "--method danskin-lissa --feature-norm population": "expected an auxiliary objective that ",
    "--method spin --sequences 7": "expected rows >= 8, as many as features, for av",
    "--env puddle-world:nowhere": "expected an arena (empty, sutton, hydrogen, two_room, two_room_",
    "--env puddle-world:spiral --goal 0.2 0.5 0.1": "expected the goal's centre to be in the unit ",
    "--env CartPole-v1 --goal 0.2 0.5 0.1": "expected a goal for puddle-world alone, got 'CartPol",
    "--env CartPole-v1 --observation code": "expected a kind of observation for puddle-world alon",
    "--observation code --code-bins 0": "expected bins of codes to be an int >= 1, got 0",
    "--encoder convolutional": "expected observations that are images, for the torso convolutional",
    "--observation image": "expected observations that are vectors, for the torso mlp; images need",
    "--code-bins 3": "expected an option of rlreps agent train, got --code-bins; options of ",
    "--env Nowhere-v0": "expected an environment that can be made, got 'Nowhere-v0': Environment",
    "--env dm_env:nowhere:make": "expected an environment that can be made, got 'dm_env:nowhere:m",
    "--env dm_env:rlreps.envs:none": "expected a function none in rlreps.envs, got 'dm_env:rlrep",
    "--encoder tabular": "expected an option of rlreps agent train, got --hidden; options of ",
    "--steps 300": "expected steps to be a multiple of evaluate_every (200), got 300",
    "--auxiliary-tasks cells": "expected no num_tasks for cells, each of which is a task, got 8",
    "--auxiliary-tasks cells --num-tasks 64": "expected no num_tasks for cells, each of which is ",
    "--auxiliary-tasks cells --length-scale 1": "expected an option of rlreps agent train, got --l",
    "--auxiliary-tasks random-fourier --length-scale 0": "expected a length_scale > 0, got 0.0",
    "--cells-per-axis 3": "expected an option of rlreps agent train, got --cells-per-axis; options",
    "--targets exact": "expected targets to be one of bootstrapped, monte_carlo, got 'exact'",
    "--priority-exponent 0.5": "expected prioritised replay for another priority_exponent, got 0.5",
    "--env CartPole-v1 --store nowhere": "expected no store for CartPole-v1, got nowhere",
    "--store nowhere": "expected a matrix store at ",
}


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS)
def test_agents_that_cannot_be_trained_are_one_line_and_no_folder(refused, tmp_path, arguments):
    run = tmp_path / "run"
    message = refused("agent", "train", "--out", run, *TOY, *arguments.split())
    assert message.startswith(BAD_ARGUMENTS[arguments])
    assert not run.exists()


@pytest.mark.parametrize(
    "arguments", ["--method large_batch", "--horizon=32", "--auxiliary-tasks random-fourier"]
)
def test_options_of_a_task_without_a_weight_are_refused_even_at_their_defaults(
    refused, tmp_path, arguments
):
    run = tmp_path / "run"
    message = refused("agent", "train", "--out", run, *arguments.split())
    flag = re.split("[ =]", arguments)[0]
    assert message == f"expected --auxiliary-weight with {flag}, got none"
    message = refused("agent", "train", "--out", run, "--auxiliary-weight=0", *arguments.split())
    assert message == f"expected --auxiliary-weight > 0 with {flag}, got 0"
    assert not run.exists()


def test_a_store_of_another_arena_is_refused(refused, toy_store, tmp_path):
    arguments = ("--env", "puddle-world:empty", "--store", toy_store)
    message = refused("agent", "train", "--out", tmp_path / "run", *TOY, *arguments)
    assert message.startswith("expected a store of the arena of puddle-world:empty, got {")


def test_a_store_centred_over_tasks_alone_is_refused(refused, toy_store, tmp_path, with_settings):
    with_settings(shutil.copytree(toy_store, tmp_path / "rows"), centred_on_reading="rows")
    arguments = ("--env", "puddle-world:sutton", "--store", tmp_path / "rows")
    message = refused("agent", "train", "--out", tmp_path / "run", *TOY, *arguments)
    assert message == "expected a store that is centred over states (columns or both), got 'rows'"


@pytest.mark.integration
def test_folders_that_do_not_fit_are_refused(refused, puddle_world, tmp_path):
    run = shutil.copytree(puddle_world, tmp_path / "run")
    message = refused("agent", "train", "--out", run, *TOY, "--seed", "3")
    assert message == f"{run} holds another run: expected seed=0, got 3"
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    message = refused("agent", "train", "--out", other, *TOY)
    assert message.startswith("expected a new or empty folder for the run, got ")
    for command in ("evaluate", "render"):
        message = refused("agent", command, tmp_path / "nowhere")
        assert message.startswith("expected a run's config.json, got No such file or directory")
    assert refused("agent", "evaluate", run, "--episodes", "0") == "expected episodes >= 1, got 0"
    for index in ("2", "-1"):
        message = refused("agent", "render", run, "--seed-index", index)
        assert message == f"expected a seed index in [0, 1], got {index}"
    shutil.rmtree(run / "checkpoints")
    for command in ("evaluate", "render"):
        assert refused("agent", command, run).startswith("expected a checkpoint in ")


@pytest.mark.integration
def test_training_that_diverges_is_one_line_and_exit_code_1(capsys, tmp_path):
    plain = TOY[: TOY.index("--auxiliary-weight")]
    wild = words("--env CartPole-v1 --auxiliary-weight 0 --learning-rate 1e30 --quiet")
    with pytest.raises(SystemExit) as ending:
        cli.main(["agent", "train", "--out", str(tmp_path / "run"), *plain, *wild])
    captured = capsys.readouterr()
    assert (ending.value.code, captured.out) == (1, "")
    assert captured.err.startswith("rlreps: error: the losses or parameters of seeds 0, 1 became ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("package", "environment", "remedy"),
    [
        ("rlax", "puddle-world", 'pip install "rlreps[agents]"'),
        ("Box2D", "LunarLander-v3", "pip install"),
        ("ale_py", "ALE/Pong-v5", 'pip install "rlreps[atari]"'),
        ("minatar", "MinAtar/Breakout-v1", 'pip install "rlreps[minatar]"'),
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


def test_every_field_of_a_configuration_is_a_flag_of_its_own(capsys):
    with pytest.raises(SystemExit) as ending:
        cli.main(["agent", "train", "--help"])
    said = capsys.readouterr().out
    assert ending.value.code in (0, None)
    for flag in (
        *("env", "encoder", "hidden", "num-features", "num-envs", "steps", "seed", "num-seeds"),
        *("n-step", "no-double", "discount", "target-every", "freeze-torso", "epsilon-end"),
        *("capacity", "prioritised", "priority-exponent"),
        *("auxiliary-weight", "method", "auxiliary-tasks", "num-tasks", "targets", "horizon"),
        *("no-relative-weight", "auxiliary-head", "per-action", "schedule", "target-rate"),
        *("normalise-features",),
        *("precondition", "discount-low", "sequences", "out", "store", "quiet"),
    ):
        assert re.search(rf"--{flag}[ ,\n]", said), flag
    for prefix in ("--config.", "--dqn.", "--auxiliary.", "--replay."):
        assert prefix not in said
