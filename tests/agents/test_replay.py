"""Memory in order of time: what is drawn is what was added, whole, and as often as promised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import ReplayConfig
from rlreps.agents.replay import (
    Replay,
    Rows,
    add,
    draw_prioritised,
    draw_uniform,
    init_replay,
    set_priorities,
)

NUM_ENVS = 2
LENGTH = 3


def stream(count: int, last_every: int | None = None) -> list[Rows]:
    """Rows whose observation says environment and time, 1,000 e + t."""
    rows = []
    for t in range(count):
        is_last = last_every is not None and t % last_every == last_every - 1
        ends = last_every is not None and (t + 1) % last_every == last_every - 1
        rows.append(
            Rows(
                observation=jnp.asarray([[t], [1_000 + t]], jnp.float32),
                action=jnp.full((NUM_ENVS,), t, jnp.int32),
                reward=jnp.full((NUM_ENVS,), float(t), jnp.float32),
                terminated=jnp.full((NUM_ENVS,), ends),
                last=jnp.full((NUM_ENVS,), is_last),
            )
        )
    return rows


def filled(config: ReplayConfig, rows: list[Rows]) -> Replay:
    replay = init_replay(config, jax.ShapeDtypeStruct((1,), jnp.float32), NUM_ENVS)
    step = jax.jit(add, static_argnums=3)
    for count, row in enumerate(rows):
        replay = step(replay, jnp.int32(count), row, LENGTH)
    return replay


@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("count", [6, 10, 23, 40])
def test_sequences_are_consecutive_rows_of_one_environment_still_held(
    count: int, prioritised: bool
) -> None:
    config = ReplayConfig(capacity=20, prioritised=prioritised)
    replay = filled(config, stream(count))
    if prioritised:
        drawn = draw_prioritised(jax.random.key(0), replay, jnp.int32(count), 300, LENGTH, 0.5)
    else:
        drawn = draw_uniform(jax.random.key(0), replay, jnp.int32(count), 300, LENGTH)
    observations = np.asarray(drawn.rows.observation[:, :, 0])
    np.testing.assert_array_equal(observations, observations[:, :1] + np.arange(LENGTH))
    times = observations % 1_000
    assert times.min() >= max(0, count - 10)
    assert times.max() <= count - 1
    assert set(np.unique(observations // 1_000)) == {0, 1}
    np.testing.assert_array_equal(drawn.rows.action, times)


def test_every_start_but_the_oldest_is_drawn_equally_often() -> None:
    replay = filled(ReplayConfig(capacity=20), stream(33))
    drawn = draw_uniform(jax.random.key(1), replay, jnp.int32(33), 70_000, LENGTH)
    starts, counts = np.unique(np.asarray(drawn.rows.observation[:, 0, 0]), return_counts=True)
    expected = [environment + t for environment in (0, 1_000) for t in range(24, 31)]
    np.testing.assert_array_equal(starts, expected)
    # Binomial: 5,000 expected, standard deviation 68.
    assert np.abs(counts - 5_000).max() < 5 * 68


@pytest.mark.parametrize("prioritised", [False, True])
def test_no_sequence_starts_at_the_last_row_of_an_episode(prioritised: bool) -> None:
    replay = filled(ReplayConfig(capacity=40, prioritised=prioritised), stream(50, last_every=2))
    if prioritised:
        drawn = draw_prioritised(jax.random.key(2), replay, jnp.int32(50), 5_000, LENGTH, 0.5)
    else:
        drawn = draw_uniform(jax.random.key(2), replay, jnp.int32(50), 5_000, LENGTH)
    assert not drawn.rows.last[:, 0].any()


def test_priorities_decide_how_often_a_start_is_drawn_and_weights_undo_it() -> None:
    config = ReplayConfig(capacity=20, prioritised=True, priority_exponent=0.5)
    replay = filled(config, stream(10))
    first = draw_prioritised(jax.random.key(0), replay, jnp.int32(10), 400, LENGTH, 1.0)
    starts = jnp.unique(first.starts)
    assert len(starts) == 2 * (10 - LENGTH + 1)
    errors = jnp.where(starts == starts[0], 9.0, 1.0)
    replay = set_priorities(replay, starts, errors, config.priority_exponent)
    drawn = draw_prioritised(jax.random.key(3), replay, jnp.int32(10), 20_000, LENGTH, 1.0)
    share = float(jnp.mean(drawn.starts == starts[0]))
    # |9|^0.5 = 3 against fifteen others of 1.
    assert share == pytest.approx(3 / 18, abs=2e-3)
    often = drawn.weights[drawn.starts == starts[0]]
    np.testing.assert_allclose(often, 1 / 3, rtol=1e-4)
    np.testing.assert_allclose(drawn.weights[drawn.starts != starts[0]], 1.0, rtol=1e-4)


def test_new_starts_get_the_largest_priority_so_far() -> None:
    config = ReplayConfig(capacity=20, prioritised=True, priority_exponent=1.0)
    replay = filled(config, stream(6))
    starts = jnp.asarray([0], jnp.int32)
    replay = set_priorities(replay, starts, jnp.asarray([8.0]), 1.0)
    replay = add(replay, jnp.int32(6), stream(7)[6], LENGTH)
    tree = np.asarray(replay.priorities.tree)
    leaves = tree[len(tree) // 2 :][:20].reshape(10, NUM_ENVS)
    np.testing.assert_allclose(leaves[:4], [[8, 1], [1, 1], [1, 1], [1, 1]], rtol=1e-5)
    np.testing.assert_allclose(leaves[4], [8, 8], rtol=1e-5)
    np.testing.assert_array_equal(leaves[5:], 0.0)


def test_a_row_that_is_overwritten_can_no_longer_be_drawn() -> None:
    replay = filled(ReplayConfig(capacity=20, prioritised=True), stream(12))
    tree = np.asarray(replay.priorities.tree)
    leaves = tree[len(tree) // 2 :][:20].reshape(10, NUM_ENVS)
    # Times 0 and 1 gave way to 10 and 11, which have no whole sequence yet.
    np.testing.assert_array_equal(leaves[:2], 0.0)
    assert (leaves[2:] > 0.0).all()
