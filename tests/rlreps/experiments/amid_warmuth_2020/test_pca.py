"""Experiments on streaming PCA: exact losses, the choice of η0, verdicts, and their smoke runs."""

import csv
import dataclasses
import json
import math
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from rlreps.errors import InputError
from rlreps.experiments import EXPERIMENTS
from rlreps.experiments.amid_warmuth_2020 import distributed_pca, online_pca, pca
from rlreps.experiments.amid_warmuth_2020 import learning_rate_sensitivity as sensitivity
from rlreps.experiments.amid_warmuth_2020.pca import Entry, PcaConfig, is_less, least_claims
from rlreps.sources.datasets import Observations
from rlreps.streaming import RULES

DIGITS = (load_digits().images[:600].reshape(600, 64) / 16).astype(np.float32)
NOISE = np.asarray([-3.0, 1.0, 2.0, 5.0])


def problem_of(rows, k, name="rows"):
    return pca.make_problem(PcaConfig(components=(k,)), Observations(name, rows, None))


@pytest.fixture(scope="module")
def digits():
    return problem_of(DIGITS, 10)


@pytest.fixture(scope="module")
def corners():
    """Rows of variances 9, 4 and 1 exactly."""
    signs = np.asarray([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)], np.float32)
    return problem_of(signs * np.float32([3, 2, 1]), 2)


def test_exact_losses_are_those_of_scikit_learns_components(digits):
    rows = DIGITS.astype(np.float64)
    for k in (1, 5, 40):
        exact = PCA(k, svd_solver="full").fit(rows)
        residuals = rows - exact.inverse_transform(exact.transform(rows))
        expected = np.mean(np.sum(residuals**2, axis=1))
        assert digits.exact_loss(k) == pytest.approx(expected, rel=1e-5)
        assert digits.loss(exact.components_.T) == pytest.approx(expected, rel=1e-5)


def test_a_loss_depends_on_the_span_alone(digits):
    generator = np.random.default_rng(1)
    components = generator.normal(size=(64, 4))
    span, _ = np.linalg.qr(components)
    residuals = digits.rows - digits.rows @ span @ span.T
    same = digits.loss(components)
    assert same == pytest.approx(np.mean(np.sum(residuals**2, axis=1)), rel=1e-5)
    mixing = generator.normal(size=(4, 4)) + 3.0 * np.eye(4)
    assert digits.loss(1e-20 * components @ mixing) == pytest.approx(same, rel=1e-12)
    twice = np.concatenate([components, components[:, :1]], axis=1)
    assert digits.loss(twice) == pytest.approx(same, rel=1e-12)
    assert digits.loss(np.zeros((64, 3))) == pytest.approx(digits.no_components, rel=1e-6)
    assert math.isnan(digits.loss(components * np.nan))


def test_a_diverged_run_counts_with_the_whole_variance(corners):
    found = corners.repeated([2.0, math.nan, 1.0])
    assert (found.mean, found.diverged) == (pytest.approx((2.0 + 14.0 + 1.0) / 3), 1)
    assert str(corners.repeated([1.0, 2.0, 6.0])) == "3.000 ± 2.646"
    workers = corners.repeated([[1.0, 3.0], [2.0, 8.0]])
    assert (workers.mean, workers.deviation) == pytest.approx((3.5, 1.5 * math.sqrt(2.0)))
    np.testing.assert_allclose(corners.excess_percent([5.0, 10.0, math.nan], 1), [0, 100, 180])


class KnownBest(pca.Contender):
    """A rule whose components are the worse, the further γ and η0 are from 0.8 and the best."""

    exact, others, best = None, None, 100.0

    def build(self, features, k, power):
        best, exact, others = self.best, self.exact, self.others

        class Rule:
            def __init__(self, rate):
                self.rate = rate

            def init(self, key):
                return jnp.zeros((), jnp.int32)

            def update(self, step, batch):
                return step + 1

            update_each = update

            def components(self, step):
                turn = jnp.abs(jnp.log(self.rate / best)) / 10.0 + abs(power - 0.8)
                found = jnp.cos(turn) * exact + jnp.sin(turn) * others
                return jnp.where((self.rate < 1e6) & (step > 0), found, jnp.nan)

        return Rule


def test_the_pair_of_least_loss_on_the_part_is_chosen(digits, monkeypatch):
    streamed = []
    real = pca.run_passes
    monkeypatch.setattr(pca, "run_passes", lambda *a, **o: streamed.append((a, o)) or real(*a, **o))
    monkeypatch.setattr(KnownBest, "exact", jnp.asarray(digits.basis[:, :3], jnp.float32))
    monkeypatch.setattr(KnownBest, "others", jnp.asarray(digits.basis[:, 3:6], jnp.float32))
    config = PcaConfig(components=(3,), tuning_fraction=0.25, seed=3)
    rates = (0.1, 100.0, 1e7)
    options = {"rule": "oja", "rows_per_update": 50}
    contender = KnownBest(**options, powers=(0.5, 0.8), learning_rates=rates)
    found = pca.choose_rates(config, contender, 3, digits)
    assert (found["power"], found["learning_rate"], found["all_diverged"]) == (0.8, 100.0, False)
    assert np.isnan(found["tuning_losses"]).tolist() == [[False, False, True]] * 2
    (_, ((_, part, runs), passed)) = streamed
    assert len({row.tobytes() for row in part}) == len(part) == 150
    assert (list(runs.seeds), passed["rows_per_update"]) == ([3, 3, 3], 50)
    span = digits.basis[:, :3]
    residuals = part - part @ span @ span.T
    expected = np.mean(np.sum(residuals**2, axis=1))
    assert found["tuning_losses"][1][1] == pytest.approx(expected, rel=1e-4)
    lost = pca.choose_rates(config, KnownBest(**options, learning_rates=(1e7, 1e6)), 3, digits)
    assert (lost["learning_rate"], lost["all_diverged"]) == (1e6, True)
    incremental = pca.Contender(rule="incremental_pca", powers=(), learning_rates=())
    untuned = pca.choose_rates(config, incremental, 3, digits)
    assert (untuned["learning_rate"], untuned["power"]) == (None, None)


@pytest.mark.parametrize("double", [False, True])
def test_a_contender_runs_its_rule_from_its_start_in_its_precision(digits, double):
    contender = pca.Contender(rule=pca.SANGER, initial_scale=1e-3, double=double)
    seen = []

    def over(make, rows, runs, *, rows_per_update, marked):
        rule = make(jnp.asarray(0.5))
        state = rule.init(jax.random.key(0))
        seen.append((rows.dtype, state.rows.dtype, runs, rows_per_update, marked))
        assert float(jnp.std(state.rows)) == pytest.approx(1e-3, rel=0.1)
        assert float(rule.rate(state, state.rows)) == 0.5
        assert float(rule.rate(state._replace(step=jnp.int32(3)), state.rows)) == pytest.approx(
            0.25
        )

    contender.stream(over, digits.rows, [1, 2], [2.0, None], 0.5, 3, marked=True)
    dtype = np.float64 if double else np.float32
    assert seen == [(dtype, dtype, ([1, 2], [2.0, 1.0]), 1, True)]
    assert jnp.zeros(1).dtype == jnp.float32


def test_runs_are_compared_in_pairs_as_by_the_paired_t_test():
    # Far less than runs differ, but less in every one of them.
    shift = np.asarray([-0.2, -0.2, -0.1, -0.3])
    assert is_less(NOISE + shift, NOISE) is True
    assert is_less(NOISE - shift, NOISE) is False
    for nothing in ([0.0] * 4, [-0.1, -0.2, math.nan, -0.3]):
        assert is_less(NOISE + nothing, NOISE) is None
    assert is_less([1.0], [2.0]) is None
    generator = np.random.default_rng(1)
    for _ in range(100):
        ours, theirs = generator.normal([[-1.0], [0.0]], size=(2, 4))
        expected = scipy.stats.ttest_rel(ours, theirs).pvalue < 0.05
        assert (is_less(ours, theirs) is not None) == expected


def test_a_measure_is_of_means_over_the_same_seeds():
    def spread(means):
        return np.ptp(means, axis=0)

    conditions = np.asarray([0.0, 1.0, 0.4])[:, None]
    wide, narrow = NOISE + conditions, NOISE + 0.9 * conditions
    assert is_less(narrow, wide, spread) is True
    assert is_less(wide, narrow, spread) is False
    assert is_less(np.full((3, 4), np.nan), np.ones((3, 1)) * NOISE, spread) is None


IMPLICIT, OJA, KRASULINA, INCREMENTAL = (
    pca.Contender(rule=pca.IMPLICIT),
    pca.Contender(rule="oja"),
    pca.Contender(rule="krasulina"),
    pca.Contender(rule="incremental_pca", powers=(), learning_rates=()),
)


def result_of(problem, contender, k=5, seen=40, **part):
    """A result whose runs ended so."""
    common = {"power": 0.8, "learning_rate": 2.0, "tuning_losses": [[3.0]], "rows_seen": [0, seen]}
    return pca.Result(problem, contender, k, {**common, "seconds": [0.0, 1.0], **part})


@pytest.mark.parametrize(
    ("others", "decided", "holds"),
    [
        (([3.0, 3.1], [4.0, 4.1]), True, True),
        (([1.0, 1.1], [4.0, math.nan]), True, False),
        (([3.0, 3.1], [4.0, math.nan]), True, None),
        (([3.0, 3.1],), False, None),
    ],
)
def test_the_least_of_the_papers_rules_is_less_than_each(corners, others, decided, holds):
    def entry(result):
        return Entry(result.label, result.losses(), "text")

    rules = (OJA, KRASULINA)
    results = [
        result_of(corners, rule, losses=each) for rule, each in zip(rules, others, strict=False)
    ]
    # What the paper does not have takes no part.
    ours = dataclasses.replace(OJA, variant="of ours")
    results.append(result_of(corners, ours, losses=[0.0, 0.1]))
    mine = result_of(corners, IMPLICIT, losses=[2.0, 2.1])
    (claim,) = least_claims([mine, *results], entry, "what", decided)
    assert claim.holds is holds
    assert least_claims(results, entry, "what", decided) == []
    assert least_claims([mine], entry, "what", decided) == []


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ([35.20, 35.26], True),
        ([35.30, 35.301], False),
        # The mean is outside, its interval is not.
        ([35.28, 35.29], None),
        ([35.45], None),
        ([35.26 + 0.03 * (-1) ** i for i in range(10)], None),
        ([35.27 + 0.005 * (-1) ** i for i in range(10)], False),
        ([math.nan] * 3, False),
    ],
)
def test_a_cell_is_within_the_printed_spread_outside_or_undecided(corners, losses, verdict):
    # 35.19 ± 0.05, both rounded to 0.01: 35.13 to 35.25.
    found = corners.repeated(losses)
    assert found.within(pca.TABLE_1["MNIST"][0][5][1]) is verdict


def test_intervals_of_repeats_are_students(corners):
    few = corners.repeated([1.0, 2.0, 6.0])
    assert (few.low, few.high) == pytest.approx(
        scipy.stats.t.interval(0.95, 2, 3.0, scipy.stats.sem([1.0, 2.0, 6.0]))
    )
    assert math.isnan(corners.repeated([1.0]).low)


def test_printed_tables_have_a_place_for_every_rule_and_k():
    for table in pca.TABLE_1.values():
        assert len(table) == len(pca.PAPER_RULES)
        for rule, cells in zip(pca.PAPER_RULES, table, strict=True):
            number = 3 if RULES[rule].needs_learning_rate else 1
            assert {k: len(each) for k, each in cells.items()} == dict.fromkeys((5, 10, 20), number)
    # Cells at the ends of rows, against which a shift would show.
    assert str(pca.TABLE_1["MNIST"][3][20][2]) == "25.50 ± 0.46"
    assert str(pca.TABLE_1["CIFAR-10"][4][10][0]) == "65.75 ± 0.05"
    assert str(pca.TABLE_2["MNIST"][0][20][1]) == "18.77 ± 0.01"


@pytest.fixture(scope="module")
def mnist():
    rows = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    return problem_of(rows, 5)._replace(is_mnist=True)


def test_rows_are_of_mnist_by_their_checksum_and_not_by_the_name_of_their_file(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    named = problem_of(rows, 5, "MNIST (70,000 images)")
    assert (named.data_set, named.is_whole) == (None, False)
    monkeypatch.setattr("rlreps.sources.datasets.MNIST_CHECKSUM", zlib.crc32(rows.tobytes()))
    whole = problem_of(rows, 5, "digits")
    assert (whole.data_set, whole.is_whole) == ("MNIST", True)


PAPER = sensitivity.PRESETS["paper"]
PUBLISHED = dataclasses.replace(PAPER, components=(5,), repeats=2)
ENDS = {
    "oja": [[35.8, 35.9], [35.20, 35.20], [35.295, 35.30]],
    "krasulina": [[35.8, 35.9], [35.17, 35.171], [35.290, 35.291]],
    "incremental_pca": [[35.30, 35.30]],
    pca.SANGER: [[39.0, 39.1], [36.0, 36.1], [42.0, 42.1]],
    pca.IMPLICIT: [[35.16, 35.20], [35.18, 35.18], [35.15, 35.18]],
}


def table_1(problem, config=PUBLISHED, seen=40, **changed):
    """The claims of runs that end as ``ENDS`` says, but for what is changed."""
    results = [
        result_of(
            problem,
            contender,
            seen=seen,
            losses=[np.full_like(end, 90.0).tolist(), end],
        )
        for contender in config.contenders
        if (end := {**ENDS, **changed}[contender.rule])
    ]
    return sensitivity.compare_with_paper(config, results)


def printed(claims):
    return {
        each.statement.split(",")[1].strip(): each.holds
        for each in claims
        if "Table 1" in each.statement
    }


def test_printed_losses_are_judged_cell_by_cell_under_the_papers_protocol(mnist):
    names = ("Oja", "Krasulina", "incremental PCA", 'explicit Krasulina ("Sanger")')
    names += ("implicit Krasulina",)
    verdicts = printed(table_1(mnist))
    assert {name: verdicts[name] for name in names} == dict.fromkeys(names, True)
    off = {pca.IMPLICIT: [[35.16, 35.20], [35.1999, 35.2001], [35.15, 35.18]]}
    assert printed(table_1(mnist, **off))["implicit Krasulina"] is False
    unknown = {pca.IMPLICIT: [[35.16, 35.20], [35.18, 35.22], [35.15, 35.18]]}
    assert printed(table_1(mnist, **unknown))["implicit Krasulina"] is None
    subset = mnist._replace(name="cifar-10-subset (40 images)", is_mnist=False)
    other = dataclasses.replace(PUBLISHED, tuning_fraction=0.2)
    for claims in (table_1(mnist, seen=39), table_1(mnist, other), table_1(subset)):
        assert {printed(claims)[name] for name in names} == {None}
    elsewhere = mnist._replace(name="digits (40 images)", is_mnist=False)
    assert printed(table_1(elsewhere)) == {}


def claims_about(claims, *words):
    return [each for each in claims if all(word in each.statement for word in words)]


@pytest.mark.parametrize(("implicit", "holds"), [(0.1, True), (0.5, False)])
def test_the_least_spread_over_scales_is_that_of_means_over_repeats(mnist, implicit, holds):
    spread, repeats = np.asarray([0.0, 1.0, 0.4])[:, None], np.asarray([-1.0, 1.0])
    ends = dict.fromkeys(ENDS, (36.0 + 0.4 * spread + repeats).tolist())
    ends[pca.IMPLICIT] = (36.0 + implicit * spread + repeats).tolist()
    ends["incremental_pca"] = [[36.0, 37.0]]
    (claim,) = claims_about(table_1(mnist, **ends), "largest less smallest")
    assert claim.holds is holds
    assert claim.found.startswith(f"{implicit:.3f}; Oja 0.400, Krasulina 0.400")


@pytest.mark.parametrize(
    ("ends", "holds"),
    [
        ([[36.0, 36.1], [35.0, 35.1], [35.3, 35.4]], True),
        ([[36.0, 36.1], [35.0, 35.1], [34.0, 34.1]], False),
        ([[36.0, 36.1], [35.0, 35.1], [35.0, 35.2]], None),
    ],
)
def test_a_rule_deteriorates_where_it_is_worse_at_either_scale(mnist, ends, holds):
    (claim,) = claims_about(table_1(mnist, oja=ends), "Sensitivity", "Oja")
    assert claim.holds is holds


DISTRIBUTED = dataclasses.replace(distributed_pca.PRESETS["paper"], components=(5,), repeats=2)


def shared_out(problem, contender, combined, workers, single=4.0, k=5, seen=1000):
    """A rule of the workers' experiment whose two runs end so, after two combinations."""

    def ending(losses, *shape, before=6.0):
        final = np.broadcast_to(np.asarray(losses, np.float64), shape)
        return np.stack([np.full(shape, 0.5), np.full(shape, before), final]).tolist()

    part = {"workers": ending(workers, 2, 2, before=7.0), "combined": ending(combined, 2)}
    return result_of(problem, contender, k, seen, **part, single=ending(single, 2))


@pytest.mark.parametrize(
    ("combined", "holds", "below"),
    [
        ([3.0, 3.01], True, 2),
        # The caption says nothing of the workers' mean.
        ([5.0, 5.01], True, 1),
        ([6.5, 6.51], False, 1),
        ([2.5, 6.2], None, 1),
        ([3.0, math.nan], None, 1),
    ],
)
def test_combining_improves_where_the_loss_falls_with_every_combination(
    mnist, combined, holds, below
):
    result = shared_out(mnist, IMPLICIT, combined, [[3, 5], [2, 6]])
    (claim,) = claims_about(distributed_pca.judge(DISTRIBUTED, [result]), "the combined model")
    assert claim.holds is holds
    assert f"at the last) at {below} of 2" in claim.found
    sooner = shared_out(mnist, IMPLICIT, combined, [[3, 5], [2, 6]], seen=815)
    (claim,) = claims_about(distributed_pca.judge(DISTRIBUTED, [sooner]), "the combined model")
    assert claim.holds is None


@pytest.mark.parametrize(
    ("single", "combined", "holds"),
    [([35.17, 35.19], 35.18, True), ([35.17, 35.19], 35.20, False), (37.17, 35.17, False)],
)
def test_table_2_is_judged_by_the_single_models_loss_of_table_1(mnist, single, combined, holds):
    result = shared_out(mnist, IMPLICIT, combined, 36.0, single)
    other = shared_out(mnist, distributed_pca.OURS[-1], 30.0, 30.0)
    assert other.contender.rule == pca.IMPLICIT
    claims = distributed_pca.judge(DISTRIBUTED, [result, other])
    (claim,) = claims_about(claims, "single and combined")
    assert claim.holds is holds
    assert "a misprint: 35.17 ± 0.01 in Table 1" in claim.stated


@pytest.mark.parametrize(("implicit", "holds"), [(2.5, True), (2.9, False), (2.7, None)])
def test_implicit_krasulina_is_judged_against_the_papers_way_to_combine(mnist, implicit, holds):
    *_, claim = distributed_pca.judge(
        DISTRIBUTED,
        [
            shared_out(mnist, OJA, 2.7, 3.0),
            shared_out(mnist, dataclasses.replace(OJA, variant="nearest subspace"), 2.0, 3.0),
            shared_out(mnist, IMPLICIT, implicit, 2.0),
            shared_out(mnist, INCREMENTAL, 2.8, 1.0),
        ],
    )
    assert claim.holds is holds
    assert claim.found == f"{implicit:.4f}; Oja 2.7000, incremental PCA 2.8000"


def test_a_workers_line_starts_from_the_combined_model_and_breaks_after_it():
    x, heights = distributed_pca.sawteeth(
        np.asarray([10, 20, 30]),
        np.asarray([3.0, 2.0, 1.0]),
        np.asarray([[9.0, 9.0], [2.5, 2.6], [1.5, 1.6]]),
    )
    np.testing.assert_array_equal(x, [10, 20, 20, 20, 30, 30])
    np.testing.assert_array_equal(heights[0], [3.0, 2.5, np.nan, 2.0, 1.5, np.nan])


ONLINE = dataclasses.replace(online_pca.PRESETS["paper"], components=(4, 10))
LOSSES = {
    pca.SANGER: (9.0, 9.5, 10.0),
    "krasulina": (5.0, 5.1, 5.2),
    "oja": (3.0, 3.1, 3.2),
    "incremental_pca": (3.5, 3.6, 3.4),
}


def figure_1(problem, ours, **changed):
    """Results of three repeats whose last losses are given, for one k."""
    losses = {pca.IMPLICIT: ours, **LOSSES, **changed}
    return [
        result_of(problem, contender, 4, losses=[[50.0, end] for end in losses[contender.rule]])
        for contender in ONLINE.contenders
    ]


def times(mine=(4.5e-6, 4e-6), oja=(6e-6, 7e-6), k=4):
    others = {"krasulina": [7e-6, 8e-6], "incremental_pca": [1e-4, 1.2e-4], pca.SANGER: [4e-6] * 2}
    return {k: {pca.IMPLICIT: list(mine), "oja": list(oja), **others}}


@pytest.mark.parametrize(
    ("ours", "holds"),
    [((1.0, 1.1, 1.2), True), ((6.0, 6.1, 6.2), False), ((3.05, 3.15, 3.3), None)],
)
def test_the_least_excess_after_one_pass_is_decided_in_pairs(mnist, ours, holds):
    all_times = {**times(), 10: {}}
    excess, _ = online_pca.compare_with_paper(ONLINE, figure_1(mnist, ours), all_times)
    assert excess.holds is holds
    # Incremental PCA takes part.
    best = figure_1(mnist, ours, incremental_pca=(0.1, 0.2, 0.3))
    assert online_pca.compare_with_paper(ONLINE, best, all_times)[0].holds is False
    other = dataclasses.replace(ONLINE, contenders=ONLINE.contenders[:-2])
    assert online_pca.compare_with_paper(other, figure_1(mnist, ours), all_times)[0].holds is None


LESS, MORE, OVERLAPPING = (6e-6, 7e-6), (2e-6, 3e-6), (4.2e-6, 5e-6)


@pytest.mark.parametrize(
    ("oja", "krasulina", "holds", "counts"),
    [
        (LESS, LESS, True, "less in 3 of 3 cases, more in 0."),
        (MORE, LESS, True, "less in 2 of 3 cases, more in 1."),
        (MORE, MORE, False, "less in 1 of 3 cases, more in 2."),
        (OVERLAPPING, MORE, None, "less in 1 of 3 cases, more in 1."),
        (OVERLAPPING, OVERLAPPING, None, "less in 1 of 3 cases, more in 0."),
    ],
)
def test_times_are_less_in_most_cases_where_trials_do_not_overlap(
    mnist, oja, krasulina, holds, counts
):
    results = figure_1(mnist, (1.0, 1.1, 1.2))
    measured = times(oja=oja)
    measured[4]["krasulina"] = list(krasulina)
    _, seconds = online_pca.compare_with_paper(ONLINE, results, {**measured, 10: {}})
    assert seconds.holds is holds
    assert seconds.found.startswith(counts)


def test_half_of_the_cases_are_not_most():
    assert online_pca.most_hold([True, True, False, False]) is False
    assert online_pca.most_hold([True, True, False, None]) is None


def test_nothing_that_the_paper_states_is_decided_on_other_data(mnist):
    for name in ("cifar-10-subset (40 images)", "digits (40 images)"):
        other = mnist._replace(name=name, is_mnist=False)
        both = {**times(), **times(k=10)}
        claims = online_pca.compare_with_paper(ONLINE, figure_1(other, (1.0, 1.1, 1.2)), both)
        workers = [shared_out(other, each, 3.0, [[3.5]]) for each in (IMPLICIT, OJA)]
        claims += table_1(other) + distributed_pca.judge(DISTRIBUTED, workers)
        assert len(claims) >= 9
        assert {each.holds for each in claims} == {None}


@pytest.mark.parametrize(("mine", "holds"), [(2e-6, True), (1e-5, False), (4.2e-6, None)])
def test_the_advantage_in_time_grows_where_no_trials_overlap(mnist, mine, holds):
    results = figure_1(mnist, (1.0, 1.1, 1.2))
    both = {**times(), **times(mine=(mine, mine), k=10)}
    *_, trend = online_pca.compare_with_paper(ONLINE, results, both)
    assert trend.holds is holds


def test_points_are_five_thousand_rows_apart_or_a_tenth_of_all():
    config = online_pca.PRESETS["paper"]
    assert [config.interval(OJA, count) for count in (70_000, 8152)] == [5000, 815]
    batches = dataclasses.replace(OJA, rows_per_update=256)
    assert [config.interval(batches, count) for count in (70_000, 8152, 300)] == [4864, 768, 256]


OF_RULES = {
    "rule": pca.PAPER_RULES,
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


def protocol(others, open_fields, start, ours=0):
    """Fields of a paper preset: the paper's values, and those on which it is silent."""
    paper = {"tuning_fraction": 0.1, "repeats": 10, **others}
    sanger = {**OF_SANGER, "initial_scale": start}
    paper |= {f"contenders.3.{field}": value for field, value in sanger.items()}
    paper["contenders.2.learning_rates"] = []
    paper["contenders.4.initial_scale"] = start
    for field, values in OF_RULES.items():
        paper |= {f"contenders.{place}.{field}": value for place, value in enumerate(values)}
    silent = {"seed", *open_fields}
    grids = ("learning_rates", "initial_scale", "double")
    silent |= {f"contenders.{place}.{field}" for place in range(5) for field in grids} - set(paper)
    # Contenders of ours follow the paper's.
    added = (*OF_RULES, *grids, *(["mean_qr"] if "workers" in others else []))
    silent |= {f"contenders.{5 + place}.{field}" for place in range(ours) for field in added}
    return paper, silent


def test_paper_presets_follow_the_paper(check_protocol):
    scales = {"components": [5, 10, 20], "scales": [0.1, 1.0, 10.0]}
    check_protocol("learning-rate-sensitivity", *protocol(scales, {"evaluations"}, 1e-5, ours=1))
    figure = {"components": [5, 10, 20, 50], "evaluate_every": 5000}
    check_protocol("online-pca", *protocol(figure, {"shown", "shown_components"}, 1e-4))
    workers = {"components": [5, 20], "workers": 10, "combine_every": 1000}
    for place, mean_qr in enumerate((True, True, True, False, False)):
        workers[f"contenders.{place}.mean_qr"] = mean_qr
    check_protocol("distributed-pca", *protocol(workers, set(), 1e-4, ours=4))


@pytest.mark.experiments
@pytest.mark.parametrize(
    ("name", "tables", "figures"),
    [
        ("learning-rate-sensitivity", ["table_1", "tuning"], ["curves", "scales"]),
        ("distributed-pca", ["table_2"], ["workers"]),
        (
            "online-pca",
            ["final_excess"],
            ["excess_by_rows", "excess_by_seconds", "batches_by_rows", "components"],
        ),
    ],
)
def test_smoke_presets_leave_tables_figures_and_claims(name, tables, figures, tmp_path):
    rows = load_digits().images[:400]
    np.save(tmp_path / "rows.npy", rows)
    experiment = EXPERIMENTS[name].load()
    out = tmp_path / "run"
    run = {"data": tmp_path / "rows.npy", "progress": False}
    summary = experiment.run(experiment.presets["smoke"], out, **run)
    assert summary["claims"]
    for each in [*tables, *figures]:
        with (out / "results" / f"{each}.csv").open(newline="") as file:
            assert list(csv.DictReader(file))
    for each in figures:
        assert (out / "figures" / f"{each}.png").stat().st_size > 10_000
    exact = {int(k): loss for k, loss in summary["exact"].items()}
    centred = rows.reshape(400, -1) - rows.reshape(400, -1).mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False) ** 2 / 400
    for k, loss in exact.items():
        assert loss == pytest.approx(values[k:].sum(), rel=1e-5)
    # A resumed run measures only what is missing, and a finished one nothing.
    parts = sorted((out / "parts").iterdir())
    kept = {part: part.read_bytes() for part in parts[1:]}
    (out / "summary.json").unlink()
    parts[0].unlink()
    again = experiment.run(experiment.presets["smoke"], out, **run)
    assert all(part.read_bytes() == content for part, content in kept.items())
    assert json.loads(parts[0].read_text())
    assert [claim["statement"] for claim in again["claims"]] == [
        claim["statement"] for claim in summary["claims"]
    ]
    assert experiment.run(experiment.presets["smoke"], out, **run) == again


def few(module, **changes):
    """Check a smoke preset, changed, against 410 rows."""
    config = dataclasses.replace(module.PRESETS["smoke"], **changes)
    module.EXPERIMENT.check(config, Observations("few", DIGITS[:410], None))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: problem_of(DIGITS, 65), r"k in \[1, 64\] for the 600 rows"),
        (lambda: problem_of(DIGITS[:5], 6), r"k in \[1, 5\] for the 5 rows"),
        (lambda: problem_of(np.eye(3, dtype=np.float32), 2), "that vary beyond their top 2"),
        (lambda: few(distributed_pca, workers=411), "a row for each of 411 workers"),
        (lambda: few(sensitivity, evaluations=500), "a row for each of 500 evaluations"),
        (lambda: few(online_pca, tuning_fraction=0.001), "at least 1 rows, an update of implicit"),
        (lambda: sensitivity.Config(scales=(0.1, 10.0)), "1 among the scales"),
        (lambda: pca.Contender(rule="oja", powers=()), "expected powers to choose from for oja"),
        (lambda: pca.Contender(rule="incremental_pca"), "no powers to choose from"),
        (lambda: pca.Contender(rule="oja", learning_rates=(0.0,)), r"learning_rates in \(0, inf\)"),
        (lambda: pca.Contender(rule="oja", learning_rates=(1.0, 1.0)), "different learning_rates"),
        (lambda: pca.Contender(rule="oja", initial_scale=1e-5), "initial_scale for rules on a fac"),
        (lambda: pca.Contender(rule="oja", rows_per_update=0), "rows_per_update >= 1, got 0"),
        (lambda: pca.Contender(rule="adam"), "expected rule to be one of"),
        (lambda: PcaConfig(contenders=(OJA, OJA)), "different contenders"),
        (lambda: distributed_pca.Config(workers=1), "workers >= 2, got 1"),
        (lambda: distributed_pca.Config(components=(5, 5)), "different components"),
        (lambda: pca.Contender(rule="oja", powers=(-0.5,)), r"powers in \[0, inf\)"),
    ],
)
def test_what_makes_no_experiment_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
