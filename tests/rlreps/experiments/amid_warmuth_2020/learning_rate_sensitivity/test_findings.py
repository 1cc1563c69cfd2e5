import dataclasses
import math

import numpy as np
import pytest

from rlreps.experiments.amid_warmuth_2020.learning_rate_sensitivity.config import (
    LearningRateSensitivityConfig,
)
from rlreps.experiments.amid_warmuth_2020.learning_rate_sensitivity.findings import (
    RuleResult,
    compare_with_paper,
)
from rlreps.experiments.amid_warmuth_2020.learning_rate_sensitivity.report import loss_table
from rlreps.experiments.amid_warmuth_2020.pca_problem import make_pca_problem
from rlreps.sources.datasets import Observations

CONFIG = LearningRateSensitivityConfig(
    rules=("oja", "implicit_krasulina"), powers=(0.9, 0.8), components=(5,), repeats=2
)
PUBLISHED = LearningRateSensitivityConfig(components=(5,), repeats=2)


@pytest.fixture(scope="module")
def problem():
    rows = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    return make_pca_problem(Observations("MNIST (70,000 images)", rows, None), 5)


def result(rule, losses, *, seen=40, k=5):
    """A rule whose runs [scales, repeats] end with these losses."""
    final = np.asarray(losses, np.float64)
    return RuleResult(
        rule=rule,
        k=k,
        learning_rate=2.0,
        tuning_losses=[3.0],
        rows_seen=np.asarray([0, seen]),
        losses=np.stack([np.full_like(final, 9.0), final]),
        seconds=1.0,
    )


def printed_claims(config, problem, losses, **options):
    results = [result(rule, np.full((3, 2), 36.0)) for rule in config.rules[:-1]]
    found = compare_with_paper(
        config, problem, [*results, result("implicit_krasulina", losses, **options)]
    )
    return [claim for claim in found if claim.paper == "35.17"]


def test_printed_losses_hold_within_two_hundredths_at_each_scale(problem):
    claims = printed_claims(PUBLISHED, problem, [[35.16, 35.20], [35.18, 35.22], [35.14, 35.14]])
    assert [claim.holds for claim in claims] == [True, False, False]
    assert [claim.statement.split(": ")[0].split(", ")[-1] for claim in claims] == [
        "0.1 η0",
        "1 η0",
        "10 η0",
    ]
    assert "35.180 ± 0.028" in claims[0].found


def test_printed_losses_are_not_judged_by_another_protocol_or_part_of_the_rows(problem):
    losses = np.full((3, 2), 35.17)
    assert [claim.holds for claim in printed_claims(CONFIG, problem, losses)] == [None] * 3
    part = printed_claims(PUBLISHED, problem, losses, seen=39)
    assert [claim.holds for claim in part] == [None] * 3


def test_printed_losses_are_told_of_mnist_alone(problem):
    other = problem._replace(name="cifar (1,000 images)")
    assert printed_claims(PUBLISHED, other, np.full((3, 2), 35.17)) == []
    claims = compare_with_paper(
        CONFIG, other, [result(rule, np.full((3, 2), 35.0)) for rule in CONFIG.rules]
    )
    assert not any("printed" in f"{claim.statement} {claim.paper}" for claim in claims)


def test_values_that_were_not_at_hand_are_said_to_be_so(problem):
    claims = compare_with_paper(
        CONFIG, problem, [result(rule, np.full((3, 2), 35.0)) for rule in CONFIG.rules]
    )
    (claim,) = (claim for claim in claims if "not at hand" in str(claim.paper))
    assert claim.statement.startswith("Oja")
    assert claim.holds is None


@pytest.mark.parametrize(("implicit", "holds"), [(0.1, True), (0.5, False)])
def test_the_least_spread_over_scales_is_that_of_means_over_repeats(problem, implicit, holds):
    # Repeats differ by far more than scales do.
    repeats = np.asarray([-1.0, 1.0])
    spread = np.asarray([0.0, 0.5, 0.2])[:, None]
    results = [
        result("oja", 36.0 + 0.4 * spread / 0.5 + repeats),
        result("implicit_krasulina", 36.0 + implicit * spread / 0.5 + repeats),
    ]
    claims = compare_with_paper(CONFIG, problem, results)
    (claim,) = (claim for claim in claims if "least of all" in str(claim.paper))
    assert claim.holds is holds
    assert claim.found == f"{implicit:.3f}; Oja 0.400"


def test_a_spread_that_is_less_by_noise_or_by_divergence_alone_is_not_told(problem):
    noise = np.random.default_rng(0).normal(size=(2, 3, 2))
    near = [result("oja", 36.0 + noise[0]), result("implicit_krasulina", 36.0 + noise[1])]
    lost = [near[0], result("implicit_krasulina", np.full((3, 2), math.nan))]
    assert lost[1].spread(problem) == 0.0
    for results in (near, lost):
        claims = compare_with_paper(CONFIG, problem, results)
        (claim,) = (claim for claim in claims if "our expectation" in str(claim.paper))
        assert claim.holds is None


def test_a_diverged_run_widens_the_spread(problem):
    losses = np.full((3, 2), 3.0)
    losses[2, 1] = math.nan
    diverged = result("oja", losses)
    variance = float(np.trace(problem.moments))
    assert diverged.spread(problem) == pytest.approx((variance - 3.0) / 2)
    assert [found.diverged for found in diverged.final(problem)] == [0, 0, 1]


def test_the_worse_scale_is_never_the_chosen_rate(problem):
    assert result("oja", [[3, 3], [9, 9], [4, 4]]).worse_scale(CONFIG, problem) == 2
    assert result("oja", [[5, 5], [9, 9], [4, 4]]).worse_scale(CONFIG, problem) == 0


def test_the_table_has_the_papers_layout(problem):
    config = dataclasses.replace(CONFIG, components=(5, 2))
    results = [
        result(rule, np.full((3, 2), 10.0 * index + k), k=k)
        for index, rule in enumerate(config.rules, start=1)
        for k in config.components
    ]
    table = loss_table(config, problem, results)
    assert [tuple(row[:2]) for row in table.rows] == [
        (k, scale) for k in (5, 2) for scale in ("0.1", "1", "10")
    ]
    assert table.header[2:] == ["exact", "Oja", "implicit Krasulina", "implicit Krasulina, printed"]
    assert table.rows[0][2:] == [
        f"{problem.variances[5:].sum():.3f}",
        "15.000 ± 0.000",
        "25.000 ± 0.000",
        "35.17",
    ]
    assert table.rows[3][3:] == ["12.000 ± 0.000", "22.000 ± 0.000", None]
    elsewhere = loss_table(config, problem._replace(name="elsewhere (40 rows)"), results)
    assert elsewhere.header[-1] == "implicit Krasulina"
