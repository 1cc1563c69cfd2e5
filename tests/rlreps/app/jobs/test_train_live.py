import dataclasses
import json

import jax
import numpy as np
import pytest

from rlreps.app.job import run_job
from rlreps.app.jobs.train_live import LiveConfig, TrainLive, live_ground_truth, target_error
from rlreps.cumulants import CUMULANTS, cumulant_matrix
from rlreps.encoders import FourierMLP
from rlreps.errors import FitWarning, InputError
from rlreps.runs.folder import RunFolder
from rlreps.successor.truth.store import open_store
from rlreps.training import Optimizer
from rlreps.training.config import TrainingConfig

# Second and third components of the toy store are nearly alike.
pytestmark = pytest.mark.filterwarnings("ignore:the target of")

TRAINING = TrainingConfig(
    encoder=FourierMLP(hidden=(32,), frequencies=4),
    optimizer=Optimizer(learning_rate=1e-2),
    num_features=2,
    steps=160,
    rows=100,
    tasks=32,
    num_seeds=2,
    evaluate_every=40,
    checkpoint_every=40,
)
CONFIG = LiveConfig(training=TRAINING, horizon=60, discount=0.9, target_tasks=4_096)
"""Of the process behind the toy store."""


def configured(**changes):
    training = {name: changes.pop(name) for name in [*changes] if hasattr(TRAINING, name)}
    return dataclasses.replace(
        CONFIG, training=dataclasses.replace(TRAINING, **training), **changes
    )


@pytest.fixture(scope="module")
def finished(toy_store, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "live"
    return out, run_job(TrainLive(config=CONFIG, store=toy_store), out)


@pytest.mark.integration
def test_an_encoder_trained_on_rollouts_comes_near_the_subspace_of_a_matrix_it_never_saw(finished):
    out, summary = finished
    distances = np.asarray([each["subspace_distance"] for each in RunFolder(out).read_metrics()])
    assert np.all(distances[0] > 0.6)
    assert np.all(distances[-1] < 0.25)
    assert summary["subspace_distance"] == pytest.approx(distances[-1].mean(), rel=1e-4)


@pytest.mark.parametrize("name", ["discs", "random_indicators"])
def test_the_target_is_the_subspace_of_the_centred_measure_times_the_cumulants(toy_store, name):
    store = open_store(toy_store)
    truth = live_ground_truth(configured(cumulants=CUMULANTS[name](), num_features=3), store)
    measure = store.read().astype(np.float64)
    functions = cumulant_matrix(
        CUMULANTS[name](),
        jax.random.key(0, impl="threefry2x32"),
        np.asarray(truth.coordinates),
        CONFIG.target_tasks,
    )
    columns = (measure - measure.mean(axis=0)) @ np.asarray(functions, np.float64)
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    np.testing.assert_allclose(truth.principal.singular_values, values[:3], rtol=1e-4)
    overlap = left[:, :3].T @ truth.principal.basis
    np.testing.assert_allclose(np.linalg.svd(overlap, compute_uv=False), 1.0, atol=1e-4)


@pytest.mark.integration
def test_explore_shows_a_run_beside_the_store_that_it_was_measured_against(
    finished, toy_store, rlreps, refused, tmp_path
):
    page = tmp_path / "page.html"
    rlreps("explore", toy_store, finished[0], "--out", page)
    assert f'"{finished[0].name}"' in page.read_text(encoding="utf-8")
    said = refused("explore", finished[0], "--out", tmp_path / "other.html")
    assert said.startswith(f"expected a store beside {finished[0]}")


def test_the_error_of_a_target_is_that_of_its_tasks():
    rng, estimated, true = np.random.default_rng(0), [], []
    measure = rng.normal(size=(30, 30)) * 0.7 ** np.arange(30)
    exact = np.linalg.svd(measure)[0]
    for _ in range(40):
        target = (measure @ rng.normal(size=(30, 2_000))).astype(np.float32)
        for d in (2, 3):
            estimated.append(target_error(target, d))
            basis = np.linalg.svd(target, full_matrices=False)[0][:, :d]
            true.append(1.0 - np.square(basis.T @ exact[:, :d]).sum() / d)
    assert np.mean(estimated) == pytest.approx(np.mean(true), rel=0.25)
    assert target_error(target[:, :5], 3) == 1.0


def test_a_target_of_few_functions_is_warned_of(toy_store):
    # Another target of 16 functions has these components only roughly.
    with pytest.warns(FitWarning, match="the target of 16 functions is itself about 0"):
        live_ground_truth(configured(target_tasks=16), open_store(toy_store))


@pytest.mark.integration
def test_the_command_without_a_store_trains_the_same_and_gives_the_loss(finished, rlreps, tmp_path):
    options = (
        "--num-features 2 --hidden 32 --frequencies 4 --steps 160 --rows 100 --tasks 32 "
        "--num-seeds 2 --evaluate-every 40 --checkpoint-every 40 --learning-rate 1e-2 "
        "--horizon 60 --discount 0.9 --quiet"
    )
    run = tmp_path / "run"
    summary = json.loads(rlreps("train-live", "--out", run, *options.split()))
    losses, others = (
        [each["loss"] for each in RunFolder(path).read_metrics()[1:]] for path in (run, finished[0])
    )
    assert losses == others
    assert summary["loss"] == losses[-1]
    assert "subspace_distance" not in summary


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 50}, "of another process: expected horizon=50, got 60"),
        ({"arena": "empty"}, "of another process: expected environment"),
        ({"num_features": 64}, "expected d <= 63 for 64 states .*, got 64"),
    ],
)
def test_a_store_that_says_nothing_of_the_run_leaves_no_run_behind(
    toy_store, tmp_path, changes, message
):
    with pytest.raises(InputError, match=message):
        run_job(TrainLive(config=configured(**changes), store=toy_store), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
