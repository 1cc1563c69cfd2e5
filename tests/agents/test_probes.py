"""Value probes against least squares, sums by loops, and rollouts of PuddleWorld."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents.probes import (
    ValueProbe,
    _discounted_sums,
    probe_error,
    puddle_world_probe,
    rollout_probe,
)
from rlreps.agents.replay import Rows
from rlreps.cumulants import RandomNetwork
from rlreps.envs import PuddleWorldState, load_arena
from rlreps.errors import InputError
from rlreps.successor.grids import Grid
from rlreps.successor.kernels.actions import cell_moves

error_of = jax.jit(probe_error)
single = np.float32


def probe_of(values, train):
    return ValueProbe(np.zeros((len(values), 1), np.float32), single(values), train)


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


class TestProbeError:
    def test_it_is_the_share_that_least_squares_leaves_unexplained_at_other_states(self):
        values, train = random_probe()
        probe, generator = probe_of(values, train), np.random.default_rng(1)
        features = generator.standard_normal((80, 4)) + 0.7 * values[:, :1] + 3.0
        expected = unexplained(features, values, train)
        assert error_of(single(features), probe) == pytest.approx(expected, rel=1e-4)
        # Invertible maps and copies of features change nothing.
        rotation = np.linalg.qr(generator.standard_normal((4, 4)))[0]
        stretched = features * [1.0, 10.0, 0.1, 3.0] @ rotation * [1e3, 1.0, 1.0, 1e-3] - 2.0
        copies = np.concatenate([features, features[:, ::-1], np.full((80, 1), 0.3)], axis=1)
        for other in (stretched, copies):
            assert error_of(single(other), probe) == pytest.approx(expected, rel=1e-3)
        # Features that hold the values explain all of them.
        mixed = values @ generator.standard_normal((3, 4)) + 5.0
        assert error_of(single(mixed), probe) < 1e-6

    @pytest.mark.parametrize("constant", [0.0, 0.3, 1e5])
    def test_features_that_say_nothing_predict_the_mean(self, constant):
        values, train = random_probe()
        fitted, others = values[train].mean(axis=0), values[~train]
        excess = np.square(others.mean(axis=0) - fitted) / others.var(axis=0)
        found = error_of(np.full((80, 4), constant, np.float32), probe_of(values, train))
        assert found == pytest.approx(1.0 + excess.mean(), rel=1e-4)

    def test_values_that_do_not_vary_are_left_out(self):
        values, train = random_probe()
        features = np.random.default_rng(5).standard_normal((80, 4)) + values[:, :1]
        constants = np.full((80, 2), [0.0, -77.7])
        with_constants = probe_of(np.concatenate([values, constants], axis=1), train)
        expected = float(error_of(single(features), probe_of(values, train)))
        found = error_of(single(features), with_constants)
        assert found == pytest.approx(expected, rel=1e-6)
        assert np.isnan(error_of(single(features), probe_of(constants, train)))
        # Nor is NaN hidden.
        for row in (np.flatnonzero(train)[0], np.flatnonzero(~train)[0]):
            features = np.ones((80, 4), np.float32)
            features[row, 1] = np.nan
            assert np.isnan(error_of(features, probe_of(values, train)))


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
        observation=single(np.stack([step, member], axis=2)),
        action=np.zeros((STEPS, MEMBERS), np.int32),
        reward=single(generator.standard_normal((STEPS, MEMBERS))),
        terminated=terminated,
        last=last,
    )


def sums_by_loop(rows, waves, step, member):
    """(waves' sums [m], task's sum) from a row on; None where fewer steps than asked are known."""
    if rows.last[step, member]:
        return None
    of_waves, of_task = 0.0, 0.0
    for count in range(HORIZON):
        now = step + count
        if now == STEPS:
            return None
        if rows.last[now, member] and not rows.terminated[now - 1, member]:
            return None
        of_waves = of_waves + DISCOUNT**count * waves[now, member]
        if rows.last[now, member]:
            break
        of_task += DISCOUNT**count * float(rows.reward[now, member])
    return of_waves, of_task


class TestRolloutProbe:
    def test_values_are_discounted_sums_of_usable_rows(self):
        rows = random_rows()
        flat = np.asarray(rows.observation, np.float64)
        standard = (flat - flat.mean(axis=(0, 1))) / flat.std(axis=(0, 1))
        family = RandomNetwork(input_scale=1.0 / (0.5 * np.sqrt(2)), num_inputs=2)
        drawn = jax.jit(lambda seen: family.apply(family.init(jax.random.key(3), 4), seen))
        waves = np.asarray(drawn(single(standard)))
        places = [(step, member) for step in range(STEPS) for member in range(MEMBERS)]
        sums = {place: sums_by_loop(rows, waves, *place) for place in places}
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
        # The states to fit and the others share no trajectory.
        np.testing.assert_array_equal(probe.train, np.asarray(probe.inputs)[:, 1] < 3)
        with pytest.raises(InputError, match=r"expected at least .* rows .* in each half"):
            rollout_probe(rows, num_states=count + 2, discount=DISCOUNT, **options)
        # Of an odd number, the smaller half is fitted.
        odd = rollout_probe(rows, num_states=count - 1, discount=DISCOUNT, **options)
        assert np.sum(odd.train) == count // 2 - 1

    @pytest.mark.integration
    def test_images_stay_bytes_and_are_cumulants_of_all_their_pixels(self):
        images = np.random.default_rng(1).integers(0, 255, (30, 4, 3, 3, 1), dtype=np.uint8)
        rows = jax.tree.map(lambda part: part[:30, :4], random_rows())._replace(observation=images)
        probe = rollout_probe(rows, num_states=20, num_rewards=2, horizon=3)
        assert probe.inputs.shape == (20, 3, 3, 1)
        assert probe.inputs.dtype == jnp.uint8
        assert np.std(probe.values[:, 0]) > 0.0


BINS = 25
GRID = Grid(BINS)
RIGHT_OFTEN = np.array([0.2, 0.5, 0.1, 0.2])
GAMMA, LENGTH, ROLLOUTS = 0.9, 60, 2000


def reward_of(position):
    return jnp.sin(4.0 * position[0]) + position[1]


@pytest.fixture(scope="module")
def sutton():
    """The task in Sutton's arena, and moves between its cells."""
    environment = load_arena("sutton").with_task()
    return environment, cell_moves(environment, GRID, jax.random.key(0))


def test_values_are_those_of_rollouts_up_to_the_grid(sutton):
    environment, moves = sutton
    policy = np.broadcast_to(RIGHT_OFTEN, (GRID.num_cells, 4))
    centres = GRID.centres()
    rewards = np.sin(4.0 * centres[:, 0]) + centres[:, 1]
    of_task = np.sum(policy * moves.rewards, axis=1)
    values = np.stack(
        [
            _discounted_sums(policy, chain, reward[:, None], GAMMA)[:, 0]
            for chain, reward in ((moves.on, of_task), (moves.to, rewards))
        ]
    )

    @jax.jit
    @jax.vmap
    def sampled(key, cell):
        """Discounted returns of the task, which ends at its goal, and of rewards of positions."""

        def step(carry, key):
            state, alive = carry
            step_key, action_key = jax.random.split(key)
            action = jax.random.choice(action_key, 4, p=jnp.asarray(RIGHT_OFTEN, jnp.float32))
            out = environment.step(step_key, state, action)
            found = jnp.where(alive, out.reward, 0.0), reward_of(state.position)
            return (out.state, alive & ~out.terminated), jnp.stack(found)

        position = GRID.sample(jax.random.fold_in(key, LENGTH), cell)
        start = PuddleWorldState(position, jnp.zeros((), jnp.int32)), jnp.asarray(True)
        _, found = jax.lax.scan(step, start, jax.random.split(key, LENGTH))
        return (GAMMA ** jnp.arange(LENGTH, dtype=jnp.float32)) @ found

    keys = jax.random.split(jax.random.key(5), ROLLOUTS)
    for place in ((0.2, 0.3), (0.45, 0.6), (0.85, 0.85)):
        cell = int(GRID.cell(jnp.asarray(place)))
        returns = np.asarray(sampled(keys, np.full(ROLLOUTS, cell)))
        noise = returns.std(axis=0) / np.sqrt(ROLLOUTS)
        # Cut at γ^60 = 0.002; and a chain over cells blurs its values by some percent.
        limit = 4 * noise + 0.05 * values.std(axis=1)
        assert np.all(np.abs(values[:, cell] - returns.mean(axis=0)) < limit)


def test_walls_are_no_states_and_nothing_goes_through_them():
    # With this key, rounding lets one of 256 starts get out of a cell within a wall.
    moves = cell_moves(load_arena("two_room"), GRID, jax.random.key(1))
    x, y = GRID.centres().T
    wall = (x > 0.4) & (x < 0.6) & ((y > 0.6) | (y < 0.4))
    np.testing.assert_array_equal(moves.cells, np.flatnonzero(~wall))
    np.testing.assert_allclose(moves.to.sum(axis=2), 1.0)
    left, right = (x[moves.cells] < 0.4), (x[moves.cells] > 0.6)
    door = (y[moves.cells] > 0.4) & (y[moves.cells] < 0.6)
    assert moves.to[:, left & ~door][:, :, right].sum() == 0.0
    # Agents that a wall stops stay in the cells beside it: without noise they all stand on its
    # edge, which is the edge of a cell that is no state.
    moves = cell_moves(load_arena("two_room", noise=0.0), GRID, jax.random.key(0))
    x, y = GRID.centres()[moves.cells].T
    beside = np.flatnonzero((x > 0.36) & (x < 0.4) & (y > 0.6))
    np.testing.assert_allclose(moves.to[1, beside, beside], 1.0)
    below = np.flatnonzero((y > 0.56) & (y < 0.6) & (x > 0.4) & (x < 0.6))
    np.testing.assert_allclose(moves.to[0, below, below], 1.0)


def test_the_probe_has_a_column_for_each_policy_and_reward_and_fits_half_of_the_cells():
    environment, counts = load_arena("sutton"), {"bins": 10, "num_policies": 3, "num_rewards": 2}
    plain = puddle_world_probe(environment, **counts)
    assert plain.inputs.shape == (100, 2)
    assert plain.values.shape == (100, 6)
    assert int(plain.train.sum()) == 50
    task = puddle_world_probe(environment.with_task(), **counts)
    assert task.values.shape == (100, 9)
    waves = np.delete(np.asarray(task.values), [2, 5, 8], axis=1)
    np.testing.assert_allclose(waves, plain.values, rtol=1e-4, atol=1e-4)
    assert np.all(np.asarray(task.values)[:, [2, 5, 8]] <= -1.0)
