import dataclasses
import math

import numpy as np
import pytest

from rlreps.experiments.amid_warmuth_2020.distributed_pca.config import DistributedPcaConfig
from rlreps.experiments.amid_warmuth_2020.distributed_pca.figures import _sawteeth, draw_workers
from rlreps.experiments.amid_warmuth_2020.distributed_pca.findings import RuleResult, judge
from rlreps.experiments.amid_warmuth_2020.distributed_pca.report import (
    _first_combinations,
    loss_table,
)
from rlreps.experiments.amid_warmuth_2020.pca_problem import make_pca_problem
from rlreps.sources.datasets import Observations

CONFIG = DistributedPcaConfig(
    rules=("oja", "implicit_krasulina", "incremental_pca"),
    components=(3,),
    workers=2,
    combine_every=10,
    repeats=2,
)


@pytest.fixture(scope="module")
def problem():
    rows = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    return make_pca_problem(Observations("rows (40 rows)", rows, None), 5)


def result(rule, *, combined, workers, single=4.0, rate=1.0, k=3):
    """A rule whose two runs end so; earlier points are better and are not to be looked at."""

    def ending(losses, *shape):
        final = np.broadcast_to(np.asarray(losses, np.float64), shape)
        return np.stack([np.full(shape, 0.5), final])

    return RuleResult(
        rule=rule,
        k=k,
        learning_rate=rate,
        tuning_losses=[],
        rows_seen=np.asarray([0, 20]),
        workers=ending(workers, 2, 2),
        combined=ending(combined, 2),
        single=ending(single, 2),
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("combined", "holds"),
    [([3.0, 3.01], True), ([5.0, 5.01], False), ([2.5, 3.5], None), ([3.0, math.nan], None)],
)
def test_combining_is_judged_against_the_mean_worker_of_all_runs(problem, combined, holds):
    claims = judge(problem, [result("oja", combined=combined, workers=[[3, 5], [2, 6]])])
    (claim,) = claims
    assert claim.holds is holds
    assert claim.statement.startswith("Oja, k = 3")
    if np.isfinite(combined).all():
        assert claim.found == f"{np.mean(combined):.4f} against 4.0000"


@pytest.mark.parametrize(("implicit", "holds"), [(2.5, True), (2.9, False), (2.7, None)])
def test_implicit_krasulina_is_judged_against_the_best_of_the_others(problem, implicit, holds):
    claims = judge(
        problem,
        [
            result("oja", combined=2.7, workers=3.0),
            result("implicit_krasulina", combined=implicit, workers=2.0),
            result("incremental_pca", combined=2.8, workers=1.0),
        ],
    )
    assert [claim.holds for claim in claims[:3]] == [True, False, False]
    assert claims[3].holds is holds
    assert claims[3].found == f"{implicit:.4f}; Oja 2.7000, incremental PCA 2.8000"


@pytest.mark.parametrize("combined", [5.0, 3.0, math.nan])
def test_a_poor_first_combination_is_explained_where_there_was_one(problem, combined):
    found = result("implicit_krasulina", combined=combined, workers=4.0)
    text = _first_combinations([found, result("oja", combined=9.0, workers=4.0)])
    assert text.endswith("worse than its workers here, for k = 3.") is (combined == 5.0)
    assert bool(text) is (combined == 5.0)


def test_nothing_is_said_of_the_best_rule_where_there_is_one(problem):
    alone = [result("implicit_krasulina", combined=2.0, workers=3.0)]
    assert len(judge(problem, alone)) == 1


def test_a_diverged_worker_counts_with_the_whole_variance(problem):
    losses = [[3.0, math.nan], [3.0, 3.0]]
    found = result("oja", combined=3.0, workers=losses).final(problem)
    variance = float(np.trace(problem.moments))
    assert found["workers"].mean == pytest.approx((9.0 + variance) / 4)
    assert (found["workers"].diverged, found["combined"].diverged) == (1, 0)


def test_the_table_has_a_row_for_every_k_and_rule(problem):
    results = [
        result(rule, combined=[k - 1, k + 1], workers=5.0, single=7.0, rate=rate, k=k)
        for rule, rate in (("oja", 10.0), ("incremental_pca", math.nan))
        for k in (3, 5)
    ]
    table = loss_table(CONFIG, problem, results)
    assert [row[:3] for row in table.rows] == [
        (3, "Oja", "10"),
        (3, "incremental PCA", None),
        (5, "Oja", "10"),
        (5, "incremental PCA", None),
    ]
    assert table.rows[0][3:] == (
        f"{problem.variances[3:].sum():.3f}",
        "3.000 ± 1.414",
        "5.000 ± 0.000",
        "7.000 ± 0.000",
    )
    assert "the one model 40" in table.caption


def test_the_start_is_drawn_where_there_is_a_single_combination(problem):
    once = result("oja", combined=3.0, workers=4.0)
    (axes,) = draw_workers(CONFIG, problem, [once]).axes
    assert {0.0, 20.0} <= {x for line in axes.lines for x in np.asarray(line.get_xdata())}
    twice = dataclasses.replace(
        once,
        rows_seen=np.asarray([0, 10, 20]),
        **{
            name: np.concatenate([getattr(once, name), getattr(once, name)[1:]])
            for name in ("workers", "combined", "single")
        },
    )
    (axes,) = draw_workers(CONFIG, problem, [twice]).axes
    assert 0.0 not in {x for line in axes.lines for x in np.asarray(line.get_xdata())}


def test_a_workers_line_starts_from_the_combined_model_and_breaks_after_it():
    x, heights = _sawteeth(
        np.asarray([10, 20, 30]),
        np.asarray([3.0, 2.0, 1.0]),
        np.asarray([[9.0, 9.0], [2.5, 2.6], [1.5, 1.6]]),
    )
    np.testing.assert_array_equal(x, [10, 20, 20, 20, 30, 30])
    np.testing.assert_array_equal(heights[0], [3.0, 2.5, np.nan, 2.0, 1.5, np.nan])
    np.testing.assert_array_equal(heights[1], [3.0, 2.6, np.nan, 2.0, 1.6, np.nan])
