"""Intervals over runs against scipy, closed forms, cases by hand and their promise of coverage."""

import itertools

import numpy as np
import pytest
from scipy import stats

from rlreps.errors import InputError
from rlreps.stats import (
    StandardError,
    aggregate,
    detectable_difference,
    detectable_share,
    equal_outcomes_interval,
    holm,
    interquartile_mean_interval,
    mean_interval,
    probability_above,
    samples_to_reach,
    sign_flip_p_value,
    sign_test,
    standard_error,
    student_interval,
    welch_error,
    welch_interval,
)

MEANS = ("mean", "interquartile_mean")


@pytest.mark.parametrize("runs", [1, 2, 4, 7, 30])
def test_the_two_means_are_numpys_mean_and_scipys_trimmed_mean(runs):
    values = np.random.default_rng(runs).lognormal(size=(runs, 6))
    found = aggregate(values)
    np.testing.assert_allclose(found["mean"], values.mean(axis=0))
    np.testing.assert_allclose(found["interquartile_mean"], stats.trim_mean(values, 0.25, axis=0))
    assert found["runs"] == runs


def test_intervals_of_interquartile_means_are_scipys_percentile_bootstrap():
    values = np.random.default_rng(0).exponential(size=25)
    other = stats.bootstrap(
        (values,),
        lambda sample, axis: stats.trim_mean(sample, 0.25, axis=axis),
        n_resamples=20_000,
        method="percentile",
    ).confidence_interval
    found = interquartile_mean_interval(values)
    # The end of an interval from 2,000 resamples has a standard error of about 2 % of its width.
    np.testing.assert_allclose(found[1:], other, atol=0.1 * (other.high - other.low))


def test_the_order_of_runs_changes_no_bootstrap_interval():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=(2, 7))
    curves = rng.normal(size=(9, 4))
    turned = rng.permutation(curves)
    found, other = interquartile_mean_interval(curves), interquartile_mean_interval(turned)
    np.testing.assert_array_equal(found[1:], other[1:])
    alone = [interquartile_mean_interval(curves[:, point]) for point in range(4)]
    np.testing.assert_array_equal(found[1:], np.transpose(alone)[1:])
    for x, y in ((ours[::-1], theirs), (ours, rng.permutation(theirs))):
        assert probability_above(x, y)[1:] == probability_above(ours, theirs)[1:]


def test_the_order_of_pairs_changes_no_p_value():
    rng = np.random.default_rng(0)
    for pairs in (8, 20):  # All flips, and random ones.
        ours, theirs = rng.normal(size=(2, pairs))
        order = rng.permutation(pairs)
        found = sign_flip_p_value(ours[order], theirs[order])
        assert found == sign_flip_p_value(ours, theirs)


@pytest.mark.parametrize("runs", [2, 5, 30])
def test_intervals_of_symmetric_runs_are_students(runs):
    values = np.sort(np.random.default_rng(2).normal(size=runs))
    values = 3.0 + values - values[::-1]
    expected = stats.ttest_1samp(values, 0.0).confidence_interval()
    found = mean_interval(values)
    assert isinstance(found.low, float)
    np.testing.assert_allclose(found, [3.0, expected.low, expected.high])


# Per cent of samples whose mean lies beyond the end on the side of the long tail, in the head of
# the module, at 5, 6, 8, 10 and 20 runs.
MISSED = {
    "norm": (1.8, 1.8, 1.9, 2.0, 2.2),
    "expon": (6.8, 6.4, 5.6, 5.0, 3.7),
    "lognorm": (11.4, 10.9, 9.7, 8.9, 6.7),
}


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("name", MISSED)
def test_intervals_of_the_mean_hold_it_as_often_as_they_say(name, place):
    drawn = getattr(stats, name)(**({"s": 1.0} if name == "lognorm" else {}))
    draws, rng = 20_000, np.random.default_rng(2)
    found = mean_interval(drawn.rvs(size=((5, 6, 8, 10, 20)[place], draws), random_state=rng))
    stated = 0.01 * MISSED[name][place]
    slack = 4.0 * np.sqrt(stated * (1.0 - stated) / draws)
    assert np.mean(found.high < drawn.mean()) == pytest.approx(stated, abs=slack)
    assert np.mean(found.low > drawn.mean()) <= (stated if name == "norm" else 0.006) + slack


def test_ends_of_a_mean_are_halls_between_students_and_twice_as_far():
    values = np.array([1.0, 1.2, 0.9, 1.6, 1.1, 1.7, 0.8])
    deviation, skewness = values.std(ddof=1), stats.skew(values, bias=False)
    found = mean_interval(values)
    distance = (found.value - found.high) / deviation
    curved = distance + skewness * distance**2 / 3.0 + skewness**2 * distance**3 / 27.0
    transformed = np.sqrt(7.0) * (curved + skewness / 42.0)
    np.testing.assert_allclose(transformed, stats.t.ppf(0.025, 6))
    student = stats.ttest_1samp(values, 0.0).confidence_interval()
    assert found.low == pytest.approx(student.low)
    values[5] = 9.0
    student = stats.ttest_1samp(values, 0.0).confidence_interval()
    assert mean_interval(values).high == pytest.approx(2.0 * student.high - values.mean())


def test_equal_runs_and_one_run_have_no_interval():
    equal, one = aggregate(np.full((6, 3), 0.1)), aggregate([2.0])
    for name in MEANS:
        np.testing.assert_allclose(equal[name], 0.1)
        assert one[name] == 2.0
        for end in ("low", "high"):
            assert np.isnan(equal[f"{name}_{end}"]).all()
            assert np.isnan(one[f"{name}_{end}"])


def test_an_exact_interval_of_equal_outcomes_is_clopper_and_pearsons():
    # 5 successes of 5, as 0 and 1 or as differences of them: the share is at least 0.025^(1/5).
    least = 0.025 ** (1.0 / 5.0)
    assert equal_outcomes_interval(1.0, 5, 0.0, 1.0) == pytest.approx((1.0, least, 1.0))
    assert equal_outcomes_interval(1.0, 5, -1.0, 1.0) == pytest.approx((1.0, 2 * least - 1, 1.0))
    assert equal_outcomes_interval(0.0, 5, -1.0, 1.0) == pytest.approx((0.0, least - 1, 1 - least))


def test_masked_values_are_refused():
    with pytest.raises(InputError, match="values without masked entries"):
        mean_interval(np.ma.masked_greater([1.0, 2.0, 999.0], 10.0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_diverged_run_is_not_dropped_silently(bad):
    message = f"expected finite values; give a diverged run its worst value, got {bad}"
    with pytest.raises(InputError, match=message):
        aggregate([0.1, bad, 0.2])


def test_methods_of_other_seeds_are_no_pairs():
    with pytest.raises(InputError, match=r"expected runs \[runs\] of both methods"):
        sign_flip_p_value([1.0, 2.0, 3.0], [1.0])


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([0, 0, 5, 6, 0], 40),
        ([0, 0, 4.999, 6, 7], 50),
        ([5, 5, 0, 0, 0], 20),  # at the threshold is reached
        ([9, 0, 9, 0, 0], 30),
        ([9, 0, 0, 9, 0], np.inf),  # single evaluations
        ([0, np.nan, 9, 9, np.nan], 40),
        ([9, np.nan, np.nan, np.nan, np.nan], np.inf),
    ],
)
def test_a_threshold_is_reached_by_two_evaluations_of_three(curve, expected):
    assert samples_to_reach((10, 20, 30, 40, 50), [curve], 5.0) == [expected]


def test_rounding_of_the_runs_breaks_no_tie_of_flipped_means():
    ours = [786.2, 329.1, 859.4, 700.1, 334.9, 558.1, 580.0, 751.9]
    theirs = [786.3, 329.0, 859.3, 700.0, 334.8, 558.0, 579.9, 751.8]
    # Of 256 flips, one mean is above that of one negative pair, and seven others equal it.
    assert sign_flip_p_value(ours, theirs) == pytest.approx(2 * 9 / 256)
    differences = np.random.default_rng(0).integers(-3, 4, size=(40, 9))
    for tenths in differences:
        base = np.arange(1000, 1009)
        found = sign_flip_p_value((base + tenths) / 10.0, base / 10.0)
        assert found == pytest.approx(sign_flip_p_value(base + tenths, base))


def test_one_pair_decides_nothing_and_many_are_sampled_the_same_way_every_time():
    assert sign_flip_p_value([3.0], [1.0]) == 1.0
    ours = np.random.default_rng(1).normal(0.4, 1.0, 40)
    found = sign_flip_p_value(ours, np.zeros(40))
    assert found == sign_flip_p_value(ours, np.zeros(40))
    assert found == pytest.approx(stats.ttest_1samp(ours, 0.0).pvalue, abs=0.01)


def test_p_values_are_adjusted_as_holm_did():
    found = holm([0.01, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(found, [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_array_equal(holm([0.9, 0.8]), [1.0, 1.0])
    assert holm([]).shape == (0,)


@pytest.mark.parametrize(("runs", "level"), [(4, 0.05), (20, 0.05 / 3.0), (12, 0.2)])
def test_the_smallest_detectable_mean_is_detected_as_often_as_it_says(runs, level):
    rng = np.random.default_rng(runs)
    pilot = rng.normal(7.0, 1.0, runs)
    pilot *= 2.5 / pilot.std(ddof=1)  # of the spread of the trials below
    mean = detectable_difference(standard_error(pilot), level)
    trials = rng.normal(mean, 2.5, (20_000, runs))
    detected = np.mean(stats.ttest_1samp(trials, 0.0, axis=1).pvalue < level)
    assert detected == pytest.approx(0.8, abs=4.0 * np.sqrt(0.8 * 0.2 / 20_000))


@pytest.mark.parametrize("freedom", [1, 2, 4])
def test_few_pairs_at_a_small_level_detect_what_has_the_power_of_their_t_test(freedom):
    found = detectable_difference(StandardError(2.0, freedom), 1e-3) / 2.0
    critical = stats.t.isf(5e-4, freedom)
    np.testing.assert_allclose(stats.nct.sf(critical, freedom, found), 0.8, atol=1e-4)
    assert detectable_difference(standard_error([3.0]), 0.05) == np.inf
    assert detectable_difference(standard_error([3.1, 3.1, 3.1]), 0.05) == np.inf


@pytest.mark.parametrize("runs", [(2, 9), (5, 4)])
def test_runs_without_common_seeds_are_compared_as_by_welchs_test_of_scipy(runs):
    rng = np.random.default_rng(0)
    one, other = (rng.normal(size=count) * (count - 1) for count in runs)
    error, expected = welch_error(one, other), stats.ttest_ind(one, other, equal_var=False)
    difference = one.mean() - other.mean()
    found = student_interval(difference, error)
    np.testing.assert_allclose(found[1:], expected.confidence_interval())
    errors = detectable_difference(error, 0.05) * expected.statistic / difference
    power = stats.nct.sf(stats.t.isf(0.025, expected.df), expected.df, errors)
    assert power == pytest.approx(0.8, abs=1e-6)
    assert np.isnan(student_interval(0.0, welch_error(one, other[:1])).low)
    assert np.isnan(student_interval(-2.0, welch_error([1.0, 1.0], [3.0, 3.0])).low)


def test_unpaired_intervals_allow_for_skewness_of_either_side():
    rng = np.random.default_rng(0)
    missed, plain = 0, 0
    for _ in range(800):
        skewed, steady = rng.lognormal(size=10), 1e-3 * rng.normal(size=10)
        found = welch_interval(skewed, steady)
        student = student_interval(found.value, welch_error(skewed, steady))
        missed += not found.low < np.exp(0.5) < found.high
        plain += not student.low < np.exp(0.5) < student.high
    other = welch_interval(steady, skewed)
    np.testing.assert_allclose(other, [-found.value, -found.high, -found.low])
    assert missed / 800 == pytest.approx(0.087, abs=0.03)
    assert plain > 1.5 * missed
    # Beside a steady sample, it is the interval of the other's mean.
    np.testing.assert_allclose(found, mean_interval(skewed - steady.mean()), rtol=1e-3)
    # Two runs of each have no skewness.
    two = welch_interval([1.0, 4.0], [2.0, 3.0])
    np.testing.assert_allclose(two, student_interval(0.0, welch_error([1.0, 4.0], [2.0, 3.0])))
    assert np.isnan(welch_interval([1.0, 1.0], [3.0, 3.0]).low)
    assert np.isnan(welch_interval([1.0, 2.0], [3.0]).low)


@pytest.mark.parametrize("runs", [(2, 10), (10, 2), (3, 10)])
def test_equal_runs_beside_unequal_ones_do_not_make_false_differences(runs):
    # Successes of both methods have the probability one half; the exact rate is over all outcomes.
    one, other = (np.array(list(itertools.product([0.0, 1.0], repeat=count))) for count in runs)
    counts = [np.bincount(table.sum(axis=1).astype(int)) for table in (one, other)]
    wrong = 0.0
    for (x, ways), (y, others) in itertools.product(*map(enumerate, counts)):
        samples = [
            np.repeat([1.0, 0.0], [number, count - number])
            for number, count in zip((x, y), runs, strict=True)
        ]
        difference = samples[0].mean() - samples[1].mean()
        low, high = student_interval(difference, welch_error(*samples))[1:]
        wrong += (low > 0.0 or high < 0.0) * ways * others / 2.0 ** sum(runs)
    assert wrong < 0.05
    # With the spread of the other method for both, by hand: s² = 1, 2 degrees of freedom.
    error = welch_error([5.0, 5.0], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(error, (np.sqrt(1 / 2 + 1 / 3), 2))
    np.testing.assert_allclose(welch_error([1.0, 2.0, 3.0], [5.0, 5.0]), error)


@pytest.mark.parametrize(
    ("more", "fewer", "expected"), [(5, 0, 2 / 32), (8, 1, 20 / 512), (0, 0, 1.0)]
)
def test_the_sign_test_counts_pairs_that_differ(more, fewer, expected):
    differences = np.repeat([1.0, -1.0, 0.0], [more, fewer, 4])
    assert sign_test(differences) == pytest.approx(expected)
    assert sign_test(-differences) == pytest.approx(expected)


def power_of(gain, against, pairs, level):
    """Power of the exact test by SciPy's own, outcome by outcome."""
    return sum(
        stats.multinomial.pmf(
            (more, fewer, pairs - more - fewer), pairs, (gain, against, 1.0 - gain - against)
        )
        for more in range(pairs + 1)
        for fewer in range(pairs + 1 - more)
        if more + fewer and stats.binomtest(more, more + fewer).pvalue < level
    )


@pytest.mark.parametrize("losing", [0, 2])
def test_the_smallest_detectable_share_is_that_of_the_exact_test(losing):
    level = 0.05 / 3
    differences = np.repeat([1.0, -1.0, 0.0], [9, losing, 11 - losing])
    least = detectable_share(differences, level)
    assert power_of(least + losing / 20, losing / 20, 20, level) == pytest.approx(0.8, abs=1e-6)
    assert detectable_share(-differences, level) == least
    # The smallest p-value of five pairs is 1 / 16.
    assert detectable_share(np.ones(5), level) == np.inf


def test_no_pairs_show_nothing_and_signs_of_no_number_are_refused():
    assert sign_test([]) == sign_test([], 0.5) == 1.0
    assert detectable_share([], 0.05) == np.inf
    for given in (np.ones((3, 2)), [1.0, np.nan]):
        with pytest.raises(InputError, match=r"expected differences of pairs \[pairs\], not NaN"):
            sign_test(given, 0.5)
        with pytest.raises(InputError, match=r"expected differences of pairs \[pairs\], not NaN"):
            detectable_share(given, 0.05)


@pytest.mark.parametrize(
    ("steps", "curves"), [([1, 2], [5.0, 5.0]), ([], []), ([], [[], []]), ([1, 2, 3], [[5.0] * 4])]
)
def test_curves_that_do_not_fit_their_steps_are_refused(steps, curves):
    with pytest.raises(InputError, match=r"expected steps \[p >= 1\] and curves \[runs, p\]"):
        samples_to_reach(steps, curves, 1.0)


def test_intervals_stay_within_what_there_can_be_and_their_values_are_kept():
    runs = np.array([[0.001, 0.5], [0.03, 0.99], [0.002, 0.98]])
    free, bounded = aggregate(runs), aggregate(runs, within=(0.0, 1.0))
    assert free["mean_low"][0] < 0.0
    assert free["mean_high"][1] > 1.0
    for name in MEANS:
        np.testing.assert_array_equal(bounded[name], free[name])
        for end in ("low", "high"):
            expected = np.clip(free[f"{name}_{end}"], 0.0, 1.0)
            np.testing.assert_array_equal(bounded[f"{name}_{end}"], expected)
