"""Aggregates over runs against scipy, closed forms and their own promise of coverage."""

import numpy as np
import pytest
from scipy import stats

from rlreps.errors import InputError
from rlreps.runs.intervals import aggregate

MEANS = ("mean", "interquartile_mean")


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 7, 8, 30])
def test_the_two_means_are_numpys_mean_and_scipys_trimmed_mean(runs):
    values = np.random.default_rng(runs).lognormal(size=(runs, 6))
    found = aggregate(values, resamples=10)
    np.testing.assert_allclose(found["mean"], values.mean(axis=0))
    np.testing.assert_allclose(found["interquartile_mean"], stats.trim_mean(values, 0.25, axis=0))
    assert found["runs"] == runs


def test_the_interquartile_mean_ignores_what_happens_in_the_outer_quarters():
    values = np.arange(8.0)
    wild = np.where(values == 7, 1e9, values)
    assert aggregate(wild)["interquartile_mean"] == aggregate(values)["interquartile_mean"] == 3.5
    assert aggregate(wild)["mean"] > 1e8


@pytest.mark.parametrize("name", MEANS)
def test_intervals_are_scipys_percentile_bootstrap(name):
    values = np.random.default_rng(0).exponential(size=25)
    statistic = {
        "mean": np.mean,
        "interquartile_mean": lambda sample, axis: stats.trim_mean(sample, 0.25, axis=axis),
    }[name]
    other = stats.bootstrap(
        (values,), statistic, n_resamples=20_000, confidence_level=0.9, method="percentile"
    )
    found = aggregate(values, confidence=0.9, resamples=20_000)
    width = other.confidence_interval.high - other.confidence_interval.low
    # The end of an interval from 20,000 resamples has a standard error of about 0.6 % of its width.
    assert abs(found[f"{name}_low"] - other.confidence_interval.low) < 0.04 * width
    assert abs(found[f"{name}_high"] - other.confidence_interval.high) < 0.04 * width


def test_intervals_hold_the_truth_as_often_as_they_promise():
    repeats, runs, confidence = 2000, 40, 0.9
    # Points of one call share their resampling, but each has values of its own.
    values = np.random.default_rng(1).normal(3.0, 2.0, size=(runs, repeats))
    found = aggregate(values, confidence=confidence, resamples=1000)
    # What the percentile method loses with 40 runs: it takes the sample's standard deviation,
    # divided by n instead of n - 1, and the normal quantile instead of Student's.
    nominal = stats.norm.ppf(0.5 + confidence / 2) * np.sqrt((runs - 1) / runs)
    expected = 1 - 2 * stats.t.sf(nominal, runs - 1)
    error = np.sqrt(expected * (1 - expected) / repeats)
    covered = np.mean((found["mean_low"] <= 3.0) & (found["mean_high"] >= 3.0))
    assert abs(covered - expected) < 4 * error
    middle = (found["interquartile_mean_low"] <= 3.0) & (found["interquartile_mean_high"] >= 3.0)
    assert abs(np.mean(middle) - confidence) < 0.05


def test_five_runs_are_covered_as_the_docstring_says():
    values = np.random.default_rng(2).normal(size=(5, 2000))
    found = aggregate(values)
    covered = np.mean((found["mean_low"] <= 0.0) & (found["mean_high"] >= 0.0))
    assert abs(covered - 0.84) < 4 * np.sqrt(0.84 * 0.16 / 2000)


@pytest.mark.parametrize("name", MEANS)
def test_equal_runs_have_an_interval_of_no_width(name):
    found = aggregate(np.full((6, 3), 0.25))
    for end in (name, f"{name}_low", f"{name}_high"):
        np.testing.assert_array_equal(found[end], 0.25)


def test_one_run_has_no_interval():
    found = aggregate([2.0])
    assert found["mean"] == found["interquartile_mean"] == 2.0
    for name in MEANS:
        assert np.isnan([found[f"{name}_low"], found[f"{name}_high"]]).all()


def test_a_point_has_the_same_interval_alone_and_among_others():
    values = np.random.default_rng(3).normal(size=(30, 150))  # more than one block of points
    together = aggregate(values)
    for index in (0, 69, 70, 149):
        alone = aggregate(values[:, index])
        assert isinstance(alone["mean"], float)
        for name, value in alone.items():
            assert value == pytest.approx(np.broadcast_to(together[name], 150)[index], rel=1e-12)


def test_intervals_follow_the_seed_and_the_confidence():
    values = np.random.default_rng(4).normal(size=20)
    assert aggregate(values) == aggregate(values)
    assert aggregate(values)["mean_low"] != aggregate(values, seed=1)["mean_low"]
    wide, narrow = aggregate(values), aggregate(values, confidence=0.5)
    assert wide["mean_low"] < narrow["mean_low"] < wide["mean"]
    assert wide["mean"] < narrow["mean_high"] < wide["mean_high"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_diverged_run_is_not_dropped_silently(bad):
    message = f"expected finite values; give a diverged run its worst value, got {bad}"
    with pytest.raises(InputError, match=message):
        aggregate([0.1, bad, 0.2])


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([], {}),
        (1.0, {}),
        (np.zeros((2, 2, 2)), {}),
        (np.zeros((3, 0)), {}),
        ([1.0], {"confidence": 1.0}),
        ([1.0], {"confidence": 0.0}),
        ([1.0], {"resamples": 0}),
    ],
)
def test_what_is_no_table_of_runs_is_refused(values, options):
    with pytest.raises(InputError, match=r"expected .*, got"):
        aggregate(values, **options)
