"""Speed of agents: one compiled program against the same agent in a Gymnasium loop.

    python scripts/benchmark_agents.py

Environment steps a second in PuddleWorld, acting, remembering and learning included, compilation
and evaluation not. All rows are of one run on one machine, measured in turn, the best of several
rounds each. Every agent has the same hyperparameters, one update for four steps:

- ``Gymnasium, one environment``: ``rlreps/PuddleWorld-v0``, one copy, as most loops have it;
- ``Gymnasium, vectorised``: four copies, as the compiled agent has;
- ``compiled``: environment, memory and updates in one program;
- ``updates alone``, of one agent: its updates from a memory as it stands, which no way to act can
  spare, as environment steps a second: the limit of all others;
- each of the two before with several agents at once, which the compiled one shares out over the
  cores.

The ratios are to the loop of as many agents, over one environment each and over as many
environments as the compiled agent has.
"""

import argparse
import contextlib
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp

from rlreps.runs.machine import keep_lapack_to_one_thread

keep_lapack_to_one_thread()

from rlreps.agents import AgentConfig, Trainer, make_trainer  # noqa: E402 - after threads are set
from rlreps.agents.dqn import Memory  # noqa: E402
from rlreps.training.devices import devices_for_small_runs  # noqa: E402

GYMNASIUM = "rlreps/PuddleWorld-v0"


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to run agents.

    Attributes:
        name: What it is called.
        config: The run.
        steps: Environment steps of each agent in a round.
    """

    name: str
    config: AgentConfig
    steps: int


def cases(agents: int) -> list[Case]:
    """All ways to run so many agents of the same hyperparameters; the compiled one is the last."""
    base = AgentConfig(
        evaluate_every=4_000, checkpoint_every=1_000_000, steps=1_000_000, num_seeds=agents
    )
    on_host = dataclasses.replace(base, environment=GYMNASIUM)
    return [
        Case("Gymnasium, one environment", dataclasses.replace(on_host, num_envs=1), 4_000),
        Case(f"Gymnasium, vectorised ({base.num_envs})", on_host, 8_000),
        Case("compiled", base, 20_000),
    ]


def steps_per_second(case: Case, trainer: Trainer, rounds: int) -> float:
    """Environment steps a second of all agents together, the best of several rounds."""
    # Warm-up has no updates; and what comes after it compiles first.
    warm = case.config.dqn.warmup
    state, _ = trainer.advance(trainer.init(), 0, warm)
    state, _ = trainer.advance(state, warm, case.steps)
    step, best = warm + case.steps, 0.0
    for _ in range(rounds):
        began = time.perf_counter()
        state, _ = trainer.advance(state, step, case.steps)
        jax.block_until_ready(state)
        best = max(best, case.steps * case.config.num_seeds / (time.perf_counter() - began))
        step += case.steps
    return best


def updates_alone(case: Case, trainer: Trainer, rounds: int) -> float:
    """Environment steps a second if acting and remembering cost nothing: updates alone, at best."""
    taken = case.config.dqn.warmup + case.steps
    state, _ = trainer.advance(trainer.init(), 0, taken)
    count = jnp.asarray(taken // case.config.num_envs, jnp.int32)
    updates = case.steps // case.config.dqn.steps_per_update

    @jax.jit
    def run(memories: Memory, key: jax.Array) -> Memory:
        def body(index: jax.Array, memory: Memory) -> Memory:
            learned: Memory = trainer.agent.learn(memory, count, jax.random.fold_in(key, index))[0]
            return learned

        memory: Memory = jax.tree.map(lambda leaf: leaf[0], memories)
        memory = jax.lax.fori_loop(0, updates, body, memory)
        return memory

    key, best = jax.random.key(0), 0.0
    jax.block_until_ready(run(state.memory, key))
    for _ in range(rounds):
        began = time.perf_counter()
        jax.block_until_ready(run(state.memory, key))
        best = max(best, case.steps / (time.perf_counter() - began))
    return best


def measure(agents: int, rounds: int, devices: Sequence[jax.Device]) -> dict[str, float]:
    """Speeds of all ways to run so many agents, printed with the compiled one's ratio to each."""
    found: dict[str, float] = {}
    for case in cases(agents):
        with contextlib.closing(make_trainer(case.config, devices=devices)) as trainer:
            found[case.name] = steps_per_second(case, trainer, rounds)
            if case.name == "compiled" and agents == 1:
                found["updates alone"] = updates_alone(case, trainer, rounds)
    print(f"{agents} agent{'s' if agents > 1 else ''}")
    for name, speed in found.items():
        ratio = found["compiled"] / speed
        print(f"  {name:30s} {speed:12,.0f} steps/s; compiled is {ratio:6.1f} x", flush=True)
    return found


def main() -> None:
    """Measures all cases and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=10, help="agents that run at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    arguments = parser.parse_args()
    devices = devices_for_small_runs()
    print(f"{len(devices)} x {devices[0].device_kind}, JAX {jax.__version__}")
    found = {
        agents: measure(agents, arguments.rounds, devices)
        for agents in dict.fromkeys((1, arguments.agents))
    }
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
