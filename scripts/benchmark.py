"""Speed of the parts of the toolkit, each compared with a limit or with another implementation.

    python scripts/benchmark.py ground-truth
    python scripts/benchmark.py streaming --data MNIST_FOLDER

Each comparison times several implementations of the same task, without compilation.
Ratios vary less between machines than absolute times. ``docs/results/speed.md`` quotes the output.
"""

import contextlib
import dataclasses
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlreps.agents import DQN, AgentConfig, make_program
from rlreps.agents.keys import unrolled
from rlreps.agents.replay import draw_transitions
from rlreps.config import with_sizes
from rlreps.encoders import MLP, Encoder, FourierMLP, SeparateMLP
from rlreps.envs import load_arena
from rlreps.experiments.datasets import load_observations
from rlreps.experiments.pfau_2019.atom import BoxSource, hamiltonian
from rlreps.experiments.reconstruction import ExactComponents, exact_components
from rlreps.losses import OBJECTIVES, Spin
from rlreps.numerics import jit_briefly
from rlreps.operators import Diagonal
from rlreps.runs.machine import keep_lapack_to_one_thread
from rlreps.sources import matrix_source
from rlreps.streaming import RULES, PowerDecay, StreamingRule, scan_updates
from rlreps.successor import Grid, MonteCarlo, RowSampler, puddle_world_chain
from rlreps.training import Learner, Optimizer
from rlreps.training.devices import devices_for_small_runs
from rlreps.worlds import load

if sys.argv[1:2] == ["agents"]:
    keep_lapack_to_one_thread()

import jax  # After threads are set.
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import tyro
from sklearn.decomposition import IncrementalPCA
from threadpoolctl import threadpool_limits


def median_seconds(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Time calls in turns; return each call's median, after an uncounted first call."""
    for call in calls.values():
        jax.block_until_ready(call())
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            began = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in times.items()}


# Ground truth: rollouts of PuddleWorld.


def ground_truth(repeats: int = 5, rows: int = 256, rollouts: int = 500) -> None:
    """Compare rollouts with rollouts without dynamics: random numbers and counts alone."""
    config = MonteCarlo(rollouts=rollouts)
    chain = puddle_world_chain(load_arena(config.arena), Grid(config.bins))

    def jump(position: jax.Array, draws: tuple[jax.Array, ...]) -> jax.Array:
        noise_x, noise_y, action = draws
        wide = 10.0 * jnp.stack([noise_x, noise_y + 0.1 * action.astype(noise_y.dtype)])
        return wide - jnp.floor(wide)

    bare = dataclasses.replace(chain, advance=jump)
    samplers = {
        name: RowSampler(each, config, devices=jax.local_devices())
        for name, each in (("rlreps", chain), ("without dynamics", bare))
    }
    calls = {
        name: functools.partial(sampler.estimates, [*range(rows)])
        for name, sampler in samplers.items()
    }
    count = rows * rollouts * config.horizon
    for name, each in median_seconds(calls, repeats).items():
        print(f"{name:20s} {count / each:10.4g} transitions/s")


# Training.


def bare_pass(encoder: Encoder, rows: int, length: int) -> Callable[..., Any]:
    """Scan only the encoder's forward and backward pass at a batch size."""

    def run(params: Any, inputs: jax.Array) -> Any:
        def body(carry: Any, _: None) -> tuple[Any, None]:
            # The tiny step makes each pass depend on the one before, so that none can be skipped.
            gradients = jax.grad(lambda p: jnp.sum(jnp.square(encoder.apply(p, inputs[:rows]))))(
                carry
            )
            return jax.tree.map(lambda p, g: p - 1e-9 * g, carry, gradients), None

        return jax.lax.scan(body, params, None, length=length)[0]

    return jax.jit(run)


def chunk(
    encoder: Encoder, objective: Any, source: Any, length: int, rows: int, tasks: int = 1
) -> Callable[[], Any]:
    """Compile a scan of whole updates."""
    optimizer = Optimizer(steps=1000)
    learner = Learner(
        encoder=encoder, objective=objective, optimizer=optimizer, rows=rows, tasks=tasks
    )
    compiled = jax.jit(functools.partial(learner.chunk, length))
    return functools.partial(compiled, learner.init(jnp.uint32(0)), source, jnp.uint32(0))


def training(repeats: int = 5, states: int = 10_000, length: int = 100) -> None:
    """Compare whole updates at 250 rows with the encoder's forward and backward pass alone."""
    key = jax.random.key(0)
    inputs = jax.random.uniform(key, (states, 2))
    source = matrix_source(jax.random.normal(key, (states, states)), inputs)
    encoder = FourierMLP(10, num_inputs=2)
    params, bare = encoder.init(key), bare_pass(encoder, 250, length)
    for tasks in (1, 256):
        calls: dict[str, Callable[[], Any]] = {"bare": functools.partial(bare, params, inputs)}
        for method in ("large_batch", "explicit", "danskin_lissa"):
            objective = with_sizes(
                OBJECTIVES[method](10), num_tasks=states, encoder_learning_rate=1e-3
            )
            calls[method] = chunk(encoder, objective, source, length, 250, tasks)
        found = median_seconds(calls, repeats)
        for name, each in found.items():
            print(f"{tasks:3d} tasks, {name:13s} {each / found['bare']:5.2f} times the bare pass")


POTENTIAL = Diagonal(lambda positions: jnp.sum(jnp.square(positions), axis=1))


def spectral(
    repeats: int = 5, sizes: Sequence[int] = (2, 5, 9, 16), rows: int = 128, length: int = 50
) -> None:
    """Compare updates of spectral inference with the network's forward and backward pass alone."""
    inputs = jax.random.uniform(jax.random.key(1), (rows, 2))
    source = BoxSource(jnp.asarray(1.0), radial=False)
    networks: dict[str, tuple[Any, tuple[int, ...]]] = {
        "shared": (MLP, (128, 128, 128)),
        "separate": (SeparateMLP, (32, 32)),
    }
    for potential, operator in (("potential", POTENTIAL), ("Hamiltonian", hamiltonian())):
        for name, (network, hidden) in networks.items():
            for d in sizes:
                encoder = network(d, hidden=hidden, activation="tanh")
                params, bare = encoder.init(jax.random.key(0)), bare_pass(encoder, rows, length)
                calls = {"bare": functools.partial(bare, params, inputs)}
                for rate in (1.0, 0.01):
                    objective = Spin(
                        d,
                        operator=operator,
                        averaging_rate=rate,
                        encoder=encoder,
                        separate=name == "separate",
                    )
                    calls[f"β = {rate:g}"] = chunk(encoder, objective, source, length, rows)
                found = median_seconds(calls, repeats)
                ratios = [f"{key}: {found[key] / found['bare']:.1f} times" for key in [*found][1:]]
                print(f"{potential}, {name}, d = {d}: {', '.join(ratios)}")


# Agents.


def agent_cases(count: int) -> dict[str, tuple[AgentConfig, int]]:
    """Name → agents of the same hyperparameters, and environment steps of a round."""
    base = AgentConfig(
        evaluate_every=4_000, checkpoint_every=1_000_000, steps=1_000_000, num_seeds=count
    )
    on_host = dataclasses.replace(base, environment="rlreps/PuddleWorld-v0")
    return {
        "Gymnasium, one environment": (dataclasses.replace(on_host, num_envs=1), 4_000),
        f"Gymnasium, vectorised ({base.num_envs})": (on_host, 8_000),
        "compiled": (base, 20_000),
    }


def update_seconds(
    agent: DQN, state: Any, count: jax.Array, updates: int, repeats: int
) -> dict[str, float]:
    """Time updates of one agent after ``count`` rows, and their forward and backward passes."""
    # Random bits and compiler options are those of ``CompiledProgram``.
    keys, options = jax.random.split(unrolled(jax.random.key(0)), updates), agent.options
    draw = functools.partial(
        draw_transitions,
        replay=state.replay,
        count=count,
        num=options.batch_size,
        steps=options.n_step,
        discount=options.discount,
    )

    def update(learner: Any, batch: Any) -> Any:
        return agent.update(learner, batch)[0]

    def passes(learner: Any, batch: Any) -> Any:
        gradients = agent.gradients(learner, batch)[0]
        # The tiny step makes each pass depend on the one before, so that none can be skipped.
        params = jax.tree.map(lambda p, g: p - 1e-9 * g, learner.params, gradients)
        return learner._replace(params=params)

    def repeated(step: Callable[[Any, Any], Any], given: Any) -> Callable[[], Any]:
        run = jit_briefly(
            lambda learner, given: jax.lax.scan(lambda *at: (step(*at), None), learner, given)[0]
        )
        return functools.partial(run, state.learner, given)

    # New batches for every pass: XLA would compute the targets of one batch only once.
    batches = jax.jit(jax.vmap(draw))(keys)
    calls = {
        "updates alone": repeated(lambda learner, key: update(learner, draw(key)), keys),
        "updates without draws": repeated(update, batches),
        "passes alone": repeated(passes, batches),
    }
    return median_seconds(calls, repeats)


def agent_speed(config: AgentConfig, steps: int, repeats: int) -> dict[str, float]:
    """Return environment steps a second of all agents, and of one agent's updates alone."""
    with contextlib.closing(make_program(config, devices=devices_for_small_runs())) as program:
        # The warm-up has no updates, and the first round after it compiles.
        step = config.dqn.warmup
        state, _ = program.advance(program.init(), 0, step)
        seconds = []
        for _ in range(1 + repeats):
            began = time.perf_counter()
            state, _ = program.advance(state, step, steps)
            jax.block_until_ready(state)
            seconds.append(time.perf_counter() - began)
            step += steps
        found = {"whole": steps * config.num_seeds / statistics.median(seconds[1:])}
        if config.num_seeds > 1 or "/" in config.environment:
            return found
        count = jnp.asarray(step // config.num_envs, jnp.int32)
        alone = jax.tree.map(lambda leaf: leaf[0], state)
        updates = steps // config.dqn.steps_per_update
        taken = update_seconds(program.agent, alone, count, updates, repeats)
        return {**found, **{name: steps / each for name, each in taken.items()}}


def agents(repeats: int = 5, counts: Sequence[int] = (1, 10)) -> None:
    """Compare compiled agents in PuddleWorld with the same agents in a Gymnasium loop."""
    for count in counts:
        found = {}
        for name, (config, steps) in agent_cases(count).items():
            speeds = agent_speed(config, steps, repeats)
            found |= {name if key == "whole" else key: each for key, each in speeds.items()}
        for name, speed in found.items():
            ratio = found["compiled"] / speed
            print(
                f"{count:2d} agents, {name:28s} {speed:10,.0f} steps/s; compiled {ratio:5.1f} times"
            )


# Worlds.


def worlds(
    repeats: int = 5, world: str = "minigrid-doorkey-5x5", copies: Sequence[int] = (64, 256, 1_024)
) -> None:
    """Measure the steps of a world's compiled copies, with random actions and restarts.

    Images are written to memory at every step, or their bytes are added up, or they are not read.

    Args:
        repeats: Calls of each kind; their median counts.
        world: A world, by name.
        copies: Numbers of copies that step together.
    """
    game, steps = load(world), 500
    environment = game.environment(max_steps=100)
    uses: dict[str, Callable[[Any], Any]] = {
        "written": lambda seen: seen,
        "added up": lambda seen: jnp.sum(seen, dtype=jnp.uint32),
        "not read": lambda seen: jnp.uint32(0),
    }

    def play(count: int, use: Callable[[Any], Any]) -> Callable[[], Any]:
        def step(held: tuple[Any, Any], key: jax.Array) -> tuple[tuple[Any, Any], None]:
            acting, stepping, resetting = jax.random.split(key, 3)
            actions = jax.random.randint(acting, (count,), 0, environment.num_actions)
            keys = jax.random.split(stepping, count)
            found = jax.vmap(environment.step)(keys, held[0], actions)
            ends, fresh = found.terminated | found.truncated, start(resetting)
            state = jax.tree.map(functools.partial(jnp.where, ends), fresh, found.state)
            return (state, use(found.observation)), None

        def start(key: jax.Array) -> Any:
            return jax.vmap(environment.reset)(jax.random.split(key, count))

        def run(key: jax.Array) -> Any:
            seen = jnp.zeros((count, *game.observations.shape[1:]), game.observations.dtype)
            return jax.lax.scan(step, (start(key), use(seen)), jax.random.split(key, steps))[0]

        return functools.partial(jax.jit(run), jax.random.key(0))

    for count in copies:
        calls = {name: play(count, use) for name, use in uses.items()}
        for name, seconds in median_seconds(calls, repeats).items():
            print(f"{count:5d} copies, images {name:8s} {count * steps / seconds:13,.0f} steps/s")


# Streaming.

RATE, POWER = 10.0, 0.8


def random_rows(count: int, features: int) -> npt.NDArray[np.float32]:
    """Draw Gaussian rows with variances 1/i."""
    deviations = (1.0 / np.sqrt(np.arange(1, features + 1))).astype(np.float32)
    return np.random.default_rng(0).standard_normal((count, features), np.float32) * deviations


def numpy_loop(
    rows: npt.NDArray[Any], start: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Make implicit Krasulina's updates in NumPy; return C [features, k] and C† after all rows."""
    factor, inverse = start.copy(), np.linalg.pinv(start)
    for step, row in enumerate(rows, start=1):
        hidden = inverse @ row
        rate = RATE / step**POWER
        residual = row - factor @ hidden
        residual *= rate / (1.0 + rate * float(hidden @ hidden))
        back = inverse.T @ hidden
        energy = float(residual @ residual)
        direction = (inverse @ back) / (1.0 + energy * float(back @ back))
        factor += np.outer(residual, hidden)
        inverse += np.outer(direction, residual - energy * back)
    return factor, inverse


def bare_products(start: npt.NDArray[np.float32], rows: jax.Array) -> Callable[[], Any]:
    """Compile the products and rank-one updates of ``numpy_loop`` alone, without its scalars.

    The tiny steps make each row's products depend on the row before, so that none can be skipped.
    """

    def body(carry: tuple[jax.Array, jax.Array], row: jax.Array) -> tuple[Any, None]:
        factor, inverse = carry
        hidden = inverse @ row
        residual, back = row - hidden @ factor, hidden @ inverse
        factor = factor + 1e-9 * hidden[:, None] * residual[None, :]
        return (factor, inverse + 1e-9 * (inverse @ back)[:, None] * back[None, :]), None

    # Both [k, features], as the rule keeps them: rows of C and C† are contiguous.
    factors = jnp.asarray(start.T), jnp.asarray(np.linalg.pinv(start), jnp.float32)
    run = jax.jit(lambda factors, rows: jax.lax.scan(body, factors, rows)[0])
    return functools.partial(run, factors, rows)


def one_pass(name: str, rows: jax.Array, k: int, batch: int) -> tuple[StreamingRule, Any]:
    """Return a rule, and a compiled pass over rows that starts from a new state."""
    rule = RULES[name].at_rate(rows.shape[1], k, PowerDecay(RATE, POWER))
    used, state = rows[: len(rows) - len(rows) % batch], rule.init(jax.random.key(0))
    run = jax.jit(lambda state, rows: scan_updates(rule, state, rows, batch))
    return rule, functools.partial(run, state, used)


def compare_with_numpy(rows: npt.NDArray[np.float32], k: int, repeats: int) -> dict[str, float]:
    """Time implicit Krasulina, its bare products, and NumPy's loop, in seconds per row."""
    start = 1e-2 * np.random.default_rng(0).normal(size=(rows.shape[1], k))
    placed = jnp.asarray(rows)
    calls = {
        "rlreps": one_pass("implicit_krasulina", placed, k, 1)[1],
        "its products alone": bare_products(start.astype(np.float32), placed),
    }
    found = median_seconds(calls, repeats)
    for dtype in (np.float64, np.float32):
        loop = functools.partial(numpy_loop, rows.astype(dtype), start.astype(dtype))
        for threads in (None, 1):
            name = f"NumPy {np.dtype(dtype).name}, {'all threads' if threads is None else 'one'}"
            with threadpool_limits(threads, user_api="blas"):
                found |= median_seconds({name: loop}, repeats)
    return {name: seconds / len(rows) for name, seconds in found.items()}


def accuracy_against_time(
    exact: ExactComponents, k: int, batches: Sequence[int], repeats: int
) -> list[tuple[str, int, float, float]]:
    """Make one pass over all rows with rlreps and with scikit-learn, for several batch sizes.

    Returns:
        Method, rows of an update, seconds and percent excess loss of each pass.
    """
    rows = exact.rows[np.random.default_rng(0).permutation(len(exact.rows))]
    placed, least, points = jnp.asarray(rows), exact.exact_loss(k), []

    def point(method: str, batch: int, call: Callable[[], Any], components: Any) -> None:
        seconds = median_seconds({"": call}, repeats)[""]
        excess = 100.0 * (exact.loss(np.asarray(components())) / least - 1.0)
        points.append((method, batch, seconds, excess))

    for name in ("implicit_krasulina", "incremental_pca"):
        for batch in (b for b in batches if b >= k or name == "implicit_krasulina"):
            rule, run = one_pass(name, placed, k, batch)
            point(rule.title, batch, run, lambda rule=rule, run=run: rule.components(run()))
    for batch in (b for b in batches if b >= k):
        model = IncrementalPCA(k, batch_size=batch)
        fit = functools.partial(lambda model: model.fit(rows) and None, model)
        point("scikit-learn IncrementalPCA", batch, fit, lambda model=model: model.components_.T)
    return points


def streaming(repeats: int = 5, data: Path | None = None) -> None:
    """Compare online PCA with NumPy, with its bare products, and with scikit-learn.

    Args:
        repeats: Passes of each kind; their median counts.
        data: Rows, as for ``rlreps experiment online-pca``; random rows by default.
    """
    k, given = 20, random_rows(20_000, 784) if data is None else load_observations(data).rows
    exact = exact_components(given)
    found = compare_with_numpy(exact.rows[:5000], k, repeats)
    for name, seconds in found.items():
        ratio = seconds / found["rlreps"]
        print(f"{name:27s} {1e6 * seconds:7.2f} µs a row, {ratio:5.1f} times rlreps'")
    for point in accuracy_against_time(exact, k, (1, 20, 100, 500, 1000, 2000), min(repeats, 3)):
        print(*point)


BENCHMARKS: dict[str, Callable[..., None]] = {
    "ground-truth": ground_truth,
    "training": training,
    "spectral": spectral,
    "agents": agents,
    "worlds": worlds,
    "streaming": streaming,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["agents"]:
        devices_for_small_runs()  # One for each core, which JAX allows only before it starts.
    print(f"{os.cpu_count()} CPUs, {jax.devices()[0].device_kind}, JAX {jax.__version__}")
    tyro.extras.subcommand_cli_from_dict(BENCHMARKS)
