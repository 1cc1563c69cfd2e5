# %% [markdown]
# # Zero-shot policies
#
# A representation is fitted once, to 50,000 random steps in CartPole without any reward. Afterwards
# a reward is a function of the state reached, and a policy for it takes seconds of linear algebra
# and no further step.

# %%
import gymnasium
import numpy as np

from rlreps.plotting import Line, Panel, plot_panels, save_figure
from rlreps.successor import Transitions, fit

steps = Transitions.collect(gymnasium.make("CartPole-v1"), steps=50_000, seed=0)
rep = fit(steps, num_features=64, discount=0.99)

# %% [markdown]
# The task's own reward is 1 for every step that the pole stands. A second one is largest where the
# cart stands at +1. `improvements=None` improves a policy until it no longer changes.

# %%
rewards = {
    "pole up": lambda reached: np.ones(len(reached)),
    "pole up, cart at +1": lambda reached: np.exp(-2.0 * np.square(reached[:, 0] - 1.0)),
}
policies = {
    name: rep.policy(rep.task(reward=reward), improvements=None) for name, reward in rewards.items()
}

# %% [markdown]
# Twenty episodes of each, side by side. CartPole ends them after 500 steps.


# %%
def play(choose):
    poles = gymnasium.make_vec("CartPole-v1", 20, vectorization_mode="sync")
    poles.action_space.seed(0)
    seen, alive, record = poles.reset(seed=0)[0], np.ones((20, 1), bool), []
    while alive.any():
        record.append(np.where(alive, seen, np.nan))
        actions = choose(seen) if choose else poles.action_space.sample()
        seen, _, terminated, truncated, _ = poles.step(actions)
        alive[terminated | truncated] = False
    return np.array(record)


panels = {"cart": (0, 1.0), "pole, degrees": (2, 180.0 / np.pi)}
lines = {title: [] for title in panels}
for name, choose in {"random": None, **policies}.items():
    record = play(choose)
    lasted, places = np.isfinite(record[:, :, 0]).sum(axis=0).mean(), np.nanmean(record[:, :, 0])
    print(f"{name}: {lasted:.0f} steps, cart at {places:.2f} on average")
    for title, (column, unit) in panels.items():
        shown = unit * record[:, 0, column]
        lines[title].append(Line(label=name, x=range(len(record)), mean=shown))
shown = [Panel(title=title, lines=lines[title]) for title in panels]
figure = plot_panels(shown, x_label="step", y_label="first episode", log_y=False, share_y=False)
save_figure(figure, "pole-and-cart.png")
