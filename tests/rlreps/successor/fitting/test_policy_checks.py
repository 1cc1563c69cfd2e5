"""Which of two policies walks along the nearest rows prefer."""

import numpy as np
import pytest
import scipy.stats

from rlreps.successor.fitting.policy_checks import Appraisal


def appraised(returns, *, promised=1.0, data=0.0):
    return Appraisal(np.asarray(returns, np.float64), promised, data, 0.0)


@pytest.mark.parametrize("walks", [10, 30, 256])
def test_one_improvement_replaces_what_a_paired_t_test_finds_worse(walks):
    generator, decided = np.random.default_rng(walks), set()
    for shift in np.linspace(-0.5, 1.0, 40):
        fitted = generator.normal(size=walks)
        one_step = fitted + shift + generator.normal(size=walks)
        p_value = scipy.stats.ttest_rel(one_step, fitted, alternative="greater").pvalue
        enough = one_step.mean() - fitted.mean() > 0.05 * abs(one_step.mean())
        expected = bool(p_value < 0.05 and enough)
        assert appraised(one_step).replaces_fitted(appraised(fitted)) is expected
        decided.add(expected)
    assert decided == {False, True}


def test_equal_differences_decide_and_small_ones_do_not():
    fitted = appraised(np.full(10, 1.0))
    assert appraised(np.full(10, 1.06)).replaces_fitted(fitted)
    assert not appraised(np.full(10, 1.04)).replaces_fitted(fitted)
    assert not fitted.replaces_fitted(fitted)


@pytest.mark.parametrize(
    ("returns", "promised", "one_step", "expected"),
    [
        (2.1, 2.1, 1.5, True),
        (1.9, 1.9, 1.5, False),  # Gains less than twice what the constrained policy gains.
        (2.1, 2.1, 2.2, False),  # One improvement is better.
        (2.1, 4.0, 1.5, False),  # Promises much more than it holds.
    ],
)
def test_a_policy_of_all_actions_gains_twice_as_much_and_holds_its_promise(
    returns, promised, one_step, expected
):
    noise = np.linspace(-0.1, 0.1, 20)
    free = appraised(returns + noise, promised=promised)
    constrained, one = appraised(1.0 - noise), appraised(one_step + noise)
    assert free.replaces_constrained(constrained, one) is expected
    assert free.overpromises is (promised == 4.0)
