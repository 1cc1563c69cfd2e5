"""Value probes against least squares in float64, sums by loops, and their own statements."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents.probes import ValueProbe, probe_error, rollout_probe
from rlreps.agents.replay import Rows
from rlreps.cumulants import RandomNetwork
from rlreps.errors import InputError


def probe_of(values, train):
    inputs = jnp.zeros((len(values), 1))
    return ValueProbe(inputs, jnp.asarray(values, jnp.float32), jnp.asarray(train))


def random_probe(n=80, m=3, seed=0):
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((n, m)) * [1.0, 50.0, 0.1] - [0.0, 400.0, 3.0]
    return values, generator.permutation(n) < n // 2


def unexplained(features, values, train):
    """The definition, by NumPy's least squares."""
    design = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    weights = np.linalg.lstsq(design[train], values[train], rcond=None)[0]
    residual = values[~train] - design[~train] @ weights
    spread = values[~train] - values[~train].mean(axis=0)
    return np.mean(np.sum(residual**2, axis=0) / np.sum(spread**2, axis=0))


def single(array):
    return jnp.asarray(array, jnp.float32)


class TestProbeError:
    def test_it_is_the_share_that_least_squares_leaves_unexplained_at_other_states(self):
        values, train = random_probe()
        noise = np.random.default_rng(1).standard_normal((80, 5))
        features = noise + 0.7 * values[:, :1] + 3.0
        found = probe_error(single(features), probe_of(values, train))
        assert found == pytest.approx(unexplained(features, values, train), rel=1e-4)

    def test_features_that_hold_the_values_explain_all_of_them(self):
        values, train = random_probe()
        mixed = values @ np.random.default_rng(2).standard_normal((3, 3)) + 5.0
        assert probe_error(single(mixed), probe_of(values, train)) < 1e-6

    def test_invertible_maps_and_copies_of_features_change_nothing(self):
        values, train = random_probe()
        probe = probe_of(values, train)
        features = np.random.default_rng(3).standard_normal((80, 4)) + 0.01 * values[:, 1:2]
        expected = probe_error(single(features), probe)
        rotation = np.linalg.qr(np.random.default_rng(4).standard_normal((4, 4)))[0]
        stretched = features * [1.0, 10.0, 0.1, 3.0] @ rotation * [1e3, 1.0, 1.0, 1e-3] - 2.0
        copies = np.concatenate([features, features[:, ::-1], np.full((80, 1), 0.3)], axis=1)
        for other in (stretched, copies):
            assert probe_error(single(other), probe) == pytest.approx(float(expected), rel=1e-3)

    @pytest.mark.parametrize("constant", [0.0, 0.3, 1e5])
    def test_features_that_say_nothing_predict_the_mean(self, constant):
        values, train = random_probe()
        fitted, others = values[train].mean(axis=0), values[~train]
        excess = np.square(others.mean(axis=0) - fitted) / others.var(axis=0)
        found = probe_error(jnp.full((80, 2), constant), probe_of(values, train))
        assert found == pytest.approx(1.0 + excess.mean(), rel=1e-4)

    def test_values_that_do_not_vary_are_left_out(self):
        values, train = random_probe()
        features = np.random.default_rng(5).standard_normal((80, 4)) + values[:, :1]
        with_constants = np.concatenate([values, np.full((80, 2), [0.0, -77.7])], axis=1)
        expected = probe_error(single(features), probe_of(values, train))
        found = probe_error(single(features), probe_of(with_constants, train))
        assert found == pytest.approx(float(expected), rel=1e-6)
        only_constants = probe_of(with_constants[:, 3:], train)
        assert np.isnan(probe_error(single(features), only_constants))

    def test_nan_is_not_hidden(self):
        values, train = random_probe()
        for row in (np.flatnonzero(train)[0], np.flatnonzero(~train)[0]):
            features = jnp.ones((80, 2)).at[row, 1].set(jnp.nan)
            assert np.isnan(probe_error(features, probe_of(values, train)))

    def test_many_agents_are_measured_at_once_in_one_program(self):
        values, train = random_probe()
        probe = probe_of(values, train)
        features = jax.random.normal(jax.random.key(0), (3, 80, 4))
        together = jax.jit(jax.vmap(probe_error, in_axes=(0, None)))(features, probe)
        alone = [probe_error(part, probe) for part in features]
        np.testing.assert_allclose(together, alone, rtol=1e-4)


STEPS, MEMBERS, HORIZON, DISCOUNT = 60, 6, 7, 0.8


def random_rows(seed=0):
    """Trajectories with ends of both kinds; observations [2] that name step and environment."""
    generator = np.random.default_rng(seed)
    last = generator.random((STEPS, MEMBERS)) < 0.08
    terminated = generator.random((STEPS, MEMBERS)) < 0.5
    # It means the end where the next row is an episode's last, and nothing on last rows.
    followed = np.concatenate([last[1:], np.zeros((1, MEMBERS), bool)])
    terminated &= followed | last
    step, member = np.meshgrid(np.arange(STEPS), np.arange(MEMBERS), indexing="ij")
    return Rows(
        observation=jnp.asarray(np.stack([step, member], axis=2), jnp.float32),
        action=jnp.zeros((STEPS, MEMBERS), jnp.int32),
        reward=single(generator.standard_normal((STEPS, MEMBERS))),
        terminated=jnp.asarray(terminated),
        last=jnp.asarray(last),
    )


def sums_by_loop(rows, waves, step, member):
    """(waves' sums [m], task's sum) from a row on; None where fewer steps than asked are known."""
    last, terminated = np.asarray(rows.last), np.asarray(rows.terminated)
    if last[step, member]:
        return None
    of_waves, of_task = 0.0, 0.0
    for count in range(HORIZON):
        now = step + count
        if now == STEPS:
            return None
        if last[now, member] and not terminated[now - 1, member]:
            return None
        of_waves = of_waves + DISCOUNT**count * waves[now, member]
        if last[now, member]:
            break
        of_task += DISCOUNT**count * float(rows.reward[now, member])
    return of_waves, of_task


class TestRolloutProbe:
    def test_values_are_discounted_sums_of_usable_rows(self):
        rows = random_rows()
        flat = np.asarray(rows.observation, np.float64)
        standard = (flat - flat.mean(axis=(0, 1))) / flat.std(axis=(0, 1))
        family = RandomNetwork(input_scale=1.0 / (0.5 * np.sqrt(2)), num_inputs=2)
        waves = np.asarray(family.apply(family.init(jax.random.key(3), 4), single(standard)))
        sums = {
            (step, member): sums_by_loop(rows, waves, step, member)
            for step in range(STEPS)
            for member in range(MEMBERS)
        }
        usable = {place for place, found in sums.items() if found is not None}
        count = 2 * min(sum((m < 3) == half for _, m in usable) for half in (True, False))
        options = {"num_rewards": 4, "horizon": HORIZON, "length_scale": 0.5, "seed": 3}
        probe = rollout_probe(rows, num_states=count, discount=DISCOUNT, **options)
        places = [tuple(place) for place in np.asarray(probe.inputs, int).tolist()]
        assert len(set(places)) == count > 50
        assert set(places) <= usable
        for place, values in zip(places, np.asarray(probe.values), strict=True):
            of_waves, of_task = sums[place]
            np.testing.assert_allclose(values, [*of_waves, of_task], atol=1e-4)
        with pytest.raises(InputError, match=r"expected at least .* rows .* in each half"):
            rollout_probe(rows, num_states=count + 2, discount=DISCOUNT, **options)

    def test_the_states_to_fit_and_the_others_share_no_trajectory(self):
        rows = random_rows()
        probe = rollout_probe(rows, num_states=41, num_rewards=2, horizon=5)
        members = np.asarray(probe.inputs)[:, 1]
        np.testing.assert_array_equal(probe.train, members < 3)
        assert np.sum(probe.train) == 20

    def test_noise_of_the_returns_is_error_that_perfect_features_keep(self):
        generator = np.random.default_rng(0)
        state = generator.standard_normal((500, 8))
        nothing = jnp.zeros((500, 8), bool)
        rows = Rows(
            observation=single(state[:, :, None]),
            action=jnp.zeros((500, 8), jnp.int32),
            reward=single(state + np.sqrt(3.0) * generator.standard_normal((500, 8))),
            terminated=nothing,
            last=nothing,
        )
        probe = rollout_probe(rows, num_states=3000, discount=0.0, horizon=1)
        task = probe._replace(values=probe.values[:, -1:])
        # A quarter of the variance is of the value, the rest noise; 1,500 states to measure at.
        assert probe_error(probe.inputs, task) == pytest.approx(0.75, abs=0.06)

    def test_images_stay_bytes_and_are_cumulants_of_all_their_pixels(self):
        generator = np.random.default_rng(1)
        images = generator.integers(0, 255, (30, 4, 3, 3, 1), dtype=np.uint8)
        rows = random_rows()
        rows = jax.tree.map(lambda part: part[:30, :4], rows)._replace(observation=images)
        probe = rollout_probe(rows, num_states=20, num_rewards=2, horizon=3)
        assert probe.inputs.shape == (20, 3, 3, 1)
        assert probe.inputs.dtype == jnp.uint8
        assert np.std(probe.values[:, 0]) > 0.0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"discount": 1.0}, r"expected discount in \[0, 1\), got 1.0"),
            ({"horizon": 0}, "expected horizon >= 1, got 0"),
            ({"num_rewards": 0}, "expected num_rewards >= 1, got 0"),
            ({"num_states": 1}, "expected num_states >= 2, got 1"),
            ({"length_scale": 0.0}, r"expected length_scale in \(0, inf\), got 0.0"),
            ({"seed": -1}, r"expected seed in \[0, 2\*\*31\), got -1"),
        ],
    )
    def test_numbers_out_of_range_are_refused(self, options, message):
        with pytest.raises(InputError, match=message):
            rollout_probe(random_rows(), **options)

    def test_one_environment_leaves_no_trajectory_to_hold_out(self):
        rows = jax.tree.map(lambda part: part[:, :1], random_rows())
        with pytest.raises(InputError, match=r"expected rows \[steps, environments >= 2\]"):
            rollout_probe(rows)
