import dataclasses

import numpy as np
import pytest

from rlreps.experiments.le_lan_2023.synthetic.claims import compare_with_paper
from rlreps.experiments.le_lan_2023.synthetic.config import PRESETS
from rlreps.experiments.le_lan_2023.synthetic.problem import SettingResult

CONFIG = dataclasses.replace(PRESETS["smoke"], steps=PRESETS["paper"].steps)
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


def nothing_learned(setting):
    """Runs that diverged, all of them."""
    return SettingResult(STEPS, np.array([[0.8, 1.0]] * 3), np.ones(3, bool))


def verdicts(results, config=CONFIG):
    return [claim.holds for claim in compare_with_paper(config, results)]


def results_with(change):
    return {setting: change(setting) for setting in CONFIG.settings()}


def test_the_papers_ordering_holds_where_the_numbers_have_it():
    assert verdicts(results_with(as_the_paper_has_it)) == [True] * 8


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        (0, lambda s: s.num_features == 1 and outcome(0.5, 0.8)),
        (1, lambda s: s.method == "danskin_lissa" and outcome(0.95, 0.1 + 0.05 * s.rows)),
        (1, lambda s: s.rows == 1 and nothing_learned(s)),
        (1, lambda s: s.rows == 1 and outcome(0.8, 0.9, spread=1e-4)),
        (2, lambda s: s.method == "naive" and outcome(0.9, 0.05, spread=1e-4)),
        (2, lambda s: s.method == "oracle" and outcome(0.9, 0.85, spread=1e-4)),
        (3, lambda s: s.kappa0 > 2.0 and outcome(0.9, 0.01, spread=1e-4)),
        (3, lambda s: s.kappa0 < 2.0 and s.rows == 5 and outcome(0.5, 0.6, spread=1e-4)),
    ],
)
def test_a_reversed_ordering_does_not_hold(claim, change):
    results = results_with(lambda setting: change(setting) or as_the_paper_has_it(setting))
    assert verdicts(results)[claim] is False


def test_rows_with_which_nothing_moves_are_not_said_to_teach():
    results = results_with(
        lambda s: outcome(1.0, 1.0, spread=0.0) if s.rows == 1 else as_the_paper_has_it(s)
    )
    assert verdicts(results)[1] is None


def test_runs_shorter_than_the_papers_decide_nothing_but_show_what_was_found():
    config = dataclasses.replace(CONFIG, steps=CONFIG.steps - 1)
    results = results_with(as_the_paper_has_it)
    assert verdicts(results, config) == [None] * 8
    short, whole = (compare_with_paper(each, results) for each in (config, CONFIG))
    assert [claim.found for claim in short] == [claim.found for claim in whole]


def test_runs_that_became_infinite_are_counted_on_both_sides_of_the_edge():
    results = results_with(
        lambda s: nothing_learned(s) if s.kappa0 > 2.0 else as_the_paper_has_it(s)
    )
    claim = compare_with_paper(CONFIG, results)[3]
    assert claim.holds is True
    assert "1.000 at 3 (0 and 3 runs infinite)" in claim.found


def test_what_intervals_cannot_tell_apart_is_not_told():
    same = results_with(lambda setting: outcome(0.5, 0.5, spread=0.1))
    assert verdicts(same) == [None] * 8
    one_run = results_with(
        lambda setting: SettingResult(STEPS, np.array([[0.9, 0.1]]), np.zeros(1, bool))
    )
    assert verdicts(one_run) == [None] * 8
