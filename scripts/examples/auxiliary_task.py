# %% [markdown]
# # Auxiliary tasks in an agent
#
# Train deep Q-networks in PuddleWorld with and without an auxiliary task, and compare their
# features. The auxiliary task predicts discounted sums of random functions of the state. All other
# options of the two configurations are the same. Each configuration trains two seeds in one
# program. The runs are much too short to compare returns.

# %%
import json
from pathlib import Path

import numpy as np

from rlreps import plotting, successor
from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig
from rlreps.app import TrainAgents, run_job
from rlreps.encoders import FourierMLP

truth = successor.load("sutton-100")
found = {}
for name, weight in {"values alone": 0.0, "auxiliary task": 0.1}.items():
    config = AgentConfig(
        encoder=FourierMLP(hidden=(64, 64), frequencies=4),
        dqn=DQNConfig(reward_scale=0.1, warmup=1_000),
        auxiliary=AuxiliaryConfig(weight=weight, horizon=16),
        steps=4_000,
        evaluate_every=1_000,
        num_seeds=2,
    )
    run_job(TrainAgents(config=config, truth=truth), Path(name.replace(" ", "-")))
    log = Path(name.replace(" ", "-"), "metrics.jsonl").read_text().splitlines()
    found[name] = [json.loads(line) for line in log]

# %% [markdown]
# The auxiliary task changes the features of the torso, the network below the layer of action
# values. Measure how well these features express the ten leading components of the successor
# measure:

# %%
lines = []
for name, records in found.items():
    steps = [record["step"] for record in records]
    distances = np.array([record["leading_distance"] for record in records]).T
    print(name, "distance of each agent at the end", distances[:, -1].round(3))
    lines.append(plotting.Line.of_runs(f"{name} (mean of two)", steps, distances.mean(axis=0)))
figure = plotting.plot_curves(
    lines, x_label="environment steps of an agent", y_label="distance to ten components"
)
plotting.save_figure(figure, "distance-of-torsos-to-ten-components.png")
