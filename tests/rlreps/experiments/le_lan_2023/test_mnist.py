"""The MNIST experiment: exact components, errors, batches and claims; its smoke preset."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from rlreps.errors import InputError
from rlreps.experiments.le_lan_2023 import mnist
from rlreps.experiments.le_lan_2023.mnist import (
    EXPERIMENT,
    PRESETS,
    Config,
    DanskinConfig,
    EigenGameConfig,
)
from rlreps.losses import DanskinLissa
from rlreps.runs.folder import RunFolder
from rlreps.sources.datasets import TEST_IMAGES, TRAIN_IMAGES, Images, write_idx_images
from rlreps.sources.matrix import matrix_source

DIGITS = (load_digits().images * (255 / 16)).astype(np.uint8)
ROWS = DIGITS.reshape(-1, 64).astype(np.float32) / np.float32(255)
IMAGES = Images(ROWS[:1500], ROWS[1500:], (8, 8))
METHODS = ["danskin-lissa-4", "danskin-lissa-8", "eigengame"]
FIGURES = ["reconstructions", "components", "curves", "curves_by_entries"]
SMOKE = PRESETS["smoke"]


@pytest.fixture(scope="module")
def problem():
    return mnist.make_problem(SMOKE, IMAGES)


def test_exact_components_and_errors_are_those_of_scikit_learn(problem):
    train, test = (part.astype(np.float64) for part in (IMAGES.train, IMAGES.test))
    exact = PCA(8, svd_solver="full").fit(train)
    cosines = np.abs(np.sum(exact.components_.T * problem.basis, axis=0))
    np.testing.assert_allclose(cosines, 1.0, atol=1e-8)
    errors = [
        np.sum((x - exact.inverse_transform(exact.transform(x))) ** 2, axis=1)
        for x in (train, test)
    ]
    found = mnist.reconstruction_errors(problem.test, problem.basis)
    np.testing.assert_allclose(found, errors[1], rtol=1e-5)
    assert problem.test_error == pytest.approx(np.mean(errors[1]), rel=1e-6)
    assert problem.train_error == pytest.approx(np.mean(errors[0]), rel=1e-6)


def test_what_is_measured_during_a_run_is_the_error_of_the_images_themselves(problem):
    evaluate = jax.jit(mnist.evaluation(problem))
    features = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    followed = evaluate(features)
    q, _ = np.linalg.qr(np.asarray(features, np.float64))
    error = np.mean(np.sum((problem.test - problem.test @ q @ q.T) ** 2, axis=1))
    ratio = error / problem.test_error
    assert float(followed["test_error_ratio"]) == pytest.approx(ratio, rel=1e-5)
    missed = problem.basis - q @ (q.T @ problem.basis)
    distance = float(followed["subspace_distance"])
    assert distance == pytest.approx(np.sum(missed**2) / 8, rel=1e-4)
    exact = evaluate(problem.basis.astype(np.float32))
    assert float(exact["test_error_ratio"]) == pytest.approx(1.0, rel=1e-5)
    basis = mnist.orthonormal(features)
    np.testing.assert_allclose(basis.T @ basis, np.eye(8), atol=1e-12)
    errors = mnist.reconstruction_errors(problem.test, basis)
    assert errors.mean() == pytest.approx(error, rel=1e-6)
    # A run that was reset counts with the error of no components.
    reset = mnist.reconstruction_errors(
        problem.test, mnist.orthonormal(np.zeros((64, 8), np.float32))
    )
    np.testing.assert_allclose(reset, np.sum(problem.test.astype(np.float64) ** 2, axis=1))


def test_the_transposed_matrix_gives_the_batches_of_the_matrix():
    matrix = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)
    source, other = mnist.ImageSource(jnp.asarray(matrix.T)), matrix_source(matrix)
    assert source.num_tasks == other.num_tasks == 40

    @jax.jit
    def draw(key):
        batches = [each.sample(key, 7, 5) for each in (source, other)]
        return *batches, source.whole_images(key, 6)

    mine, expected, images = draw(jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, mine, expected)
    assert mine.targets.shape == (7, 5)
    assert images.shape == (6, 30)
    assert all(any(np.array_equal(row, column) for column in matrix.T) for row in images)


def test_the_papers_numbers_are_compared_with_runs_of_the_papers_task_and_settings_alone():
    images = np.broadcast_to(np.float32(0.0), (60_000, 784))
    task = mnist.Problem(mnist.ImageSource(images), *[None] * 6)

    def holds(exact, learned, config):
        best = {"method": "m", "test_error": learned, "test_error_ratio": learned / exact}
        found = {"exact": {"test_error": exact, "train_error": 20.0}, "best": best}
        return [claim.holds for claim in mnist.compare_with_paper(config, task, found)]

    assert holds(21.46, 21.53, Config()) == [True, True, True]
    assert holds(21.06, 21.53, Config()) == [False, True, False]
    assert holds(21.06, 21.10, Config()) == [False, False, True]
    assert holds(21.46, 21.53, Config(num_components=8)) == [None, None, None]
    # Exact components are the same whatever was trained; learned ones are those of other settings.
    assert holds(21.46, 21.53, PRESETS["laptop"]) == [True, None, None]
    shorter = Config(danskin=DanskinConfig(steps=100))
    assert holds(21.06, 21.53, shorter) == [False, None, None]


def test_the_paper_preset_is_the_published_protocol():
    danskin = PRESETS["paper"].danskin
    assert danskin.runs == ((32, 0.01), (64, 0.005), (128, 0.005))
    assert (danskin.steps, danskin.images, danskin.schedule) == (2_500_000, 1, "constant")
    objective = danskin.objective
    assert (objective.kappa0, objective.feature_norm) == (1.9, "batch")
    assert (objective.permutations, objective.whitening) == (1, False)
    assert {PRESETS[name].num_components for name in ("laptop", "paper")} == {16}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DanskinConfig(runs=()), "at least one number of pixels, each once"),
        (lambda: DanskinConfig(runs=((8, 0.1), (8, 0.2))), "each once"),
        (lambda: DanskinConfig(runs=((0, 0.1),)), "pixels >= 1, got 0"),
        (lambda: DanskinConfig(runs=((8, -1.0),)), "learning_rate .*got -1.0"),
        (lambda: DanskinConfig(objective=DanskinLissa(kappa0=2.0)), "kappa0.*got 2.0"),
        (lambda: DanskinConfig(schedule="steps"), "schedule to be one of constant, cosine"),
        (lambda: EigenGameConfig(learning_rate=float("nan")), "learning_rate.*got nan"),
        (lambda: EigenGameConfig(images=0), "images >= 1, got 0"),
        (lambda: Config(num_components=0), "num_components >= 1, got 0"),
        (lambda: Config(evaluations=7), r"danskin.steps to be a multiple of .* \(7\)"),
        (lambda: Config(seed=-1), r"seed in \[0, 2\*\*31\), got -1"),
        (
            lambda: mnist.make_problem(Config(num_components=65), IMAGES),
            "num_components <= 64, the pixels of an image, got 65",
        ),
        (
            lambda: mnist.make_problem(Config(num_components=64), IMAGES),
            "a rank of at most 6[0-3], the numerical rank of the .*, got 64",
        ),
    ],
)
def test_what_makes_no_experiment_is_refused(build, message):
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.experiments
def test_the_smoke_preset_learns_and_says_so_and_resumes_as_it_was(tmp_path):
    data, out = tmp_path / "digits", tmp_path / "run"
    data.mkdir()
    write_idx_images(data / f"{TRAIN_IMAGES}.gz", DIGITS[:1500])
    write_idx_images(data / TEST_IMAGES, DIGITS[1500:])
    summary = EXPERIMENT.run(SMOKE, out, data=data, progress=False)
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 3
    assert list(summary["methods"]) == METHODS
    for name, found in summary["methods"].items():
        records = RunFolder(out / "runs" / name).read_metrics()
        first, last = (np.mean(records[index]["subspace_distance"]) for index in (0, -1))
        assert last < 0.5 * first, name
        assert found["subspace_distance"]["mean"] == pytest.approx(last, rel=1e-3)
        ratio = np.mean(records[-1]["test_error_ratio"])
        assert found["test_error_ratio"]["mean"] == pytest.approx(ratio, rel=1e-4)
        assert (found["runs"], found["diverged"]) == (2, 0)
    assert summary["methods"]["eigengame"]["subspace_distance"]["mean"] < 0.01
    assert summary["methods"]["danskin-lissa-8"]["entries_read"] == 4000 * 40 * 32
    danskin = {name: summary["methods"][name]["test_error"]["mean"] for name in METHODS[:2]}
    assert summary["best"]["method"] == min(danskin, key=danskin.get)
    for name in FIGURES:
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    curves = json.loads((out / "results" / "curves.json").read_text())
    assert len(curves) == 3 * 11 * 2
    shown = json.loads((out / "results" / "reconstructions.json").read_text())
    exact = [row["squared_error"] for row in shown if row["components"] == "exact PCA"]
    whole = mnist.make_problem(SMOKE, mnist.load_images(data))
    errors = mnist.reconstruction_errors(whole.test[:6], whole.basis)
    np.testing.assert_allclose(exact, errors, rtol=1e-6)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert all(text in page for text in ("21.46", "21.53", "1.0033", "danskin.objective.whitening"))
    other = dataclasses.replace(SMOKE, num_seeds=3)
    with pytest.raises(InputError, match="expected num_seeds=2, got 3"):
        EXPERIMENT.run(other, out, data=data, progress=False)
    # Without its summary it resumes from the ends of its trainings.
    before = (out / "results" / "components.csv").read_bytes()
    (out / "summary.json").unlink()
    assert EXPERIMENT.run(SMOKE, out, data=data, progress=False) == summary
    assert (out / "results" / "components.csv").read_bytes() == before
