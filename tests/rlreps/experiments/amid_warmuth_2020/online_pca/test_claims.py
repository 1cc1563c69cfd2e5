import dataclasses

import numpy as np
import pytest

from rlreps.experiments.amid_warmuth_2020.online_pca.claims import compare_with_paper
from rlreps.experiments.amid_warmuth_2020.online_pca.config import (
    PAPER_RULES,
    Contender,
    OnlinePcaConfig,
)
from rlreps.experiments.amid_warmuth_2020.online_pca.curves import ExcessCurve

CONFIG = OnlinePcaConfig(
    contenders=tuple(Contender(rule=rule) for rule in PAPER_RULES),
    components=(4,),
    shown_components=4,
    passes=2,
)


def curve(rule, first_pass, rows=1):
    """Three repeats whose excess after the first of two passes is given."""
    excess = np.asarray([[50.0, 20.0, value, 1e-3, 1e-3] for value in first_pass])
    seen = np.arange(5) * 1000
    return ExcessCurve(
        Contender(rule=rule, rows_per_update=rows),
        4,
        1.0,
        False,
        seen,
        np.tile(seen * 1e-6, (3, 1)),
        1.0 + excess / 100.0,
        excess,
        None,
    )


def curves(ours, other=(3.0, 3.1, 3.2)):
    return [
        curve("implicit_krasulina", ours),
        curve("explicit_krasulina", (9.0, 9.5, 10.0)),
        curve("krasulina", (5.0, 5.1, 5.2)),
        curve("oja", other),
        curve("oja", (1e-9,) * 3, rows=100),
    ]


def times(qr=(1e-4, 1.2e-4)):
    return {
        4: {
            "qr": qr,
            "implicit_krasulina": [4.5e-6, 4e-6],
            "krasulina": [9e-6, 8e-6],
            "oja": [6e-6, 7e-6],
        }
    }


@pytest.mark.parametrize(
    ("ours", "holds"),
    [
        ((1.0, 1.1, 1.2), True),
        ((6.0, 6.1, 6.2), False),
        ((3.05, 3.15, 3.3), None),
        ((3.2, 3.31, 3.4), False),
    ],
)
def test_the_least_excess_after_the_first_pass_is_told_of_runs_paired_by_their_seeds(ours, holds):
    excess, _ = compare_with_paper(CONFIG, curves(ours), times())
    assert excess.holds is holds
    assert excess.found.startswith(f"{np.mean(ours):.3g} %; explicit Krasulina 9.5 %")
    assert "Oja 3.1 %" in excess.found


def test_three_of_the_four_rules_cannot_tell():
    found = [each for each in curves((1.0, 1.1, 1.2)) if each.contender.rule != "krasulina"]
    excess, _ = compare_with_paper(CONFIG, found, times())
    assert excess.holds is None


@pytest.mark.parametrize(
    ("qr", "holds"),
    [((1e-4, 1.2e-4), True), ((2e-6, 3e-6), False), ((4.2e-6, 5e-6), None)],
)
def test_times_are_told_where_no_trial_of_one_is_among_those_of_the_other(qr, holds):
    _, seconds = compare_with_paper(CONFIG, curves((1.0, 1.1, 1.2)), times(qr))
    assert seconds.holds is holds
    assert seconds.found.startswith(f"4 µs; with QR {min(qr) / 4e-6:.2g} times as much")
    assert seconds.found.endswith("closed forms of the same, Oja's 1.5, Krasulina's 2 times")


def test_nothing_is_told_of_a_rule_that_diverged():
    ours, *others = curves((1.0, 1.1, 1.2))
    losses = ours.losses.copy()
    losses[1, 2:] = np.nan
    lost = dataclasses.replace(ours, losses=losses)
    found = compare_with_paper(CONFIG, [lost, *others], times())
    assert [claim.holds for claim in found] == [None, None]


def test_without_implicit_krasulina_nothing_is_claimed():
    assert compare_with_paper(CONFIG, curves((1.0, 1.1, 1.2))[1:], times()) == []
