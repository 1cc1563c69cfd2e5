import math

import numpy as np
import pytest
import scipy.stats

from rlreps.experiments.amid_warmuth_2020.pca_claims import (
    Entry,
    is_less,
    least_claim,
    range_of_means,
)

NOISE = np.asarray([-3.0, 1.0, 2.0, 5.0])


@pytest.mark.parametrize(
    ("shift", "holds"),
    [
        # Far less than runs differ, but less in every one of them.
        ([-0.2, -0.2, -0.1, -0.3], True),
        ([0.2, 0.2, 0.1, 0.3], False),
        ([-0.1, 0.2, -0.2, 0.1], None),
        ([0.0, 0.0, 0.0, 0.0], None),
        ([-0.1, -0.2, math.nan, -0.3], None),
    ],
)
def test_runs_are_compared_in_pairs_and_nothing_is_told_within_their_noise(shift, holds):
    assert is_less(NOISE + shift, NOISE) is holds


def test_a_single_run_tells_nothing():
    assert is_less([1.0], [2.0]) is None


def test_a_rule_that_diverged_everywhere_alike_has_no_least_range():
    lost = np.full((3, 4), np.nan)
    assert is_less(lost, np.ones((3, 1)) * NOISE, range_of_means) is None


def test_ranges_are_those_of_means_over_the_same_seeds():
    conditions = np.asarray([0.0, 1.0, 0.4])[:, None]
    wide, narrow = NOISE + conditions, NOISE + 0.9 * conditions
    assert is_less(narrow, wide, range_of_means) is True
    assert is_less(wide, narrow, range_of_means) is False


@pytest.mark.parametrize("runs", [2, 3, 10])
def test_rules_that_differ_by_chance_alone_are_seldom_told_apart(runs):
    noise = np.random.default_rng(0).normal(size=(2, 400, 3, runs))
    means = [is_less(ours[0], theirs[0]) for ours, theirs in zip(*noise, strict=True)]
    ranges = [is_less(ours, theirs, range_of_means) for ours, theirs in zip(*noise, strict=True)]
    assert 0.02 < np.mean([verdict is not None for verdict in means]) < 0.08
    assert np.mean([verdict is not None for verdict in ranges]) < 0.1


def test_mean_losses_are_compared_as_by_the_paired_t_test():
    generator = np.random.default_rng(1)
    for _ in range(100):
        ours, theirs = generator.normal([[-1.0], [0.0]], size=(2, 4))
        expected = scipy.stats.ttest_rel(ours, theirs).pvalue < 0.05
        assert (is_less(ours, theirs) is not None) == expected


@pytest.mark.parametrize(
    ("others", "complete", "holds"),
    [
        (([3.0, 3.1], [4.0, 4.1]), True, True),
        (([1.0, 1.1], [4.0, math.nan]), True, False),
        (([3.0, 3.1], [4.0, math.nan]), True, None),
        (([3.0, 3.1],), False, None),
        ((), True, None),
    ],
)
def test_the_least_of_all_is_less_than_each(others, complete, holds):
    entries = [
        Entry(f"rule {index}", np.asarray(losses), "text") for index, losses in enumerate(others)
    ]
    ours = Entry("ours", np.asarray([2.0, 2.1]), "mine")
    claim = least_claim("what", "stated", ours, entries, complete=complete)
    assert claim.holds is holds
    listed = ", ".join(f"rule {index} text" for index in range(len(others)))
    assert claim.found == f"mine; {listed or 'no other rule'}"
