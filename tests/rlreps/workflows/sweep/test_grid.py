import dataclasses

import pytest

from rlreps import cli
from rlreps.configs import EncoderConfig, OptimizerConfig, TrainingConfig
from rlreps.configs.sweep import (
    GridAxis,
    SweepConfig,
    as_text,
    field_value,
    flag_of,
    parse_grid,
    sweepable_fields,
    with_fields,
)
from rlreps.errors import InputError
from rlreps.losses import DanskinLissa, Naive
from rlreps.training.hyperparameters import Hyperparameters
from rlreps.workflows.sweep.grid import Member, groups_of

OTHER = TrainingConfig(
    encoder=EncoderConfig(name="mlp", hidden=(3, 4), frequencies=2),
    objective=DanskinLissa(
        gradient_rows=1,
        weight_rows=2,
        covariance_rows=3,
        kappa0=0.5,
        feature_norm="running",
        permutations=2,
        whitening=True,
    ),
    optimizer=OptimizerConfig(name="sgd", learning_rate=3e-5, schedule="constant"),
    num_features=3,
    steps=4,
    rows=11,
    tasks=5,
    seed=7,
    num_seeds=8,
    evaluate_every=9,
    checkpoint_every=18,
)


def sweep(*texts, **base):
    return SweepConfig(base=TrainingConfig(**base), grid=parse_grid(texts))


def test_every_field_of_a_configuration_can_be_swept_under_all_its_names():
    for field in sweepable_fields():
        values = {field_value(config, field) for config in (TrainingConfig(), OTHER)}
        assert len(values) == 2, field
        text = ",".join(map(as_text, values))
        for name in (field, field.replace("_", "-"), flag_of(field)):
            assert parse_grid([f"{name}={text}"]) == (GridAxis(field, tuple(values)),)
    leaves = [
        f"{outer.name}.{inner.name}" if nested else outer.name
        for outer in dataclasses.fields(TrainingConfig)
        for nested in [dataclasses.is_dataclass(getattr(OTHER, outer.name))]
        for inner in (dataclasses.fields(getattr(OTHER, outer.name)) if nested else [outer])
    ]
    assert list(sweepable_fields()) == leaves
    everything = {field: field_value(OTHER, field) for field in leaves}
    assert with_fields(TrainingConfig(), everything) == OTHER


def test_short_names_are_the_flags_of_train(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    help_text = capsys.readouterr().out
    for field in sweepable_fields():
        assert f"--{flag_of(field)}" in help_text


def test_points_are_the_product_with_the_last_field_fastest():
    config = sweep("num-features=5,10", "learning_rate=1e-3, 3e-4", steps=7)
    assert [point.values for point in config.points] == [
        {"num_features": d, "optimizer.learning_rate": rate}
        for d in (5, 10)
        for rate in (1e-3, 3e-4)
    ]
    for point in config.points:
        assert point.config.num_features == point.values["num_features"]
        assert point.config.optimizer.learning_rate == point.values["optimizer.learning_rate"]
        assert point.config.steps == 7


def test_fields_that_only_fit_together_are_changed_together():
    grid = parse_grid(["objective.gradient-rows=20,10", "rows=20"])
    base = TrainingConfig(objective=Naive(gradient_rows=1, weight_rows=1, covariance_rows=1))
    points = SweepConfig(base=base, grid=grid).points
    assert [point.config.objective.gradient_rows for point in points] == [20, 10]


def test_what_the_base_says_of_swept_fields_does_not_matter():
    first, second = (sweep("seed=3,4", seed=seed) for seed in (0, 9))
    assert first == second
    assert first.as_json() == second.as_json()
    assert first.as_json() != sweep("seed=3,4", steps=9).as_json()
    assert first.as_json()["grid"] == {"seed": [3, 4]}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "at least one field to sweep, got none"),
        (["num-features"], "expected FIELD=VALUE,VALUE,... to sweep, got 'num-features'"),
        (
            ["depth=3"],
            r"a field to sweep of encoder.name, .*optimizer.learning-rate, .* got 'depth'",
        ),
        (["encoder=mlp", "encoder.name=mlp"], "each field to be swept once, got 'encoder.name'"),
        (["seed=1,2,1"], r"different values of seed, at least one, got \(1, 2, 1\)"),
        (["seed=1,,2"], "an integer, got '' for seed"),
        (["rows=1e3"], "an integer, got '1e3' for rows"),
        (["learning-rate=fast"], "a number, got 'fast' for optimizer.learning-rate"),
        (["hidden=64x64"], "an integer, got '64x64' for encoder.hidden"),
        (["method=pca"], "one of danskin_chunked, .*, spin, got 'pca' for objective.name"),
        (["whitening=1"], "one of true, false, got '1' for objective.whitening"),
        (["kappa0=1.5,2"], r"kappa0 strictly between 0 and 2, got 2.0 \(at the point .*kappa0=2.0"),
        (["learning-rate=nan"], "a finite learning_rate > 0, got nan"),
        (
            ["method=large_batch,danskin_lissa", "rows=50,3"],
            r"rows >= 5, .*, got 3 \(at the point objective.name=danskin_lissa, rows=3\)",
        ),
    ],
)
def test_a_grid_that_is_none_is_refused(texts, message):
    with pytest.raises(InputError, match=f"^expected .*{message.removeprefix('expected ')}"):
        sweep(*texts)


def test_runs_that_differ_in_seeds_and_numbers_share_a_program_and_others_do_not():
    config = sweep(
        "num-features=5,10", "learning-rate=1e-3,1e-2", "seed=0,4", "weight-learning-rate=none,0.5"
    )
    first, second = groups_of(config)
    assert (first.config.num_features, second.config.num_features) == (5, 10)
    assert [member.point for member in first.members] == list(range(8))
    assert [member.point for member in second.members] == list(range(8, 16))
    # Without a rate of their own, stored weights take the encoder's.
    assert first.members[4] == Member(4, 0, Hyperparameters(1e-2, 1.9, 1e-2))
    assert first.members[7] == Member(7, 4, Hyperparameters(1e-2, 1.9, 0.5))
    for field in ("steps=3,4", "optimizer=sgd,adam", "hidden=3,4", "schedule=cosine,constant"):
        assert len(groups_of(sweep(field))) == 2


def test_each_seed_of_a_point_is_a_member():
    (group,) = groups_of(sweep("num-seeds=2,3", seed=5))
    assert [(member.point, member.seed) for member in group.members] == [
        (0, 5),
        (0, 6),
        (1, 5),
        (1, 6),
        (1, 7),
    ]
