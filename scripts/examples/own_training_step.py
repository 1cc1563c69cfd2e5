# %% [markdown]
# # A loss inside a training step of your own
#
# Use an objective of rlreps in your own training step, with a Flax network and an optax optimizer.
# The data are the exact successor measure of a random walk around a square block.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from rlreps import losses, plotting, subspace

side, discount = 15, 0.95
rows, columns = np.divmod(np.arange(side * side), side)
free = ~((abs(rows - 7) < 4) & (abs(columns - 7) < 4))
near = abs(rows - rows[:, None]) + abs(columns - columns[:, None]) == 1
moves = (near & free & free[:, None])[free][:, free] / 4
moves += np.diag(1 - moves.sum(axis=1))  # A walk into a wall stays.
measure = np.linalg.inv(np.eye(len(moves)) - discount * moves)
matrix = jnp.asarray(measure - measure.mean(axis=0), jnp.float32)
places = jnp.asarray(np.stack([columns, rows], axis=1)[free] / side, jnp.float32)

# %% [markdown]
# `step` takes the gradient of the loss, updates the parameters and keeps the objective's state.

# %%
sizes, rngs = [(2, 256), (256, 256), (256, 8)], nnx.Rngs(0)
first, second, last = (nnx.Linear(*size, rngs=rngs) for size in sizes)
graph, params = nnx.split(nnx.Sequential(first, jnp.sin, second, nnx.relu, last))
objective, optimizer = losses.LargeBatch(8, precondition=0.01), optax.adam(1e-3)


def encode(params, inputs):
    return nnx.merge(graph, params)(8.0 * inputs)


@jax.jit
def step(carry, key):
    params, optimizer_state, state = carry
    drawn = jax.random.choice(key, len(matrix), (128,))
    batch = losses.Batch(inputs=places[drawn], targets=matrix[drawn])
    differentiated = jax.grad(objective.loss, has_aux=True)
    gradient, (state, _) = differentiated(params, encode, batch, state, key)
    updates, optimizer_state = optimizer.update(gradient, optimizer_state)
    return (optax.apply_updates(params, updates), optimizer_state, state), None


carry = params, optimizer.init(params), objective.init(jax.random.key(1))
(params, *_), _ = jax.lax.scan(step, carry, jax.random.split(jax.random.key(2), 2_000))

# %%
truth, features = subspace.exact_svd(matrix, 8).basis, encode(params, places)
print(f"subspace distance {subspace.subspace_distance(features, truth):.4f}")
maps = np.full((2, side * side, 8), np.nan)
maps[:, free] = truth, subspace.align(features, truth)
figure = plotting.plot_components({"exact": maps[0], "learned": maps[1]}, bins=side)
plotting.save_figure(figure, "components-round-a-block.png")
