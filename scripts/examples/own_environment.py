# %% [markdown]
# # Principal components of an environment of your own
#
# The successor measure of MountainCar under random actions, from Gymnasium alone: rollouts start
# in every cell of a grid over position and velocity, and visits are counted with their discount.

# %%
import gymnasium
import numpy as np

from rlreps import plotting, subspace, successor

# %% [markdown]
# The grid says which cells there are; the names of its axes go on the figures. Episodes end at the
# goal, which is one more cell: it absorbs what is left of the discounted sum.

# %%
grid = successor.BoxGrid(
    low=(-1.2, -0.07),
    high=(0.5, 0.07),
    bins=(24, 18),
    names=("position (m)", "velocity (m per step)"),
)


def cell(observations):
    return np.where(observations[:, 0] >= 0.5, grid.num_cells, grid.cell(observations))


cars = gymnasium.make("MountainCar-v0")
process = successor.GymnasiumProcess(
    environment=cars, grid=grid, cell=cell, num_cells=grid.num_cells + 1
)
settings = successor.RolloutSettings(rollouts=16, horizon=60, discount=0.9, seed=0)
estimates = successor.GymnasiumRowSampler(process, settings=settings).estimates()
print("row sums", np.unique(estimates.rows.sum(axis=1).round(3)))
print("expected", round(settings.row_sum, 3))

# %% [markdown]
# The goal is left out as a task: its column would hold most of the matrix's energy. Stored, the
# matrix serves every command (`rlreps train car --out RUN`), and is read back as a ground truth.

# %%
estimates = successor.RowEstimates(*(part[:, :-1] for part in estimates))
successor.save_matrix("car", estimates, grid)
truth = successor.load("car").principal.truncated(6)
print("singular values", truth.singular_values.round(1))
figure = plotting.plot_components({"ground truth": truth.basis}, grid=grid)
plotting.save_figure(figure, "components-of-MountainCar.png")

# %% [markdown]
# Two halves of the rollouts say how well components are known: the expected distance from exact.

# %%
rows, difference = estimates
bases = [
    subspace.exact_svd(subspace.centre_columns(half), 6).basis
    for half in (rows + difference, rows - difference)
]
print("noise floor at d = 1 ... 6", np.round(subspace.noise_floor(*bases), 3))
