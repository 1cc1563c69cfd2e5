"""A matrix and its half differences: written together, missing together, checked together."""

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.successor.measure import RowEstimates
from rlreps.successor.store import create_or_resume, open_store
from rlreps.successor.store.estimates import HALF_DIFFERENCE, create_estimates, open_estimates

ROW_SUM = 10.0
SETTINGS = {"quantity": "successor measure", "row_sum": ROW_SUM}
SHAPE, BLOCK_ROWS = (7, 5), 3


def estimates():
    """Rows that sum to ROW_SUM and half differences that sum to nothing."""
    rng = np.random.default_rng(0)
    rows, noise = rng.random(SHAPE), rng.normal(size=SHAPE)
    rows *= ROW_SUM / rows.sum(axis=1, keepdims=True)
    noise -= noise.mean(axis=1, keepdims=True)
    return RowEstimates(rows.astype(np.float32), noise.astype(np.float32))


def block(store, index, values=None):
    part = slice(*store.matrix.block_range(index))
    return RowEstimates(*(value[part] for value in values or estimates()))


def create(path, sampled=True, **changes):
    layout = {"shape": SHAPE, "block_rows": BLOCK_ROWS, "settings": SETTINGS, "provenance": {}}
    return create_estimates(path, **{**layout, **changes}, sampled=sampled)


@pytest.fixture
def store(tmp_path):
    store = create(tmp_path / "psi")
    for index in range(3):
        store.write_block(index, block(store, index))
    return store


def test_half_differences_lie_beside_the_matrix_and_both_come_back_bit_for_bit(store):
    again = open_estimates(store.matrix.path)
    assert again.half_difference.path == store.matrix.path / HALF_DIFFERENCE
    assert again.matrix.read().tobytes() == estimates().rows.tobytes()
    assert again.half_difference.read().tobytes() == estimates().half_difference.tobytes()
    assert again.stores() == [again.half_difference, again.matrix]


def test_a_half_difference_can_be_told_from_a_matrix_by_its_settings(store):
    expected = {**SETTINGS, "quantity": "half difference of a successor measure"}
    assert dict(store.half_difference.settings) == expected
    with pytest.raises(InputError, match="expected quantity='half difference of"):
        create(store.half_difference.path)


def test_a_block_that_either_lacks_is_missing(store):
    assert store.missing_blocks() == []
    store.matrix.block_file(0).unlink()
    store.half_difference.block_file(2).unlink()
    assert open_estimates(store.matrix.path).missing_blocks() == [0, 2]
    store.matrix.block_file(2).unlink()
    assert store.missing_blocks() == [0, 2]


def test_the_half_difference_of_a_block_is_on_disk_before_the_block(tmp_path, monkeypatch):
    store = create(tmp_path / "psi")

    def fail(self, index, rows):
        if self.path == store.matrix.path:
            assert store.half_difference.missing_blocks() == [0, 2]
            raise InputError("killed here")
        original(self, index, rows)

    original = type(store.matrix).write_block
    monkeypatch.setattr(type(store.matrix), "write_block", fail)
    with pytest.raises(InputError, match="killed here"):
        store.write_block(1, block(store, 1))
    assert store.missing_blocks() == [0, 1, 2]


def test_a_sampled_matrix_without_half_differences_is_refused(tmp_path):
    store = create(tmp_path / "psi")
    with pytest.raises(InputError, match="expected half differences, got none"):
        store.write_block(0, RowEstimates(block(store, 0).rows))
    assert store.missing_blocks() == [0, 1, 2]


def test_an_unsampled_matrix_has_no_half_differences(tmp_path):
    store = create(tmp_path / "psi", sampled=False)
    assert store.half_difference is None
    assert not (tmp_path / "psi" / HALF_DIFFERENCE).exists()
    store.write_block(0, RowEstimates(block(store, 0).rows))
    reports = store.verify(ROW_SUM)
    assert len(reports) == 1
    assert [problem.index for problem in reports[0].missing_blocks] == [1, 2]
    assert open_estimates(tmp_path / "psi").half_difference is None


def test_verification_checks_both_and_rows_of_half_differences_sum_to_nothing(store):
    difference, matrix = store.verify(ROW_SUM)
    assert difference.ok
    assert matrix.ok
    values = estimates()
    values.rows[4, 0] += 0.01  # block 1
    values.half_difference[0, 2] += 0.01  # block 0
    for index in range(3):
        store.write_block(index, block(store, index, values))
    difference, matrix = store.verify(ROW_SUM)
    assert [problem.index for problem in matrix.damaged_blocks] == [1]
    assert [problem.index for problem in difference.damaged_blocks] == [0]
    assert "expected rows that sum to 0 within 0.0001, got 0.0" in difference.problems()[0]
    assert all(report.ok for report in store.verify(None))


def test_removing_a_block_takes_both_its_files_and_may_be_repeated(store):
    store.remove_block(1)
    store.remove_block(1)
    assert store.missing_blocks() == [1]
    assert store.matrix.missing_blocks() == store.half_difference.missing_blocks() == [1]


def test_a_matrix_of_another_version_gets_no_half_differences(tmp_path):
    """Before there were any, settings had other names: refused, and nothing is added."""
    create_or_resume(
        tmp_path / "psi",
        shape=SHAPE,
        block_rows=BLOCK_ROWS,
        settings={"quantity": "successor measure"},
        provenance={},
    )
    with pytest.raises(InputError, match="made under other settings: expected no row_sum"):
        create(tmp_path / "psi")
    assert not (tmp_path / "psi" / HALF_DIFFERENCE).exists()
    assert open_store(tmp_path / "psi").missing_blocks() == [0, 1, 2]


@pytest.mark.parametrize("left", [[], ["zarr.json.__lock"]])
def test_a_kill_while_the_half_differences_were_created_stands_in_nobodys_way(tmp_path, left):
    create(tmp_path / "psi", sampled=False)
    (tmp_path / "psi" / HALF_DIFFERENCE).mkdir()
    for name in left:
        (tmp_path / "psi" / HALF_DIFFERENCE / name).write_text("{")
    assert open_estimates(tmp_path / "psi").missing_blocks() == [0, 1, 2]
    assert create(tmp_path / "psi").half_difference.missing_blocks() == [0, 1, 2]


def test_half_differences_whose_metadata_were_deleted_are_not_overlooked(store):
    (store.half_difference.path / "zarr.json").unlink()
    for call in (lambda: open_estimates(store.matrix.path), lambda: create(store.matrix.path)):
        with pytest.raises(InputError, match=r"half_difference with no zarr\.json but"):
            call()


def test_a_sampled_matrix_without_its_half_difference_is_a_problem(tmp_path):
    store = create(tmp_path / "psi", sampled=False, settings={**SETTINGS, "halves": 2})
    for index in range(3):
        store.write_block(index, block(store, index))
    (problem,) = store.problems(store.verify(ROW_SUM))
    assert "expected the difference of its halves in half_difference, got none" in problem
    alone = create(tmp_path / "exact", sampled=False)
    for index in range(3):
        alone.write_block(index, block(alone, index))
    assert alone.problems(alone.verify(ROW_SUM)) == []
