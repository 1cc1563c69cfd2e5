"""Configurations of agents refuse what cannot run, in words, before anything is computed."""

import dataclasses
import json

import pytest

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig, ReplayConfig
from rlreps.config import as_json, from_json
from rlreps.cumulants import Cells, RandomIndicators
from rlreps.encoders import FourierMLP, Tabular
from rlreps.errors import InputError
from rlreps.losses import DanskinLissa, Oracle, Spin
from rlreps.workflows.agents import METHODS

NAN, INFINITY = float("nan"), float("inf")
LEARNED = {"weight": 0.1}
SPIN = Spin()

BAD_VALUES = [
    (ReplayConfig, {"capacity": 0}, "capacity >= 1", "0"),
    (ReplayConfig, {"priority_exponent": 1.5}, r"priority_exponent in \[0, 1\]", "1.5"),
    (ReplayConfig, {"importance_exponent": NAN}, r"importance_exponent in \[0, 1\]", "nan"),
    (ReplayConfig, {"priority_exponent": 0.5}, "prioritised replay for another prio", "0.5"),
    (ReplayConfig, {"importance_exponent": 1.0}, "prioritised replay for another imp", "1.0"),
    (DQNConfig, {"n_step": 0}, "n_step >= 1", "0"),
    (DQNConfig, {"discount": 1.0}, r"discount in \[0, 1\)", "1.0"),
    (DQNConfig, {"learning_rate": INFINITY}, r"learning_rate in \(0, inf\)", "inf"),
    (DQNConfig, {"reward_scale": 0.0}, r"reward_scale in \(0, inf\)", "0.0"),
    (DQNConfig, {"epsilon_end": -0.1}, r"epsilon_end in \[0, 1\]", "-0.1"),
    (AuxiliaryConfig, {"weight": -0.1}, r"auxiliary weight in \[0, inf\)", "-0.1"),
    (AuxiliaryConfig, {"weight": NAN}, r"auxiliary weight in \[0, inf\)", "nan"),
    (
        AuxiliaryConfig,
        {"tasks": "magic"},
        "auxiliary tasks to be one of cells, random_fourier, random_indicators",
        "'magic'",
    ),
    (AuxiliaryConfig, {"targets": "exact"}, "targets to be one of bootstrapped, monte_c", "'exact"),
    (AuxiliaryConfig, {"tasks": Cells(), "num_tasks": 7}, "no num_tasks for cells", "7"),
    (
        AuxiliaryConfig,
        {"discount_low": 0.9, "discount_high": 0.8},
        "discounts 0 <= discount_low <= discount_high < 1",
        r"\(0.9, 0.8\)",
    ),
    (
        AuxiliaryConfig,
        {**LEARNED, "objective": Oracle()},
        "an auxiliary objective that needs no exact expectations",
        "'oracle'",
    ),
    (AuxiliaryConfig, {**LEARNED, "objective": SPIN, "sequences": 1}, "rows >= 2", "1"),
    (AgentConfig, {"num_seeds": 0}, "num_seeds >= 1", "0"),
    (AgentConfig, {"seed": 2**31}, r"seed in \[0, 2\*\*31\)", "2147483648"),
    (AgentConfig, {"encoder": Tabular()}, "a torso of observ", "'tabular'"),
    (
        AgentConfig,
        {"num_envs": 3},
        r"steps_per_update to be a multiple of num_envs \(3\)",
        "4",
    ),
    (AgentConfig, {"steps": 7_500}, r"steps to be a multiple of evaluate_every \(5000\)", "7500"),
    (
        AgentConfig,
        {"evaluate_every": 10, "steps": 100},
        r"evaluate_every to be a multiple of steps_per_update \(4\)",
        "10",
    ),
    (
        AgentConfig,
        {"checkpoint_every": 0},
        r"checkpoint_every to be a multiple of evaluate_every \(5000\)",
        "0",
    ),
    (
        AgentConfig,
        {"replay": ReplayConfig(capacity=7)},
        "a replay capacity of at least 12 rows, a sequence of 3 for each of 4 environments",
        "7",
    ),
    (
        AgentConfig,
        {"replay": ReplayConfig(capacity=131), "auxiliary": AuxiliaryConfig(**LEARNED)},
        "a replay capacity of at least 132 rows, a sequence of 33 for each of 4 environments",
        "131",
    ),
    (
        AgentConfig,
        {"dqn": DQNConfig(warmup=128), "auxiliary": AuxiliaryConfig(**LEARNED)},
        "a warmup of at least 132 steps, a sequence of 33 for each of 4 environments",
        "128",
    ),
    (
        AgentConfig,
        {"dqn": DQNConfig(freeze_torso=True), "auxiliary": AuxiliaryConfig(**LEARNED)},
        "no auxiliary task where the torso is frozen",
        "0.1",
    ),
]


@pytest.mark.parametrize(("kind", "changes", "expected", "got"), BAD_VALUES)
def test_a_value_that_cannot_be_used_is_refused_in_words(kind, changes, expected, got):
    with pytest.raises(InputError, match=f"^expected {expected}.*, got {got}") as error:
        kind(**changes)
    assert "\n" not in str(error.value)


def test_an_auxiliary_task_without_weight_asks_for_nothing():
    unused = AuxiliaryConfig(objective=Oracle(), horizon=10_000, sequences=1)
    config = AgentConfig(auxiliary=unused, replay=ReplayConfig(capacity=12))
    assert config.sequence_length == 2


@pytest.mark.parametrize(
    ("n_step", "weight", "horizon", "length"), [(1, 0.0, 32, 2), (3, 0.5, 2, 4), (3, 0.5, 20, 20)]
)
def test_sequences_are_as_long_as_what_needs_the_longest_ones(n_step, weight, horizon, length):
    config = AgentConfig(
        dqn=DQNConfig(n_step=n_step), auxiliary=AuxiliaryConfig(weight=weight, horizon=horizon)
    )
    assert config.sequence_length == length


EVERYTHING = AgentConfig(
    environment="CartPole-v1",
    encoder=FourierMLP(hidden=(16, 8), frequencies=3),
    num_features=8,
    dqn=DQNConfig(double=False, n_step=3, warmup=80),
    replay=ReplayConfig(capacity=400, prioritised=True, priority_exponent=0.5),
    auxiliary=AuxiliaryConfig(
        objective=DanskinLissa(gradient_rows=2, weight_rows=3, covariance_rows=4, whitening=True),
        weight=0.25,
        tasks=RandomIndicators(hidden=(8,)),
        targets="bootstrapped",
        horizon=8,
        sequences=16,
    ),
    seed=7,
    num_seeds=3,
)


@pytest.mark.parametrize("config", [AgentConfig(), EVERYTHING])
def test_a_configuration_survives_its_json(config):
    assert from_json(AgentConfig, json.loads(json.dumps(as_json(config))), METHODS) == config


def test_json_of_another_kind_is_refused():
    stored = as_json(AgentConfig())
    with pytest.raises(InputError, match=r"expected the fields of AgentConfig, got .*rollouts"):
        from_json(AgentConfig, {**stored, "rollouts": 1}, METHODS)
    with pytest.raises(InputError, match=r"expected the fields of DQNConfig, got .*triple"):
        from_json(AgentConfig, {**stored, "dqn": {"triple": True}}, METHODS)
    with pytest.raises(InputError, match="expected num_seeds >= 1, got 0"):
        from_json(AgentConfig, {**stored, "num_seeds": 0}, METHODS)


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        AgentConfig().steps = 1
