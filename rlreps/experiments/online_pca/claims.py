"""What the paper states of its four rules, beside what a run found."""

from collections.abc import Mapping, Sequence

from rlreps.experiments.online_pca.config import PAPER_RULES, OnlinePcaConfig
from rlreps.experiments.online_pca.curves import ExcessCurve
from rlreps.experiments.results import Claim, all_hold, mean_distance

_WITH_QR = ("oja", "krasulina")


def compare_with_paper(
    config: OnlinePcaConfig, curves: Sequence[ExcessCurve], qr_seconds: Mapping[int, float]
) -> list[Claim]:
    """Two claims for each k: implicit Krasulina's excess after one pass, and its time a row.

    Args:
        config: The experiment.
        curves: For every contender and k; of the paper's rules, those with one row an update.
        qr_seconds: Seconds of one update with a QR decomposition, by k.

    Returns:
        The claims; one that a preset has not all rules for cannot be told, and without implicit
        Krasulina there is none.
    """
    claims = []
    for k in config.components:
        found = {
            each.contender.rule: each
            for each in curves
            if each.k == k
            and each.contender.rule in PAPER_RULES
            and each.contender.rows_per_update == 1
        }
        ours = found.pop(PAPER_RULES[0], None)
        if ours is not None:
            claims += [_excess(config, ours, found), _time(ours, found, qr_seconds[k])]
    return claims


def _excess(config: OnlinePcaConfig, ours: ExcessCurve, others: Mapping[str, ExcessCurve]) -> Claim:
    mine = mean_distance(ours.excess_after_pass(config.passes))
    theirs = {
        each.label: mean_distance(each.excess_after_pass(config.passes)) for each in others.values()
    }
    listed = ", ".join(f"{label} {excess.mean:.3g} %" for label, excess in theirs.items())
    complete = len(others) == len(PAPER_RULES) - 1
    return Claim(
        statement=f"k = {ours.k}: implicit Krasulina's excess loss after one pass",
        paper="the least of the four rules",
        found=f"{mine.mean:.3g} %; {listed or 'no other of the four'}",
        holds=all_hold(mine.below(excess) for excess in theirs.values()) if complete else None,
    )


def _time(ours: ExcessCurve, others: Mapping[str, ExcessCurve], qr_seconds: float) -> Claim:
    mine = ours.seconds_per_row
    closed = ", ".join(
        f"{others[rule].label}'s {others[rule].seconds_per_row / mine:.2g}"
        for rule in _WITH_QR
        if rule in others
    )
    return Claim(
        statement=f"k = {ours.k}: implicit Krasulina's time for a row",
        paper="less than with a QR decomposition for every row, as Oja's and Krasulina's",
        found=f"{1e6 * mine:.3g} µs; with QR {qr_seconds / mine:.2g} times as much"
        + (f"; closed forms of the same, {closed} times" if closed else ""),
        holds=mine < qr_seconds,
    )
