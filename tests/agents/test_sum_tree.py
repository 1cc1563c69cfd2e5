"""Sums of priorities, and draws in proportion to them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents.replay import draw_leaves, empty_tree, set_leaves


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 65])
def test_every_node_holds_the_sum_of_its_children(size: int) -> None:
    generator = np.random.default_rng(size)
    tree = empty_tree(size)
    assert tree.shape[0] // 2 >= size
    for _ in range(5):
        indices = generator.integers(size, size=4)
        tree = jax.jit(set_leaves)(
            tree, jnp.asarray(indices, jnp.int32), jnp.asarray(generator.random(4), jnp.float32)
        )
    leaves = tree.shape[0] // 2
    nodes = np.arange(1, leaves)
    np.testing.assert_array_equal(tree[nodes], tree[2 * nodes] + tree[2 * nodes + 1])


def test_leaves_are_drawn_as_often_as_their_priorities_say() -> None:
    priorities = np.array([0.0, 1.0, 3.0, 0.0, 6.0, 0.0], np.float32)
    tree = set_leaves(empty_tree(6), jnp.arange(6, dtype=jnp.int32), jnp.asarray(priorities))
    drawn = jax.vmap(lambda key: draw_leaves(key, tree, 10))(
        jax.random.split(jax.random.key(0), 2_000)
    )
    counts = np.bincount(np.asarray(drawn).ravel(), minlength=6)
    # One draw from each tenth of the total: 1, 3 and 6 of every ten, without any spread.
    np.testing.assert_array_equal(counts, 2_000 * priorities)


def test_a_draw_never_ends_at_a_leaf_of_no_priority() -> None:
    generator = np.random.default_rng(3)
    priorities = generator.random(100).astype(np.float32) * (generator.random(100) < 0.2)
    priorities[-1] = 0.0
    tree = set_leaves(empty_tree(100), jnp.arange(100, dtype=jnp.int32), jnp.asarray(priorities))
    drawn = jax.vmap(lambda key: draw_leaves(key, tree, 64))(
        jax.random.split(jax.random.key(1), 500)
    )
    assert drawn.max() < 100
    assert (priorities[np.asarray(drawn)] > 0.0).all()
