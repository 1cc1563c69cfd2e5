"""A stored matrix as a ground truth: centred, decomposed once, kept beside the matrix."""

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.subspace import DECOMPOSITIONS, ExactSVD, RandomizedSVD, svd
from rlreps.successor.ground_truth import load_ground_truth, principal_subspace
from rlreps.successor.store import create_or_resume, open_store

BINS = 5
NUM_STATES = BINS**2
RANDOMIZED = RandomizedSVD(rank=6, oversampling=8, power_iterations=8)
EXACT = ExactSVD(rank=6)


def matrix():
    """A full-rank [25, 25] matrix of falling spectrum whose columns have large means."""
    generator = np.random.default_rng(0)
    left, _ = np.linalg.qr(generator.normal(size=(NUM_STATES, NUM_STATES)))
    right, _ = np.linalg.qr(generator.normal(size=(NUM_STATES, NUM_STATES)))
    spectrum = 10 * 0.7 ** np.arange(NUM_STATES)
    return ((left * spectrum) @ right.T + 50 * generator.random(NUM_STATES)).astype(np.float32)


def create(path, settings, values=None, skip=()):
    values = matrix() if values is None else values
    store = create_or_resume(
        path, shape=values.shape, block_rows=4, settings=settings, provenance={}
    )
    for index in range(store.num_blocks):
        if index not in skip:
            store.write_block(index, values[slice(*store.block_range(index))])
    return store


@pytest.fixture
def store(tmp_path):
    return create(tmp_path / "psi", {"bins": BINS, "discount": 0.9})


@pytest.fixture
def decompositions(monkeypatch):
    """Counts every decomposition that is computed."""
    computed = []

    def counting(function):
        def wrapped(*args, **kwargs):
            computed.append(function.__name__)
            return function(*args, **kwargs)

        return wrapped

    for function in (svd.exact_svd, svd.randomized_svd):
        monkeypatch.setattr(svd, function.__name__, counting(function))
    return computed


def centred_oracle():
    values = matrix().astype(np.float64)
    return values - values.mean(axis=0)


@pytest.mark.parametrize("config", [RANDOMIZED, EXACT])
def test_the_ground_truth_is_the_svd_of_the_centred_matrix(store, config):
    truth = load_ground_truth(store.path, config)
    oracle = centred_oracle()
    np.testing.assert_allclose(truth.matrix, oracle, atol=1e-5)
    assert np.max(np.abs(np.mean(np.asarray(truth.matrix, np.float64), axis=0))) < 1e-6
    left, values, _ = np.linalg.svd(oracle)
    np.testing.assert_allclose(truth.principal.singular_values, values[:6], rtol=1e-5)
    overlap = np.linalg.svd(left[:, :6].T @ truth.principal.basis, compute_uv=False)
    np.testing.assert_allclose(overlap, 1.0, atol=1e-4)
    assert truth.principal.total_energy == pytest.approx(np.sum(oracle**2), rel=1e-5)
    assert truth.num_states == NUM_STATES
    assert dict(truth.settings) == {"bins": BINS, "discount": 0.9}


def test_coordinates_are_the_centres_of_the_cells_row_by_row(store):
    coordinates = load_ground_truth(store.path, EXACT).coordinates
    expected = [((c + 0.5) / BINS, (r + 0.5) / BINS) for r in range(BINS) for c in range(BINS)]
    np.testing.assert_allclose(coordinates, expected, rtol=1e-6)


@pytest.mark.parametrize("config", [RANDOMIZED, EXACT])
def test_a_second_load_reads_the_same_subspace_and_decomposes_nothing(
    store, config, decompositions
):
    first = load_ground_truth(store.path, config).principal
    again = load_ground_truth(store.path, config).principal
    alone = principal_subspace(open_store(store.path), config)
    assert len(decompositions) == 1
    for kept in (again, alone):
        assert kept.basis.tobytes() == first.basis.tobytes()
        assert kept.singular_values.tobytes() == first.singular_values.tobytes()
        assert kept.basis.dtype == first.basis.dtype == np.float32
        assert kept.total_energy == first.total_energy
        assert (kept.method, dict(kept.settings)) == (first.method, dict(first.settings))


def test_a_subspace_computed_alone_serves_a_later_load(store, decompositions):
    alone = principal_subspace(store, RANDOMIZED)
    truth = load_ground_truth(store.path, RANDOMIZED)
    assert decompositions == ["randomized_svd"]
    np.testing.assert_array_equal(truth.principal.basis, alone.basis)


def test_other_settings_or_another_matrix_are_decomposed_anew(store, decompositions):
    load_ground_truth(store.path, RANDOMIZED)
    more = load_ground_truth(store.path, RandomizedSVD(rank=7, oversampling=8))
    exact = load_ground_truth(store.path, EXACT)
    assert more.principal.basis.shape == (NUM_STATES, 7)
    assert exact.principal.method == "exact"
    assert decompositions == ["randomized_svd", "randomized_svd", "exact_svd"]
    store.write_block(0, 2 * matrix()[:4])
    changed = load_ground_truth(store.path, EXACT)
    assert len(decompositions) == 4
    assert changed.principal.singular_values[0] > 1.5 * exact.principal.singular_values[0]


@pytest.mark.parametrize("method", ["randomized", "exact"])
def test_without_a_rank_all_that_a_small_matrix_has_is_kept(store, method):
    full = load_ground_truth(store.path, DECOMPOSITIONS[method]())
    assert full.principal.basis.shape == (NUM_STATES, NUM_STATES - 1)
    again = load_ground_truth(store.path, DECOMPOSITIONS[method]())
    np.testing.assert_array_equal(again.principal.basis, full.principal.basis)
    with pytest.raises(InputError, match=r"expected a rank of at most 24, .* got 25"):
        load_ground_truth(store.path, DECOMPOSITIONS[method](rank=25))
    with pytest.raises(InputError, match=r"expected 1 <= rank <= 25 .* got 26"):
        load_ground_truth(store.path, DECOMPOSITIONS[method](rank=26))


def test_without_a_rank_a_large_matrix_keeps_a_hundred_components():
    matrix = np.random.default_rng(0).normal(size=(160, 150)).astype(np.float32)
    assert RandomizedSVD().decompose(matrix).basis.shape == (160, 100)


@pytest.mark.parametrize("method", ["randomized", "exact"])
def test_without_a_rank_a_deficient_matrix_keeps_its_numerical_rank(method):
    rng = np.random.default_rng(1)
    matrix = (rng.normal(size=(40, 3)) @ rng.normal(size=(3, 30))).astype(np.float32)
    assert DECOMPOSITIONS[method]().decompose(matrix).basis.shape == (40, 3)
    with pytest.raises(InputError, match="expected a rank of at most 3"):
        DECOMPOSITIONS[method](rank=4).decompose(matrix)


def test_a_dimension_beyond_the_kept_components_is_refused(store):
    truth = load_ground_truth(store.path, EXACT)
    truth.require_dimension(1)
    truth.require_dimension(6)
    for d in (0, 7):
        with pytest.raises(InputError, match=f"expected 1 <= d <= 6 components .* got {d}"):
            truth.require_dimension(d)


def test_an_incomplete_store_is_refused_and_names_what_is_missing(tmp_path):
    store = create(tmp_path / "psi", {"bins": BINS}, skip=(1, 2))
    for load in (
        lambda: load_ground_truth(store.path, EXACT),
        lambda: principal_subspace(store, EXACT),
    ):
        with pytest.raises(InputError, match="expected all 7 blocks, got 2 missing: 1-2"):
            load()
    assert not (store.path / "subspace").exists()


def test_a_corrupt_block_is_refused(store):
    load_ground_truth(store.path, EXACT)
    file = store.block_file(2)
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"expected a readable block 2 \(rows 8-11"):
        load_ground_truth(store.path, EXACT)


@pytest.mark.parametrize("settings", [{}, {"bins": "5"}, {"bins": 4}, {"bins": None}])
def test_a_store_over_no_grid_is_refused(tmp_path, settings):
    store = create(tmp_path / "psi", settings)
    with pytest.raises(InputError, match="expected a store over a grid of bins x bins states"):
        load_ground_truth(store.path, EXACT)


def test_a_path_without_a_store_is_refused_and_stays_as_it_was(tmp_path):
    with pytest.raises(InputError, match=r"expected a matrix store at .* got no such path"):
        load_ground_truth(tmp_path / "nothing", EXACT)
    assert list(tmp_path.iterdir()) == []
