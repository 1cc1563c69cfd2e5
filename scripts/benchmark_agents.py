"""Speed of agents: one compiled program against the same agent in a Gymnasium loop.

    python scripts/benchmark_agents.py

Environment steps a second in PuddleWorld, acting, remembering and learning included, compilation
and evaluation not. All rows are of one run on one machine, measured in turn, the best of several
rounds each:

- ``Gymnasium, one environment``: ``rlreps/PuddleWorld-v0``, one copy, as most loops have it;
- ``Gymnasium, vectorised``: as many copies as the compiled agent has;
- ``compiled``: environment, memory and updates in one ``scan``;
- ``compiled, N agents``: N seeds at once, shared out over the cores.
"""

import argparse
import contextlib
import dataclasses
import json
import time
from pathlib import Path

import jax

from rlreps.cores import keep_lapack_to_one_thread

keep_lapack_to_one_thread()

from rlreps.agents.config import AgentConfig  # noqa: E402 - after the threads are set
from rlreps.agents.loops import Loop, make_loop  # noqa: E402
from rlreps.placement import devices_for_small_runs  # noqa: E402

GYMNASIUM = "rlreps/PuddleWorld-v0"


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to run an agent.

    Attributes:
        name: What it is called.
        config: The run.
        steps: Environment steps of each agent in a round.
    """

    name: str
    config: AgentConfig
    steps: int


def cases(agents: int) -> list[Case]:
    """All ways, of one agent's hyperparameters."""
    base = AgentConfig(evaluate_every=4_000, checkpoint_every=1_000_000, steps=1_000_000)
    alone = {"num_envs": 1, "environment": GYMNASIUM}
    return [
        Case("Gymnasium, one environment", dataclasses.replace(base, **alone), 4_000),
        Case(
            f"Gymnasium, vectorised ({base.num_envs})",
            dataclasses.replace(base, environment=GYMNASIUM),
            8_000,
        ),
        Case("compiled", base, 20_000),
        Case(f"compiled, {agents} agents", dataclasses.replace(base, num_seeds=agents), 20_000),
    ]


def steps_per_second(case: Case, loop: Loop, rounds: int) -> float:
    """Environment steps a second of all agents together, the best of several rounds."""
    # Warm-up has no updates; and what comes after it compiles first.
    warm = case.config.dqn.warmup
    state, _ = loop.run(loop.init(), 0, warm)
    state, _ = loop.run(state, warm, case.steps)
    step, best = warm + case.steps, 0.0
    for _ in range(rounds):
        began = time.perf_counter()
        state, _ = loop.run(state, step, case.steps)
        jax.block_until_ready(state)
        best = max(best, case.steps * case.config.num_seeds / (time.perf_counter() - began))
        step += case.steps
    return best


def main() -> None:
    """Measures all cases and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=10, help="agents of the last case")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    arguments = parser.parse_args()
    devices = devices_for_small_runs()
    print(f"{len(devices)} x {devices[0].device_kind}, JAX {jax.__version__}")
    found: dict[str, float] = {}
    for case in cases(arguments.agents):
        with contextlib.closing(make_loop(case.config, devices=devices)) as loop:
            found[case.name] = steps_per_second(case, loop, arguments.rounds)
        first = next(iter(found.values()))
        speed = found[case.name]
        print(f"{case.name:30s} {speed:12,.0f} steps/s {speed / first:8.1f} x", flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
