"""Paired comparisons against SciPy, and the one rule of verdicts."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import scipy.stats

from rlreps.errors import InputError
from rlreps.stats import (
    Contrast,
    Interval,
    Sample,
    Verdict,
    at_least,
    contrast_rows,
    format_interval,
    interval_columns,
    interval_of,
    judge_family,
    judge_share,
    mean_interval,
    sign_test,
)


def test_columns_give_back_the_interval_that_is_written():
    found = Interval(2.5, -1.0, 4.0)
    row = interval_columns("mean", found)
    assert interval_of(row, "mean") == found
    assert format_interval(found) == "2.50 [\N{MINUS SIGN}1.00, 4.00]"
    assert format_interval(found, signed=True) == "+2.50 [\N{MINUS SIGN}1.00, +4.00]"
    for without in ({**row, "mean_low": None}, {**row, "mean_high": math.nan}, {"mean": 2.5}):
        assert format_interval(interval_of(without, "mean")) == "2.50"


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    ours = rng.normal(size=9)
    return ours, ours - 0.4 + 0.5 * rng.normal(size=9)


def test_the_interval_is_of_differences_and_the_p_value_of_all_sign_flips(pair):
    found = Contrast(*pair)
    np.testing.assert_allclose(found.interval, mean_interval(pair[0] - pair[1]))
    sums = [np.dot(signs, found.differences) for signs in itertools.product((-1, 1), repeat=9)]
    as_far = np.abs(sums) >= np.abs(found.differences.sum()) - 1e-12
    np.testing.assert_allclose(found.p_value, as_far.mean())


def test_a_family_is_adjusted_by_holm_and_tests_what_it_is_told(pair):
    ours, theirs = pair
    family = [({"name": shift}, Contrast(ours, theirs + shift)) for shift in (0.0, 1.0, 5.0, 9.0)]
    rows = contrast_rows(family, tested=lambda about: about["name"] < 9.0)
    raw = np.array([each.p_value for _, each in family[:3]])
    order = np.argsort(raw, kind="stable")
    adjusted = np.minimum(np.maximum.accumulate(raw[order] * [3, 2, 1]), 1.0)
    assert [rows[place]["p_value"] for place in order] == pytest.approx(adjusted)
    assert rows[3]["p_value"] is rows[3]["detectable"] is None
    assert rows[0]["detectable"] == family[0][1].detectable(0.05 / 3)
    # Sign flips of nine pairs give p-values of 2^-8 or more.
    assert family[0][1].detectable(2.0**-8) > 0.0
    assert family[0][1].detectable(0.9 * 2.0**-8) is None


@pytest.mark.parametrize(
    ("mean", "effect", "above"),
    [
        (1.0, 0.0, True),
        (-1.0, 0.0, False),
        (0.0, 0.0, None),
        # Beyond zero is not beyond the effect that counts.
        (1.0, 1.0, None),
        (1.0, 2.0, False),
        (1.0, 0.5, True),
    ],
)
def test_a_verdict_is_whether_the_interval_lies_beyond_the_effect(mean, effect, above):
    differences = mean + 0.1 * np.linspace(-1.0, 1.0, 6)
    found = Contrast(5.0 + differences, np.full(6, 5.0), effect=effect)
    assert found.above.holds is above
    assert found.below.holds is (None if above is None else not above)
    few = Contrast(5.0 + differences, np.full(6, 5.0), effect=effect, fewest=7)
    assert few.above.holds is few.below.holds is None


def test_of_a_family_nothing_holds_whose_adjusted_p_value_is_too_large():
    shape = np.linspace(-1.0, 1.0, 6)
    pairs = {mean: Contrast(mean + 0.1 * shape, np.zeros(6)) for mean in (1.0, 0.01, -1.0)}
    # The least p-value of six pairs is 1/32.
    assert [judge_family({mean: each})[mean].holds for mean, each in pairs.items()] == [
        True,
        None,
        False,
    ]
    found = judge_family(pairs)
    assert [each.holds for each in found.values()] == [None, None, False]


def test_the_p_value_is_that_of_the_effect():
    rng = np.random.default_rng(3)
    differences = rng.normal(0.9, 1.0, size=60)
    for effect in (0.0, 0.6, 0.9):
        found = Contrast(differences, np.zeros(60), effect=effect)
        expected = scipy.stats.ttest_1samp(differences - effect, 0.0).pvalue
        np.testing.assert_allclose(found.p_value, expected, rtol=0.1, atol=2e-3)
    # Far from 0 but not from the effect: the interval lies barely beyond it.
    near = Contrast(1.05 + np.linspace(-0.1, 0.3, 8), np.zeros(8), effect=1.0)
    assert near.above.holds is True
    assert judge_family({0: near, 1: near, 2: near})[0].holds is None


@pytest.mark.parametrize("effect", [0.5, -0.5, 0.2])
def test_signs_against_an_effect_are_binomial_at_the_extreme_and_never_too_often_small(effect):
    all_gain = Contrast(np.ones(20), np.zeros(20), effect=effect).of_signs.p_value
    best = scipy.stats.binomtest(20, 20, (1.0 + effect) / 2.0, alternative="greater").pvalue
    np.testing.assert_allclose(all_gain, 2.0 * best)
    mirrored = Contrast(-np.ones(20), np.zeros(20), effect=-effect).of_signs.p_value
    np.testing.assert_allclose(mirrored, all_gain)
    rng = np.random.default_rng(0)
    for losing in (max(0.0, -effect), 0.5 * (max(0.0, -effect) + (1.0 - effect) / 2.0)):
        shares = (losing, 1.0 - 2.0 * losing - effect, losing + effect)
        samples = np.sort(rng.choice([-1.0, 0.0, 1.0], size=(2_000, 12), p=shares), axis=1)
        outcomes, counts = np.unique(samples, axis=0, return_counts=True)
        small = np.array([sign_test(each, effect) <= 0.05 for each in outcomes])
        assert np.sum(counts[small]) <= 0.06 * len(samples)


def test_one_pair_and_runs_without_a_number_tell_nothing():
    assert Contrast(np.ones(1), np.zeros(1)).above.holds is None
    diverged = Contrast(np.array([np.nan, 1.0, 1.0]), np.zeros(3))
    assert diverged.above.holds is None


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_contrast_with_a_diverged_run_has_no_p_value_and_leaves_its_family_as_it_is(value):
    sound, theirs = Contrast(np.arange(9.0) + 1.0, np.zeros(9)), np.zeros(9)
    theirs[3] = value
    for diverged in (Contrast(np.full(9, value), theirs), Contrast(sound.ours, theirs).of_signs):
        verdicts = judge_family({"diverged": diverged, "sound": sound})
        assert [each.holds for each in verdicts.values()] == [None, True]
        rows = contrast_rows([({}, diverged), ({}, sound)])
        assert np.isnan(rows[0]["p_value"])
        assert rows[0]["detectable"] is None
        assert rows[1]["p_value"] == pytest.approx(2.0 * sound.p_value)


def test_differences_that_are_all_equal_tell_nothing_but_of_successes():
    rng = np.random.default_rng(0)
    verdicts = [Sample((rng.random(5) < 0.9) * 1.0, range(5)) > 0.95 for _ in range(200)]
    assert all(each.holds is None for each in verdicts)
    # Equal but for rounding of the terms.
    theirs = np.array([1000.0, 3000.0, 7000.0, 20000.0])
    equal = Contrast(theirs + 0.1, theirs)
    assert equal.above.holds is equal.detectable(0.2) is None
    assert equal.words == "7,750 against 7,750, +0.100"
    gains = Contrast(np.ones(20), np.zeros(20), effect=0.5)
    assert gains.above.holds is None
    assert gains.of_signs.above.holds is True
    assert dataclasses.replace(gains.of_signs, effect=0.7).above.holds is None
    assert Contrast(np.ones(5), np.zeros(5), effect=0.1).of_signs.above.holds is None


def test_samples_are_paired_by_what_they_share():
    ours = Sample(np.array([13.0, 11.0, 12.0, 99.0]), ["c", "a", "b", "other"])
    theirs = Sample(np.array([10.85, 11.8, 12.8]), ["a", "b", "c"])
    np.testing.assert_allclose((ours - theirs).values, [0.2, 0.15, 0.2])
    assert (ours - theirs).units == ["c", "a", "b"]
    assert (ours > theirs).holds is True
    assert (ours < theirs).holds is False
    assert (0.5 * ours < theirs).holds is True
    assert (theirs > 0.0).holds is True
    assert (theirs > 11.8).holds is None
    assert (theirs.needing(4) > 0.0).holds is None


@pytest.mark.parametrize(
    ("values", "units"),
    [([1.0, 2.0, 9.0], [0, 1]), ([1.0, 2.0, 3.0], [0, 0, 1]), ([[1.0], [2.0]], [0, 1])],
)
def test_every_value_has_a_unit_of_its_own(values, units):
    with pytest.raises(InputError, match=r"values \[units\], and a name of its own for each"):
        Sample(np.array(values), units)
    assert Sample([1.0, 3.0], [0, 1]).mean == 2.0


@pytest.mark.parametrize(
    "measure",
    [
        lambda ours, theirs: ours - theirs,
        lambda ours, theirs: 0.5 * ours - 0.5 * theirs,
        lambda ours, theirs: 2.0 * ((ours - theirs) - (theirs - ours)),
        lambda ours, theirs: (ours - theirs).needing(3) - 1e-3,
    ],
)
def test_differences_as_samples_keep_the_rounding_of_their_terms(measure):
    theirs = Sample(np.array([1000.1, 2000.2, 3000.3]), range(3))
    ours = Sample(theirs.values + 0.1, range(3))
    difference = measure(ours, theirs)
    assert np.isnan(difference.interval.low)
    for verdict in (ours > theirs, difference > 0.01, 0.0 * theirs < difference):
        assert verdict.holds is None
    apart = Sample(theirs.values + np.array([0.1, 0.2, 0.15]), range(3))
    assert (measure(apart, theirs) > 0.01).holds is True


HOLDS, FAILS, OPEN = (Verdict(holds, str(holds)) for holds in (True, False, None))


@pytest.mark.parametrize(
    ("parts", "every", "two", "one"),
    [
        ([HOLDS, HOLDS, HOLDS], True, True, True),
        ([HOLDS, HOLDS, FAILS], False, True, True),
        ([HOLDS, OPEN, FAILS], False, None, True),
        ([HOLDS, FAILS, FAILS], False, False, True),
        ([FAILS, FAILS, FAILS], False, False, False),
        ([HOLDS, HOLDS], None, True, True),
        ([], None, None, None),
    ],
)
def test_verdicts_together_where_three_are_needed(parts, every, two, one):
    assert at_least(None, parts, of=3).holds is every
    assert at_least(2, parts, of=3).holds is two
    assert at_least(1, parts, of=3).holds is one


def test_opposites_pairs_and_single_runs():
    assert [(~each).holds for each in (HOLDS, OPEN)] == [False, None]
    assert [(HOLDS & each).holds for each in (HOLDS, OPEN)] == [True, None]
    assert HOLDS.open() == Verdict(None, "True")


def test_a_verdict_is_neither_true_nor_false():
    low, middle, high = (Sample(np.array([x, x + 0.1, x - 0.1]), range(3)) for x in (1.0, 2.0, 3.0))
    for ask in (lambda: bool(HOLDS), lambda: not OPEN, lambda: low < middle < high):
        with pytest.raises(TypeError, match=r"a Verdict has three values; ask \.holds"):
            ask()


@pytest.mark.parametrize(
    ("holding", "runs", "verdict"),
    [
        *[(5, 5, None), (6, 6, True), (0, 5, None), (0, 6, False)],
        *[(9, 10, True), (5, 10, None), (0, 0, None)],
    ],
)
def test_in_more_than_half_of_runs_needs_six_runs_that_agree(holding, runs, verdict):
    found = judge_share(0.5, np.arange(runs) < holding, "found")
    assert found == Verdict(verdict, "found")
    chances = [scipy.stats.binomtest(holding, runs, 0.5).pvalue] if runs else []
    assert (verdict is None) == all(chance > 0.05 for chance in chances)


def test_a_verdict_of_numpy_is_json():
    found = [Verdict(np.float64(gap) < 1.0, "").holds for gap in (0.5, 2.0)]
    assert json.dumps(found) == "[true, false]"


def test_a_diverged_run_without_a_partner_changes_no_p_value():
    theirs = np.arange(8.0)
    ours = theirs + np.array([0.1, 0.4, 0.2, 0.3, 0.5, 0.3, 0.1, 0.2])
    alone = Sample(ours, [*range(8)]).against(Sample(theirs, [*range(8)]))
    more = Sample(np.append(ours, np.inf), [*range(9)]).against(Sample(theirs, [*range(8)]))
    assert more.p_value == alone.p_value == 2 / 256
    assert more.interval == alone.interval
