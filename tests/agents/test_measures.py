"""Measures of a torso against closed forms and definitions written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents.measures import coverage_distance, dormant_share, effective_rank
from rlreps.encoders import MLP
from rlreps.errors import InputError


def centred_frame(states, columns, seed=0):
    """Orthonormal columns [states, columns] with mean zero, float64."""
    noise = np.random.default_rng(seed).standard_normal((states, columns))
    return np.linalg.qr(noise - noise.mean(axis=0))[0]


def single(array):
    return jnp.asarray(array, jnp.float32)


class TestEffectiveRank:
    @pytest.mark.parametrize("rank", [1, 3, 6])
    def test_equal_singular_values_count_as_many_directions(self, rank):
        features = np.zeros((40, 6))
        features[:, :rank] = 5.0 * centred_frame(40, rank)
        assert effective_rank(single(features)) == pytest.approx(rank, rel=1e-5)

    def test_it_is_the_exponential_of_the_entropy_of_the_singular_values(self):
        values = np.array([4.0, 2.0, 1.0, 1.0])
        rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0]
        features = centred_frame(30, 4) * values @ rotation
        # Shares 1/2, 1/4, 1/8, 1/8: entropy 7/4 bits.
        assert effective_rank(single(features)) == pytest.approx(2**1.75, rel=1e-5)

    def test_it_does_not_change_with_scale_nor_with_constants(self):
        features = np.random.default_rng(2).standard_normal((50, 5)) * [3.0, 1.0, 1.0, 0.2, 0.1]
        rank = effective_rank(single(features))
        assert 2.0 < rank < 4.5
        np.testing.assert_allclose(effective_rank(single(1e3 * features)), rank, rtol=1e-5)
        np.testing.assert_allclose(effective_rank(single(features + 7.0)), rank, rtol=1e-4)

    @pytest.mark.parametrize("constant", [0.0, 0.1, -1e6])
    def test_features_that_are_the_same_in_all_states_have_none(self, constant):
        assert effective_rank(jnp.full((301, 3), constant)) == 0.0

    def test_differences_in_the_last_digit_are_no_direction(self):
        # As products of matrices round the same row differently at different places.
        features = np.full((301, 3), 0.1, np.float32)
        features[::7, 0] = features[::5, 1] = np.nextafter(np.float32(0.1), np.float32(1.0))
        assert len(np.unique(features)) == 2
        assert effective_rank(single(features)) == 0.0

    def test_a_constant_feature_beside_others_does_not_count(self):
        features = np.concatenate([np.full((300, 2), 0.3), centred_frame(300, 1)], axis=1)
        assert effective_rank(single(features)) == pytest.approx(1.0, abs=1e-5)

    def test_nan_is_not_hidden(self):
        assert np.isnan(effective_rank(jnp.ones((5, 2)).at[0, 0].set(jnp.nan)))


class TestDormantShare:
    def test_units_are_compared_with_the_mean_of_their_own_layer(self):
        # Mean activities: 1, 0.02, 0 (mean 0.34, limit 0.0085), and 100, 1 (mean 50.5, 1.26).
        first = jnp.asarray([[2.0, 0.01, 0.0], [0.0, -0.03, 0.0]])
        second = jnp.asarray([[100.0, -1.0], [-100.0, 1.0]])
        assert dormant_share([first]) == pytest.approx(1 / 3)
        assert dormant_share([second]) == pytest.approx(1 / 2)
        assert dormant_share([first, second]) == pytest.approx(2 / 5)
        assert dormant_share([first, second], threshold=0.1) == pytest.approx(3 / 5)
        assert dormant_share([first, second], threshold=0.01) == pytest.approx(1 / 5)

    def test_the_threshold_itself_is_dormant(self):
        layer = jnp.asarray([[1.0, 3.0]])
        assert dormant_share([layer], threshold=0.5) == 0.5
        assert dormant_share([layer], threshold=0.499) == 0.0

    def test_a_channel_is_one_unit(self):
        frames = jnp.zeros((2, 3, 3, 4)).at[1, 2, 0, 0].set(1.0)
        assert dormant_share([frames]) == pytest.approx(3 / 4)

    def test_a_dead_layer_is_dormant_and_no_layer_has_no_dormant_unit(self):
        assert dormant_share([jnp.zeros((4, 3)), jnp.ones((4, 3))]) == 0.5
        assert dormant_share([]) == 0.0

    def test_nan_is_not_hidden(self):
        assert np.isnan(dormant_share([jnp.ones((2, 2)), jnp.ones((2, 2)).at[0, 0].set(jnp.nan)]))

    def test_units_of_an_encoder_that_were_put_to_sleep_are_counted(self):
        encoder = MLP(3, num_inputs=2, hidden=(8, 6))
        params = encoder.init(jax.random.key(0))
        inputs = jax.random.uniform(jax.random.key(1), (50, 2))
        layer = params[1]
        layer["bias"] = layer["bias"].at[:4].set(-100.0)
        first, second = (np.asarray(part) for part in encoder.hidden_activations(params, inputs))
        assert np.count_nonzero(np.all(second == 0.0, axis=0)) >= 4
        asleep = [np.sum(a.mean(axis=0) / a.mean() <= 0.025) for a in (first, second)]
        found = dormant_share(encoder.hidden_activations(params, inputs))
        assert found == pytest.approx(sum(asleep) / 14)


class TestCoverageDistance:
    def test_more_features_than_components_may_cover_them(self):
        frame = centred_frame(30, 6)
        features = 3.0 * frame @ np.random.default_rng(3).standard_normal((6, 6)) + 2.0
        assert coverage_distance(single(features), single(frame[:, :2])) < 1e-8

    @pytest.mark.parametrize(("features", "components"), [(1, 4), (3, 4), (4, 4)])
    def test_fewer_features_leave_the_rest_uncovered(self, features, components):
        frame = centred_frame(30, components)
        distance = coverage_distance(single(frame[:, :features] + 1.0), single(frame))
        assert distance == pytest.approx(1 - features / components, abs=1e-6)

    def test_copies_and_constants_cover_nothing_more(self):
        frame = centred_frame(30, 4)
        one = frame[:, :1]
        features = np.concatenate([one, -2 * one, np.full((30, 1), 0.3), one + 5], axis=1)
        assert coverage_distance(single(features), single(frame)) == pytest.approx(0.75, abs=1e-6)

    def test_features_that_are_the_same_in_all_states_cover_nothing(self):
        basis = single(centred_frame(30, 3))
        for constant in (0.0, 0.1):
            assert coverage_distance(jnp.full((30, 2), constant), basis) == 1.0

    def test_other_states_are_refused(self):
        with pytest.raises(InputError, match="expected a matrix over the features' 30 states"):
            coverage_distance(jnp.ones((30, 2)), jnp.ones((29, 2)))


def test_measures_of_many_agents_are_those_of_each_and_compile():
    features = jax.random.normal(jax.random.key(0), (3, 20, 4))
    features = features.at[1].set(0.0)
    basis = single(centred_frame(20, 2))

    def measure(features):
        return (
            effective_rank(features),
            dormant_share([jax.nn.relu(features)]),
            coverage_distance(features, basis),
        )

    together = jax.jit(jax.vmap(measure))(features)
    for index in range(3):
        for found, expected in zip(together, measure(features[index]), strict=True):
            np.testing.assert_allclose(found[index], expected, rtol=1e-5, atol=1e-6)
