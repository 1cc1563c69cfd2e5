"""A binary tree of sums: draws indices in proportion to priorities that change all the time.

Schaul et al. 2016 (App. B.2.1). The tree is an array: node 1 is the root, node i has children 2i
and 2i + 1, and the leaves come last.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax


def empty_tree(size: int) -> Array:
    """A tree [2 · leaves] of zeros with at least ``size`` leaves, a power of two."""
    return jnp.zeros((2 << max(size - 1, 1).bit_length(),), jnp.float32)


def set_leaves(tree: Array, indices: Array, priorities: Array) -> Array:
    """The tree with priorities [b] at leaves [b]; of an index that comes twice one of them stays.

    Sums are made anew from both children, so rounding errors do not pile up.
    """
    leaves = tree.shape[0] // 2

    def sum_children(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        tree, nodes = carry
        nodes = nodes // 2
        return tree.at[nodes].set(tree[2 * nodes] + tree[2 * nodes + 1]), nodes

    nodes = leaves + indices
    start = (tree.at[nodes].set(priorities), nodes)
    summed: Array
    summed, _ = lax.fori_loop(0, leaves.bit_length() - 1, sum_children, start)
    return summed


def draw_leaves(key: Array, tree: Array, num: int) -> Array:
    """Leaves [num] in proportion to their priorities, one from each of ``num`` equal strata."""
    leaves = tree.shape[0] // 2
    strata = jnp.arange(num, dtype=jnp.float32) + jax.random.uniform(key, (num,), jnp.float32)

    def descend(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        nodes, rest = carry
        left = tree[2 * nodes]
        # Rounding must not lead into a subtree of nothing.
        right = (rest >= left) & (tree[2 * nodes + 1] > 0.0)
        return 2 * nodes + right.astype(jnp.int32), jnp.where(right, rest - left, rest)

    start = (jnp.ones((num,), jnp.int32), strata * (tree[1] / num))
    nodes: Array
    nodes, _ = lax.fori_loop(0, leaves.bit_length() - 1, descend, start)
    return nodes - leaves
