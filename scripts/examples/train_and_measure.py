# %% [markdown]
# # Train an encoder and measure it
#
# Train an encoder on a ground truth, and measure the distance of the encoder's features to the
# leading components. The ground truth is the successor measure of an arena with a wall and a door,
# on 40 x 40 cells. `generate` computes the successor measure from one-step transition probabilities
# and stores it. `load_ground_truth` reads the stored measure and its principal subspace.

# %%
from pathlib import Path

import numpy as np

from rlreps import encoders, envs, losses, plotting, sources, successor, training
from rlreps.app import generate
from rlreps.subspace import align

generate(successor.Transition(arena="two_room", bins=40, points=256), Path("two_room"))
truth = successor.load_ground_truth(Path("two_room"))
print(truth.num_states, "states; singular values", truth.principal.singular_values[:4].round(1))

# %% [markdown]
# Train ten features for two seeds in one program. An update samples the entries of 400 states and
# 200 tasks. `evaluate` measures the distance to the ten leading components during training.

# %%
encoder = encoders.FourierMLP(10, hidden=(128, 128))
result = training.train(
    encoder,
    losses.LargeBatch(10, precondition=0.01),
    sources.matrix_source(truth.matrix, truth.coordinates),
    optimizer=training.Optimizer(learning_rate=2e-3),
    steps=600,
    rows=400,
    tasks=200,
    seeds=(0, 1),
    evaluate=truth.evaluation(encoder),
)
steps = [record["step"] for record in result.history]
curves = np.transpose([record["subspace_distance"] for record in result.history])
print("subspace distance of each seed", curves[:, -1].round(4))
lines = [plotting.Line.of_runs(f"seed {seed}", steps, curve) for seed, curve in enumerate(curves)]
figure = plotting.plot_curves(lines, x_label="updates", y_label="subspace distance, d = 10")
plotting.save_figure(figure, "subspace-distance-while-training.png")

# %% [markdown]
# Draw the features of the better seed, rotated onto the true components:

# %%
features = encoder.apply(result.params(int(curves[:, -1].argmin())), truth.coordinates)
basis = truth.principal.truncated(10).basis
maps = {"ground truth": basis, "learned": align(features, basis)}
figure = plotting.plot_components(maps, bins=40, environment=envs.load_arena("two_room"))
plotting.save_figure(figure, "components-of-two-rooms.png")
