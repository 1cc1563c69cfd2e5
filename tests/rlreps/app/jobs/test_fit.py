"""Successor features from the command line: files, environments, measures and pictures."""

import html
import json

import numpy as np
import pytest

from rlreps.app.job import run_job
from rlreps.app.jobs.fit import Collection, FitData, read_data
from rlreps.app.main import parse_command
from rlreps.encoders import Convolutional, FourierMLP
from rlreps.envs import Image, load_arena
from rlreps.errors import FitWarning, InputError
from rlreps.runs.folder import RunFolder
from rlreps.successor import SuccessorRepresentation, fit, load_ground_truth
from rlreps.successor.fitting.config import FitConfig
from rlreps.training import Optimizer

words = str.split
OPTIONS = words(
    "--num-features 4 --steps 20 --rows 32 --encoder fourier_mlp --hidden 16 --frequencies 2 "
    "--behaviour uniform --quiet"
)


@pytest.fixture
def file(tmp_path):
    """A file of vectors in two episodes."""
    rng = np.random.default_rng(0)
    states = rng.uniform(size=(60, 2)).astype(np.float32)
    terminals = np.isin(np.arange(60), (29, 59))
    path = tmp_path / "data.npz"
    actions = rng.integers(3, size=60)
    others = {"infos": np.array([{}], object)}
    np.savez(path, observations=states, actions=actions, terminals=terminals, **others)
    return path


def test_the_quality_of_a_fit_is_printed_kept_and_drawn(rlreps, file, tmp_path):
    run = tmp_path / "run"
    said = rlreps("fit", file, "--out", run, "--num-features", 4, "--discount", 0.8).splitlines()
    # 58 rows of noise; other entries may hold objects.
    assert "observations: numbers of shape (2,)" in said
    assert any(line.startswith("warning: 1 of 60 rows end an episode, and") for line in said)
    assert any(line.startswith("warning: too few rows for the states") for line in said)
    quality = SuccessorRepresentation.load(run).quality
    assert [line for line in said if line in quality.lines()] == quality.lines()
    shown = json.loads(rlreps("evaluate", run))
    assert shown["quality"]["r_squared"] == quality.r_squared
    assert shown["warnings"] == quality.warnings()
    page = (run / "report.html").read_text(encoding="utf-8")
    assert html.escape(quality.warnings()[0]) in page
    assert (run / "figures" / "quality.png").stat().st_size > 1000
    figure = tmp_path / "coverage.png"
    rlreps("plot", "coverage", run, "--out", figure)
    assert figure.stat().st_size > 1000
    few = tmp_path / "few.npz"
    with np.load(file) as arrays:
        names = ("observations", "actions", "terminals")
        np.savez(few, **{name: arrays[name][:40] for name in names})
    rlreps("fit", few, "--out", tmp_path / "few", "--num-features", 2)
    assert json.loads(rlreps("evaluate", tmp_path / "few"))["quality"] is None
    older = RunFolder(tmp_path / "few")
    summary = older.read_summary()
    older.write_summary(
        {name: summary[name] for name in summary if name not in ("notes", "report")}
    )
    assert "quality: unknown" in rlreps("fit", few, "--out", tmp_path / "few", "--num-features", 2)


def test_every_warning_of_a_fit_is_printed_once(rlreps, tmp_path):
    rng, rows = np.random.default_rng(0), np.arange(1_500)
    actions, walk = rng.integers(2, size=1_500), np.zeros(1_500)
    for t in rows[1:]:
        walk[t] = 0.9 * walk[t - 1] + (2 * actions[t - 1] - 1) + rng.normal()
    states = np.column_stack([walk, rng.normal(size=1_500)]).astype(np.float32)
    ends = {"terminals": rows < 0, "timeouts": rows % 50 == 49}
    arrays = {"observations": states, "actions": actions, **ends}
    np.savez(tmp_path / "data.npz", **arrays)
    given = words("--num-features 2 --method least_squares --max-features 20 --discount 0.5")
    said = rlreps("fit", tmp_path / "data.npz", *given, "--out", tmp_path / "run").splitlines()
    warned = [line for line in said if line.startswith("warning: ")]
    assert any("coordinates of the observations are noise" in line for line in warned)
    with pytest.warns(FitWarning) as shown:
        fit(arrays, num_features=2, method="least_squares", max_features=20, discount=0.5)
    assert sorted(warned) == sorted(f"warning: {each.message}" for each in shown)


@pytest.mark.integration
def test_a_fit_to_what_agents_see_is_measured_at_what_they_see_and_drawn(
    rlreps, refused, toy_store, tmp_path
):
    run = tmp_path / "run"
    given = words(
        "fit puddle-world --collect 128 --observation image --image-size 8 --num-features 4 "
        "--steps 20 --rows 32 --behaviour uniform --encoder mlp --hidden 8 --quiet"
    )
    said = rlreps(*given, "--out", run)
    assert RunFolder(run).read_summary()["rows"] == 128
    assert rlreps(*given, "--out", run) == said
    assert RunFolder(run).provenance["observation"] == {"name": "image", "size": 8, "bins": None}
    measured = json.loads(rlreps("evaluate", run, "--store", toy_store))
    assert (measured["method"], measured["d"]) == ("temporal_differences", 3)
    seen = load_ground_truth(toy_store).seen_as(Image(size=8))
    pictures = seen.observations
    assert (pictures.shape, pictures.dtype.name) == ((64, 8, 8, 3), "uint8")
    world = load_arena("sutton", observation=Image(size=8))
    for i in (0, 63):
        expected = world.observe_position(seen.coordinates[i])
        np.testing.assert_array_equal(pictures[i], expected)
    distance = SuccessorRepresentation.load(run).distance(seen)
    assert measured["subspace_distance"] == pytest.approx(distance, abs=1e-5)
    out, page = tmp_path / "components.png", tmp_path / "page.html"
    rlreps("plot", "components", toy_store, "--runs", run, "--d", "3", "--out", out)
    rlreps("explore", toy_store, run, "--out", page, "--components", 3, "--quiet")
    assert min(path.stat().st_size for path in (out, page)) > 1000
    message = refused(*given, "--seed", 1, "--out", run)
    assert "holds another run: expected seed=0, got 1" in message


def test_what_cannot_be_fitted_is_refused(refused, file, tmp_path):
    out = ["--out", tmp_path / "run"]
    broken = tmp_path / "broken.npz"
    broken.write_text("nothing")
    short = tmp_path / "short.npz"
    short.write_bytes(file.read_bytes()[:1000])
    many = tmp_path / "many.npz"
    with np.load(file) as arrays:
        names = ("observations", "actions", "terminals")
        np.savez(many, **{name: arrays[name] for name in names}, num_actions=4_000)
    single, objects = tmp_path / "single.npz", tmp_path / "objects.npz"
    with open(single, "wb") as stream:
        np.save(stream, np.zeros(3))
    np.savez(objects, observations=np.array([{}] * 3), actions=np.zeros(3), terminals=np.zeros(3))
    for arguments, expected in {
        (file, "--collect", 10): "expected no --collect with a file, got 10",
        ("CartPole-v1",): "or --collect with an environment, got 'CartPole-v1'",
        (broken,): "expected a file of arrays",
        (short,): "expected a file of arrays",
        (tmp_path / "no.npz",): "expected a file of arrays, got",
        (single,): "expected an .npz file, got 'an .npy file under this name'",
        (objects,): "Object arrays cannot be loaded",
        ("dm_env:builtins:list", "--collect", 10): "to make a dm_env.Environment",
        (
            "CartPole-v1",
            "--collect",
            10,
            "--environment-seed",
            -1,
        ): "environment_seed in [0, 2**31)",
        ("CartPole-v1", "--collect", 10**9): "collect <= 100,000,000, got 1000000000",
        (file, "--encoder", "tabular"): "expected an option",
        (file, "--observation", "code"): "no observation but with puddle-world[:ARENA], got Code(",
        (file, "--num-features", 1_000_000): "num_features <= 4,096, got 1000000",
        (file, "--rows", 2**31 - 1): "observations in an update (rows) in",
        (many, "--num-features", 4_000): "features of all actions in",
    }.items():
        assert expected in refused("fit", *OPTIONS, *out, *arguments)


def test_an_encoder_that_is_not_named_is_that_of_the_data():
    given = words("fit data.npz --out run")
    assert parse_command(given).config.encoder is None
    assert parse_command(given).config.optimizer is None
    faster = parse_command([*given, "--learning-rate", "0.01"]).config
    assert faster.optimizer == Optimizer(learning_rate=0.01)
    images = parse_command([*given, *words("--encoder convolutional --kernel-size 2")])
    assert images.config.encoder == Convolutional(kernel_size=2)
    with pytest.raises(InputError, match="got --kernel-size"):
        parse_command([*given, "--kernel-size", "2"])


def test_an_environment_of_dm_env_is_collected_from():
    data = read_data("dm_env:rlreps.envs:TwoRoomDmEnv", Collection(collect=20))
    assert (data.observation.shape, data.num_actions) == ((20, 2), 4)
    again = read_data("dm_env:rlreps.envs:TwoRoomDmEnv", Collection(collect=20))
    other = read_data("dm_env:rlreps.envs:TwoRoomDmEnv", Collection(collect=20, environment_seed=1))
    np.testing.assert_array_equal(data.next_observation, again.next_observation)
    assert (data.observation[0] != other.observation[0]).all()


@pytest.mark.integration
def test_an_interrupted_fit_ends_as_an_uninterrupted_one(
    killed_when_logging, assert_same_metrics, tmp_path
):
    config = FitConfig(
        num_features=3,
        encoder=FourierMLP(hidden=(8,), frequencies=1),
        steps=100,
        rows=16,
        behaviour="uniform",
    )
    job = FitData(data="puddle-world", config=config, collection=Collection(collect=128))
    killed_when_logging(60, run_job, job, tmp_path / "killed")
    for name in ("killed", "whole"):
        run_job(job, tmp_path / name)
    assert_same_metrics(tmp_path / "killed", tmp_path / "whole")
    one, other = (SuccessorRepresentation.load(tmp_path / name) for name in ("killed", "whole"))
    seen = np.random.default_rng(0).uniform(size=(5, 2))
    np.testing.assert_array_equal(one.features(seen), other.features(seen))
    assert RunFolder(tmp_path / "whole").provenance["source"] == "puddle-world"
