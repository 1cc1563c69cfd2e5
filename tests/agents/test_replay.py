"""Memory: rows in order of time, and sequences that cross episodes' ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import ReplayConfig
from rlreps.agents.replay import ReplayRows, add, draw, draw_transitions, init_replay, transitions

NUM_ENVS, LENGTH, NUM = 2, 3, 20_000
append = jax.jit(add)
sequences = jax.jit(draw, static_argnums=(3, 4))


def stream(count, last_every=None):
    """Rows whose observation says environment and time, 1,000 e + t."""
    for t in range(count):
        ends = (last_every is not None) * np.ones(NUM_ENVS, bool)
        yield ReplayRows(
            observation=np.array([[t], [1_000 + t]], np.float32),
            action=np.full(NUM_ENVS, t, np.int32),
            reward=np.full(NUM_ENVS, t, np.float32),
            terminated=ends & ((t + 1) % (last_every or 1) == (last_every or 1) - 1),
            last=ends & (t % (last_every or 1) == (last_every or 1) - 1),
        )


def remembered(rows):
    """A memory of ten rows of each environment, after some rows, and their number."""
    replay = init_replay(ReplayConfig(capacity=20), jax.ShapeDtypeStruct((1,), jnp.float32), 2)
    count = 0
    for row in rows:
        replay = append(replay, np.int32(count), row)
        count += 1
    return replay, np.int32(count)


def drawn_from(rows, seed=0):
    """Sequences from such a memory."""
    return jax.device_get(sequences(jax.random.key(seed), *remembered(rows), NUM, LENGTH))


@pytest.mark.parametrize("count", [6, 10, 23])
def test_sequences_are_consecutive_rows_of_one_environment_still_held(count):
    drawn = drawn_from(stream(count))
    observations = drawn.observation[:, :, 0]
    np.testing.assert_array_equal(observations, observations[:, :1] + np.arange(LENGTH))
    times = observations % 1_000
    assert times.min() >= max(0, count - 10)
    assert times.max() <= count - 1
    assert set(np.unique(observations // 1_000)) == {0, 1}
    np.testing.assert_array_equal(drawn.action, times)


def test_every_start_but_the_oldest_is_drawn_equally_often():
    drawn = drawn_from(stream(33), seed=1)
    starts, counts = np.unique(drawn.observation[:, 0, 0], return_counts=True)
    expected = [environment + t for environment in (0, 1_000) for t in range(24, 31)]
    np.testing.assert_array_equal(starts, expected)
    # Binomial, a fourteenth each.
    deviation = np.sqrt(NUM / 14 * 13 / 14)
    assert np.abs(counts - NUM / 14).max() < 5 * deviation


def test_no_sequence_starts_at_the_last_row_of_an_episode():
    assert not drawn_from(stream(50, last_every=2), seed=2).last[:, 0].any()


def random_rows(seed, count, length):
    """Sequences whose first row is not ``last``; a termination is always followed by a last row."""
    generator = np.random.default_rng(seed)
    last, terminated = np.zeros((2, count, length), bool)
    for b in range(count):
        for i in range(length - 1):
            if not last[b, i] and generator.random() < 0.3:
                last[b, i + 1] = True
                terminated[b, i] = generator.random() < 0.5
    return ReplayRows(
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


def test_drawn_transitions_are_those_of_the_sequences_that_the_same_key_draws():
    # Every other episode ends at a time limit.
    rows = [
        row._replace(terminated=row.terminated & (t % 2 == 0))
        for t, row in enumerate(stream(23, last_every=3))
    ]
    memory, discount = remembered(rows), 0.9
    found = jax.jit(draw_transitions, static_argnums=(3, 4, 5))(
        jax.random.key(0), *memory, NUM, LENGTH - 1, discount
    )
    drawn = sequences(jax.random.key(0), *memory, NUM, LENGTH)
    jax.tree.map(np.testing.assert_array_equal, found, jax.jit(transitions)(drawn, discount))
    assert len(np.unique(found.discount)) == 3  # After one step, two steps, and a termination.
