"""What the paper states of its synthetic experiments, beside what a run shows.

A verdict rests on the intervals of means over runs: where two overlap, it cannot be told. Nor can
it before the paper's number of updates has been made: a shorter run shows methods on their way.
"""

import dataclasses
import itertools

from rlreps.experiments.le_lan_2023.synthetic.config import (
    PRESETS,
    Setting,
    SpectrumName,
    SyntheticConfig,
)
from rlreps.experiments.le_lan_2023.synthetic.figures import Results
from rlreps.experiments.results import Claim, MeanDistance, all_hold, mean_distance
from rlreps.report.method_names import method_name


def compare_with_paper(config: SyntheticConfig, results: Results) -> list[Claim]:
    """What the paper states of its synthetic experiments, beside what these runs show."""
    claims = []
    for spectrum in config.spectra:
        claims += [
            _claim_learning(config, results, spectrum),
            _claim_rows(config, results, spectrum),
            _claim_methods(config, results, spectrum),
            _claim_kappa(config, results, spectrum),
        ]
    if config.steps >= PRESETS["paper"].steps:
        return claims
    return [dataclasses.replace(claim, holds=None) for claim in claims]


def _measured(setting: Setting, results: Results, point: int = -1) -> MeanDistance:
    return mean_distance(results[setting].distances[:, point])


def _claim_learning(config: SyntheticConfig, results: Results, spectrum: SpectrumName) -> Claim:
    ends = {
        d: (_measured(setting, results, 0), _measured(setting, results))
        for d, setting in config.panel_dimensions(spectrum).items()
    }
    return Claim(
        statement=f"(a) {spectrum}: learning at every d",
        paper="Danskin-LISSA approaches the principal subspace for every d",
        found="; ".join(
            f"d = {d}: {start.mean:.2f} to {end.mean:.3f}" for d, (start, end) in ends.items()
        ),
        holds=all_hold(end.below(start) for start, end in ends.values()),
    )


def _claim_rows(config: SyntheticConfig, results: Results, spectrum: SpectrumName) -> Claim:
    panel = config.panel_rows(spectrum)
    starts = [_measured(setting, results, 0) for setting in panel.values()]
    ends = [_measured(setting, results) for setting in panel.values()]
    learned = [end.below(start) for start, end in zip(starts, ends, strict=True)]
    faster = [more.below(fewer) for fewer, more in itertools.pairwise(ends)]
    return Claim(
        statement=f"(b) {spectrum}: rows an update, J = M = N = 1 included",
        paper="it learns from very few rows, and faster from more",
        found="; ".join(
            f"{total} rows: {start.mean:.2f} to {end.mean:.3f}"
            for total, start, end in zip(panel, starts, ends, strict=True)
        ),
        holds=all_hold([*learned, *faster]),
    )


def _claim_methods(config: SyntheticConfig, results: Results, spectrum: SpectrumName) -> Claim:
    ends = {
        method: [_measured(setting, results) for setting in by_total.values()]
        for method, by_total in config.panel_methods(spectrum).items()
    }
    order = ("oracle", "danskin_lissa", "danskin_empirical", "naive")
    oracle, lissa, *others = (ends[name] for name in order)
    return Claim(
        statement=f"(c) {spectrum}: methods at equal rows",
        paper="Danskin-LISSA ends closest of the sampled methods, above the oracle",
        found="; ".join(
            f"{method_name(method)} {', '.join(f'{end.mean:.3f}' for end in by_total)}"
            for method, by_total in ends.items()
        )
        + f" at {', '.join(map(str, config.totals))} rows",
        holds=all_hold(
            nearer.below(farther)
            for pair in ((oracle, lissa), *((lissa, other) for other in others))
            for nearer, farther in zip(*pair, strict=True)
        ),
    )


def _claim_kappa(config: SyntheticConfig, results: Results, spectrum: SpectrumName) -> Claim:
    """The largest κ0 below 2 against the largest of all, at every d."""
    last_below = max(kappa for kappa in config.kappa_values if kappa < 2.0)
    beyond = max(config.kappa_values)
    found, verdicts = [], []
    for d, by_kappa in config.panel_kappa(spectrum).items():
        start = _measured(by_kappa[last_below], results, 0)
        converging, diverging = (
            _measured(by_kappa[kappa], results) for kappa in (last_below, beyond)
        )
        infinite = [int(results[by_kappa[kappa]].diverged.sum()) for kappa in (last_below, beyond)]
        found.append(
            f"d = {d}: {start.mean:.2f} to {converging.mean:.3f} at {last_below:g}, "
            f"{diverging.mean:.3f} at {beyond:g} ({infinite[0]} and {infinite[1]} runs infinite)"
        )
        verdicts += [converging.below(start), converging.below(diverging)]
    return Claim(
        statement=f"(d) {spectrum}: κ0 = {beyond:g} against {last_below:g}",
        paper="features approach the subspace where the series converges (κ0 < 2), and end "
        "farther from it where the series diverges",
        found="; ".join(found),
        holds=all_hold(verdicts),
    )
