import re

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP, FunctionEncoder, Tabular, TwoTowers
from rlreps.errors import InputError
from rlreps.subspace import exact_svd
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.training.evaluation import (
    evaluate_encoder,
    evaluate_features,
    principal_components,
    summarise,
)

NUM_STATES, NUM_TASKS, D = 64, 50, 4
SPECTRUM = np.asarray([10.0, 8.0, 6.0, 4.0, 2.0, 1.0])


def orthonormal(rows, columns, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((rows, columns)))[0]


def truth_of(spectrum=SPECTRUM):
    """A matrix with known singular values, and its exact subspace of that many components."""
    rank = len(spectrum)
    matrix = orthonormal(NUM_STATES, rank, 0) * spectrum @ orthonormal(NUM_TASKS, rank, 1).T
    matrix = jnp.asarray(matrix, jnp.float32)
    return GroundTruth(
        coordinates=jnp.zeros((NUM_STATES, 2)), matrix=matrix, principal=exact_svd(matrix, rank)
    )


TRUTH = truth_of()
ENCODER = Tabular(D, num_states=NUM_STATES)
BASIS = np.asarray(TRUTH.principal.basis)
ROTATION = orthonormal(D, D, 2).astype(np.float32)


def test_swapping_the_last_component_for_the_next_costs_what_the_spectrum_says():
    features = BASIS[:, [0, 1, 2, 4]]
    figures = evaluate_features(jnp.asarray(features @ ROTATION), TRUTH)
    assert figures["subspace_distance"] == pytest.approx(1 / D, rel=1e-4)
    assert figures["grassmann_distance"] == pytest.approx(np.pi / 2, rel=1e-4)
    assert figures["longest_eigenvector_streak"] == D - 1
    np.testing.assert_allclose(figures["matched_cosines"], [1, 1, 1, 0], atol=1e-4)
    assert figures["representation_loss"] == pytest.approx(4.0**2 + 1.0**2, rel=1e-4)
    assert figures["relative_excess_loss"] == pytest.approx(17.0 / 5.0 - 1.0, rel=1e-4)


def test_random_features_are_measured_as_numpy_measures_them():
    features = np.random.default_rng(3).standard_normal((NUM_STATES, D)).astype(np.float32)
    figures = evaluate_encoder(ENCODER, jnp.asarray(features), jnp.arange(NUM_STATES), TRUTH)
    span = np.linalg.qr(features.astype(np.float64))[0]
    overlap = np.linalg.svd(span.T @ BASIS[:, :D])[1]
    matrix = np.asarray(TRUTH.matrix, np.float64)
    loss = np.sum(np.square(matrix - span @ (span.T @ matrix)))
    assert figures["subspace_distance"] == pytest.approx(1 - np.sum(overlap**2) / D, rel=1e-4)
    np.testing.assert_allclose(figures["principal_angles"], np.arccos(overlap), rtol=1e-3)
    assert figures["representation_loss"] == pytest.approx(loss, rel=1e-4)
    assert figures["relative_excess_loss"] == pytest.approx(loss / 5.0 - 1.0, rel=1e-4)
    # What is followed in training is what the full evaluation says.
    followed = TRUTH.evaluation(ENCODER)(jnp.asarray(features))
    assert sorted(followed) == ["feature_rank", "subspace_distance"]
    for name, value in followed.items():
        assert float(value) == pytest.approx(figures[name], rel=1e-5)
    # Of two towers f is followed, whatever g is.
    towers = {"forward": jnp.asarray(features), "backward": jnp.asarray(BASIS[:, :D])}
    assert TRUTH.evaluation(TwoTowers(ENCODER, ENCODER))(towers) == followed
    # The components of a span are the left singular vectors of what it sees.
    components = np.asarray(principal_components(jnp.asarray(features), TRUTH.matrix))
    expected = np.linalg.svd(span @ span.T @ matrix)[0][:, :D]
    np.testing.assert_allclose(np.abs(np.sum(components * expected, axis=0)), np.ones(D), atol=1e-4)


def test_where_the_best_features_leave_no_loss_the_excess_has_no_value():
    truth = truth_of(SPECTRUM[:D])
    figures = evaluate_features(jnp.asarray(truth.principal.basis), truth)
    assert figures["relative_excess_loss"] is None
    assert summarise([figures, figures])["relative_excess_loss"] is None


def test_a_summary_holds_means_and_each_seeds_own_figures():
    seeds = [
        evaluate_encoder(ENCODER, jnp.asarray(BASIS[:, columns]), jnp.arange(NUM_STATES), TRUTH)
        for columns in ([0, 1, 2, 3], [0, 1, 2, 4])
    ]
    summary = summarise(seeds)
    assert summary["per_seed"] == seeds
    assert isinstance(summary["d"], int)
    assert summary["subspace_distance"] == pytest.approx(0.5 / D, rel=1e-4)
    assert summary["longest_eigenvector_streak"] == D - 0.5
    alike = summarise(seeds[:1] * 2)["longest_eigenvector_streak"]
    assert (alike, type(alike)) == (D, int)  # "4", not "4.0".


def test_an_encoder_that_does_not_fit_the_states_is_named_before_training():
    for encoder, message in (
        (FunctionEncoder(lambda key: (), lambda _, x: x[:, 0]), "(64, d) of the states, got (64,)"),
        (MLP(D, num_inputs=3), "of shape (b, 3), as the encoder's num_inputs is 3, got (64, 2)"),
        (MLP(7, num_inputs=2), "1 <= d <= 6 components of the ground truth, got 7"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            TRUTH.evaluation(encoder)
