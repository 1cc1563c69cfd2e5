import numpy as np
import pytest

from rlreps.experiments.synthetic.claims import compare_with_paper
from rlreps.experiments.synthetic.config import PRESETS
from rlreps.experiments.synthetic.problem import SettingResult

CONFIG = PRESETS["smoke"]
STEPS = np.array([0, 10])


def outcome(start, end, spread=0.01):
    """Three runs about a start and an end."""
    runs = np.array([[start, end]]) + spread * np.array([[-1.0], [0.0], [1.0]])
    return SettingResult(STEPS, runs, np.zeros(3, bool))


def as_the_paper_has_it(setting):
    base = {"oracle": 0.1, "danskin_lissa": 0.3, "danskin_empirical": 0.5, "naive": 0.7}
    end = base[setting.method] - 0.001 * setting.rows
    if setting.kappa0 > 2.0:
        end += 0.4
    return outcome(0.9, end, spread=1e-4)


def verdicts(results):
    return [claim.holds for claim in compare_with_paper(CONFIG, results)]


def results_with(change):
    return {setting: change(setting) for setting in CONFIG.settings()}


def test_the_papers_ordering_holds_where_the_numbers_have_it():
    assert verdicts(results_with(as_the_paper_has_it)) == [True] * 8


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        (0, lambda s: s.num_features == 1 and outcome(0.5, 0.8)),
        (1, lambda s: s.method == "danskin_lissa" and outcome(0.95, 0.1 + 0.05 * s.rows)),
        (2, lambda s: s.method == "naive" and outcome(0.9, 0.05, spread=1e-4)),
        (2, lambda s: s.method == "oracle" and outcome(0.9, 0.85, spread=1e-4)),
        (3, lambda s: s.kappa0 > 2.0 and outcome(0.9, 0.01, spread=1e-4)),
    ],
)
def test_a_reversed_ordering_does_not_hold(claim, change):
    results = results_with(lambda setting: change(setting) or as_the_paper_has_it(setting))
    assert verdicts(results)[claim] is False


def test_what_intervals_cannot_tell_apart_is_not_told():
    same = results_with(lambda setting: outcome(0.5, 0.5, spread=0.1))
    assert verdicts(same) == [None] * 8
    one_run = results_with(
        lambda setting: SettingResult(STEPS, np.array([[0.9, 0.1]]), np.zeros(1, bool))
    )
    assert verdicts(one_run) == [None] * 8
