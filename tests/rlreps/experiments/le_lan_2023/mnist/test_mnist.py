import csv
import dataclasses
import json
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from rlreps.errors import InputError
from rlreps.experiments.le_lan_2023.mnist import run as run_module
from rlreps.experiments.le_lan_2023.mnist.config import (
    PRESETS,
    DanskinConfig,
    EigenGameConfig,
    MnistConfig,
)
from rlreps.experiments.le_lan_2023.mnist.problem import (
    ImageSource,
    evaluation,
    make_problem,
    orthonormal,
    reconstruction_errors,
)
from rlreps.experiments.le_lan_2023.mnist.report import compare_with_paper
from rlreps.experiments.le_lan_2023.mnist.run import run_mnist
from rlreps.runs.folder import RunFolder
from rlreps.sources.images import TEST_IMAGES, TRAIN_IMAGES, Images, load_images, write_idx_images
from rlreps.sources.matrix import matrix_source

DIGITS = (load_digits().images * (255 / 16)).astype(np.uint8)
METHODS = ["danskin-lissa-4", "danskin-lissa-8", "eigengame"]
FIGURES = ["components", "curves", "curves_by_entries", "reconstructions"]
SHORT = dataclasses.replace(
    PRESETS["smoke"],
    danskin=dataclasses.replace(PRESETS["smoke"].danskin, steps=200),
    eigengame=dataclasses.replace(PRESETS["smoke"].eigengame, steps=100),
    evaluations=20,
)

pytestmark = pytest.mark.usefixtures("compilation_cache")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    write_idx_images(folder / f"{TRAIN_IMAGES}.gz", DIGITS[:1500])
    write_idx_images(folder / TEST_IMAGES, DIGITS[1500:])
    return folder


@pytest.fixture(scope="module")
def problem(data_dir):
    return make_problem(load_images(data_dir), 8)


@pytest.fixture(scope="module")
def finished(compilation_cache, data_dir, tmp_path_factory):
    out = tmp_path_factory.mktemp("mnist") / "run"
    return out, run_mnist(PRESETS["smoke"], out, data_dir=data_dir, progress=False)


def test_exact_components_and_errors_are_those_of_scikit_learn(data_dir, problem):
    images = load_images(data_dir)
    exact = PCA(8, svd_solver="full").fit(images.train.astype(np.float64))
    cosines = np.abs(np.sum(exact.components_.T * problem.basis, axis=0))
    np.testing.assert_allclose(cosines, 1.0, atol=1e-8)
    test = images.test.astype(np.float64)
    residuals = test - exact.inverse_transform(exact.transform(test))
    np.testing.assert_allclose(problem.test_errors, np.sum(residuals**2, axis=1), rtol=1e-5)
    train = images.train.astype(np.float64)
    left = train - exact.inverse_transform(exact.transform(train))
    assert problem.train_error == pytest.approx(np.mean(np.sum(left**2, axis=1)), rel=1e-6)


def test_the_figures_followed_during_a_run_are_those_of_the_images_themselves(problem):
    features = jax.random.normal(jax.random.key(0), (64, 8))
    followed = evaluation(problem)(features)
    q, _ = np.linalg.qr(np.asarray(features, np.float64))
    error = np.mean(np.sum((problem.test - problem.test @ q @ q.T) ** 2, axis=1))
    ratio = float(followed["test_error_ratio"])
    assert ratio == pytest.approx(error / problem.test_error, rel=1e-5)
    missed = problem.basis - q @ (q.T @ problem.basis)
    distance = float(followed["subspace_distance"])
    assert distance == pytest.approx(np.sum(missed**2) / 8, rel=1e-4)
    exact = evaluation(problem)(jnp.asarray(problem.basis, jnp.float32))
    assert float(exact["test_error_ratio"]) == pytest.approx(1.0, rel=1e-5)


def test_a_run_that_was_reset_counts_with_the_error_of_no_components(problem):
    basis = orthonormal(jnp.zeros((64, 8)))
    total = np.sum(problem.test.astype(np.float64) ** 2, axis=1)
    np.testing.assert_allclose(reconstruction_errors(problem.test, basis), total)
    features = jax.random.normal(jax.random.key(1), (64, 8))
    np.testing.assert_allclose(
        orthonormal(features).T @ orthonormal(features), np.eye(8), atol=1e-12
    )


def test_the_transposed_matrix_gives_the_batches_of_the_matrix():
    matrix = jax.random.normal(jax.random.key(0), (30, 40))
    source, other = ImageSource(matrix.T), matrix_source(matrix)
    assert source.num_tasks == other.num_tasks == 40
    mine, expected = (each.sample(jax.random.key(1), 7, 5) for each in (source, other))
    np.testing.assert_array_equal(mine.inputs, expected.inputs)
    np.testing.assert_array_equal(mine.targets, expected.targets)
    np.testing.assert_array_equal(mine.tasks, expected.tasks)
    images = source.whole_images(jax.random.key(2), 6)
    assert images.shape == (6, 30)
    assert all(any(np.array_equal(row, column) for column in matrix.T) for row in images)


def test_the_smoke_preset_learns_and_says_so_as_valid_json(finished, problem):
    out, summary = finished
    stored = json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail)
    assert stored == summary
    assert list(summary["methods"]) == METHODS
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 3
    assert summary["exact"]["test_error"] == problem.test_error
    for name, figures in summary["methods"].items():
        records = RunFolder(out / "runs" / name).read_metrics()
        first, last = (np.mean(records[index]["subspace_distance"]) for index in (0, -1))
        assert last < 0.5 * first, name
        assert figures["subspace_distance"]["mean"] == pytest.approx(last, rel=1e-3)
        assert figures["test_error_ratio"]["mean"] == pytest.approx(
            np.mean(records[-1]["test_error_ratio"]), rel=1e-4
        )
        ratios = figures["per_seed"]["test_error_ratio"]
        assert len(ratios) == figures["runs"] == 2
        assert figures["test_error_ratio"]["mean"] == pytest.approx(np.mean(ratios))
        assert figures["diverged"] == 0
        assert json.loads((out / "runs" / name / "summary.json").read_text()) == figures
    assert summary["methods"]["eigengame"]["subspace_distance"]["mean"] < 0.01
    assert summary["methods"]["danskin-lissa-8"]["entries_read"] == 4000 * 40 * 32
    danskin = [summary["methods"][name]["test_error"]["mean"] for name in METHODS[:2]]
    assert summary["best"]["test_error"] == min(danskin)
    assert summary["best"]["method"] == METHODS[int(np.argmin(danskin))]


def test_every_figure_has_its_numbers_beside_it(finished):
    out, summary = finished
    assert sorted(file.stem for file in (out / "figures").iterdir()) == FIGURES
    for name in [*FIGURES, "test_errors"]:
        rows = json.loads((out / "results" / f"{name}.json").read_text())
        with (out / "results" / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows) > 0
        if name in FIGURES:
            with Image.open(out / "figures" / f"{name}.png") as picture:
                picture.load()
                assert min(picture.size) > 300
    curves = json.loads((out / "results" / "curves.json").read_text())
    assert len(curves) == 3 * 11 * 2
    ends = {row["method"]: row["entries_read"] for row in curves}
    assert ends == {name: summary["methods"][name]["entries_read"] for name in METHODS}
    errors = json.loads((out / "results" / "test_errors.json").read_text())
    assert [row["method"] for row in errors] == ["exact", *METHODS]
    assert errors[3]["test_error"] == summary["methods"]["eigengame"]["test_error"]["mean"]


def test_the_numbers_of_the_reconstructions_are_the_errors_of_the_images_shown(finished, problem):
    out, _ = finished
    rows = json.loads((out / "results" / "reconstructions.json").read_text())
    exact = [row["squared_error"] for row in rows if row["components"] == "exact PCA"]
    np.testing.assert_allclose(exact, problem.test_errors[:6], rtol=1e-6)


def test_the_report_holds_the_claims_and_needs_nothing_but_itself(finished):
    out, summary = finished
    page = (out / "report.html").read_text(encoding="utf-8")
    assert len(re.findall(r'src="data:image/png;base64,', page)) == len(FIGURES)
    assert not re.search(r'(href|src)="(https?:|//|\./|/)', page)
    for text in ("what the paper states", "21.46", "21.53", "1.0033"):
        assert text in page
    assert page.count("cannot be told from this run") == 3
    assert f"{summary['best']['test_error_ratio']:.4f}" in page
    assert "danskin.learning_rates" in page


def test_a_finished_run_does_nothing_when_it_is_started_again(
    finished, data_dir, monkeypatch, files_below
):
    out, summary = finished
    before = files_below(out)
    for name in ("train_population", "fit_stream", "write_mnist_report", "make_problem"):
        monkeypatch.setattr(run_module, name, None)
    assert run_mnist(PRESETS["smoke"], out, data_dir=data_dir, progress=False) == summary
    assert files_below(out) == before


class Killed(BaseException):
    pass


@pytest.mark.slow
def test_an_experiment_killed_in_each_of_its_runs_ends_as_one_that_was_not(
    compilation_cache, data_dir, tmp_path, monkeypatch
):
    whole = run_mnist(SHORT, tmp_path / "whole", data_dir=data_dir, progress=False)
    append = RunFolder.append_metrics
    for name, step in (("danskin-lissa-4", 150), ("danskin-lissa-8", 150), ("eigengame", 75)):

        def die(self, record, name=name, step=step):
            append(self, record)
            if self.path.name == name and record["step"] == step:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "append_metrics", die)
            with pytest.raises(Killed):
                run_mnist(SHORT, tmp_path / "killed", data_dir=data_dir, progress=False)
        assert not (tmp_path / "killed" / "summary.json").exists()
    resumed = run_mnist(SHORT, tmp_path / "killed", data_dir=data_dir, progress=False)
    assert resumed["best"] == whole["best"]
    for name in METHODS:
        assert resumed["methods"][name]["per_seed"] == whole["methods"][name]["per_seed"]
    for name in ("reconstructions", "components"):
        files = [tmp_path / run / "results" / f"{name}.csv" for run in ("whole", "killed")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_another_configuration_or_other_images_are_refused_in_the_same_folder(
    finished, data_dir, tmp_path, files_below
):
    out, _ = finished
    before = files_below(out)
    other = dataclasses.replace(PRESETS["smoke"], num_seeds=3)
    with pytest.raises(InputError, match="expected num_seeds=2, got 3"):
        run_mnist(other, out, data_dir=data_dir, progress=False)
    write_idx_images(tmp_path / TRAIN_IMAGES, DIGITS[:1499])
    write_idx_images(tmp_path / TEST_IMAGES, DIGITS[1500:])
    with pytest.raises(InputError, match=r"expected data\.checksum"):
        run_mnist(PRESETS["smoke"], out, data_dir=tmp_path, progress=False)
    assert files_below(out) == before


@pytest.mark.parametrize(
    ("components", "message"),
    [
        (65, "expected num_components <= 64, the pixels of an image, got 65"),
        (64, "expected a rank of at most 6[0-3], the numerical rank of the .*, got 64"),
    ],
)
def test_more_components_than_the_images_have_leave_nothing_behind(
    data_dir, tmp_path, components, message
):
    config = dataclasses.replace(SHORT, num_components=components)
    with pytest.raises(InputError, match=message):
        run_mnist(config, tmp_path / "run", data_dir=data_dir, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_bad_images_leave_nothing_behind(tmp_path):
    with pytest.raises(InputError, match="--data-dir"):
        run_mnist(SHORT, tmp_path / "run", data_dir=tmp_path, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_the_papers_numbers_are_compared_with_runs_of_the_papers_task_and_settings_alone():
    images = np.zeros((60_000, 784), np.float32)
    images[:, :20] = np.random.default_rng(0).uniform(size=(60_000, 20))
    problem = make_problem(Images(images, images[:10], (28, 28)), 16)

    def holds(exact, learned, config):
        best = {"method": "m", "test_error": learned, "test_error_ratio": learned / exact}
        found = {"exact": {"test_error": exact, "train_error": 20.0}, "best": best}
        return [claim.holds for claim in compare_with_paper(config, problem, found)]

    assert holds(21.46, 21.53, MnistConfig()) == [True, True, True]
    assert holds(21.06, 21.53, MnistConfig()) == [False, True, False]
    assert holds(21.06, 21.10, MnistConfig()) == [False, False, True]
    assert holds(21.46, 21.53, MnistConfig(num_components=8)) == [None, None, None]
    # Exact components are the same whatever was trained; learned ones are those of other settings.
    assert holds(21.46, 21.53, PRESETS["laptop"]) == [True, None, None]
    shorter = MnistConfig(danskin=DanskinConfig(steps=100))
    assert holds(21.06, 21.53, shorter) == [False, None, None]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DanskinConfig(pixels=()), "at least one number of pixels, each once"),
        (lambda: DanskinConfig(pixels=(8, 8), learning_rates=(0.1, 0.1)), "each once"),
        (lambda: DanskinConfig(pixels=(0,), learning_rates=(0.1,)), "pixels >= 1, got 0"),
        (lambda: DanskinConfig(learning_rates=(0.1,)), "a learning rate for each of the 3"),
        (lambda: DanskinConfig(learning_rates=(0.1, 0.1, -1.0)), "finite learning_rates > 0"),
        (lambda: DanskinConfig(kappa0=2.0), "kappa0 strictly between 0 and 2, got 2.0"),
        (lambda: DanskinConfig(schedule="steps"), "schedule to be one of constant, cosine"),
        (lambda: EigenGameConfig(learning_rate=float("nan")), "finite learning_rate > 0, got nan"),
        (lambda: EigenGameConfig(images=0), "images >= 1, got 0"),
        (lambda: MnistConfig(num_components=0), "num_components >= 1, got 0"),
        (lambda: MnistConfig(evaluations=7), r"danskin.steps to be a multiple of .* \(7\)"),
        (lambda: MnistConfig(seed=-1), r"seed in \[0, 2\*\*31\), got -1"),
    ],
)
def test_settings_without_meaning_are_refused(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_the_paper_preset_is_the_papers_protocol():
    danskin = PRESETS["paper"].danskin
    assert dict(zip(danskin.pixels, danskin.learning_rates, strict=True)) == {
        32: 0.01,
        64: 0.005,
        128: 0.005,
    }
    assert (danskin.steps, danskin.images, danskin.kappa0) == (2_500_000, 1, 1.9)
    assert (danskin.schedule, danskin.feature_norm) == ("constant", "batch")
    assert (danskin.permutations, danskin.whitening) == (1, False)
    assert {PRESETS[name].num_components for name in ("laptop", "paper")} == {16}


def test_the_papers_own_settings_learn_too_without_our_options(data_dir, tmp_path):
    config = MnistConfig(
        num_components=4,
        danskin=DanskinConfig(pixels=(12,), learning_rates=(0.01,), steps=1500),
        eigengame=EigenGameConfig(steps=50, images=64),
        num_seeds=1,
        evaluations=5,
        shown_images=2,
    )
    run_mnist(config, tmp_path / "run", data_dir=data_dir, progress=False)
    rows = csv.DictReader((tmp_path / "run" / "results" / "curves.csv").read_text().splitlines())
    distances = [float(row["subspace_distance"]) for row in rows if "12" in row["method"]]
    assert len(distances) == 6
    assert distances[-1] < 0.8 * distances[0]


def test_the_configuration_does_not_import_jax():
    code = (
        "import sys; import rlreps.experiments.le_lan_2023.mnist.config; "
        "sys.exit('jax' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
