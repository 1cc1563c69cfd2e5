"""A stored matrix as a ground truth: centred, decomposed once, with its sampling error."""

import functools

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.subspace import DECOMPOSITIONS, CentredBlocks, ExactSVD, RandomizedSVD
from rlreps.successor.measure.rows import RowEstimates
from rlreps.successor.truth import stored_subspace as module
from rlreps.successor.truth.ground_truth import load_ground_truth
from rlreps.successor.truth.noise_floor import sampling_error
from rlreps.successor.truth.released import load
from rlreps.successor.truth.store.estimates import create_estimates, open_estimates
from rlreps.successor.truth.stored_subspace import principal_subspace

BINS, RANK = 6, 4
N = BINS**2
EXACT = ExactSVD(rank=RANK)
RANDOMIZED = RandomizedSVD(rank=RANK, oversampling=10, power_iterations=8)
NOISE = 0.02


@functools.cache
def planted():
    """Two independent noisy halves of a matrix [36, 36] of rank 4: mean and half difference."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(N, RANK)))[0] for _ in range(2))
    truth = (left * (8.0, 6.0, 4.0, 3.0)) @ right.T + 5.0
    first, second = truth + NOISE * rng.normal(size=(2, N, N))
    return RowEstimates(
        ((first + second) / 2).astype(np.float32), ((first - second) / 2).astype(np.float32)
    )


def make(path, values=None, sampled=True, **settings):
    values = planted() if values is None else values
    store = create_estimates(
        path,
        shape=values.rows.shape,
        block_rows=7,
        settings={"quantity": "test", "bins": BINS, **settings},
        provenance={},
        sampled=sampled,
    )
    for index in range(store.matrix.num_blocks):
        part = slice(*store.matrix.block_range(index))
        store.write_block(index, RowEstimates(values.rows[part], values.half_difference[part]))
    return store


@pytest.fixture
def store(tmp_path):
    return make(tmp_path / "psi")


@pytest.fixture
def decompositions(monkeypatch):
    """Counts every exact decomposition that is computed."""
    computed, decompose = [], ExactSVD.decompose

    def counted(self, matrix):
        computed.append(self)
        return decompose(self, matrix)

    monkeypatch.setattr(ExactSVD, "decompose", counted)
    return computed


def centred_exactly(values, centring):
    values = values.astype(np.float64)
    if centring in ("columns", "both"):
        values = values - values.mean(axis=0)
    if centring in ("rows", "both"):
        values = values - values.mean(axis=1, keepdims=True)
    return values


# What a store's settings say and what comes off its matrix.
CENTRINGS = [({}, "columns"), ({"centring": "none"}, "columns")] + [
    ({"centring": "none", "centred_on_reading": name}, name) for name in ("rows", "both")
]


@pytest.mark.parametrize(("settings", "centring"), CENTRINGS)
@pytest.mark.parametrize("config", [RANDOMIZED, EXACT])
def test_the_ground_truth_is_the_svd_of_the_centred_matrix(tmp_path, config, settings, centring):
    truth = load_ground_truth(make(tmp_path / "psi", **settings).matrix.path, config)
    oracle = centred_exactly(planted().rows, centring)
    np.testing.assert_allclose(truth.matrix, oracle, atol=1e-5)
    left, values, _ = np.linalg.svd(oracle)
    np.testing.assert_allclose(truth.principal.singular_values, values[:RANK], rtol=1e-5)
    overlap = np.linalg.svd(left[:, :RANK].T @ truth.principal.basis, compute_uv=False)
    np.testing.assert_allclose(overlap, 1.0, atol=1e-4)
    assert truth.principal.total_energy == pytest.approx(np.sum(oracle**2), rel=1e-5)
    np.testing.assert_allclose(truth.cell_widths, 1 / BINS, rtol=1e-6)


def test_a_second_load_reads_the_same_subspace_and_decomposes_nothing(store, decompositions):
    first, again = (load_ground_truth(store.matrix.path, EXACT).principal for _ in range(2))
    assert len(decompositions) == 1
    np.testing.assert_array_equal(again.basis, first.basis, strict=True)
    np.testing.assert_array_equal(again.singular_values, first.singular_values, strict=True)
    assert again.total_energy == first.total_energy
    assert (again.method, dict(again.settings)) == (first.method, dict(first.settings))


@pytest.mark.parametrize("method", ["randomized", "exact"])
def test_without_a_rank_all_that_a_small_matrix_has_is_kept(store, method):
    path = store.matrix.path
    full = load_ground_truth(path, DECOMPOSITIONS[method]())
    assert full.principal.basis.shape == (N, N - 1)
    with pytest.raises(InputError, match=r"expected a rank of at most 35, .* got 36"):
        load_ground_truth(path, DECOMPOSITIONS[method](rank=36))


def test_the_standard_error_is_that_of_an_entry_of_the_mean(store, tmp_path):
    error = sampling_error(store, EXACT)
    # A half errs by NOISE, the mean of two by √½ of that; 1296 entries know it to 2 %.
    assert error.standard_error == pytest.approx(NOISE / np.sqrt(2), rel=0.08)
    assert error.floor(RANK) == error.noise_floor[-1]
    assert error.floor(RANK + 1) is None
    computed = make(tmp_path / "computed", sampled=False)
    assert sampling_error(computed, EXACT) is load(computed.matrix.path).error is None


@pytest.mark.parametrize("part", [0, 1])
def test_an_error_is_computed_once_until_the_matrix_or_the_half_difference_changes(
    store, decompositions, part
):
    before = sampling_error(store, EXACT)
    again = sampling_error(open_estimates(store.matrix.path), EXACT)
    assert len(decompositions) == 2, "of both halves"
    assert again.noise_floor.tobytes() == before.noise_floor.tobytes()
    assert again.standard_error == before.standard_error
    rows = [values[:7].copy() for values in planted()]
    rows[part] += 100 * NOISE * np.random.default_rng(9).normal(size=(7, N)).astype(np.float32)
    store.write_block(0, RowEstimates(*rows))
    after = sampling_error(store, EXACT)
    assert not np.array_equal(after.noise_floor, before.noise_floor)
    assert (after.standard_error != before.standard_error) == (part == 1)
    assert len(decompositions) == 4


@pytest.mark.parametrize("centring", ["columns", "rows", "both"])
def test_halves_are_centred_as_the_matrix_is(tmp_path, centring):
    store = make(tmp_path / "psi", centred_on_reading=centring)
    rows, difference = (values.astype(np.float64) for values in planted())
    halves = (centred_exactly(half, centring) for half in (rows + difference, rows - difference))
    one, other = (np.linalg.svd(half)[0] for half in halves)
    error = load(store.matrix.path).error
    for d in range(1, RANK + 1):
        captured = np.linalg.norm(one[:, :d].T @ other[:, :d]) ** 2
        assert error[d - 1] == pytest.approx((1 - captured / d) / 4, rel=1e-2)


@pytest.mark.parametrize("centring", ["columns", "both"])
def test_a_matrix_larger_than_memory_has_the_same_subspace_and_error(
    tmp_path, monkeypatch, centring
):
    in_memory, streamed = (
        make(tmp_path / name, centred_on_reading=centring) for name in ("memory", "disk")
    )
    expected = principal_subspace(in_memory.matrix, RANDOMIZED)
    error = sampling_error(in_memory, RANDOMIZED)
    truth_in_memory = load_ground_truth(in_memory.matrix.path, RANDOMIZED)
    monkeypatch.setattr(module, "IN_MEMORY_BYTES", 1)
    found = principal_subspace(streamed.matrix, RANDOMIZED)
    truth_on_disk = load_ground_truth(streamed.matrix.path, RANDOMIZED)
    assert isinstance(truth_on_disk.matrix, CentredBlocks)
    rows = np.concatenate([rows for _, rows in truth_on_disk.matrix.blocks()])
    np.testing.assert_array_equal(rows, np.asarray(truth_in_memory.matrix))
    np.testing.assert_allclose(found.singular_values, expected.singular_values, rtol=1e-5)
    signs = np.sign(np.sum(found.basis * expected.basis, axis=0))
    np.testing.assert_allclose(found.basis * signs, expected.basis, atol=2e-5)
    assert found.total_energy == pytest.approx(expected.total_energy, rel=1e-6)
    other = sampling_error(streamed, RANDOMIZED)
    np.testing.assert_allclose(other.noise_floor, error.noise_floor, rtol=1e-4, atol=1e-9)
