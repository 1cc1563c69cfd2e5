"""The MNIST experiment: exact components, errors, batches and claims; its smoke preset."""

import json

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from rlreps.errors import InputError
from rlreps.experiments.harness import Frame, Results, Run
from rlreps.experiments.le_lan_2023 import mnist, pixels
from rlreps.experiments.le_lan_2023.mnist import EXPERIMENT
from rlreps.experiments.le_lan_2023.pixels import PRESETS, Config, DanskinConfig
from rlreps.runs.folder import RunFolder
from rlreps.sources.datasets import TEST_IMAGES, TEST_LABELS, TRAIN_IMAGES, Images, load_images
from rlreps.subspace.reconstruction import reconstruction_errors
from rlreps.training import Optimizer

DIGITS = (load_digits().images * (255 / 16)).astype(np.uint8)
ROWS = DIGITS.reshape(-1, 64).astype(np.float32) / np.float32(255)
LABELS = load_digits().target[1500:].astype(np.uint8)
IMAGES = Images(ROWS[:1500], ROWS[1500:], (8, 8), LABELS)
METHODS = ["danskin-lissa-4", "danskin-lissa-8", "eigengame"]
SMOKE = PRESETS["smoke"]


@pytest.fixture(scope="module")
def problem():
    return pixels.make_problem(SMOKE, IMAGES)


def test_exact_errors_are_those_of_scikit_learn(problem):
    train, test = (part.astype(np.float64) for part in (IMAGES.train, IMAGES.test))
    exact = PCA(8, svd_solver="full").fit(train)
    for images, found in ((train, problem.train_error), (test, problem.test_error)):
        rest = images - exact.inverse_transform(exact.transform(images))
        assert found == pytest.approx(np.mean(np.sum(rest**2, axis=1)), rel=1e-6)
    assert not problem.is_mnist
    assert problem.subsets.shape == (SMOKE.subsets + 1, 10 * SMOKE.subset_images)


def test_what_is_measured_during_a_run_is_the_error_of_the_images_themselves(problem):
    evaluate = jax.jit(pixels.evaluation(problem))
    features = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    found = evaluate(features)
    q, _ = np.linalg.qr(np.asarray(features, np.float64))
    for name, images, exact in (
        ("test_error_ratio", problem.test, problem.test_error),
        ("train_error_ratio", np.asarray(problem.source.images, np.float64), problem.train_error),
    ):
        error = np.mean(np.sum((images - images @ q @ q.T) ** 2, axis=1))
        assert float(found[name]) == pytest.approx(error / exact, rel=1e-5)
    missed = problem.basis - q @ (q.T @ problem.basis)
    assert float(found["subspace_distance"]) == pytest.approx(np.sum(missed**2) / 8, rel=1e-4)
    exact = evaluate(problem.basis.astype(np.float32))
    assert float(exact["test_error_ratio"]) == pytest.approx(1.0, rel=1e-5)


FALLING = {32: 0.3, 64: 0.2, 128: 0.1}
RATIOS = (1.003, 1.0031, 1.0032)
OTHER_SETTINGS = Config(danskin=DanskinConfig(steps=100))


@pytest.mark.parametrize(
    ("config", "ratios", "exact", "ends", "expected"),
    [
        (Config(), RATIOS, 21.27, FALLING, [True] * 5),
        # What one subset may add to the paper's ratio is granted on subsets alone.
        (Config(), (1.0048, 1.0049, 1.005), 21.27, FALLING, [True, True, False, True, True]),
        # Three runs that differ say nothing, however near their mean.
        (Config(), (1.000, 1.003, 1.006), 21.27, FALLING, [True, None, None, True, True]),
        (Config(), RATIOS, 21.0, {**FALLING, 64: 0.3, 32: 0.2}, [False, True, True, True, False]),
        # To learn is to halve the distance.
        (Config(), RATIOS, 21.27, {**FALLING, 32: 0.5}, [True, True, True, False, True]),
        (Config(num_components=8), RATIOS, 21.27, FALLING, [None] * 5),
        # Exact components are the same whatever was trained.
        (OTHER_SETTINGS, RATIOS, 21.0, FALLING, [False, *[None] * 4]),
    ],
)
def test_claims_are_decided_by_intervals_under_the_papers_settings(
    config, ratios, exact, ends, expected
):
    """Three runs of each N, whose distances fall from 0.9 to ``ends``."""
    task = pixels.Problem(
        *[None] * 5, test_error=21.06, subsets=np.zeros((5, 1000), np.int64), is_mnist=True
    )
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
        for pixels, end in ends.items()
        for step, distance in ((0, 0.90), (1, end))
        for seed in range(3)
    ]
    run = Run(config, None, task)
    results = Results(run, {}, {"": Frame.of(rows)}, EXPERIMENT.value)
    results._kept[mnist.on_subsets] = {
        "exact": {
            "subset_error": exact,
            "subset_error_deviation": 0.18,
            "first_images_error": 21.58,
        },
        mnist.headline_of(config): {
            "subset_error": 21.3,
            "subset_error_ratio": list(ratios),
            "subset_ratio_deviation": 0.001,
        },
    }
    assert [claim.holds for claim in EXPERIMENT.judged(results)] == expected
    # Other images come in files of MNIST's names and shapes.
    run.data = task._replace(is_mnist=False)
    assert [claim.holds for claim in EXPERIMENT.judged(results)] == [None] * 5


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


def test_the_paper_preset_is_the_published_protocol(check_protocol):
    check_protocol("mnist", PROTOCOL)
    learner = pixels.danskin_learner(PRESETS["paper"], 784, 32, 0.01)
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
        pixels.make_problem(Config(num_components=d), IMAGES)


@pytest.mark.experiments
def test_the_smoke_preset_learns_and_says_so(tmp_path, smoke):
    data = tmp_path / "digits"
    data.mkdir()
    for name, images in ((TRAIN_IMAGES, DIGITS[:1500]), (TEST_IMAGES, DIGITS[1500:])):
        header = bytes([0, 0, 8, 3]) + np.asarray(images.shape, ">u4").tobytes()
        (data / name).write_bytes(header + images.tobytes())
    header = bytes([0, 0, 8, 1]) + len(LABELS).to_bytes(4, "big")
    (data / TEST_LABELS).write_bytes(header + LABELS.tobytes())
    summary, out = smoke("mnist", data=data)
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
    assert learned["eigengame"]["subspace_distance"] < 0.01
    assert learned["danskin-lissa-8"]["entries_read"] == 4000 * 40 * 32
    shown = json.loads((out / "results" / "reconstructions.json").read_text())
    exact = [row["squared_error"] for row in shown if row["components"] == "exact PCA"]
    whole = pixels.make_problem(SMOKE, load_images(data))
    errors = reconstruction_errors(whole.test[:6], whole.basis)
    np.testing.assert_allclose(exact, errors, rtol=1e-6)
