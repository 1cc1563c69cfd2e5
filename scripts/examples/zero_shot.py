# %% [markdown]
# # Zero-shot policies
#
# Fit a representation once to 10,000 random steps in CartPole, without rewards. Then
# specify a reward as a function of the next state. A policy for this reward takes seconds of linear
# algebra, without further steps in the environment.

# %%
import gymnasium
import numpy as np

from rlreps.plotting import Line, Panel, plot_panels, save_figure
from rlreps.successor import Transitions, fit

steps = Transitions.collect(gymnasium.make("CartPole-v1"), steps=10_000, seed=0)
rep = fit(steps, num_features=32, discount=0.99)

# %% [markdown]
# The reward is 1 for every step that the pole stands. `rep.policy` improves the policy of
# the data until it no longer changes.

# %%
task = rep.task(reward=lambda reached: np.ones(len(reached)))
policy = rep.policy(task)

# %% [markdown]
# Play twenty episodes in parallel with the policy and twenty with random actions. CartPole ends an
# episode after 500 steps, or when the pole leans by more than 12 degrees or the cart leaves the
# track.


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


lines = []
for name, choose in {"random actions": None, "policy": policy}.items():
    record = play(choose)
    print(
        f"{name}: the pole stands for {np.isfinite(record[:, :, 2]).sum(axis=0).mean():.0f} steps"
    )
    lines.append(Line(label=name, x=range(len(record)), mean=np.degrees(record[:, 0, 2])))
panel = Panel(title="First episode", lines=lines)
figure = plot_panels([panel], x_label="step", y_label="angle of the pole, degrees", log_y=False)
save_figure(figure, "angle-of-the-pole.png")
