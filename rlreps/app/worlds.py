"""Commands on worlds: list, build, describe, and store the truth of one."""

import contextlib
import functools
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Literal

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlreps.agents.config import (
    AgentConfig,
    describe_environment,
    load_compiled_environment,
)
from rlreps.agents.host_environments import make_environment
from rlreps.agents.host_observations import map_observations
from rlreps.app.job import Printed, takes
from rlreps.app.jobs.agents import load_agent_config, load_agents
from rlreps.app.options import Choice, Switch
from rlreps.config import as_json
from rlreps.cumulants import CUMULANTS, Cumulants, Discs
from rlreps.errors import require, require_interval, require_positive
from rlreps.files import require_output
from rlreps.numerics import digest_of_leaves
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder
from rlreps.runs.workers import local_pool
from rlreps.successor.fitting.recording import JaxPolicy, Policy
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.released import load as load_truth
from rlreps.successor.truth.store.format import require_place
from rlreps.worlds import (
    WORLDS,
    StateSampling,
    World,
    build,
    epsilon_greedy,
    load,
    sample_to_store,
)
from rlreps.worlds.named import View, cached

CHOICES: dict[Any, Choice] = {
    Cumulants: Choice("cumulants", {k: v for k, v in CUMULANTS.items() if v is not Discs})
}

_SAMPLING = StateSampling()

_SHOWN = 5
"""Number of singular values that a description has."""

_EPSILON = 0.1
"""Share of random actions of a policy that is not the uniform one."""

_COMPONENTS = 10
"""Number of components at which a sampled truth is described."""


def list_worlds() -> Table:
    """List the worlds that can be built from the installed packages."""
    rows = []
    for name, recipe in WORLDS.items():
        package, state = recipe.package, f'pip install "rlreps[{recipe.extra}]"'
        if recipe.version is not None:
            package += f" {recipe.version}"
            state = "in the cache" if cached(name).is_file() else "not built"
        rows.append((name, package, recipe.title, state))
    return Table(("world", "package", "game", "state"), rows, f"{len(rows)} worlds")


def build_world(
    world: str,
    out: Path | None = None,
    seed: int = 0,
    view: View | None = None,
    any_version: Switch = False,
) -> dict[str, Any]:
    """Build a world anew, into the cache or a file.

    Args:
        world: Its name.
        out: File (.npz); by default the cache.
        seed: Seed of the reset, which decides a layout that is drawn.
        view: What an agent sees of MiniGrid; the image by default.
        any_version: Accept a version of the package whose game has other rules than published.
    """
    if out is not None:
        require_output(out, file=True)
        require(out.suffix == ".npz", "a file that ends in .npz", str(out))
    path = cached(world, seed, view) if out is None else out
    made = build(world, seed=seed, view=view, any_version=any_version)
    path.parent.mkdir(parents=True, exist_ok=True)
    return {"path": str(made.save(path)), **describe(made)}


def describe_world(
    world: str,
    seed: int = 0,
    view: View | None = None,
    discount: float = 0.95,
    any_version: Switch = False,
) -> dict[str, Any]:
    """Describe a world: states, aliases, values, effective horizon and leading singular values.

    Args:
        world: Its name, or the path of a file; a world that is not in the cache is built.
        seed: Seed of the reset.
        view: What an agent sees of MiniGrid; the image by default.
        discount: γ of values, of the horizon and of the successor measure.
        any_version: Accept a version of the package whose game has other rules than published.
    """
    found = load(world, seed=seed, view=view, any_version=any_version)
    described = describe(found)
    truth = found.truth(discount=discount)
    horizon = None if found.next_states is None else found.effective_horizon(discount)
    return {
        **described,
        "discount": discount,
        "optimal_value_at_the_start": float(found.start @ found.optimal_values(discount)),
        "random_value_at_the_start": float(found.start @ found.policy_values(discount=discount)),
        "effective_horizon": None if horizon is None else round(horizon, 2),
        "singular_values": [
            round(float(value), 4) for value in truth.principal.singular_values[:_SHOWN]
        ],
        "energy_captured": [
            round(float(each), 4) for each in truth.principal.energy_captured()[:_SHOWN]
        ],
    }


def describe(world: World) -> dict[str, Any]:
    """Return what a world holds, as JSON values."""
    return {
        "states": world.num_states,
        "actions": world.num_actions,
        "deterministic": world.next_states is not None,
        "terminal": int(world.terminal.sum()),
        "rewarded": int(np.count_nonzero(world.rewards)),
        "aliased": world.num_aliased,
        "observation": list(world.observations.shape[1:]),
        "digest": world.digest,
        **{
            name: as_json(value)
            for name, value in world.about.items()
            if name not in ("states", "values") and value is not None
        },
    }


def save_truth(
    world: str,
    out: Path,
    seed: int = 0,
    view: View | None = None,
    discount: float = 0.95,
    policy: Literal["uniform", "optimal"] = "uniform",
    epsilon: float | None = None,
    terminal: Literal["leave", "absorb"] = "leave",
    centring: Literal["columns", "rows", "both"] = "columns",
    any_version: Switch = False,
) -> Iterator[Printed]:
    """Store the successor measure, exact for a world's table, of a policy, and what encoders see.

    Args:
        world: The name of a world, or the path of a file.
        out: Folder of the store.
        seed: Seed of the reset.
        view: What an agent sees of MiniGrid; the image by default.
        discount: γ.
        policy: The uniformly random policy, or the optimal one that explores.
        epsilon: ε of the optimal policy; 0.1 by default.
        terminal: Whether an episode leaves the game in a terminal state or stays there.
        centring: Which means are subtracted when the store is read.
        any_version: Accept a version of the package whose game has other rules than published.
    """
    require_place(out)
    share = _share_of_random(policy, epsilon)
    found = load(world, seed=seed, view=view, any_version=any_version)
    options: dict[str, Any] = {"discount": discount, "terminal": terminal, "centring": centring}
    if policy == "optimal":
        options["policy"] = epsilon_greedy(found.optimal_action_values(discount), share)
        options["about"] = {"policy": policy, "epsilon": share}
    store = found.save_truth(out, **options)
    yield f"{store.path}: {found.num_states:,} states of {found.about.get('name', world)}"


@takes("jobs", "executor")
def sample_world(
    env: str,
    out: Path,
    sampling: StateSampling = _SAMPLING,
    policy: str = "uniform",
    epsilon: float | None = None,
    *,
    jobs: int = 1,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Store discounted sums of random cumulants from states of a game too large to enumerate.

    Run the same command again to resume.

    Args:
        env: An environment, named as for agents: ``gymnax:Breakout-MinAtar``, ``world:NAME``,
            ``puddle-world:ARENA``, or the id of one of Gymnasium whose state can be saved.
        out: Folder of the store.
        sampling: The states, cumulants and rollouts.
        policy: ``uniform``, or the folder of a run of agents in this environment, whose first agent
            acts. The run decides the goal and the observation in PuddleWorld, and the limit of
            steps in every compiled environment.
        epsilon: Share of random actions of a run's agent; 0.1 by default.
        jobs: Number of processes for an environment of Gymnasium.
        executor: Where to compute blocks of states of an environment of Gymnasium; by default, in
            the processes of ``jobs``.

    Returns:
        The run's measurements as JSON values, and ``describe_sampled``.
    """
    require_place(out)
    share = _share_of_random(policy, epsilon)
    require_positive("jobs", jobs)
    config = AgentConfig(environment=env)
    follow: Any = None
    about: dict[str, Any] = {"game": env}
    if policy != "uniform":
        config, follow, agent = _agent_policy(Path(policy), env, share)
        about |= {"policy": "agent", "agent": agent, "epsilon": share}
    about |= describe_environment(config)
    environment: Any = load_compiled_environment(config)
    on_host, alone = environment is None, jobs == 1 and executor is None
    expected = "one job and no executor for a compiled environment, which uses all cores"
    require(on_host or alone, expected, env)
    if on_host:
        environment = functools.partial(_make_as_agents_see, env)
        if follow is not None:
            with contextlib.closing(environment()) as one:
                follow = _on_host(follow, one.action_space)
    elif follow is not None:
        about["max_episode_steps"] = config.max_episode_steps
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if executor is None and jobs > 1:
            executor = stack.enter_context(local_pool(jobs))
        store, computed = sample_to_store(
            out, environment, sampling, policy=follow, about=about, executor=executor
        )
    seconds = time.perf_counter() - began
    truth = load_truth(out)
    # Episodes of Gymnasium end earlier, by how much is not counted.
    transitions = None if on_host else sampling.transitions * computed // sampling.states
    return {
        "path": str(store.path),
        "states": truth.num_states,
        "computed_states": computed,
        "aliased": store.settings["aliased"],
        "tasks": sampling.tasks,
        "transitions": None if on_host else sampling.transitions,
        "seconds": round(seconds, 1),
        "transitions_per_second": round(transitions / seconds) if transitions else None,
        **describe_sampled(truth),
    }


def describe_sampled(truth: GroundTruth) -> dict[str, Any]:
    """Return how exact the leading components of a sampled truth are, as JSON values.

    ``observation_misses`` is their distance from the linear functions of the observation's numbers,
    with an intercept; None if there are not fewer numbers than states, which fit anything.
    """
    assert truth.error is not None
    shown = min(_COMPONENTS, len(truth.error))
    numbers = np.reshape(truth.observations, (truth.num_states, -1)).astype(np.float32)
    varied = numbers[:, np.ptp(numbers, axis=0) > 0]
    misses = None
    if varied.shape[1] < truth.num_states - 1:
        misses = round(truth.distance(varied, shown, intercept=True), 4)
    return {
        "components": shown,
        "noise_floor": round(float(truth.error[shown - 1]), 5),
        "energy_captured": round(float(truth.principal.energy_captured()[shown - 1]), 4),
        "observation_misses": misses,
    }


def _share_of_random(policy: str, epsilon: float | None) -> float:
    """Return ε, 0.1 by default; the uniform policy has none."""
    expected = "no epsilon for the uniform policy, which is random"
    require(policy != "uniform" or epsilon is None, expected, epsilon)
    share = _EPSILON if epsilon is None else epsilon
    require_interval("epsilon", share, "[0, 1]")
    return share


def _agent_policy(run: Path, env: str, epsilon: float) -> tuple[AgentConfig, JaxPolicy, str]:
    """Return a run's configuration, its first agent's policy, and a digest of the agent.

    The policy takes a share of random actions.
    """
    folder = RunFolder(run)
    config = load_agent_config(folder, env)
    program, state, _ = load_agents(folder, config)
    with contextlib.closing(program):
        agent, params = program.agent, jax.tree.map(lambda leaf: leaf[0], state.learner.params)
    share, digest = jnp.float32(epsilon), digest_of_leaves(params)
    return config, lambda key, seen: agent.act(params, seen[None], share, key)[0], digest


def _make_as_agents_see(name: str) -> Any:
    """Make an environment of Gymnasium with what agents see of it, such as scaled numbers."""
    environment = make_environment(name)
    space: Any = getattr(environment, "observation_space", None)
    require(space is not None, "an environment of JAX or Gymnasium", name)
    mapped: Any = map_observations(space, name)
    shape, dtype, see = mapped
    seen = gymnasium.spaces.Box(0, 255, shape, dtype)
    return gymnasium.wrappers.TransformObservation(
        environment, lambda raw: see(np.asarray(raw)[None])[0], seen
    )


def _on_host(policy: JaxPolicy, actions: Any) -> Policy:
    """Return a policy in JAX as one of an environment on the host."""
    act, first = jax.jit(policy), int(actions.start)

    def follow(observation: Any, generator: np.random.Generator) -> int:
        return first + int(act(jax.random.key(int(generator.integers(2**32))), observation))

    return follow
