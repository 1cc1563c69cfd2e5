"""The river transformer: its rule in NumPy, a pipeline, and rows with other features."""

import numpy as np
import pytest

from rlreps.errors import InputError, TrainingDivergedError
from rlreps.streaming import RULES, RiverPCA

linear_model = pytest.importorskip("river.linear_model")
checks = pytest.importorskip("river.checks")

ROWS = np.random.default_rng(0).normal(size=(60, 4)) * [3.0, 2.0, 1.0, 0.5] + [5.0, 0.0, -2.0, 1.0]
NAMES = ["b", "a", "d", "c"]


def as_row(row):
    return dict(zip(NAMES, row.tolist(), strict=True))


def learned(model, rows=ROWS):
    for row in rows:
        model.learn_one(as_row(row))
    return model


def test_ojas_rule_is_that_of_numpy():
    model = RiverPCA(2, "oja", learning_rate=0.05, power=0.5)
    mean = np.zeros(4)
    for step, row in enumerate(ROWS, start=1):
        model.learn_one(as_row(row))
        mean += (row - mean) / step
        if step == 1:  # The first row is its own mean, and leaves the random start.
            expected = model.components_.T.astype(float)
            np.testing.assert_allclose(expected.T @ expected, np.eye(2), atol=1e-6)
        centred = row - mean
        moved = expected + 0.05 / step**0.5 * np.outer(centred, centred @ expected)
        basis, upper = np.linalg.qr(moved)
        expected = basis * np.sign(np.diag(upper))
    np.testing.assert_allclose(model.components_, expected.T, atol=1e-4)
    found = model.transform_one(as_row(ROWS[0]))
    assert [*found] == [0, 1]
    np.testing.assert_allclose([*found.values()], (ROWS[0] - mean) @ expected, atol=1e-3)


@pytest.mark.parametrize("size", [None, 0.0, 1e-25])
def test_all_components_of_incremental_pca_are_exact_and_keep_their_signs(size):
    # A sensor may be silent, or all but silent, at first.
    rows = ROWS if size is None else np.concatenate([size * ROWS[:9], ROWS])
    model, before = RiverPCA(4), None
    for row in rows:
        model.learn_one(as_row(row))
        if before is not None:
            assert np.all(np.sum(before * model.components_, axis=1) >= 0.0)
        before = model.components_
    exact = np.linalg.svd(rows - rows.mean(axis=0))[2]
    np.testing.assert_allclose(model.mean_, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(np.abs(np.sum(model.components_ * exact, axis=1)), 1.0, atol=1e-3)


SINGLE = [rule for rule in RULES if RULES[rule].least_rows_per_update(2) == 1]


@pytest.mark.parametrize("rule", SINGLE)
def test_the_order_of_keys_changes_no_coordinate(rule):
    model, permuted = (RiverPCA(2, rule, learning_rate=0.01) for _ in range(2))
    for place, row in enumerate(ROWS[:12]):
        x = as_row(row)
        model.learn_one(x)
        permuted.learn_one({name: x[name] for name in np.roll(NAMES, place + 1).tolist()})
        assert permuted.transform_one(x) == model.transform_one(x)
    # Columns follow the keys of the first row: c, b, a, d.
    for name in ("components_", "mean_"):
        expected = np.roll(getattr(model, name), 1, axis=-1)
        np.testing.assert_array_equal(getattr(permuted, name), expected)


@pytest.mark.integration
@pytest.mark.parametrize("rule", ["incremental_pca"])
def test_rivers_own_checks_pass(rule):
    checks.check_estimator(RiverPCA(2, rule))


@pytest.mark.parametrize("rule", ["incremental_pca", "oja"])
def test_the_size_of_rows_changes_no_bit(rule):
    plain, small = (
        learned(RiverPCA(2, rule, learning_rate=0.01 / unit**2), unit * ROWS)
        for unit in (1.0, 2.0**-80)
    )
    np.testing.assert_array_equal(small.components_, plain.components_)
    np.testing.assert_array_equal(2.0**80 * small.mean_, plain.mean_)


def test_far_from_the_origin_nothing_is_lost():
    shift = np.array([1e9, -3e8, 0.0, 1e7])
    plain, far = learned(RiverPCA(2)), learned(RiverPCA(2), ROWS + shift)
    # The first rows decide the signs, also by their rounding.
    signs = np.sign(np.sum(far.components_ * plain.components_, axis=1, keepdims=True))
    np.testing.assert_allclose(signs * far.components_, plain.components_, atol=1e-5)
    np.testing.assert_allclose(far.mean_ - shift, plain.mean_, atol=1e-5)


@pytest.mark.parametrize("rows", [ROWS[:0], ROWS[:3]], ids=["first", "later"])
@pytest.mark.parametrize("value", [None, np.inf, 10**400, 1e30])
def test_a_row_that_cannot_be_used_leaves_the_model_as_it_was(value, rows):
    model, other = learned(RiverPCA(2), rows), learned(RiverPCA(2), rows)
    with pytest.raises(InputError, match=r"expected (finite numbers|numbers at most .*), got"):
        model.learn_one({**as_row(ROWS[3]), "a": value})
    np.testing.assert_array_equal(learned(model).components_, learned(other).components_)


def test_a_rate_that_diverges_raises_and_leaves_the_model_as_it_was():
    model = RiverPCA(2, "sanger", learning_rate=1e6, power=0.0)
    with pytest.raises(TrainingDivergedError, match="expected finite components from sanger"):
        learned(model)
    assert np.isfinite(model.components_).all()
    assert np.isfinite([*model.transform_one(as_row(ROWS[0])).values()]).all()


def test_features_are_those_of_the_first_row():
    model = RiverPCA(2)
    assert model.transform_one(as_row(ROWS[0])) == {0: 0.0, 1: 0.0}
    learned(model)
    row = as_row(ROWS[0])
    shuffled = {name: row[name] for name in sorted(row)} | {"new": 7.0}
    assert model.transform_one(shuffled) == model.transform_one(row)
    del shuffled["a"]
    assert model.transform_one(shuffled) == model.transform_one({**row, "a": 0.0})


def test_too_many_components_and_rules_of_several_rows_are_refused():
    with pytest.raises(InputError, match="rule that learns from single rows"):
        RiverPCA(2, "eigengame")
    with pytest.raises(InputError, match="num_components <= 4"):
        learned(RiverPCA(5))
