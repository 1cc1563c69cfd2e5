"""Experiments on streaming PCA: verdicts on runs that none made, protocols, and smoke runs."""

import dataclasses
import json
import math

import numpy as np
import pytest
from sklearn.datasets import load_digits

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020 import distributed_pca, online_pca, pca, printed
from rlreps.experiments.amid_warmuth_2020 import learning_rate_sensitivity as sensitivity
from rlreps.experiments.amid_warmuth_2020.pca import PcaConfig
from rlreps.experiments.amid_warmuth_2020.printed import IMPLICIT, SANGER, Repeated
from rlreps.experiments.datasets import Observations
from rlreps.streaming import RULES
from rlreps.study import Frame, Run

DIGITS = (load_digits().images[:600].reshape(600, 64) / 16).astype(np.float32)
ROWS = np.random.default_rng(0).normal(size=(40, 32)).astype(np.float32)


def problem_of(rows, k, name="rows"):
    config = PcaConfig(components=(k,), tuning_fraction=1.0)
    return pca.check(config, Observations(name, rows, None))


@pytest.fixture(scope="module")
def mnist():
    return problem_of(np.tile(ROWS, (10, 1)), 5)._replace(is_mnist=True)


def claims_of(module, config, problem, measured):
    """Judge the claims of runs that ended as ``measured(contender, k)`` says."""
    run = Run(config, None, problem)
    common = {"power": 0.8, "learning_rate": 2.0, "tuning_losses": [[3.0]], "all_diverged": False}
    cells, noise = pca.cells(run), np.random.default_rng(0)
    parts = {name: {**common, **measured(*cell)} for name, cell in cells.items()}
    for part in parts.values():
        # Equal differences would decide nothing.
        for name in {"losses", "combined", "workers", "single"} & {*part}:
            losses = np.asarray(part[name], np.float64)
            part[name] = (losses + noise.uniform(0.0, 1e-6, losses.shape)).tolist()
    frames = {name: module.frame(run, cell, parts[name]) for name, cell in cells.items()}
    return module.EXPERIMENT.judged(module.EXPERIMENT.results(run, parts, frames))


def about(claims, *words):
    return [each for each in claims if all(word in each.statement for word in words)]


def repeated(losses, counts=14.0):
    """Final losses of runs; of one that diverged, ``counts``."""
    table = np.asarray(losses, np.float64)
    finite = np.isfinite(table)
    values = {"counted": np.where(finite, table, counts), "diverged": ~finite}
    return Repeated.of(Frame.grid(values, seed=range(len(table))))


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ([35.20, 35.201], True),
        ([35.30, 35.301], False),
        # A part of the interval is outside.
        ([35.20, 35.24], None),
        ([35.28, 35.29], None),
        ([35.20], None),
        ([35.45], None),
        ([math.nan, math.nan, 35.2], None),
        # Three equal outcomes decide nothing.
        ([math.nan] * 3, None),
    ],
)
def test_a_cell_is_within_the_printed_spread_outside_or_undecided(losses, verdict):
    # 35.19 ± 0.05, both rounded to 0.01: 35.13 to 35.25.
    cell = printed.TABLE_1["MNIST"][0][5][1]
    assert repeated(losses).within(cell, "oja").holds is verdict


def test_workers_are_averaged_first_and_those_that_diverged_count():
    values = {"counted": [[1.0, 3.0], [2.0, 8.0]], "diverged": [[False, True], [True, True]]}
    workers = Repeated.of(Frame.grid(values, seed=range(2), worker=range(2)))
    assert (workers.mean, workers.deviation) == pytest.approx((3.5, 1.5 * math.sqrt(2.0)))
    assert workers.diverged == 3


def test_printed_tables_have_a_place_for_every_rule_and_k():
    for table in printed.TABLE_1.values():
        assert len(table) == len(printed.PAPER_RULES)
        for rule, cells in zip(printed.PAPER_RULES, table, strict=True):
            number = 3 if RULES[rule].needs_learning_rate else 1
            assert {k: len(each) for k, each in cells.items()} == dict.fromkeys((5, 10, 20), number)
    # Cells at the ends of rows, against which a shift would show.
    assert str(printed.TABLE_1["MNIST"][3][20][2]) == "25.50 ± 0.46"
    assert str(printed.TABLE_1["CIFAR-10"][4][10][0]) == "65.75 ± 0.05"
    assert str(printed.TABLE_2["MNIST"][0][20][1]) == "18.77 ± 0.01"


TABLE_1 = dataclasses.replace(sensitivity.PRESETS["paper"], components=(5,), repeats=2)


def near(loss):
    """Two runs whose interval is as narrow as a printed digit."""
    return [loss - 1e-4, loss + 1e-4]


ENDS = {
    "oja": [near(35.85), near(35.2), near(35.297)],
    "krasulina": [near(35.85), near(35.171), near(35.290)],
    "incremental_pca": [near(35.3)],
    SANGER: [near(39.05), near(36.05), near(42.05)],
    IMPLICIT: [near(35.18), near(35.18), near(35.165)],
}


def table_1(problem, config=TABLE_1, **changed):
    """The claims of runs that end as ``ENDS`` says, but for what is changed."""

    def measured(contender, k):
        end = {**ENDS, **changed}[contender.rule]
        losses = [np.full_like(end, 90.0).tolist(), end]
        return {"losses": losses, "rows_seen": [0, 40]}

    return claims_of(sensitivity, config, problem, measured)


def cells(claims):
    return [each.holds for each in about(claims, "Table 1, ") if "batch" not in each.statement]


def test_printed_losses_are_judged_cell_by_cell_under_the_papers_protocol(mnist):
    assert cells(table_1(mnist)) == [True] * 5
    changed = {IMPLICIT: [near(35.18), near(35.2), near(35.165)]}
    assert cells(table_1(mnist, **changed)) == [True] * 4 + [False]
    other = dataclasses.replace(TABLE_1, tuning_fraction=0.2)
    assert {*cells(table_1(mnist, other))} == {None}
    # Other data sets have no such table.
    assert cells(table_1(mnist._replace(name="digits", is_mnist=False))) == []
    # Batch PCA is that of the data, whatever was run.
    for variances, holds in (([35.164], True), ([35.17], False)):
        exact = mnist.exact._replace(variances=np.asarray([0.0] * 5 + variances))
        (claim,) = about(table_1(mnist._replace(exact=exact)), "batch PCA")
        assert claim.holds is holds


# --- Table 2 and Figure 2 -------------------------------------------------------------------------

TABLE_2 = dataclasses.replace(distributed_pca.PRESETS["paper"], components=(5,), repeats=2)


def table_2(problem, combined, workers, single=4.0, **others):
    """The claims of two runs of implicit Krasulina that end so; of other rules, combined ones."""

    def ending(losses, *shape, before=6.0):
        final = np.broadcast_to(np.asarray(losses, np.float64), shape)
        return np.stack([np.full(shape, 0.5), np.full(shape, before), final]).tolist()

    def measured(contender, k):
        ours = contender.rule == IMPLICIT and contender.published
        ends = combined if ours else others.get(contender.name, 50.0)
        return {
            "workers": ending(workers if ours else ends, 2, TABLE_2.workers, before=7.0),
            "combined": ending(ends, 2),
            "single": ending(single if ours else ends, 2),
            "rows_seen": [0, 500, 1000],
        }

    return claims_of(distributed_pca, TABLE_2, problem, measured)


ONLINE = dataclasses.replace(online_pca.PRESETS["paper"], components=(4,), repeats=3)
LOSSES = {
    SANGER: (9.0, 9.5, 10.0),
    "krasulina": (5.0, 5.1, 5.2),
    "oja": (3.0, 3.1, 3.2),
    "incremental_pca": (3.5, 3.6, 3.4),
}


def figure_1(problem, ours, **changed):
    """The claims of three repeats whose last losses are given, for one k."""
    ends = {IMPLICIT: ours, **LOSSES, **changed}

    def measured(contender, k):
        losses = [[50.0, end] for end in ends[contender.rule]]
        return {"losses": losses, "rows_seen": [0, 40], "seconds": [[0.0, 1.0]] * 3}

    return claims_of(online_pca, ONLINE, problem, measured)


WAYS = {
    "oja": 2.7,
    "incremental_pca": 2.8,
    **{each.name: 2.0 for each in distributed_pca.OURS},
}


def spread(implicit):
    """Ends over scales whose means spread by 0.4, implicit Krasulina's by another number."""
    scales, repeats = np.asarray([0.0, 1.0, 0.4])[:, None], np.asarray([-1.0, 1.0])
    ends = dict.fromkeys(ENDS, (36.0 + 0.4 * scales + repeats).tolist())
    ends["incremental_pca"] = [[36.0, 37.0]]
    return ends | {IMPLICIT: (36.0 + implicit * scales + repeats).tolist()}


LOST = (math.nan, math.nan)
"""Ends of two runs that diverged."""

LOST_AT_TEN = {IMPLICIT: [near(15.1), near(15.0), LOST]}


def at_scales(*last):
    """Ends of Oja's rule at a tenth, once and ten times the best rate."""
    return {"oja": [[36.0, 36.1], [35.0, 35.1], [*last]]}


@pytest.mark.parametrize(
    ("claims", "words", "holds"),
    [
        (lambda of: table_1(of, **spread(0.1)), "largest less smallest", True),
        (lambda of: table_1(of, **spread(0.5)), "largest less smallest", False),
        # A rule deteriorates where it is worse at either scale.
        (lambda of: table_1(of, **at_scales(35.3, 35.4)), "Sensitivity to η0, Oja", True),
        (lambda of: table_1(of, **at_scales(34.0, 34.1)), "Sensitivity to η0, Oja", False),
        # Runs that diverged count with the loss of no components.
        (lambda of: table_1(of, oja=[near(16.0), near(15.0), LOST]), "η0, Oja", True),
        (lambda of: table_1(of, **spread(0.1) | LOST_AT_TEN), "largest less smallest", False),
        # The caption says nothing of the workers' mean.
        (lambda of: table_2(of, [5.0, 5.01], [[3], [2]]), "Fig. 2 (caption)", True),
        (lambda of: table_2(of, [6.5, 6.51], [[3], [2]]), "Fig. 2 (caption)", False),
        (lambda of: table_2(of, LOST, [[3], [2]]), "Fig. 2 (caption)", False),
        (lambda of: table_2(of, near(35.18), 36.0, near(35.18)), "single and combined", True),
        (lambda of: table_2(of, near(35.20), 36.0, near(35.18)), "single and combined", False),
        (lambda of: table_2(of, near(35.17), 36.0, near(37.17)), "single and combined", False),
        # The paper's ways to combine are compared, not ours.
        (lambda of: table_2(of, 2.5, 2.0, **WAYS)[-1:], "", True),
        (lambda of: table_2(of, 2.9, 2.0, **WAYS)[-1:], "", False),
        (lambda of: table_2(of, LOST, 2.0, **WAYS)[-1:], "", False),
        (lambda of: figure_1(of, (1.0, 1.1, 1.2)), "excess loss", True),
        # Incremental PCA takes part.
        (lambda of: figure_1(of, (1, 1.1, 1.2), incremental_pca=(0.1, 0.2, 0.3)), "excess", False),
        # One that diverged decides nothing; all of them do.
        (lambda of: figure_1(of, (2.0, 2.1, 2.2), oja=(4.0, 4.1, math.nan)), "excess", None),
        (lambda of: figure_1(of, (2.0, 2.1, 2.2), oja=(math.nan,) * 3), "excess", True),
        (lambda of: figure_1(of, (math.nan,) * 3), "excess", False),
    ],
)
def test_claims_of_tables_and_figures(mnist, claims, words, holds):
    (claim,) = about(claims(mnist), words)
    assert claim.holds is holds


def test_nothing_that_the_paper_states_is_decided_on_other_data(mnist):
    other = mnist._replace(name="cifar-10-subset (40 images)", is_mnist=False)
    claims = figure_1(other, (1.0, 1.1, 1.2)) + table_1(other)
    claims += table_2(other, 3.0, [[3.5]])
    assert len(claims) >= 8
    assert {each.holds for each in claims} == {None}


@pytest.mark.parametrize(
    ("oja", "larger", "faster", "grows"),
    [(1.5, 2.0, True, True), (0.5, 0.25, False, False), (1.0, 1.0, None, None)],
)
def test_times_of_a_row_are_compared_by_seeds(results_of, oja, larger, faster, grows):
    """Times of Oja's and Krasulina's rule over implicit Krasulina's, for two k."""
    config, noise = dataclasses.replace(ONLINE, components=(4, 10)), np.random.default_rng(0)
    rows = [
        {"rule": rule, "k": k, "seed": seed, "row_seconds": time * noise.lognormal(0.0, 1e-3)}
        for k, its in ((4, oja), (10, larger))
        for rule, time in (
            *((IMPLICIT, 1.0), ("oja", its), ("krasulina", its), ("incremental_pca", 3.0 * k)),
        )
        for seed in range(5)
    ]
    results = results_of(online_pca.EXPERIMENT, config, rows)
    assert online_pca.is_faster(results).holds is faster
    assert online_pca.advantage_grows(results, 4, 10).holds is grows


OF_RULES = {
    "rule": printed.PAPER_RULES,
    "powers": ([0.9], [0.9], [], [0.8], [0.8]),
    "rows_per_update": (1,) * 5,
    "variant": ("",) * 5,
}
"""The paper's settings of its five rules, one after the other."""

OF_SANGER = {
    "learning_rates": [
        *(1e-6, 5e-6, 1e-5, 5e-5, 8e-5, 1e-4, 2e-4, 5e-4, 8e-4, 1e-3, 2e-3, 5e-3),
        *(0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
    ],
    "double": True,
}
"""Settings of the fourth by the authors' code."""


@pytest.mark.parametrize(
    ("name", "start", "others"),
    [
        ("learning-rate-sensitivity", 1e-5, {"components": [5, 10, 20]}),
        ("online-pca", 1e-4, {"components": [5, 10, 20, 50], "evaluate_every": 5000}),
        (
            "distributed-pca",
            1e-4,
            {"components": [5, 20], "workers": 10, "combine_every": 1000}
            | {f"contenders.{place}.mean_qr": place < 3 for place in range(5)},
        ),
    ],
)
def test_paper_presets_follow_the_paper(check_protocol, name, start, others):
    paper = {"tuning_fraction": 0.1, "repeats": 10, **others, "contenders.2.learning_rates": []}
    for field, value in {**OF_SANGER, "initial_scale": start}.items():
        paper[f"contenders.3.{field}"] = value
    paper["contenders.4.initial_scale"] = start
    for field, values in OF_RULES.items():
        paper |= {f"contenders.{place}.{field}": value for place, value in enumerate(values)}
    check_protocol(name, paper)


@pytest.fixture
def rows_of_digits(tmp_path):
    np.save(tmp_path / "rows.npy", load_digits().images[:400])
    return tmp_path / "rows.npy"


@pytest.mark.experiments
@pytest.mark.parametrize(
    ("name", "table", "column"),
    [
        ("learning-rate-sensitivity", "scales", "exact"),
        ("distributed-pca", "table_2", "exact"),
        ("online-pca", "final_excess", "exact_loss"),
    ],
)
def test_smoke_presets_leave_the_exact_losses(smoke, rows_of_digits, name, table, column):
    _, out = smoke(name, data=rows_of_digits)
    rows = np.load(rows_of_digits).reshape(400, -1)
    values = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2 / 400
    for row in json.loads((out / "results" / f"{table}.json").read_text()):
        assert float(row[column]) == pytest.approx(values[row["k"] :].sum(), rel=1e-3)


def few(module, **changes):
    """Check a smoke preset, changed, against 410 rows."""
    config = dataclasses.replace(module.PRESETS["smoke"], **changes)
    module.EXPERIMENT.check(config, Observations("few", DIGITS[:410], None))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: problem_of(DIGITS, 65), r"k in \[1, 64\], got 65"),
        (lambda: problem_of(np.eye(3, dtype=np.float32), 2), "that vary beyond their top 2"),
        (lambda: few(distributed_pca, workers=411), "at least 411 rows"),
        (lambda: few(online_pca, tuning_fraction=0.001), "1 rows in 0% of all"),
    ],
)
def test_rows_that_are_too_few_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_pseudo_values_of_a_mean_are_the_runs_and_of_a_statistic_its_jackknife():
    runs = np.random.default_rng(0).normal(size=(3, 6))
    np.testing.assert_allclose(sensitivity.pseudo_values(lambda means: means[0], runs), runs[0])

    def spread(means):
        return np.ptp(means, axis=0)

    whole = np.ptp(runs.mean(axis=1))
    without = [np.ptp(np.delete(runs, run, axis=1).mean(axis=1)) for run in range(6)]
    expected = 6 * whole - 5 * np.asarray(without)
    np.testing.assert_allclose(sensitivity.pseudo_values(spread, runs), expected)
    np.testing.assert_allclose(sensitivity.pseudo_values(spread, runs[:, :1]), np.ptp(runs[:, 0]))
