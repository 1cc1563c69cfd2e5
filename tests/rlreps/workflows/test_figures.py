import dataclasses
import shutil

import numpy as np
import pytest
from PIL import Image

from rlreps.encoders import FourierMLP
from rlreps.envs.core import ArenaError
from rlreps.errors import InputError
from rlreps.runs.folder import RunFolder
from rlreps.subspace import RandomizedSVD
from rlreps.successor.ground_truth import sampling_error
from rlreps.successor.store.estimates import open_estimates
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
def runs(toy_store, compilation_cache, tmp_path_factory):
    """Two runs whose folders have the same name."""
    folder = tmp_path_factory.mktemp("figures")
    paths = []
    for name, seed in {"first": 0, "second": 7}.items():
        path = folder / name / "run"
        config = dataclasses.replace(CONFIG, seed=seed)
        run_training(config, toy_store, path, progress=False)
        paths.append(path)
    return paths


def assert_is_a_picture(path):
    with Image.open(path) as picture:
        picture.load()
        assert picture.format == "PNG"
        assert min(picture.size) > 100
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10


def test_every_figure_is_drawn(toy_store, runs, tmp_path):
    drawn = [
        figures.draw_environment("sutton", tmp_path / "environment.png"),
        figures.draw_environment("two_room", tmp_path / "cells.png", bins=10),
        figures.draw_spectrum(toy_store, RandomizedSVD(rank=20), tmp_path / "spectrum.png"),
        figures.draw_components(toy_store, (), tmp_path / "true.png", d=3),
        figures.draw_components(toy_store, runs, tmp_path / "deep" / "components.png", d=4),
        figures.draw_curves(runs, tmp_path / "curves.png"),
    ]
    for path in drawn:
        assert_is_a_picture(path)
    assert len({path.read_bytes() for path in drawn}) == len(drawn)


@pytest.mark.parametrize("suffix", [".svg", ".pdf"])
def test_vector_formats_are_drawn_too(runs, tmp_path, suffix):
    path = figures.draw_curves(runs, tmp_path / f"curves{suffix}")
    assert path.read_bytes().startswith((b"<?xml", b"%PDF"))


def test_runs_are_labelled_by_name_or_by_path_where_names_are_the_same(runs, tmp_path, monkeypatch):
    other = shutil.copytree(runs[0], tmp_path / "other")
    labels = []

    def remember(curves, **options):
        labels.append([curve.label for curve in curves])
        raise InputError("enough")

    monkeypatch.setattr(figures.plotting, "plot_curves", remember)
    for chosen in ([runs[0], other], runs):
        with pytest.raises(InputError, match="enough"):
            figures.draw_curves(chosen, tmp_path / "curves.png")
    assert labels == [
        ["run (2 seeds)", "other (2 seeds)"],
        [f"{run} (2 seeds)" for run in runs],
    ]


def test_both_runs_of_the_same_name_get_their_own_row(toy_store, runs, tmp_path, monkeypatch):
    rows = []

    def remember(components, **options):
        rows.append((list(components), list(options["cosines"])))
        raise InputError("enough")

    monkeypatch.setattr(figures.plotting, "plot_components", remember)
    with pytest.raises(InputError, match="enough"):
        figures.draw_components(toy_store, runs, tmp_path / "components.png", d=4)
    names = [str(run) for run in runs]
    assert rows == [(["ground truth", *names], names)]


def drawn_noise_floors(monkeypatch, runs, out):
    """The noise floors that a figure of the runs' curves was asked to show."""
    floors = []
    draw = figures.plotting.plot_curves

    def noting(*args, noise_floor, **kwargs):
        floors.append(noise_floor)
        return draw(*args, noise_floor=noise_floor, **kwargs)

    monkeypatch.setattr(figures.plotting, "plot_curves", noting)
    figures.draw_curves(runs, out)
    return floors


def test_curves_stand_above_the_noise_floor_of_the_matrix_they_share(
    toy_store, runs, tmp_path, monkeypatch
):
    error = sampling_error(open_estimates(toy_store), RandomizedSVD())
    expected = error.noise_floor[CONFIG.num_features - 1]
    assert drawn_noise_floors(monkeypatch, runs, tmp_path / "curves.png") == [expected]


def test_curves_without_a_common_matrix_at_hand_have_no_noise_floor(
    toy_store, runs, tmp_path, monkeypatch
):
    other = tmp_path / "other"
    run_training(dataclasses.replace(CONFIG, num_features=3), toy_store, other, progress=False)
    assert drawn_noise_floors(monkeypatch, [runs[0], other], tmp_path / "a.png") == [None]
    moved = tmp_path / "moved"
    store = shutil.copytree(toy_store, tmp_path / "psi")
    run_training(CONFIG, store, moved, progress=False)
    shutil.rmtree(store)
    assert drawn_noise_floors(monkeypatch, [moved], tmp_path / "b.png") == [None]


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
        (lambda store, runs, out: figures.draw_environment("atlantis", out), "atlantis"),
        (
            lambda store, runs, out: figures.draw_environment("sutton", out.with_suffix(".bmp")),
            r"\.png, \.svg, \.pdf, got",
        ),
        (
            lambda store, runs, out: figures.draw_spectrum(store, RandomizedSVD(rank=65), out),
            "rank <= 64 .* got 65",
        ),
        (lambda store, runs, out: figures.draw_components(store, (), out, d=0), "d >= 1, got 0"),
        (lambda store, runs, out: figures.draw_components(store, (), out, d=64), "d < 64.*got 64"),
        (
            lambda store, runs, out: figures.draw_components(store, runs, out, d=5),
            "d <= 4, the features of .*, got 5",
        ),
        (
            lambda store, runs, out: figures.draw_components(store, [store], out),
            r"expected a run's config\.json",
        ),
        (lambda store, runs, out: figures.draw_curves([], out), r"at least one training run, got"),
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
