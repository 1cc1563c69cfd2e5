"""Ridge regression against refitting without each row."""

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.subspace import ridge_by_leave_one_out
from rlreps.subspace.ridge import STRENGTHS

COARSE = 10.0 ** np.arange(-8.0, 2.0)


@pytest.mark.parametrize(
    ("rows", "candidates", "tolerance"),
    [(12, STRENGTHS, 1e-9), (30, COARSE, 1e-9), (5, COARSE, 1e-4)],
)
def test_the_strength_and_error_of_ridge_are_those_of_leaving_every_row_out(
    rows, candidates, tolerance
):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(rows, 5)) * [4.0, 2.0, 1.0, 0.5, 0.1]
    targets = features @ rng.normal(size=5) + 3.0 + rng.normal(size=rows)
    found = ridge_by_leave_one_out(features, targets, candidates)
    largest = np.linalg.svd(features - features.mean(axis=0), compute_uv=False)[0] ** 2

    def fitted(kept, strength):
        design = np.column_stack([features[kept], np.ones(len(kept))])
        penalty = strength * np.diag([1.0] * 5 + [0.0])
        return np.linalg.solve(design.T @ design + penalty, design.T @ targets[kept])

    errors = []
    for strength in candidates * largest:
        residuals = []
        for row in range(rows):
            weights = fitted(np.delete(np.arange(rows), row), strength)
            residuals.append(targets[row] - features[row] @ weights[:5] - weights[5])
        errors.append(np.mean(np.square(residuals)))
    best = int(np.argmin(errors))
    assert 0 < best < len(candidates) - 1
    np.testing.assert_allclose(found.strength, candidates[best] * largest)
    np.testing.assert_allclose(found.error, errors[best], rtol=tolerance)
    weights = fitted(np.arange(rows), found.strength)
    np.testing.assert_allclose([*found.weights, found.intercept], weights, rtol=tolerance)
    predicted = features @ weights[:5] + weights[5]
    np.testing.assert_allclose(found.predict(features), predicted, rtol=tolerance)


def test_each_column_of_targets_has_its_own_strength():
    random = np.random.default_rng(0)
    features = random.normal(size=(20, 6))
    noise = random.normal(size=(20, 2))
    targets = noise + [8.0, 0.0] * (features @ random.normal(size=(6, 1)))
    both = ridge_by_leave_one_out(features, targets)
    assert both.strength[0] < both.strength[1]
    for column in range(2):
        alone = ridge_by_leave_one_out(features, targets[:, column])
        for part, whole in zip(alone, both, strict=True):
            np.testing.assert_allclose(part, whole[..., column], rtol=1e-9)


@pytest.mark.parametrize("rows", [300, 20])
@pytest.mark.parametrize("kind", ["condition", "scales", "twice", "constants", "rank"])
def test_awkward_features_are_fitted_as_by_least_squares(kind, rows):
    random = np.random.default_rng(0)
    normal, mixing = random.normal(size=(2 * rows, 24)), random.normal(size=(24, 24))
    features = {
        "condition": (normal * np.geomspace(1.0, 1e-8, 24) @ mixing).astype(np.float32),
        "scales": normal * np.where(np.arange(24) % 2, 1e-6, 1e6),
        "twice": np.repeat(normal[:, ::2], 2, axis=1),
        "constants": np.c_[normal, np.full(2 * rows, 0.1), np.zeros(2 * rows)],
        "rank": normal[:, :3] @ mixing[:3],
    }[kind].astype(np.float64)
    targets = normal @ mixing[:, :3] + 0.1 * random.normal(size=(2 * rows, 3))
    found = ridge_by_leave_one_out(features[:rows], targets[:rows])
    centre, mean = features[:rows].mean(axis=0), targets[:rows].mean(axis=0)
    for column, strength in enumerate(found.strength):
        # The penalty is further rows, which keep the condition that normal equations square.
        design = np.r_[features[:rows] - centre, np.sqrt(strength) * np.eye(features.shape[1])]
        aim = np.r_[targets[:rows, column] - mean[column], np.zeros(features.shape[1])]
        weights = np.linalg.lstsq(design, aim, rcond=None)[0]
        expected = (features[rows:] - centre) @ weights + mean[column]
        np.testing.assert_allclose(
            found.predict(features[rows:])[:, column], expected, rtol=0.0, atol=1e-9
        )


def test_features_of_any_scale_have_the_same_fit():
    random = np.random.default_rng(5)
    features, targets = random.normal(size=(40, 6)), random.normal(size=40)
    ours = ridge_by_leave_one_out(features, targets)
    for scale in (2.0**-520, 2.0**480):
        found = ridge_by_leave_one_out(scale * features, targets)
        np.testing.assert_allclose(found.weights * scale, ours.weights, rtol=1e-12)
        np.testing.assert_allclose(found.error, ours.error, rtol=1e-12)


@pytest.mark.parametrize(
    ("features", "targets", "message"),
    [
        (np.ones((1, 2)), np.ones(1), r"at least two rows of features .*, got .*\(1, 2\), \(1,\)"),
        (np.ones((4, 2)), np.ones(3), r".*features \[n, d\] and targets .*\(4, 2\), \(3,\)"),
        (np.ones(4), np.ones(4), r".*features \[n, d\] and targets .*\(4,\), \(4,\)"),
        (np.ones((4, 2)), np.float64(1.0), r".*features \[n, d\] and targets .*\(4, 2\), \(\)"),
        (np.full((4, 2), np.nan), np.ones(4), "finite features and targets, got 'NaN or infinity'"),
        (
            np.eye(4),
            np.r_[1.0, np.inf, 0.0, 0.0],
            "finite features and targets, got 'NaN or infinity'",
        ),
    ],
)
def test_rows_that_cannot_be_left_out_or_do_not_fit_are_refused(features, targets, message):
    with pytest.raises(InputError, match=f"expected {message}"):
        ridge_by_leave_one_out(features, targets)
