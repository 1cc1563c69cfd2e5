"""Spans of features against the same features in double precision."""

import numpy as np
import pytest

from rlreps.subspace import spans_of, standardise


def captured(features, components):
    return float(1.0 - spans_of(standardise(features), components).missed_with_intercept.mean())


def test_smooth_features_in_single_precision_keep_almost_all_that_they_hold():
    """A fixed relative cut would discard short directions that rounding hardly touches."""
    random, side = np.random.default_rng(0), 100
    waves = np.cos(np.pi * (np.arange(side)[:, None] + 0.5) / side * np.arange(5))
    components = np.einsum("ik,jl->ijkl", waves, waves).reshape(side**2, 25)[:, 1:16]
    components /= np.linalg.norm(components, axis=0)
    places = np.stack(np.meshgrid(*2 * [np.linspace(-1.0, 1.0, side)], indexing="ij"), -1)
    places = places.reshape(-1, 2)
    features = np.sin(places @ random.normal(size=(2, 64)) + random.normal(size=64))
    exact = captured(features, components)
    assert captured(features.astype(np.float32), components) == pytest.approx(exact, abs=0.03)
    # Half precision is rounded once: as float32, noise would count as well.
    half = features.astype(np.float16)
    most = captured(half.astype(np.float32), components)
    assert captured(half, components) == pytest.approx(most, abs=0.09)
    # Of these features the span alone holds the constant, too.
    spans = spans_of(standardise(half), components)
    np.testing.assert_allclose(
        spans.missed_without_intercept, spans.missed_with_intercept, atol=0.02
    )


@pytest.mark.parametrize(("width", "depth"), [(64, 1), (64, 4), (512, 3)])
def test_layers_in_single_precision_have_the_rank_of_their_input(width, depth):
    random = np.random.default_rng(1)
    features = random.normal(size=(5_000, 3)).astype(np.float32) + np.float32(1.0)
    for _ in range(depth):
        weights = random.normal(size=(features.shape[1], width)) / np.sqrt(features.shape[1])
        features = features @ weights.astype(np.float32) + np.float32(1.0)
    components = np.linalg.qr(random.normal(size=(5_000, 2)))[0]
    assert len(spans_of(standardise(features), components).factor) == 3


@pytest.mark.parametrize("kind", [np.float16, np.float32])
@pytest.mark.parametrize("shift", [0.0, 20.0, 300.0])
def test_means_of_some_units_add_no_rank(kind, shift):
    random = np.random.default_rng(2)
    features = random.normal(size=(5_000, 3)) @ random.normal(size=(3, 64))
    features[:, :24] += shift
    components = np.linalg.qr(random.normal(size=(5_000, 2)))[0]
    assert len(spans_of(standardise(features.astype(kind)), components).factor) == 3
