"""What the paper states of its four rules, beside what a run found."""

from collections.abc import Mapping, Sequence

from rlreps.experiments.amid_warmuth_2020.online_pca.config import PAPER_RULES, OnlinePcaConfig
from rlreps.experiments.amid_warmuth_2020.online_pca.curves import ExcessCurve
from rlreps.experiments.amid_warmuth_2020.online_pca.timing import WITH_QR, papers_rules
from rlreps.experiments.amid_warmuth_2020.pca_claims import Entry, least_claim
from rlreps.experiments.results import Claim
from rlreps.streaming import RULES

_CLOSED_FORMS = ("oja", "krasulina")

Times = Mapping[str, Sequence[float]]
"""Rule, or ``WITH_QR``, → seconds a row in each trial, as ``timing.seconds_per_row`` took them."""


def compare_with_paper(
    config: OnlinePcaConfig, curves: Sequence[ExcessCurve], times: Mapping[int, Times]
) -> list[Claim]:
    """Two claims for each k: implicit Krasulina's excess after one pass, and its time a row.

    Args:
        config: The experiment.
        curves: For every contender and k; of the paper's rules, those with one row an update.
        times: Of one update each, by k.

    Returns:
        The claims; one that a preset has not all rules for cannot be told, and without implicit
        Krasulina there is none.
    """
    claims = []
    for k in config.components:
        found = papers_rules(curves, k)
        ours = found.pop(PAPER_RULES[0], None)
        if ours is not None:
            claims += [_excess(config, ours, list(found.values())), _time(ours, times[k])]
    return claims


def _excess(config: OnlinePcaConfig, ours: ExcessCurve, others: Sequence[ExcessCurve]) -> Claim:
    def entry(curve: ExcessCurve) -> Entry:
        excess = curve.after_pass(curve.excess, config.passes).mean()
        return Entry(curve.label, curve.after_pass(curve.losses, config.passes), f"{excess:.3g} %")

    return least_claim(
        f"k = {ours.k}: implicit Krasulina's excess loss after one pass",
        "the least of the four rules",
        entry(ours),
        [entry(each) for each in others],
        complete=len(others) == len(PAPER_RULES) - 1,
    )


def _time(ours: ExcessCurve, times: Times) -> Claim:
    """Trials have to be apart; a run that diverged spent its time on numbers that are not."""
    mine, with_qr = times[PAPER_RULES[0]], times[WITH_QR]
    closed = ", ".join(
        f"{RULES[rule].title}'s {min(times[rule]) / min(mine):.2g}"
        for rule in _CLOSED_FORMS
        if rule in times
    )
    apart = max(mine) < min(with_qr) or max(with_qr) < min(mine)
    return Claim(
        statement=f"k = {ours.k}: implicit Krasulina's time for a row",
        paper="less than with a QR decomposition for every row, as Oja's and Krasulina's",
        found=f"{1e6 * min(mine):.3g} µs; with QR {min(with_qr) / min(mine):.2g} times as much"
        + (f"; closed forms of the same, {closed} times" if closed else ""),
        holds=min(mine) < min(with_qr) if apart and not ours.diverged else None,
    )
