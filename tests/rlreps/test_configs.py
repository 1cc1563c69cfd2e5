"""Configurations refuse what cannot run, in words, before anything is computed or written."""

import dataclasses
import json
from pathlib import Path

import pytest

from rlreps.configs import (
    EncoderConfig,
    OptimizerConfig,
    TrainingConfig,
    as_json,
    from_json,
)
from rlreps.errors import InputError
from rlreps.losses import DanskinLissa, Naive
from rlreps.workflows.quickstart.config import PRESETS, QuickstartConfig

NAN, INFINITY = float("nan"), float("inf")
METHODS = (
    "danskin_chunked, danskin_empirical, danskin_lissa, explicit, large_batch, naive, oracle, spin"
)

TRANSITION = {"method": "transition"}
TOGETHER = "coordinator, num_processes and process_id together, or none of them"

BAD_VALUES = [
    (
        EncoderConfig,
        {"name": "resnet"},
        "encoder to be one of cosine, fourier_mlp, mlp, tabular",
        "'resnet'",
    ),
    (EncoderConfig, {"hidden": (8, 0)}, "hidden layer widths >= 1", "0"),
    (EncoderConfig, {"frequencies": 0}, "frequencies >= 1", "0"),
    (OptimizerConfig, {"name": "lbfgs"}, "optimizer to be one of adam, rmsprop, sgd", "'lbfgs'"),
    (
        OptimizerConfig,
        {"schedule": "exponential"},
        "schedule to be one of constant, cosine, linear",
        "'exponential'",
    ),
    (OptimizerConfig, {"learning_rate": 0.0}, "a finite learning_rate > 0", "0.0"),
    (OptimizerConfig, {"learning_rate": INFINITY}, "a finite learning_rate > 0", "inf"),
    (OptimizerConfig, {"learning_rate": NAN}, "a finite learning_rate > 0", "nan"),
    (TrainingConfig, {"num_features": 0}, "num_features >= 1", "0"),
    (TrainingConfig, {"steps": 0}, "steps >= 1", "0"),
    (TrainingConfig, {"rows": 0}, "rows >= 1", "0"),
    (TrainingConfig, {"tasks": 0}, "tasks >= 1", "0"),
    (TrainingConfig, {"num_seeds": 0}, "num_seeds >= 1", "0"),
    (TrainingConfig, {"evaluate_every": 0}, "evaluate_every >= 1", "0"),
    (
        TrainingConfig,
        {"checkpoint_every": 0},
        "checkpoint_every to be a multiple of evaluate_every (100)",
        "0",
    ),
    (
        TrainingConfig,
        {"checkpoint_every": 250},
        "checkpoint_every to be a multiple of evaluate_every (100)",
        "250",
    ),
    (TrainingConfig, {"seed": -1}, "seed in [0, 2**31)", "-1"),
    (TrainingConfig, {"seed": 2**31}, "seed in [0, 2**31)", str(2**31)),
    (
        TrainingConfig,
        {"objective": Naive(), "rows": 2},
        "rows >= 3, one for each role of naive",
        "2",
    ),
    (
        TrainingConfig,
        {"objective": DanskinLissa(gradient_rows=50, weight_rows=20, covariance_rows=30)},
        "rows = 150, the sum over danskin_lissa's roles",
        "1000",
    ),
    (
        QuickstartConfig,
        {**vars(PRESETS["smoke"]), "headline_dimension": 7},
        "headline_dimension to be one of dimensions (5, 10)",
        "7",
    ),
    (
        QuickstartConfig,
        {**vars(PRESETS["smoke"]), "dimensions": (0, 10)},
        "dimensions >= 1",
        "0",
    ),
    (
        QuickstartConfig,
        {**vars(PRESETS["smoke"]), "objectives": ()},
        "at least one objective",
        "()",
    ),
]


@pytest.mark.parametrize(
    ("config", "values", "expected", "got"),
    BAD_VALUES,
    ids=[f"{case[0].__name__}-{index}" for index, case in enumerate(BAD_VALUES)],
)
def test_a_bad_value_is_refused_with_what_was_expected_and_what_came(config, values, expected, got):
    with pytest.raises(InputError) as error:
        config(**values)
    assert str(error.value) == f"expected {expected}, got {got}"


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (EncoderConfig, {"hidden": (), "frequencies": 1}),
        (OptimizerConfig, {"learning_rate": 1e-12}),
        (TrainingConfig, {"rows": 1, "tasks": 1, "steps": 1, "seed": 2**31 - 1}),
    ],
)
def test_values_at_the_edge_of_their_range_are_accepted(config, values):
    made = config(**values)
    assert {name: getattr(made, name) for name in values} == values


CONFIGS = [
    EncoderConfig(hidden=(3, 4)),
    OptimizerConfig(name="sgd"),
    TrainingConfig(encoder=EncoderConfig(hidden=(5,)), seed=3),
    *PRESETS.values(),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_a_configuration_survives_json(config):
    plain = as_json(config)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert set(plain) == {field.name for field in dataclasses.fields(config)}


def test_a_training_configuration_is_rebuilt_from_its_json():
    config = TrainingConfig(
        encoder=EncoderConfig(name="mlp", hidden=(3, 4)),
        objective=DanskinLissa(whitening=True, kappa0=1.5),
        optimizer=OptimizerConfig(name="rmsprop", learning_rate=0.01),
        rows=100,
    )
    plain = json.loads(json.dumps(as_json(config)))
    rebuilt = from_json(TrainingConfig, plain)
    assert rebuilt == config


def test_paths_and_nested_containers_become_plain_values():
    @dataclasses.dataclass
    class Nested:
        folder: Path = Path("runs/one")
        table: dict[str, tuple[Path, int]] = dataclasses.field(
            default_factory=lambda: {"a": (Path("b"), 1)}
        )

    assert as_json(Nested()) == {"folder": "runs/one", "table": {"a": ["b", 1]}}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_configurations_are_frozen_and_keyword_only(config):
    field = dataclasses.fields(config)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, field, getattr(config, field))
    with pytest.raises(TypeError):
        type(config)(getattr(config, field))


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_gives_every_method_the_same_budget(name):
    preset = PRESETS[name]
    methods = [objective.name for objective in preset.objectives]
    for runs, repeats in (
        (preset.paper_runs(), 1),
        (preset.recommended_runs(), len(preset.dimensions)),
    ):
        assert [run.objective.name for run in runs[::repeats]] == methods
        budgets = {(run.steps, run.rows, run.tasks, run.num_seeds) for run in runs}
        assert len(budgets) == 1
    assert {run.num_features for run in preset.paper_runs()} == {preset.headline_dimension}
    assert {run.num_features for run in preset.recommended_runs()} == set(preset.dimensions)


def test_the_papers_protocol_runs_methods_without_our_extensions():
    for run in PRESETS["laptop"].paper_runs():
        assert run.objective == type(run.objective)()
        assert (run.encoder.name, run.tasks) == ("mlp", 1)
