"""Comparisons of two methods against scipy, cases by hand and their own promise of coverage."""

import numpy as np
import pytest
from scipy import stats

from rlreps.errors import InputError
from rlreps.runs.intervals import (
    interquartile_mean_difference,
    probability_of_improvement,
    samples_difference,
    samples_to_reach,
)

COMPARISONS = [probability_of_improvement, interquartile_mean_difference]


class TestProbabilityOfImprovement:
    @pytest.mark.parametrize("decimals", [0, 8], ids=["ties", "no ties"])
    def test_it_is_mann_and_whitneys_statistic_per_pair(self, decimals):
        generator = np.random.default_rng(0)
        x = generator.normal(0.4, 1.0, size=11).round(decimals)
        y = generator.normal(0.0, 2.0, size=7).round(decimals)
        found = probability_of_improvement(x, y).value
        assert found == pytest.approx(stats.mannwhitneyu(x, y).statistic / (11 * 7))

    def test_by_hand(self):
        # 3 beats 1, 2 and ties with 3; 0 beats none: (2 + 1/2) of 6 pairs.
        assert probability_of_improvement([3.0, 0.0], [1.0, 2.0, 3.0]).value == 2.5 / 6

    def test_swapping_the_methods_gives_the_complement(self):
        x, y = np.random.default_rng(1).integers(0, 5, size=(2, 9))
        one, other = probability_of_improvement(x, y), probability_of_improvement(y, x)
        assert one.value + other.value == pytest.approx(1.0)
        same = probability_of_improvement(x, x)
        assert same.value == 0.5
        assert same.low < 0.5 < same.high

    def test_only_the_order_counts_and_never_is_later_than_ever(self):
        x, y = np.random.default_rng(2).normal(size=(2, 8))
        expected = probability_of_improvement(x, y)
        assert probability_of_improvement(np.exp(x), np.exp(y)) == expected
        # Infinities tie with each other and lose to all else.
        assert probability_of_improvement([np.inf, 2.0], [np.inf, 1.0]).value == 2.5 / 4

    def test_tasks_count_alike_and_are_resampled_by_themselves(self):
        generator = np.random.default_rng(3)
        x, y = generator.normal(0.5, 1.0, (10, 40)), generator.normal(0.0, 1.0, (12, 40))
        many = probability_of_improvement(x, y)
        alone = [probability_of_improvement(x[:, task], y[:, task]) for task in range(40)]
        assert many.value == pytest.approx(np.mean([found.value for found in alone]))
        # Independent errors average out: narrower by about sqrt(40).
        width = np.mean([found.high - found.low for found in alone]) / np.sqrt(40)
        assert many.high - many.low == pytest.approx(width, rel=0.2)

    def test_its_interval_is_scipys_percentile_bootstrap(self):
        generator = np.random.default_rng(4)
        x, y = generator.normal(0.5, 1.0, 12), generator.normal(0.0, 1.0, 15)

        def share(one, other, axis):
            wins = one[..., :, None] > other[..., None, :]
            return wins.mean(axis=(-2, -1))

        other = stats.bootstrap(
            (x, y), share, n_resamples=10_000, method="percentile", rng=np.random.default_rng(0)
        ).confidence_interval
        found = probability_of_improvement(x, y, resamples=10_000)
        width = other.high - other.low
        assert abs(found.low - other.low) < 0.05 * width
        assert abs(found.high - other.high) < 0.05 * width

    def test_clear_cases_have_no_width(self):
        assert probability_of_improvement([2.0, 3.0], [0.0, 1.0]) == (1.0, 1.0, 1.0)


class TestInterquartileMeanDifference:
    def test_it_is_the_difference_of_scipys_trimmed_means(self):
        generator = np.random.default_rng(5)
        x, y = generator.exponential(size=13), generator.exponential(size=9)
        found = interquartile_mean_difference(x, y)
        assert found.value == pytest.approx(stats.trim_mean(x, 0.25) - stats.trim_mean(y, 0.25))
        assert found.low < found.value < found.high

    def test_its_interval_holds_the_truth_about_as_often_as_it_promises(self):
        generator = np.random.default_rng(6)
        covered = 0
        for seed in range(400):
            x, y = generator.normal(1.0, 1.0, 20), generator.normal(0.0, 3.0, 30)
            found = interquartile_mean_difference(x, y, confidence=0.9, resamples=300, seed=seed)
            covered += found.low <= 1.0 <= found.high
        # Four standard errors of 400 draws are 0.06, and percentile intervals are a bit narrow.
        assert 0.82 < covered / 400 < 0.96

    def test_methods_are_resampled_apart_from_each_other(self):
        # Paired resamples of equal runs would differ by nothing, ever.
        x = np.random.default_rng(7).normal(size=10)
        found = interquartile_mean_difference(x, x)
        assert found.value == 0.0
        assert found.low < -0.3
        assert found.high > 0.3


class TestSamplesToReach:
    STEPS = (10, 20, 30, 40, 50)

    @pytest.mark.parametrize(
        ("curve", "expected"),
        [
            ([0, 0, 5, 6, 0], 40),
            ([0, 0, 4.999, 6, 7], 50),
            ([5, 5, 0, 0, 0], 20),  # at the threshold is reached
            ([9, 0, 9, 0, 0], 30),
            ([9, 0, 0, 9, 0], np.inf),  # single evaluations
            ([0, 0, 0, 0, 9], np.inf),
            ([0, np.nan, 9, 9, np.nan], 40),
            ([9, np.nan, np.nan, np.nan, np.nan], np.inf),
        ],
    )
    def test_cases_by_hand(self, curve, expected):
        assert samples_to_reach(self.STEPS, [curve], 5.0) == [expected]

    def test_it_is_the_first_place_where_a_running_median_of_three_is_above(self):
        curves = np.random.default_rng(8).normal(size=(50, 30)).cumsum(axis=1)
        steps = np.arange(30) * 7.0
        padded = np.pad(curves, ((0, 0), (2, 0)), constant_values=-np.inf)
        medians = np.median(np.stack([padded[:, i : i + 30] for i in range(3)]), axis=0)
        expected = [min(steps[row >= 2.0], default=np.inf) for row in medians]
        np.testing.assert_array_equal(samples_to_reach(steps, curves, 2.0), expected)
        assert 5 < np.isfinite(expected).sum() < 45

    @pytest.mark.parametrize(
        ("steps", "curves", "threshold", "message"),
        [
            ([1, 2], [[1.0]], 0.0, r"expected curves \[runs, 2\], got 'shape \(1, 1\)'"),
            ([2, 1], [[1.0, 2.0]], 0.0, "expected steps that increase"),
            ([], [[]], 0.0, r"expected steps \[p\]"),
            ([1], [[1.0]], float("nan"), "expected a threshold, got nan"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, steps, curves, threshold, message):
        with pytest.raises(InputError, match=message):
            samples_to_reach(steps, curves, threshold)


def test_runs_that_never_got_there_count_as_the_cap():
    found = samples_difference([10.0, 20.0, 30.0, np.inf], [np.inf] * 4, cap=100.0)
    assert found.value == pytest.approx(25.0 - 100.0)
    assert found.low < found.value < found.high <= 0.0
    beyond = samples_difference([10.0, 150.0], [100.0, 100.0], cap=100.0)
    assert beyond.value == pytest.approx(55.0 - 100.0)
    with pytest.raises(InputError, match="expected a finite cap, got inf"):
        samples_difference([1.0], [2.0], cap=np.inf)


@pytest.mark.parametrize("compare", COMPARISONS)
def test_intervals_follow_the_seed_and_the_confidence(compare):
    x, y = np.random.default_rng(9).normal(size=(2, 12))
    assert compare(x, y) == compare(x, y)
    assert compare(x, y, resamples=50) != compare(x, y, resamples=50, seed=1)
    wide, narrow = compare(x, y), compare(x, y, confidence=0.5)
    assert wide.low < narrow.low < wide.value < narrow.high < wide.high


@pytest.mark.parametrize("compare", COMPARISONS)
def test_one_run_of_either_has_no_interval(compare):
    for x, y in (([1.0], [0.0, 2.0]), ([0.0, 2.0], [1.0])):
        found = compare(x, y)
        assert np.isfinite(found.value)
        assert np.isnan([found.low, found.high]).all()


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize(
    ("x", "y", "options"),
    [
        ([], [1.0], {}),
        ([1.0, np.nan], [1.0], {}),
        (np.zeros((2, 2)), np.zeros((2, 3)), {}),
        (np.zeros((2, 2, 2)), np.zeros(2), {}),
        ([1.0], [1.0], {"confidence": 1.0}),
        ([1.0], [1.0], {"resamples": 0}),
    ],
)
def test_what_is_no_table_of_runs_is_refused(compare, x, y, options):
    with pytest.raises(InputError, match=r"expected .*, got"):
        compare(x, y, **options)
