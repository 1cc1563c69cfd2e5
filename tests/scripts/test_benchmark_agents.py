"""The benchmark of agents, at its smallest."""

import contextlib
import dataclasses
import importlib
from pathlib import Path

import pytest

from rlreps.agents import DQNConfig
from rlreps.agents.trainer import make_trainer
from rlreps.encoders import MLP

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def benchmark():
    """The script, imported as running it from its folder would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("benchmark_agents")


def test_all_ways_run_one_agent_and_differ_only_in_where_it_acts(benchmark):
    base, *others = [case.config for case in benchmark.cases(10)]
    for config in others:
        assert config.dqn == base.dqn
        assert config.encoder == base.encoder
        assert config.replay == base.replay
    assert [config.num_envs for config in (base, *others)] == [1, 4, 4]
    assert [config.num_seeds for config in (base, *others)] == [10, 10, 10]


def test_speed_counts_the_steps_of_all_agents(benchmark, monkeypatch):
    case = benchmark.cases(2)[-1]
    config = dataclasses.replace(
        case.config,
        encoder=MLP(hidden=(8,)),
        num_features=4,
        dqn=DQNConfig(warmup=40, batch_size=4),
    )
    case = dataclasses.replace(case, config=config, steps=40)
    times = iter([0.0, 2.0, 10.0, 11.0])
    with contextlib.closing(make_trainer(config)) as loop:
        monkeypatch.setattr(benchmark.time, "perf_counter", lambda: next(times))
        # Two agents of 40 steps in 2 s, then in 1 s: the better round counts.
        assert benchmark.steps_per_second(case, loop, 2) == pytest.approx(80.0)
