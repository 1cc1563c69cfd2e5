# %% [markdown]
# # Principal components of an environment of your own
#
# The successor measure of MountainCar under random actions, from Gymnasium alone: rollouts start
# in every cell of a grid over position and velocity, and visits are counted with their discount.
# Any vector environment works whose state can be set.

# %%
import gymnasium
import jax.numpy as jnp
import numpy as np

from rlreps import plotting, subspace
from rlreps.successor import (
    BoxGrid,
    GymnasiumProcess,
    GymnasiumRowSampler,
    RolloutSettings,
    starts_in_cells,
)

# %% [markdown]
# States are cells. Episodes end at the goal, which is one more cell: it absorbs what is left of
# the discounted sum.

# %%
GOAL = 0.5
grid = BoxGrid(low=(-1.2, -0.07), high=(GOAL, 0.07), bins=(24, 24))


def cell(observations):
    return np.where(observations[:, 0] >= GOAL, grid.num_cells, grid.cell(observations))


settings = RolloutSettings(rollouts=16, horizon=60, discount=0.9, seed=0)
cars = gymnasium.make_vec("MountainCar-v0", 16, max_episode_steps=settings.horizon)
process = GymnasiumProcess(environment=cars, cell=cell, num_cells=grid.num_cells + 1)
sampler = GymnasiumRowSampler(process, set_state=starts_in_cells(grid), settings=settings)
rows, half_difference = next(sampler.row_blocks([range(grid.num_cells)]))
print("row sums", np.unique(rows.sum(axis=1).round(4)), "expected", settings.row_sum)

# %% [markdown]
# The goal is no task here: its column would hold most of the matrix's energy. The components are
# the left singular vectors of the matrix less its columns' means. Two halves of the rollouts say
# how well they are known.

# %%
halves = [
    subspace.exact_svd(subspace.centre_columns(jnp.asarray(half[:, :-1])), 6).basis
    for half in (rows + half_difference, rows - half_difference)
]
truth = subspace.exact_svd(subspace.centre_columns(jnp.asarray(rows[:, :-1])), 6)
print("singular values", np.round(truth.singular_values, 2))
print("noise floor at d = 1 ... 6", np.round(subspace.noise_floor(*halves), 3))
figure = plotting.plot_components({"velocity by position": truth.basis}, bins=24)
plotting.save_figure(figure, "components-of-mountain-car.png")
