import numpy as np
import pytest

from rlreps.configs import TrainingConfig
from rlreps.configs.sweep import SweepConfig, parse_grid
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import aggregate
from rlreps.workflows.sweep.grid import groups_of
from rlreps.workflows.sweep.report import draw_sweep, gather, write_sweep_report


def measured(*texts, excess=0.5, diverged=(), **base):
    """A sweep and its rows, from made-up distances 0.01, 0.02, ... by point and seed."""
    config = SweepConfig(base=TrainingConfig(**base), grid=parse_grid(texts))
    groups = groups_of(config)
    order = sorted((member.point, member.seed) for group in groups for member in group.members)
    results = [
        {
            "seconds": 10.0 * number,
            "members": [
                {
                    "subspace_distance": 0.01 * (1 + order.index((member.point, member.seed))),
                    "relative_excess_loss": excess,
                    "diverged": member.point in diverged,
                }
                for member in group.members
            ],
        }
        for number, group in enumerate(groups, start=1)
    ]
    return config, gather(config, groups, results)


def test_rows_come_in_the_order_of_the_grid_whichever_program_trained_them():
    _, rows = measured("learning-rate=0.1,0.2", "num-features=5,10", num_seeds=3)
    assert [row["num_features"] for row in rows] == [5, 10, 5, 10]
    assert [row["group"] for row in rows] == [1, 2, 1, 2]
    assert [row["seconds"] for row in rows] == [10.0, 20.0, 10.0, 20.0]
    for index, row in enumerate(rows):
        own = aggregate(0.01 * np.arange(1 + 3 * index, 4 + 3 * index))
        for name in ("mean", "mean_low", "interquartile_mean", "interquartile_mean_high"):
            assert row[f"subspace_distance_{name}"] == pytest.approx(own[name])
        assert (row["runs"], row["runs_together"]) == (3, 6)


def test_one_run_has_no_interval_and_an_excess_that_means_nothing_is_none():
    _, rows = measured("hidden=8 8,16", "whitening=true", excess=None)
    assert [row["encoder.hidden"] for row in rows] == ["8 8", "16"]
    for row in rows:
        assert row["objective.whitening"] is True
        assert row["subspace_distance_mean"] is not None
        assert row["subspace_distance_interquartile_mean_high"] is None
        assert row["excess_loss_mean"] is None


@pytest.mark.parametrize(
    ("texts", "x_label", "lines"),
    [
        (
            ["method=naive,oracle", "num-features=8,5", "rows=50,60"],
            "num-features",
            [
                f"method = {name}, rows = {rows}"
                for name in ("naive", "oracle")
                for rows in (50, 60)
            ],
        ),
        (["rows=50", "method=naive,oracle"], "method", ["rows = 50"]),
        (["rows=50", "method=naive"], "rows", ["method = naive"]),
        (["num-features=5", "learning-rate=0.1,0.2"], "learning-rate", ["num-features = 5"]),
        (
            ["weight-learning-rate=none,0.1", "method=explicit,naive"],
            "weight-learning-rate",
            ["method = explicit", "method = naive"],
        ),
    ],
)
def test_the_figure_runs_along_the_first_field_of_several_numbers(texts, x_label, lines):
    config, rows = measured(*texts)
    axes = draw_sweep(config, rows).axes[0]
    assert axes.get_xlabel() == x_label
    assert [container.get_label() for container in axes.containers] == lines
    drawn = np.concatenate([container[0].get_ydata() for container in axes.containers])
    assert sorted(drawn) == [row["subspace_distance_mean"] for row in rows]
    for container in axes.containers:
        assert np.all(np.diff(container[0].get_xdata()) > 0)


def test_the_report_says_which_point_is_best_and_how_many_runs_diverged(tmp_path):
    config, rows = measured("seed=3,4", "method=naive,oracle", diverged=(1,), num_seeds=2)
    folder = RunFolder.create_or_resume(tmp_path / "x", kind="sweep", config={}, provenance={})
    page = write_sweep_report(config, folder, rows).read_text()
    assert "8 runs at 4 points, of which 2 diverged." in page
    assert "mean distance is 0.0150, at seed = 3, method = naive." in page
    assert (folder.path / "figures" / "sweep.png").stat().st_size > 1000
