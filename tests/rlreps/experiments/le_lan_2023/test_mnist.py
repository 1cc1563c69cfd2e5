"""The MNIST experiment: exact components, errors, batches and claims; its smoke preset."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from rlreps.errors import InputError
from rlreps.experiments.harness import Frame, Results, Run
from rlreps.experiments.le_lan_2023 import mnist
from rlreps.experiments.le_lan_2023.mnist import EXPERIMENT, PRESETS, Config, DanskinConfig
from rlreps.runs.folder import RunFolder
from rlreps.sources.datasets import TEST_IMAGES, TEST_LABELS, TRAIN_IMAGES, Images
from rlreps.subspace.reconstruction import orthonormal_double, reconstruction_errors
from rlreps.training import Optimizer

DIGITS = (load_digits().images * (255 / 16)).astype(np.uint8)
ROWS = DIGITS.reshape(-1, 64).astype(np.float32) / np.float32(255)
LABELS = load_digits().target[1500:].astype(np.uint8)
IMAGES = Images(ROWS[:1500], ROWS[1500:], (8, 8), LABELS)
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
    found = reconstruction_errors(problem.test, problem.basis)
    np.testing.assert_allclose(found, errors[1], rtol=1e-5)
    assert problem.test_error == pytest.approx(np.mean(errors[1]), rel=1e-6)
    assert problem.train_error == pytest.approx(np.mean(errors[0]), rel=1e-6)
    assert not problem.is_mnist
    assert problem.subsets.shape == (SMOKE.subsets + 1, 10 * SMOKE.subset_images)


def test_what_is_measured_during_a_run_is_the_error_of_the_images_themselves(problem):
    evaluate = jax.jit(mnist.evaluation(problem))
    features = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    followed = evaluate(features)
    q, _ = np.linalg.qr(np.asarray(features, np.float64))
    error = np.mean(np.sum((problem.test - problem.test @ q @ q.T) ** 2, axis=1))
    ratio = error / problem.test_error
    assert float(followed["test_error_ratio"]) == pytest.approx(ratio, rel=1e-5)
    train = np.asarray(problem.source.images, np.float64)
    of_train = np.mean(np.sum((train - train @ q @ q.T) ** 2, axis=1)) / problem.train_error
    assert float(followed["train_error_ratio"]) == pytest.approx(of_train, rel=1e-5)
    assert abs(of_train - ratio) > 1e-3
    missed = problem.basis - q @ (q.T @ problem.basis)
    distance = float(followed["subspace_distance"])
    assert distance == pytest.approx(np.sum(missed**2) / 8, rel=1e-4)
    exact = evaluate(problem.basis.astype(np.float32))
    assert float(exact["test_error_ratio"]) == pytest.approx(1.0, rel=1e-5)
    basis = orthonormal_double(features)
    np.testing.assert_allclose(basis.T @ basis, np.eye(8), atol=1e-12)
    errors = reconstruction_errors(problem.test, basis)
    assert errors.mean() == pytest.approx(error, rel=1e-6)
    # A run that was reset counts with the error of no components.
    reset = reconstruction_errors(problem.test, orthonormal_double(np.zeros((64, 8), np.float32)))
    np.testing.assert_allclose(reset, np.sum(problem.test.astype(np.float64) ** 2, axis=1))


def claims_of(
    config,
    ratios=(1.003, 1.0031, 1.0032),
    *,
    exact=21.27,
    ends=None,
    labels=True,
    is_mnist=True,
):
    """The claims on three runs of each N, whose distances fall from 0.9 to ``ends``."""
    subsets = np.zeros((5, 1000), np.int64) if labels else None
    task = mnist.Problem(*[None] * 5, test_error=21.06, subsets=subsets, is_mnist=is_mnist)
    learned = {
        "subset_error": 21.3,
        "subset_error_ratio": list(ratios),
        "subset_ratio_deviation": 0.001,
    }
    of_exact = {
        "subset_error": exact,
        "subset_error_deviation": 0.18,
        "first_images_error": 21.58,
    }
    rows = [
        {
            "method": f"danskin-lissa-{pixels}",
            "pixels": pixels,
            "seed": seed,
            "step": step,
            "subspace_distance": distance + 0.01 * seed,
            "test_error": 21.1,
            "error_ratio": ratios[seed],
        }
        for pixels, end in (ends or {32: 0.3, 64: 0.2, 128: 0.1}).items()
        for step, distance in ((0, 0.90), (1, end))
        for seed in range(3)
    ]
    results = Results(Run(config, None, task), {}, {"": Frame.of(rows)}, EXPERIMENT.value)
    results._kept[mnist.on_subsets] = {"exact": of_exact, mnist.headline_of(config): learned}
    return EXPERIMENT.judged(results)


def verdicts(*arguments, **options):
    return [claim.holds for claim in claims_of(*arguments, **options)]


def test_claims_are_decided_by_intervals_at_the_papers_n_under_the_papers_settings():
    assert verdicts(Config()) == [True] * 5
    exact, subsets, whole, few, more = claims_of(Config())
    assert exact.stated == "21.46 (holds within two standard deviations)"
    assert "21.27 ± 0.18" in exact.found
    assert "1.1 deviations above" in exact.found
    for claim in (subsets, whole):
        assert claim.statement.endswith("N = 64")
        assert claim.stated.startswith("1.0033")
        assert claim.found.startswith("1.0031 [1.0029, 1.0033]")
    assert few.found == "0.91 to 0.310"
    assert more.found.endswith("0.610 (N = 32), 0.560 (N = 64), 0.510 (N = 128)")
    # A ratio above the paper's: what one subset may add is granted on subsets alone.
    assert verdicts(Config(), (1.0048, 1.0049, 1.005))[1:3] == [True, False]
    assert verdicts(Config(), (1.0148, 1.0149, 1.015))[1:3] == [False, False]
    # Three runs that differ say nothing, however near their mean.
    assert verdicts(Config(), (1.000, 1.003, 1.006))[1:3] == [None, None]
    assert verdicts(Config(), exact=21.0)[0] is False
    same = {32: 0.2, 64: 0.2, 128: 0.1}
    assert verdicts(Config(), ends=same)[3:] == [True, None]
    assert verdicts(Config(), ends={32: 0.2, 64: 0.3, 128: 0.1})[4] is False
    # To learn is to halve the distance.
    assert verdicts(Config(), ends={32: 0.5, 64: 0.3, 128: 0.1})[3] is False


def test_other_tasks_and_settings_than_the_papers_and_missing_labels_decide_nothing():
    assert verdicts(Config(num_components=8)) == [None] * 5
    # Exact components are the same whatever was trained; learned ones are those of other settings.
    assert verdicts(PRESETS["laptop"]) == [True, None, None, None, None]
    shorter = Config(danskin=DanskinConfig(steps=100))
    assert verdicts(shorter, exact=21.0) == [False, None, None, None, None]
    assert verdicts(Config(headline_pixels=32)) == [True, None, None, None, None]
    assert verdicts(Config(subset_images=50)) == [None] * 5
    # Others come in files of MNIST's names and shapes.
    assert verdicts(Config(), is_mnist=False) == [None] * 5
    alone = claims_of(Config(), labels=False)
    assert [claim.holds for claim in alone] == [True] * 3
    assert "on all test images" in alone[0].statement


PROTOCOL = {
    "num_components": 16,
    "danskin.runs": [[32, 0.01], [64, 0.005], [128, 0.005]],
    "danskin.objective.name": "danskin_lissa",
    # N = M = J, the pixels of each run.
    "danskin.objective.gradient_rows": None,
    "danskin.objective.weight_rows": None,
    "danskin.objective.covariance_rows": None,
    "danskin.objective.permutations": 1,
    "danskin.objective.whitening": False,
    "danskin.objective.kappa0": 1.9,
    "danskin.objective.feature_norm": "batch",
    "danskin.schedule": "constant",
    "danskin.steps": 2_500_000,
    "danskin.images": 1,
    "headline_pixels": 64,
    "subset_images": 100,
}
SILENT = {
    *(f"eigengame.{name}" for name in ("steps", "images", "learning_rate", "schedule")),
    *("seed", "num_seeds", "subsets", "evaluations", "shown_images"),
}


def test_the_paper_preset_is_the_published_protocol(check_protocol):
    check_protocol("mnist", PROTOCOL, SILENT)
    learner = mnist.danskin_learner(PRESETS["paper"], 784, 32, 0.01)
    assert learner.optimizer == Optimizer(
        name="adam", learning_rate=0.01, schedule="constant", steps=2_500_000
    )
    assert (learner.rows, learner.tasks) == (5 * 32, 1)


@pytest.mark.parametrize(
    ("d", "message"),
    [
        (65, "num_components <= 64, the pixels of an image, got 65"),
        (64, "a rank of at most 6[0-3], the numerical rank of the .*, got 64"),
    ],
)
def test_more_components_than_images_have_are_refused(d, message):
    with pytest.raises(InputError, match=message):
        mnist.make_problem(Config(num_components=d), IMAGES)


@pytest.mark.experiments
def test_the_smoke_preset_learns_and_says_so_and_resumes_as_it_was(tmp_path):
    data, out = tmp_path / "digits", tmp_path / "run"
    data.mkdir()
    for name, images in ((TRAIN_IMAGES, DIGITS[:1500]), (TEST_IMAGES, DIGITS[1500:])):
        header = bytes([0, 0, 8, 3]) + np.asarray(images.shape, ">u4").tobytes()
        (data / name).write_bytes(header + images.tobytes())
    header = bytes([0, 0, 8, 1]) + len(LABELS).to_bytes(4, "big")
    (data / TEST_LABELS).write_bytes(header + LABELS.tobytes())
    summary = EXPERIMENT.run(SMOKE, out, data=data, progress=False)
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 5
    learned = {row["method"]: row for row in summary["test_errors"]}
    assert list(learned) == ["exact", *METHODS]
    for name in METHODS:
        records, found = RunFolder(out / "runs" / name).read_metrics(), learned[name]
        first, last = (np.mean(records[index]["subspace_distance"]) for index in (0, -1))
        assert last < 0.5 * first, name
        assert found["subspace_distance"] == pytest.approx(last, rel=1e-3)
        ratio = np.mean(records[-1]["test_error_ratio"])
        assert found["test_error_ratio"] == pytest.approx(ratio, rel=1e-4)
        assert (found["runs"], found["diverged"]) == (2, 0)
        assert len(summary["subsets"][name]["subset_error_ratio"]) == 2
    assert learned["eigengame"]["subspace_distance"] < 0.01
    assert learned["danskin-lissa-8"]["entries_read"] == 4000 * 40 * 32
    own = summary["per_seed"]["danskin-lissa-8"]
    assert learned["danskin-lissa-8"]["test_error"] == pytest.approx(np.mean(own))
    for name in FIGURES:
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    curves = json.loads((out / "results" / "curves.json").read_text())
    assert len(curves) == 3 * 11 * 2
    shown = json.loads((out / "results" / "reconstructions.json").read_text())
    exact = [row["squared_error"] for row in shown if row["components"] == "exact PCA"]
    whole = mnist.make_problem(SMOKE, mnist.load_images(data))
    errors = reconstruction_errors(whole.test[:6], whole.basis)
    np.testing.assert_allclose(exact, errors, rtol=1e-6)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert all(
        text in page
        for text in (
            "21.46",
            "21.53",
            "1.0033",
            "on subsets of 200",
            "danskin.objective.whitening",
        )
    )
    other = dataclasses.replace(SMOKE, num_seeds=3)
    with pytest.raises(InputError, match="expected num_seeds=2, got 3"):
        EXPERIMENT.run(other, out, data=data, progress=False)
    # Without its summary it resumes from the ends of its trainings.
    before = (out / "results" / "components.csv").read_bytes()
    (out / "summary.json").unlink()
    assert EXPERIMENT.run(SMOKE, out, data=data, progress=False) == summary
    assert (out / "results" / "components.csv").read_bytes() == before
