# %% [markdown]
# # Zero-shot policies
#
# Features are fitted once, to 30,000 random steps in PuddleWorld without any reward. Afterwards a
# reward is one vector, its values are linear in the features, and a policy for it needs no further
# learning.

# %%
import gymnasium
import numpy as np

from rlreps import envs, plotting
from rlreps.encoders import FourierMLP
from rlreps.successor import Grid, Transitions, fit

world = envs.load_arena("sutton")
steps = Transitions.collect(world, steps=30_000, seed=0)
encoder = FourierMLP(hidden=(64, 64), frequencies=6)
rep = fit(steps, num_features=32, discount=0.95, encoder=encoder, behaviour="uniform", steps=1_000)
print("singular values", rep.singular_values[:6].round(2))

# %% [markdown]
# A reward: 1 inside a disc. Its task vector is an average over the states of the data, and action
# values follow for any state, here the centres of 40 x 40 cells.


# %%
def task(centre):
    reached = steps.next_observation
    return rep.task(reached, np.linalg.norm(reached - centre, axis=1) < 0.25)


values = rep.action_values(Grid(40).centres(), task([0.75, 0.25]))
figure = plotting.plot_policy_and_value(world, values, value_label="discounted visits of the disc")
plotting.save_figure(figure, "values-and-greedy-actions.png")

# %% [markdown]
# Where are 200 agents after 40 steps of the greedy policy? The policy improves on random walking
# by one step. That is enough for a region like this one; a far and narrow goal needs more.


# %%
def inside(centre, choose):
    agents = gymnasium.make_vec("rlreps/PuddleWorld-v0", 200, arena="sutton")
    agents.action_space.seed(0)
    seen, _ = agents.reset(seed=0)
    for _ in range(40):
        seen, *_ = agents.step(choose(seen) if choose else agents.action_space.sample())
    return float(np.mean(np.linalg.norm(seen - centre, axis=1) < 0.25))


for centre in ([0.75, 0.25], [0.25, 0.25], [0.8, 0.8]):
    greedy, random = inside(centre, rep.policy(task(centre))), inside(centre, None)
    print(f"disc at {centre}: {greedy:.0%} of the agents inside, {random:.0%} by random actions")
