import dataclasses
import json
import shutil
from pathlib import Path

import jax
import matplotlib.figure
import numpy as np
import pytest

from rlreps.app import plots
from rlreps.app.generation import generate
from rlreps.app.job import run_job
from rlreps.app.jobs.train import Train
from rlreps.app.trained_runs import distance_history, evaluate_run
from rlreps.config import as_json
from rlreps.encoders import Convolutional, FourierMLP, Tabular
from rlreps.envs import arena_settings, load_arena
from rlreps.errors import InputError
from rlreps.losses import Explicit
from rlreps.runs.folder import RunFolder
from rlreps.subspace import RandomizedSVD
from rlreps.successor import save_matrix
from rlreps.successor.measure.methods import MonteCarlo
from rlreps.successor.truth.noise_floor import sampling_error
from rlreps.successor.truth.store import open_estimates, open_store
from rlreps.training import Optimizer
from rlreps.training.config import TrainingConfig
from rlreps.training.on_store import ground_truth_for, stored_problem

CONFIG = TrainingConfig(
    encoder=FourierMLP(hidden=(32,), frequencies=4),
    optimizer=Optimizer(learning_rate=1e-2),
    num_features=3,
    steps=300,
    rows=40,
    tasks=32,
    num_seeds=2,
    seed=5,
    evaluate_every=100,
    checkpoint_every=100,
)


def configured(**changes):
    return dataclasses.replace(CONFIG, **changes)


@pytest.fixture(scope="module")
def finished(toy_store, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return out, run_job(Train(store=toy_store, config=CONFIG), out)


def test_a_run_learns_and_its_files_say_what_it_is_and_did(finished, toy_store):
    out, summary = finished
    expected = {"method": "large_batch", "encoder": "fourier_mlp", "steps": 300, "seeds": [5, 6]}
    assert expected.items() <= summary.items()
    assert json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail) == summary
    steps, distances = distance_history(RunFolder(out))
    np.testing.assert_array_equal(steps, [0, 100, 200, 300])
    assert distances.shape == (2, 4)
    assert np.all(distances[:, -1] < distances[:, 0])
    assert np.mean(distances[:, -1]) < 0.4 < 0.7 < np.mean(distances[:, 0])
    assert summary["subspace_distance"] == pytest.approx(np.mean(distances[:, -1]), rel=1e-4)
    assert 0.0 < summary["relative_excess_loss"] < 1.0
    stored = json.loads((out / "config.json").read_text())
    matrix = {"checksum": open_store(toy_store).content_key(), "states": 64, "tasks": 64}
    assert stored["kind"] == "train"
    assert stored["config"] == {"matrix": matrix, **as_json(CONFIG)}
    assert {"packages", "git_revision", "device"} <= stored["provenance"].keys()
    # Evaluating a finished run gives the figures of its summary.
    figures = evaluate_run(out)
    assert figures["step"] == 300
    assert figures["store"] == str(toy_store)
    for name in ("subspace_distance", "representation_loss", "longest_eigenvector_streak"):
        assert figures[name] == pytest.approx(summary[name], rel=1e-4), name


def test_curves_stand_above_the_noise_floor_of_their_matrix(
    finished, toy_store, tmp_path, monkeypatch
):
    drawn = {}

    def remember(*lines, **options):
        drawn.update(options)
        return matplotlib.figure.Figure()

    monkeypatch.setattr(plots.plotting, "plot_curves", remember)
    plots.draw_curves([finished[0]], tmp_path / "curves.png")
    error = sampling_error(open_estimates(toy_store), RandomizedSVD())
    assert drawn["noise_floor"] == error.noise_floor[CONFIG.num_features - 1]


def test_a_finished_run_returns_its_summary_without_computing_anything(
    finished, toy_store, files_below
):
    out, summary = finished
    before, job = files_below(out), Train(store=toy_store, config=CONFIG)
    assert run_job(job, out) == summary
    assert "learner" not in vars(job)
    assert files_below(out) == before


SHORT = configured(steps=2, evaluate_every=2, checkpoint_every=2)


def test_a_run_finds_its_store_from_anywhere_until_it_is_another(
    toy_store, tmp_path, monkeypatch, files_below
):
    before, after = tmp_path / "before", tmp_path / "after"
    shutil.copytree(toy_store, before / "store")
    monkeypatch.chdir(before)
    run_job(Train(store=Path("store"), config=SHORT), Path("runs/one"))
    monkeypatch.chdir(tmp_path)
    before.rename(after)
    run, store = after / "runs" / "one", after / "store"
    assert evaluate_run(run)["store"] == str(store)
    # Its first block with the rows in reverse.
    matrix = open_store(store)
    matrix.write_block(0, np.ascontiguousarray(matrix.read_block(0)[::-1]))
    files = files_below(run)
    with pytest.raises(InputError, match=r"holds another run: expected matrix.checksum='"):
        run_job(Train(store=store, config=SHORT), run)
    with pytest.raises(
        InputError, match=r"expected the matrix that .* was trained on, got another"
    ):
        evaluate_run(run)
    assert files_below(run) == files
    assert evaluate_run(run, store)["store"] == str(store)


def test_input_that_cannot_be_used_leaves_no_run_behind(toy_store, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise InputError("expected another batch, got this one")

    monkeypatch.setattr(type(CONFIG.objective), "loss", refuse)
    for changes, message in (
        ({"num_features": 64}, "expected d < 64, the number of states .*, got 64"),
        ({}, "expected another batch"),
    ):
        with pytest.raises(InputError, match=message):
            run_job(Train(store=toy_store, config=configured(**changes)), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.integration
def test_states_anywhere_in_the_square_are_drawn_and_measured_at_the_centres(
    finished, toy_store, tmp_path
):
    _, at_centres = finished
    config = configured(states="uniform")
    summary = run_job(Train(store=toy_store, config=config), tmp_path / "run")
    assert summary["subspace_distance"] < 0.45
    assert summary["subspace_distance"] != at_centres["subspace_distance"]
    truth = ground_truth_for(toy_store, 3)
    problem = stored_problem(config, open_store(toy_store), truth)
    inputs = problem.source.sample(jax.random.key(0), 500, 1).inputs
    assert problem.target[1] is truth.coordinates
    offsets = np.asarray(inputs) * 8 % 1.0
    assert offsets.min() < 0.02 < 0.98 < offsets.max()


def test_states_that_are_nowhere_and_cells_of_a_table_are_refused(toy_store):
    truth = ground_truth_for(toy_store, 3)
    walls = {"environment": arena_settings(load_arena("two_room"))}
    walled = dataclasses.replace(truth, settings={**truth.settings, **walls})
    with pytest.raises(InputError, match=r"expected cells without walls .*, got 'walls'"):
        stored_problem(configured(states="uniform"), open_store(toy_store), walled)
    with pytest.raises(InputError, match=r"an encoder of positions .* got 'tabular'"):
        configured(states="uniform", encoder=Tabular())


@pytest.mark.integration
def test_a_run_can_be_measured_on_another_grid_unless_its_features_are_a_table(toy_store, tmp_path):
    coarse = MonteCarlo(bins=6, rollouts=20, horizon=40, block_rows=36)
    generate(coarse, tmp_path / "store")
    for encoder in (FourierMLP(hidden=(16,)), Tabular()):
        config = dataclasses.replace(SHORT, encoder=encoder, objective=Explicit())
        run_job(Train(store=toy_store, config=config), tmp_path / encoder.name)
    figures = evaluate_run(tmp_path / "fourier_mlp", tmp_path / "store")
    assert 0.0 < figures["subspace_distance"] < 1.0
    with pytest.raises(InputError, match="over the 64 states of the tabular encoder, got 36"):
        evaluate_run(tmp_path / "tabular", tmp_path / "store")


def test_images_whose_channels_come_first_are_refused(tmp_path):
    frames = np.zeros((6, 3, 8, 8), np.uint8)
    save_matrix(tmp_path / "store", np.eye(6, dtype=np.float32), observations=frames)
    config = TrainingConfig(encoder=Convolutional(), num_features=2)
    with pytest.raises(InputError, match=r"expected images \[height, width, channels\]"):
        run_job(Train(store=tmp_path / "store", config=config), tmp_path / "run")
    assert not (tmp_path / "run").exists()
