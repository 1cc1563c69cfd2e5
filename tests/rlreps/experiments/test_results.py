"""Tables of results on disk, and claims."""

import csv
import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from rlreps.experiments.results import (
    Claim,
    MeanDistance,
    all_hold,
    claims_table,
    mean_distance,
    write_results,
)
from rlreps.runs.folder import RunFolder


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create_or_resume(tmp_path / "run", kind="test", config={}, provenance={})


def test_both_files_hold_every_row_with_gaps_where_there_is_no_number(folder):
    rows = [
        {"method": "naïve, sgd", "d": np.int64(3), "distance": np.float32(0.25), "good": True},
        {"method": "oracle", "d": 5, "distance": float("nan"), "low": float("inf"), "good": None},
    ]
    write_results(folder, "curve", rows)
    with (folder.path / "results" / "curve.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    names = ("method", "d", "distance", "good", "low")
    assert [tuple(row) for row in table] == [names, names]
    assert list(table[0].values()) == ["naïve, sgd", "3", "0.25", "True", ""]
    assert list(table[1].values()) == ["oracle", "5", "", "", ""]
    assert json.loads((folder.path / "results" / "curve.json").read_text()) == [
        {"method": "naïve, sgd", "d": 3, "distance": 0.25, "good": True, "low": None},
        {"method": "oracle", "d": 5, "distance": None, "good": None, "low": None},
    ]
    assert not (folder.path / "figures").exists()


def test_numbers_survive_the_files_to_the_last_bit(folder):
    value = 0.1 + 0.2
    write_results(folder, "curve", [{"x": value}])
    assert json.loads((folder.path / "results" / "curve.json").read_text()) == [{"x": value}]
    assert float((folder.path / "results" / "curve.csv").read_text().splitlines()[1]) == value


def test_a_failed_write_leaves_the_table_that_was_there(folder):
    write_results(folder, "curve", [{"x": 1}])
    with pytest.raises(TypeError):
        write_results(folder, "curve", [{"x": object()}])
    assert (folder.path / "results" / "curve.csv").read_text() == "x\n1\n"
    assert json.loads((folder.path / "results" / "curve.json").read_text()) == [{"x": 1}]


def test_the_figure_lies_beside_under_the_same_name(folder):
    figure = Figure()
    figure.add_subplot().plot([0, 1])
    write_results(folder, "curve", [], figure)
    assert (folder.path / "figures" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder.path / "results" / "curve.json").read_text()) == []


def test_a_claim_that_cannot_be_told_is_neither_held_nor_refuted():
    claims = [
        Claim(statement="ordering", paper="A below B", found="A below B", holds=True),
        Claim(statement="error", paper=21.46, found=21.5, holds=False),
        Claim(statement="limit", paper="0", found="0.1 after 100 steps", holds=None),
    ]
    table = claims_table(claims)
    assert [row[0] for row in table.rows] == ["ordering", "error", "limit"]
    assert [row[-1] for row in table.rows] == [True, False, "cannot be told from this run"]


def test_one_mean_is_below_another_where_their_intervals_are_apart():
    low, high, wide = (
        MeanDistance(*parts) for parts in ((0.2, 0.1, 0.3), (0.5, 0.4, 0.6), (0.4, 0.25, 0.55))
    )
    assert (low.below(high), high.below(low)) == (True, False)
    assert (low.below(wide), wide.below(low), low.below(low)) == (None, None, None)


def test_a_mean_distance_carries_the_interval_of_its_runs_and_one_run_has_none():
    several = mean_distance([0.1, 0.2, 0.6])
    assert several.mean == pytest.approx(0.3)
    assert 0.1 <= several.low < several.mean < several.high <= 0.6
    one, other = mean_distance([0.1]), mean_distance([0.9])
    assert (one.below(other), other.below(one)) == (None, None)


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        ([True, True], True),
        ([True, None], None),
        ([None, False, True], False),
        ([], None),
    ],
)
def test_verdicts_hold_together_if_each_does(verdicts, together):
    assert all_hold(verdicts) is together
