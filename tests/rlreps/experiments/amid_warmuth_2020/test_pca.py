"""Experiments on streaming PCA: exact losses, the choice of η0, verdicts, and their smoke runs."""

import csv
import dataclasses
import json
import math

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
from rlreps.experiments.amid_warmuth_2020.pca import Entry, PcaConfig, is_less, least_claim
from rlreps.sources.datasets import Observations

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


def known_best(problem, best):
    """A rule whose components are the worse, the further the learning rate is from the best."""
    exact = jnp.asarray(problem.basis[:, :3], jnp.float32)
    others = jnp.asarray(problem.basis[:, 3:6], jnp.float32)

    class KnownBest:
        def __init__(self, rate):
            self.rate = rate

        def init(self, key):
            return jnp.zeros((), jnp.int32)

        def update(self, step, batch):
            return step + 1

        update_each = update

        def components(self, step):
            turn = jnp.abs(jnp.log(self.rate / best)) / 10.0
            found = jnp.cos(turn) * exact + jnp.sin(turn) * others
            return jnp.where((self.rate < 1e6) & (step > 0), found, jnp.nan)

    return KnownBest


def test_the_rate_of_least_loss_on_the_part_is_chosen(digits, monkeypatch):
    streamed = []
    real = pca.run_passes
    monkeypatch.setattr(pca, "run_passes", lambda *a, **o: streamed.append((a, o)) or real(*a, **o))
    config = PcaConfig(components=(3,), tuning_fraction=0.25, seed=3)
    rates = (0.1, 100.0, 1e7)
    found = pca.choose_rate(
        config, "oja", known_best(digits, 100.0), digits, rates, rows_per_update=50
    )
    assert found["learning_rate"] == 100.0
    assert np.isnan(found["tuning_losses"]).tolist() == [False, False, True]
    ((_, part, runs), options) = streamed[0]
    assert len({row.tobytes() for row in part}) == len(part) == 150
    assert (list(runs.seeds), options["rows_per_update"]) == ([3, 3, 3], 50)
    span = digits.basis[:, :3]
    residuals = part - part @ span @ span.T
    expected = np.mean(np.sum(residuals**2, axis=1))
    assert found["tuning_losses"][1] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(pca.RatesDivergedError, match="not to diverge on rows, got NaN for all"):
        pca.choose_rate(config, "oja", known_best(digits, 1.0), digits, (1e6, 1e7))
    untuned = pca.choose_rate(config, "incremental_pca", None, digits, ())
    assert (untuned["learning_rate"], pca.rate_to_run(untuned)) == (None, 1.0)


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
    entries = [Entry(f"{index}", np.asarray(each), "text") for index, each in enumerate(others)]
    ours = Entry("ours", np.asarray([2.0, 2.1]), "mine")
    assert least_claim("what", "stated", ours, entries, complete=complete).holds is holds


def scaled(problem, rule, losses, *, seen=40, k=5):
    """A rule of the sensitivity experiment whose runs [scales, repeats] end with these losses."""
    final = np.asarray(losses, np.float64)
    return sensitivity.RuleResult(
        problem=problem,
        rule=rule,
        k=k,
        learning_rate=2.0,
        tuning_losses=[3.0],
        rows_seen=np.asarray([0, seen]),
        losses=np.stack([np.full_like(final, 9.0), final]),
        seconds=1.0,
    )


@pytest.fixture(scope="module")
def mnist():
    rows = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    return problem_of(rows, 5, "MNIST (70,000 images)")


PUBLISHED = sensitivity.Config(components=(5,), repeats=2)


@pytest.mark.parametrize(
    ("config", "seen", "name", "verdicts"),
    [
        (PUBLISHED, 40, None, [True, False, False]),
        (PUBLISHED, 39, None, [None, None, None]),
        (dataclasses.replace(PUBLISHED, powers=(0.9,) * 4), 40, None, [None, None, None]),
        (PUBLISHED, 40, "cifar (1,000 images)", []),
    ],
)
def test_printed_losses_hold_within_two_hundredths(mnist, config, seen, name, verdicts):
    problem = mnist if name is None else mnist._replace(name=name)
    ends = [[35.16, 35.20], [35.18, 35.22], [35.14, 35.14]]
    results = [scaled(problem, rule, np.full((3, 2), 36.0)) for rule in config.rules[:-1]]
    results.append(scaled(problem, "implicit_krasulina", ends, seen=seen))
    claims = sensitivity.compare_with_paper(config, results)
    assert [claim.holds for claim in claims if claim.stated == "35.17"] == verdicts


@pytest.mark.parametrize(("implicit", "holds"), [(0.1, True), (0.5, False)])
def test_the_least_spread_over_scales_is_that_of_means_over_repeats(mnist, implicit, holds):
    spread, repeats = np.asarray([0.0, 1.0, 0.4])[:, None], np.asarray([-1.0, 1.0])
    results = [
        scaled(mnist, "oja", 36.0 + 0.4 * spread + repeats),
        scaled(mnist, "implicit_krasulina", 36.0 + implicit * spread + repeats),
    ]
    claims = sensitivity.compare_with_paper(PUBLISHED, results)
    (claim,) = (claim for claim in claims if "least of all" in str(claim.stated))
    assert claim.holds is holds
    assert claim.found == f"{implicit:.3f}; Oja 0.400"
    assert results[0].worse_scale(PUBLISHED) == 2


def shared_out(problem, rule, *, combined, workers, k=3):
    """A rule of the workers' experiment whose two runs end so."""

    def ending(losses, *shape):
        final = np.broadcast_to(np.asarray(losses, np.float64), shape)
        return np.stack([np.full(shape, 0.5), final])

    return distributed_pca.RuleResult(
        problem=problem,
        rule=rule,
        k=k,
        learning_rate=1.0,
        tuning_losses=[],
        rows_seen=np.asarray([0, 20]),
        workers=ending(workers, 2, 2),
        combined=ending(combined, 2),
        single=ending(4.0, 2),
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("combined", "holds"),
    [([3.0, 3.01], True), ([5.0, 5.01], False), ([2.5, 3.5], None), ([3.0, math.nan], None)],
)
def test_combining_is_judged_against_the_mean_worker_of_all_runs(mnist, combined, holds):
    result = shared_out(mnist, "oja", combined=combined, workers=[[3, 5], [2, 6]])
    (claim,) = distributed_pca.judge([result])
    assert claim.holds is holds


@pytest.mark.parametrize(("implicit", "holds"), [(2.5, True), (2.9, False), (2.7, None)])
def test_implicit_krasulina_is_judged_against_the_best_of_the_others(mnist, implicit, holds):
    *_, claim = distributed_pca.judge(
        [
            shared_out(mnist, "oja", combined=2.7, workers=3.0),
            shared_out(mnist, "implicit_krasulina", combined=implicit, workers=2.0),
            shared_out(mnist, "incremental_pca", combined=2.8, workers=1.0),
        ]
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


ONLINE = online_pca.Config(
    contenders=tuple(online_pca.Contender(rule=rule) for rule in online_pca.PAPER_RULES),
    components=(4,),
    shown_components=4,
    passes=2,
)


def curve(rule, first_pass, rows=1):
    """Three repeats whose excess after the first of two passes is given."""
    excess = np.asarray([[50.0, 20.0, value, 1e-3, 1e-3] for value in first_pass])
    seen = np.arange(5) * 1000
    contender = online_pca.Contender(rule=rule, rows_per_update=rows)
    times = np.tile(seen * 1e-6, (3, 1))
    return online_pca.Curve(
        contender, 4, 1.0, False, seen, times, 1.0 + excess / 100.0, excess, None
    )


def curves(ours):
    return [
        curve("implicit_krasulina", ours),
        curve("explicit_krasulina", (9.0, 9.5, 10.0)),
        curve("krasulina", (5.0, 5.1, 5.2)),
        curve("oja", (3.0, 3.1, 3.2)),
        curve("oja", (1e-9,) * 3, rows=100),
    ]


def times(qr=(1e-4, 1.2e-4)):
    return {4: {"qr": qr, "implicit_krasulina": [4.5e-6, 4e-6], "oja": [6e-6, 7e-6]}}


@pytest.mark.parametrize(
    ("ours", "holds"),
    [((1.0, 1.1, 1.2), True), ((6.0, 6.1, 6.2), False), ((3.05, 3.15, 3.3), None)],
)
def test_the_least_excess_after_the_first_pass_is_decided_in_pairs(ours, holds):
    excess, _ = online_pca.compare_with_paper(ONLINE, curves(ours), times())
    assert excess.holds is holds
    three = [each for each in curves(ours) if each.contender.rule != "krasulina"]
    assert online_pca.compare_with_paper(ONLINE, three, times())[0].holds is None
    assert online_pca.compare_with_paper(ONLINE, curves(ours)[1:], times()) == []


@pytest.mark.parametrize(
    ("qr", "holds"),
    [((1e-4, 1.2e-4), True), ((2e-6, 3e-6), False), ((4.2e-6, 5e-6), None)],
)
def test_times_are_decided_where_trials_do_not_overlap(qr, holds):
    _, seconds = online_pca.compare_with_paper(ONLINE, curves((1.0, 1.1, 1.2)), times(qr))
    assert seconds.holds is holds
    # Each pass ends in whole updates.
    contender = online_pca.Contender(rule="oja", rows_per_update=20)
    config = dataclasses.replace(ONLINE, evaluations=10)
    assert config.interval(contender, 1999) == 20 * math.ceil(99 / 10)


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
    module.check(config, Observations("few", DIGITS[:410], None))


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
        (lambda: sensitivity.Config(powers=(0.9,)), "a power for each of the 4 rules"),
        (lambda: sensitivity.Config(learning_rates=(0.0,)), r"learning_rates in \(0, inf\), got 0"),
        (lambda: sensitivity.Config(rules=("adam",)), "expected rules to be one of"),
        (lambda: distributed_pca.Config(workers=1), "workers >= 2, got 1"),
        (lambda: distributed_pca.Config(components=(5, 5)), "different components"),
        (lambda: distributed_pca.Config(power=-0.5), r"power in \[0, inf\)"),
    ],
)
def test_what_makes_no_experiment_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
