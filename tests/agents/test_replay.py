"""Memory: sums of priorities, rows in order of time, and sequences that cross episodes' ends."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import ReplayConfig
from rlreps.agents.replay import (
    Rows,
    add,
    draw_leaves,
    draw_prioritised,
    draw_uniform,
    empty_tree,
    init_replay,
    set_leaves,
    set_priorities,
    transitions,
)

NUM_ENVS, LENGTH, NUM = 2, 3, 20_000
with_leaves = jax.jit(set_leaves)
leaves_drawn = jax.jit(jax.vmap(draw_leaves, in_axes=(0, None, None)), static_argnums=2)
append = jax.jit(add, static_argnums=3)
draws = {
    False: jax.jit(draw_uniform, static_argnums=(3, 4)),
    True: jax.jit(functools.partial(draw_prioritised, exponent=1.0), static_argnums=(3, 4)),
}


def as_priorities(values):
    values = np.asarray(values, np.float32)
    return with_leaves(empty_tree(len(values)), np.arange(len(values), dtype=np.int32), values)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 65])
def test_every_node_holds_the_sum_of_its_children(size):
    generator = np.random.default_rng(size)
    tree = empty_tree(size)
    leaves = tree.shape[0] // 2
    assert leaves >= size
    for _ in range(5):
        indices = generator.integers(size, size=4).astype(np.int32)
        tree = with_leaves(tree, indices, generator.random(4).astype(np.float32))
    tree, nodes = np.asarray(tree), np.arange(1, leaves)
    np.testing.assert_array_equal(tree[nodes], tree[2 * nodes] + tree[2 * nodes + 1])


def test_leaves_are_drawn_as_often_as_their_priorities_say():
    priorities = np.array([0.0, 1.0, 3.0, 0.0, 6.0, 0.0])
    keys = jax.random.split(jax.random.key(0), 2_000)
    drawn = np.asarray(leaves_drawn(keys, as_priorities(priorities), 10))
    # One draw from each tenth of the total: 1, 3 and 6 of every ten, without any spread.
    np.testing.assert_array_equal(np.bincount(drawn.ravel(), minlength=6), 2_000 * priorities)


def test_a_draw_never_ends_at_a_leaf_of_no_priority():
    generator = np.random.default_rng(3)
    priorities = generator.random(100) * (generator.random(100) < 0.2)
    priorities[-1] = 0.0
    keys = jax.random.split(jax.random.key(1), 500)
    drawn = np.asarray(leaves_drawn(keys, as_priorities(priorities), 64))
    assert drawn.max() < 100
    assert (priorities[drawn] > 0.0).all()


def stream(count, last_every=None):
    """Rows whose observation says environment and time, 1,000 e + t."""
    for t in range(count):
        ends = (last_every is not None) * np.ones(NUM_ENVS, bool)
        yield Rows(
            observation=np.array([[t], [1_000 + t]], np.float32),
            action=np.full(NUM_ENVS, t, np.int32),
            reward=np.full(NUM_ENVS, t, np.float32),
            terminated=ends & ((t + 1) % (last_every or 1) == (last_every or 1) - 1),
            last=ends & (t % (last_every or 1) == (last_every or 1) - 1),
        )


def filled(config, rows):
    replay = init_replay(config, jax.ShapeDtypeStruct((1,), jnp.float32), NUM_ENVS)
    for count, row in enumerate(rows):
        replay = append(replay, np.int32(count), row, LENGTH)
    return replay


def drawn_from(replay, count, prioritised, seed=0):
    drawn = draws[prioritised](jax.random.key(seed), replay, np.int32(count), NUM, LENGTH)
    return jax.device_get(drawn)


def leaves_of(replay):
    tree = np.asarray(replay.priorities.tree)
    return tree[len(tree) // 2 :][:20].reshape(10, NUM_ENVS)


@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("count", [6, 10, 23, 40])
def test_sequences_are_consecutive_rows_of_one_environment_still_held(count, prioritised):
    replay = filled(ReplayConfig(capacity=20, prioritised=prioritised), stream(count))
    drawn = drawn_from(replay, count, prioritised)
    observations = drawn.rows.observation[:, :, 0]
    np.testing.assert_array_equal(observations, observations[:, :1] + np.arange(LENGTH))
    times = observations % 1_000
    assert times.min() >= max(0, count - 10)
    assert times.max() <= count - 1
    assert set(np.unique(observations // 1_000)) == {0, 1}
    np.testing.assert_array_equal(drawn.rows.action, times)


def test_every_start_but_the_oldest_is_drawn_equally_often():
    drawn = drawn_from(filled(ReplayConfig(capacity=20), stream(33)), 33, False, seed=1)
    starts, counts = np.unique(drawn.rows.observation[:, 0, 0], return_counts=True)
    expected = [environment + t for environment in (0, 1_000) for t in range(24, 31)]
    np.testing.assert_array_equal(starts, expected)
    # Binomial, a fourteenth each.
    deviation = np.sqrt(NUM / 14 * 13 / 14)
    assert np.abs(counts - NUM / 14).max() < 5 * deviation


@pytest.mark.parametrize("prioritised", [False, True])
def test_no_sequence_starts_at_the_last_row_of_an_episode(prioritised):
    config = ReplayConfig(capacity=20, prioritised=prioritised)
    replay = filled(config, stream(50, last_every=2))
    assert not drawn_from(replay, 50, prioritised, seed=2).rows.last[:, 0].any()


def test_priorities_decide_how_often_a_start_is_drawn_and_weights_undo_it():
    config = ReplayConfig(capacity=20, prioritised=True, priority_exponent=0.5)
    replay = filled(config, stream(10))
    starts = np.unique(drawn_from(replay, 10, True).starts)
    assert len(starts) == 2 * (10 - LENGTH + 1)
    errors = np.where(starts == starts[0], 9.0, 1.0).astype(np.float32)
    replay = set_priorities(replay, starts, errors, config.priority_exponent)
    drawn = drawn_from(replay, 10, True, seed=3)
    # |9|^0.5 = 3 against fifteen others of 1.
    assert np.mean(drawn.starts == starts[0]) == pytest.approx(3 / 18, abs=2e-3)
    expected = np.where(drawn.starts == starts[0], 1 / 3, 1.0)
    np.testing.assert_allclose(drawn.weights, expected, rtol=1e-4)


def test_new_starts_get_the_largest_priority_so_far():
    config = ReplayConfig(capacity=20, prioritised=True, priority_exponent=1.0)
    replay = filled(config, stream(6))
    replay = set_priorities(replay, np.array([0], np.int32), np.array([8.0], np.float32), 1.0)
    leaves = leaves_of(append(replay, np.int32(6), [*stream(7)][6], LENGTH))
    np.testing.assert_allclose(leaves[:4], [[8, 1], [1, 1], [1, 1], [1, 1]], rtol=1e-5)
    np.testing.assert_allclose(leaves[4], [8, 8], rtol=1e-5)
    np.testing.assert_array_equal(leaves[5:], 0.0)


def random_rows(seed, count, length):
    """Sequences whose first row is not ``last``; a termination is always followed by a last row."""
    generator = np.random.default_rng(seed)
    last, terminated = np.zeros((2, count, length), bool)
    for b in range(count):
        for i in range(length - 1):
            if not last[b, i] and generator.random() < 0.3:
                last[b, i + 1] = True
                terminated[b, i] = generator.random() < 0.5
    return Rows(
        observation=generator.normal(size=(count, length, 2)).astype(np.float32),
        action=generator.integers(3, size=(count, length)).astype(np.int32),
        reward=generator.normal(size=(count, length)).astype(np.float32),
        terminated=terminated,
        last=last,
    )


def walked(rows, b, discount):
    """Return, what the value reached is worth, and the row reached, step by step."""
    total, worth, row = 0.0, 1.0, 0
    while row < rows.reward.shape[1] - 1 and not rows.last[b, row]:
        total += worth * float(rows.reward[b, row])
        worth *= discount
        if rows.terminated[b, row]:
            worth = 0.0
        row += 1
    return total, worth, row


@pytest.mark.parametrize("n_step", [1, 2, 5])
def test_transitions_are_those_of_an_agent_that_walks_until_its_episode_ends(n_step):
    rows = random_rows(n_step, 200, n_step + 1)
    # Both kinds of ends are met: a time limit keeps the value that it cut, a termination does not.
    ends = {(bool(rows.last[b].any()), bool(rows.terminated[b].any())) for b in range(200)}
    assert len(ends) == 3
    found = jax.device_get(jax.jit(transitions)(rows, 0.9))
    for b in range(200):
        total, worth, row = walked(rows, b, 0.9)
        np.testing.assert_allclose(found.reward[b], total, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.discount[b], worth, rtol=1e-6)
        np.testing.assert_array_equal(found.next_observation[b], rows.observation[b, row])
        np.testing.assert_array_equal(found.observation[b], rows.observation[b, 0])
        assert found.action[b] == rows.action[b, 0]
