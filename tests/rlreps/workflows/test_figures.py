import json
import shutil

import matplotlib.figure
import numpy as np
import pytest

from rlreps.encoders import FourierMLP
from rlreps.envs.core import ArenaError
from rlreps.errors import InputError
from rlreps.runs.folder import RunFolder
from rlreps.subspace import RandomizedSVD
from rlreps.successor.store.estimates import open_estimates
from rlreps.successor.stored_subspace import sampling_error
from rlreps.workflows import figures
from rlreps.workflows.train import TrainingConfig, ground_truth_for, run_training

CONFIG = TrainingConfig(
    encoder=FourierMLP(hidden=(16,)),
    num_features=4,
    steps=20,
    rows=40,
    tasks=16,
    num_seeds=2,
    evaluate_every=10,
    checkpoint_every=10,
)


@pytest.fixture(scope="module")
def runs(toy_store, tmp_path_factory):
    """A run and its copy in a folder of the same name."""
    folder = tmp_path_factory.mktemp("figures")
    first, second = folder / "first" / "run", folder / "second" / "run"
    run_training(CONFIG, toy_store, first)
    shutil.copytree(first, second)
    return [first, second]


@pytest.fixture
def asked(monkeypatch):
    """Arguments of every figure that was asked for; none is drawn."""
    calls = []

    def remember(*arguments, **options):
        calls.append((*arguments, options))
        return matplotlib.figure.Figure()

    for name in ("plot_curves", "plot_components"):
        monkeypatch.setattr(figures.plotting, name, remember)
    return calls


def test_runs_are_labelled_by_name_or_by_path_where_names_are_the_same(runs, tmp_path):
    labels = [label for label, _ in figures.labelled([runs[0], tmp_path / "other"])]
    assert labels == ["run", "other"]
    assert figures.labelled(runs) == [(str(run), run) for run in runs]


def test_curves_stand_above_the_noise_floor_of_the_matrix_that_they_share_and_is_at_hand(
    toy_store, runs, tmp_path, asked
):
    def changed(name, part, changes):
        """A copy of the first run whose configuration says something else."""
        copy = shutil.copytree(runs[0], tmp_path / name)
        stored = json.loads((copy / "config.json").read_text())
        stored[part] |= changes
        (copy / "config.json").write_text(json.dumps(stored))
        return copy

    smaller = changed("smaller", "config", {"num_features": 3})
    gone = {"store": str(tmp_path / "gone"), "store_from_run": "gone"}
    for chosen in (runs, [runs[0], smaller], [changed("moved", "provenance", gone)]):
        figures.draw_curves(chosen, tmp_path / "curves.png")
    error = sampling_error(open_estimates(toy_store), RandomizedSVD())
    floors = [options["noise_floor"] for _, options in asked]
    assert floors == [error.noise_floor[CONFIG.num_features - 1], None, None]


def test_aligned_components_are_orthonormal_and_lie_in_the_features_span(toy_store, runs):
    truth = ground_truth_for(toy_store, 4)
    aligned, cosines = figures.aligned_components(RunFolder(runs[0]), truth, 4)
    np.testing.assert_allclose(aligned.T @ aligned, np.eye(4), atol=1e-4)
    assert np.all((cosines >= 0.0) & (cosines <= 1.0 + 1e-5))
    basis = truth.principal.basis[:, :4]
    np.testing.assert_allclose(cosines, np.abs(np.diagonal(aligned.T @ basis)), atol=1e-5)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda store, runs, out: figures.draw_environment(out, "atlantis"), "atlantis"),
        (
            lambda store, runs, out: figures.draw_spectrum(store, out, RandomizedSVD(rank=65)),
            "rank <= 64 .* got 65",
        ),
        (
            lambda store, runs, out: figures.draw_components(store, out, runs, d=5),
            "d <= 4, the features of .*, got 5",
        ),
        (
            lambda store, runs, out: figures.draw_curves([out / "none"], out),
            r"expected a run's config\.json",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_and_leaves_no_file(
    toy_store, runs, tmp_path, draw, message
):
    with pytest.raises((InputError, ArenaError), match=message):
        draw(toy_store, runs, tmp_path / "figure.png")
    assert list(tmp_path.iterdir()) == []
