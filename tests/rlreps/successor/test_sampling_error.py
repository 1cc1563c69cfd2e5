"""The sampling error of a stored matrix: planted problems, the cache, and matrices on disk only."""

import json

import jax
import numpy as np
import pytest

from rlreps import cli
from rlreps.encoders import FourierMLP
from rlreps.runs.folder import RunFolder
from rlreps.subspace import ArrayBlocks, CentredBlocks, ExactSVD, RandomizedSVD
from rlreps.successor import ground_truth
from rlreps.successor import ground_truth as module
from rlreps.successor.ground_truth import load_ground_truth, principal_subspace
from rlreps.successor.measure import MonteCarlo, RowEstimates
from rlreps.successor.store.estimates import create_estimates, open_estimates
from rlreps.training import Optimizer
from rlreps.workflows.evaluate import evaluate_run, load_encoder
from rlreps.workflows.generate import generate
from rlreps.workflows.train import TrainingConfig, run_training

BINS, RANK = 6, 4
N = BINS**2
EXACT = ExactSVD(rank=RANK)
RANDOMIZED = RandomizedSVD(rank=RANK, oversampling=10, power_iterations=8)
NOISE = 0.02
pytestmark = pytest.mark.usefixtures("compilation_cache")

SUCCESSOR = MonteCarlo(bins=7, rollouts=30, horizon=40, discount=0.9, block_rows=6)


def truth():
    """A matrix [36, 36] of rank 4 and its leading left singular vectors after centring."""
    rng = np.random.default_rng(0)
    left = np.linalg.qr(rng.normal(size=(N, RANK)))[0]
    right = np.linalg.qr(rng.normal(size=(N, RANK)))[0]
    matrix = (left * (8.0, 6.0, 4.0, 3.0)) @ right.T + 5.0
    basis = np.linalg.svd(matrix - matrix.mean(axis=0))[0][:, :RANK]
    return matrix, basis


def planted(seed):
    """Two independent noisy halves as what is stored of them: mean and half difference."""
    rng = np.random.default_rng(seed)
    first, second = truth()[0] + NOISE * rng.normal(size=(2, N, N))
    return RowEstimates(
        ((first + second) / 2).astype(np.float32), ((first - second) / 2).astype(np.float32)
    )


def make(path, values, sampled=True):
    store = create_estimates(
        path,
        shape=(N, N),
        block_rows=7,
        settings={"quantity": "test", "bins": BINS},
        provenance={},
        sampled=sampled,
    )
    for index in range(store.matrix.num_blocks):
        part = slice(*store.matrix.block_range(index))
        store.write_block(index, RowEstimates(values.rows[part], values.half_difference[part]))
    return store


@pytest.fixture
def store(tmp_path):
    return make(tmp_path / "psi", planted(0))


@pytest.fixture
def computations(monkeypatch):
    """Counts how often an error is computed."""
    computed = []
    original = module._compute_error

    def counting(*arguments):
        computed.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(module, "_compute_error", counting)
    return computed


@pytest.fixture
def on_disk(monkeypatch):
    """From here on, no matrix is held in memory."""

    def start():
        monkeypatch.setattr(ground_truth, "IN_MEMORY_BYTES", 1)

    return start


def distances(basis, other):
    """1 - |FᵀG|²/d for d = 1 … k, straight from the definition."""
    return np.array(
        [
            1 - np.linalg.norm(basis[:, :d].T @ other[:, :d]) ** 2 / d
            for d in range(1, basis.shape[1] + 1)
        ]
    )


def test_the_floor_is_the_actual_distance_from_the_truth_in_expectation(tmp_path):
    found, actual = [], []
    for seed in range(40):
        store = make(tmp_path / str(seed), planted(seed))
        found.append(module.sampling_error(store, EXACT).noise_floor)
        basis = principal_subspace(store.matrix, EXACT).basis.astype(np.float64)
        actual.append(distances(basis, truth()[1]))
    found, actual = np.array(found), np.array(actual)
    assert found.shape == (40, RANK)
    difference = found - actual
    standard_error = difference.std(axis=0, ddof=1) / np.sqrt(len(difference))
    assert np.all(np.abs(difference.mean(axis=0)) < 3.5 * standard_error)
    # The test has the power to notice a floor that is twice or half as high.
    assert np.all(standard_error < 0.1 * actual.mean(axis=0))


def test_the_standard_error_is_that_of_an_entry_of_the_mean(store):
    error = module.sampling_error(store, EXACT)
    # A half errs by NOISE, the mean of two by √½ of that; 1296 entries know it to 2 %.
    assert error.standard_error == pytest.approx(NOISE / np.sqrt(2), rel=0.08)
    exact = np.sqrt(np.mean(planted(0).half_difference.astype(np.float64) ** 2))
    assert error.standard_error == pytest.approx(exact, rel=1e-6)
    assert error.floor(RANK) == error.noise_floor[-1]
    assert error.floor(RANK + 1) is None


def test_halves_without_a_difference_have_no_error(tmp_path):
    values = planted(0)
    store = make(tmp_path / "psi", RowEstimates(values.rows, 0 * values.half_difference))
    error = module.sampling_error(store, EXACT)
    assert error.standard_error == 0.0
    assert np.all(error.noise_floor < 1e-9)


def test_a_matrix_that_was_not_sampled_has_no_known_error(tmp_path):
    store = make(tmp_path / "psi", planted(0), sampled=False)
    assert module.sampling_error(store, EXACT) is None
    assert not (tmp_path / "psi" / "subspace").exists()


def test_a_second_look_reads_what_the_first_computed(store, computations):
    first = module.sampling_error(store, EXACT)
    again = module.sampling_error(open_estimates(store.matrix.path), EXACT)
    assert len(computations) == 1
    assert again.noise_floor.tobytes() == first.noise_floor.tobytes()
    assert again.standard_error == first.standard_error
    module.sampling_error(store, RANDOMIZED)
    assert len(computations) == 2


@pytest.mark.parametrize("part", [0, 1])
def test_a_change_of_the_matrix_or_of_the_half_difference_makes_it_new(store, computations, part):
    before = module.sampling_error(store, EXACT)
    rows = [values[:7].copy() for values in planted(0)]
    rows[part] += 100 * NOISE * np.random.default_rng(9).normal(size=(7, N)).astype(np.float32)
    store.write_block(0, RowEstimates(*rows))
    after = module.sampling_error(store, EXACT)
    assert len(computations) == 2
    assert not np.array_equal(after.noise_floor, before.noise_floor)
    assert (after.standard_error != before.standard_error) == (part == 1)
    module.sampling_error(store, EXACT)
    assert len(computations) == 2


@pytest.mark.parametrize("config", [RANDOMIZED, RandomizedSVD()])
def test_a_matrix_larger_than_memory_has_the_same_subspace_and_error(tmp_path, on_disk, config):
    """The same arithmetic block by block; sums over other blocks round otherwise."""
    in_memory, streamed = (make(tmp_path / name, planted(0)) for name in ("memory", "disk"))
    expected = principal_subspace(in_memory.matrix, config)
    error = module.sampling_error(in_memory, config)
    truth_in_memory = load_ground_truth(in_memory.matrix.path, config)
    on_disk()
    found = principal_subspace(streamed.matrix, config)
    truth_on_disk = load_ground_truth(streamed.matrix.path, config)
    assert not isinstance(truth_in_memory.matrix, ArrayBlocks | CentredBlocks)
    assert isinstance(truth_on_disk.matrix, CentredBlocks)
    rows = np.concatenate([rows for _, rows in truth_on_disk.matrix.blocks()])
    np.testing.assert_array_equal(rows, np.asarray(truth_in_memory.matrix))
    np.testing.assert_allclose(found.singular_values, expected.singular_values, rtol=1e-5)
    strong = slice(0, RANK)  # beyond, noise has no gaps that would fix single vectors
    signs = np.sign(np.sum(found.basis * expected.basis, axis=0))[strong]
    np.testing.assert_allclose(found.basis[:, strong] * signs, expected.basis[:, strong], atol=2e-5)
    assert found.total_energy == pytest.approx(expected.total_energy, rel=1e-6)
    other = module.sampling_error(streamed, config)
    np.testing.assert_allclose(
        other.noise_floor[strong], error.noise_floor[strong], rtol=1e-4, atol=1e-9
    )
    assert other.standard_error == error.standard_error


def test_training_and_evaluation_of_a_matrix_larger_than_memory_end_in_the_same_bits(
    tmp_path, on_disk
):
    """With one subspace to measure against, every parameter is the same to the last bit."""
    store = tmp_path / "psi"
    generate(SUCCESSOR, store, progress=False)
    config = TrainingConfig(
        encoder=FourierMLP(hidden=(16,), frequencies=2),
        optimizer=Optimizer(learning_rate=1e-2),
        num_features=3,
        steps=40,
        rows=20,
        tasks=16,
        evaluate_every=20,
        checkpoint_every=20,
    )
    ours = run_training(config, store, tmp_path / "memory", progress=False)
    kept = load_ground_truth(store, RandomizedSVD())
    first = load_encoder(RunFolder(tmp_path / "memory"), kept)
    in_memory = evaluate_run(tmp_path / "memory")
    on_disk()
    theirs = run_training(config, store, tmp_path / "disk", progress=False)
    second = load_encoder(RunFolder(tmp_path / "disk"), load_ground_truth(store, RandomizedSVD()))
    for one, other in zip(*map(jax.tree.leaves, (first.params, second.params)), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    streamed = evaluate_run(tmp_path / "disk")
    assert streamed.keys() == in_memory.keys()
    assert_close({**in_memory, "store": None}, {**streamed, "store": None})
    seconds = ("seconds", "compile_seconds")
    assert_close(*({**summary, **dict.fromkeys(seconds)} for summary in (ours, theirs)))


def assert_close(one, other):
    """JSON values that are equal, but for the rounding of floating-point numbers."""
    one_leaves, one_structure = jax.tree.flatten(one)
    other_leaves, other_structure = jax.tree.flatten(other)
    assert one_structure == other_structure
    for left, right in zip(one_leaves, other_leaves, strict=True):
        expected = pytest.approx(left, rel=1e-4, abs=1e-6) if isinstance(left, float) else left
        assert right == expected


def test_info_says_of_a_store_without_samples_that_no_error_is_known(tmp_path, capsys):
    path = tmp_path / "psi"
    options = "--method transition --bins 5 --horizon 30 --discount 0.9 --points 64 --quiet"
    cli.main(["successor", "generate", "--out", str(path), *options.split()])
    capsys.readouterr()
    cli.main(["successor", "info", str(path), "--json", "--quiet"])
    described = json.loads(capsys.readouterr().out)
    assert described["settings"]["method"] == "transition"
    assert described["missing_blocks"] == 0
    cli.main(["successor", "info", str(path), "--quiet"])
    assert '"method": "transition"' in capsys.readouterr().out
