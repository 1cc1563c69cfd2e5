"""Agents whose goal changes: their training, and the priors of their own replay."""

import dataclasses
import itertools
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.agents import (
    AgentConfig,
    AgentState,
    CompiledProgram,
    Prior,
    load_compiled_environment,
    make_agent,
    prior_of,
)
from rlreps.app import TrainAgents, load_agents, run_job
from rlreps.envs import observation_struct
from rlreps.errors import FitWarning
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.agent_arms import optimal_return
from rlreps.experiments.ours.mazes import GOALS, MAZES
from rlreps.runs import RunFolder
from rlreps.stats import samples_to_reach
from rlreps.study import Frame, Run, replace_nested
from rlreps.successor import Transitions, fit
from rlreps.training import stack
from rlreps.typing import DoubleArray

ZERO_SHOT, FIXED, TUNED = "zero-shot start", "zero-shot policy", "fine-tuning"
OVER = "starting over"
ARMS = (ZERO_SHOT, FIXED, TUNED, OVER)
OTHERS = (TUNED, OVER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Agents whose goal changes.

    Attributes:
        base: The agents until the change, whose replay holds all steps; each arena sets the
            environment and the first goal.
        goals: Goals after the change.
        budget: Environment steps after the change.
        every: Environment steps between evaluations after the change.
        improvements: Steps of policy improvement of the zero-shot policy.
        n_step: Rewards in a transition of the zero-shot start.
        learning_rate: Learning rate of the zero-shot start.
        threshold: Return to reach, as a multiple of the optimal return.
        aside: A maze that was not used during development.
        aside_seed: Seed of the first agent in this maze, which shares no seeds with other arenas.
    """

    base: AgentConfig
    arenas: tuple[str, ...] = MAZES
    goals: tuple[tuple[float, float, float], ...] = (*GOALS[1:], (0.3, 0.3, 0.08))
    budget: int = 12_000
    every: int = 1_000
    improvements: int = 5
    n_step: int = 1
    learning_rate: float = 1e-4
    threshold: float = 3.0
    aside: str = "spiral"
    aside_seed: int = 20_000

    def first(self, arena: str) -> AgentConfig:
        """Return the agents of an arena that learn its first goal."""
        seed = self.aside_seed if arena == self.aside else self.base.seed
        return dataclasses.replace(self.base, environment=f"puddle-world:{arena}", seed=seed)

    def after(self, arena: str, arm: str) -> AgentConfig:
        """Return the agents of an arm after each of the changes, in one population."""
        first, own = self.first(arena), dict[str, Any]()
        if arm == ZERO_SHOT:
            own = {"n_step": self.n_step, "learning_rate": self.learning_rate}
        return replace_nested(
            first,
            # The warm-up ended one update ago, so that features are not fitted again.
            warmup=first.steps - first.dqn.steps_per_update,
            epsilon_start=first.dqn.epsilon_end,
            **own,
            steps=first.steps + self.budget,
            evaluate_every=self.every,
            num_seeds=len(self.goals) * first.num_seeds,
        )


def goal_cells(arena: str, goal: tuple[float, float, float]) -> Any:
    """Tell which cells lie wholly within a goal, [n]: their centres lie within half its radius."""
    return mazes.discs(mazes.cell_world(arena), [(*goal[:2], goal[2] / 2)])[:, 0] > 0.0


def with_goal(replay: Any, cells: Any, inside: Any) -> Any:
    """Return memories [agents, slots, environments] in which episodes end in some cells alone.

    Args:
        replay: The memories.
        cells: Cells of the rows that were added, [agents, count, environments].
        inside: The goal's cells, [n].
    """
    count = cells.shape[1]
    terminated, last = np.zeros_like(replay.terminated), replay.last.copy()
    arrives = inside[cells[:, 1:]] & ~last[:, : count - 1]
    terminated[:, : count - 1] = arrives
    last[:, 1:count] |= arrives
    return replay._replace(terminated=terminated, last=last)


def priors_of(config: Config, arena: str, replay: Any, cells: Any) -> list[Prior]:
    """Make the priors of one agent for all goals.

    Args:
        config: The experiment.
        arena: The maze.
        replay: Its memory, [slots, environments].
        cells: Cells of the rows that were added, [count, environments].
    """
    world, dqn = mazes.cell_world(arena), config.base.dqn
    taken, after = ~replay.last[: len(cells) - 1].T, cells[1:].T
    data = Transitions(
        observation=cells[:-1].T[taken],
        action=replay.action[: len(cells) - 1].T[taken],
        next_observation=after[taken],
        # The ends of episodes belong to the first goal.
        terminated=np.zeros(taken.sum(), np.bool_),
        num_states=world.num_states,
        num_actions=4,
    )
    found = []
    with warnings.catch_warnings():
        # A memory may hold no step to a goal; the goal's prior is then the same everywhere.
        warnings.simplefilter("ignore", FitWarning)
        representation = fit(data, discount=dqn.discount)
        for goal in config.goals:
            task = representation.task(reward=goal_cells(arena, goal).astype(float).__getitem__)
            found.append(
                prior_of(
                    representation,
                    task,
                    config.improvements,
                    observations=world.observations,
                    # Rewards count on arrival: T steps from the goal, a reward of 1 in the goal for
                    # ever has the value γ^(T-1) / (1 - γ), and a cost of 1 a step until then has
                    # the value (γ^T - 1) / (1 - γ).
                    scale=dqn.discount * dqn.reward_scale,
                    shift=-dqn.reward_scale / (1.0 - dqn.discount),
                )
            )
    return found


def measure(run: Run[Config], name: str, cell: Mapping[str, str]) -> dict[str, Any]:
    """Train agents for the first goal, then each arm for all other goals in one population."""
    config, arena = run.config, cell["arena"]
    first, home = config.first(arena), run.folder.path / "runs" / name
    run_job(TrainAgents(config=first, page=False), home, devices=run.devices)
    program, placed, step = load_agents(RunFolder(home), first)
    program.close()
    state: AgentState = jax.device_get(placed)
    seen = np.asarray(state.replay.observation[:, : step // first.num_envs])
    places = mazes.cells_of(mazes.cell_world(arena), seen.reshape(-1, seen.shape[-1]))
    cells = places.reshape(seen.shape[:-1])
    rows = [jax.tree.map(lambda leaf, i=i: leaf[i], state.replay) for i in range(first.num_seeds)]
    priors = [priors_of(config, arena, *own) for own in zip(rows, cells, strict=True)]
    of_agents = [each for goal in zip(*priors, strict=True) for each in goal]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *of_agents)
    goals = [with_goal(state.replay, cells, goal_cells(arena, goal)) for goal in config.goals]
    replay = jax.tree.map(lambda *leaves: np.concatenate(leaves), *goals)
    shape = len(config.goals), first.num_seeds, -1
    programs = {
        ZERO_SHOT: program_after(run, arena, ZERO_SHOT, jax.tree.map(lambda x: x[0], stacked)),
        TUNED: program_after(run, arena, TUNED, None),
    }
    # The control does not learn, and fresh networks learn as tuned ones do.
    programs |= {FIXED: programs[ZERO_SHOT], OVER: programs[TUNED]}
    return {
        arm: after_change(config, programs[arm], arm, state, replay, stacked)
        .reshape(shape)
        .tolist()
        for arm in ARMS
    }


def program_after(run: Run[Config], arena: str, arm: str, prior: Prior | None) -> CompiledProgram:
    """Make the program of an arm after all changes, one agent for each goal and seed."""
    config = run.config
    after, seeds = config.after(arena, arm), config.first(arena).seeds
    worlds: list[Any] = [
        load_compiled_environment(dataclasses.replace(after, goal=goal))
        for goal in config.goals
        for _ in seeds
    ]
    sight = observation_struct(worlds[0])
    agent = make_agent(after, sight.shape, 4, observation_dtype=sight.dtype, prior=prior)
    own_seeds = [*seeds] * len(config.goals)
    return CompiledProgram(
        after, stack(worlds), agent, own_environments=True, seeds=own_seeds, devices=run.devices
    )


def after_change(
    config: Config,
    program: CompiledProgram,
    arm: str,
    state: AgentState,
    replay: Any,
    priors: Prior,
) -> DoubleArray:
    """Train an arm after all changes; return evaluations [goals x agents, p].

    Args:
        config: The experiment.
        program: The arm's program.
        arm: The arm.
        state: The agents after the first goal.
        replay: Their memories with the new goals, [goals x agents, ...].
        priors: Their priors for the new goals, [goals x agents, ...].
    """
    count, begun, network = len(config.goals), config.base.steps, program.agent.network
    learner, acting = program.init().learner, tiled(state.acting, count)
    params = tiled(state.learner.params, count)
    if arm != TUNED:
        fixed = {"fitted": params["torso"]["fitted"]}
        fixed |= {"prior": priors} if arm in (ZERO_SHOT, FIXED) else {}
        params = network.joined(learner.params, fixed)
    target_params = jax.tree.map(jnp.copy, network.split(params)[0])
    learner = learner._replace(params=params, target_params=target_params)
    # New episodes begin.
    acting = acting._replace(ended=np.ones_like(acting.ended), returns=0.0 * acting.returns)
    current = program.put(AgentState(learner, replay, acting))
    found = []
    for step in range(begun, begun + config.budget + 1, config.every):
        if step > begun and arm != FIXED:
            current, _ = program.advance(current, step - config.every, config.every)
        found.append(program.evaluate(current, step)[1]["returns"])
    return np.stack(found, axis=1)


def tiled(tree: Any, count: int) -> Any:
    """Repeat the agents [agents, ...] of a state for every goal, [goals x agents, ...]."""
    return jax.tree.map(lambda leaf: np.concatenate([leaf] * count), tree)


def frame(run: Run[Config], cell: Mapping[str, str], found: Mapping[str, Any]) -> Frame:
    """List returns by step, and each agent's steps to the threshold and mean return."""
    config, parts = run.config, []
    steps = np.arange(0, config.budget + 1, config.every)
    for (number, goal), arm in itertools.product(enumerate(config.goals), ARMS):
        returns = np.asarray(found[arm][number])
        least = config.threshold * optimal_return(cell["arena"], goal)
        needed = samples_to_reach(steps, returns, least)
        values = {
            "return": returns,
            "needed": np.minimum(needed, config.budget)[:, None],
            "reached": np.isfinite(needed).astype(np.float64)[:, None],
            "mean_return": returns.mean(axis=1)[:, None],
        }
        about = {**cell, "arm": arm, "goal": f"({goal[0]:g}, {goal[1]:g})"}
        seeds = config.first(cell["arena"]).seeds
        parts.append(Frame.grid(values, **about, seed=seeds, step=steps.tolist()))
    return Frame.concat(parts)
