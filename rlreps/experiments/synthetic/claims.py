"""What the paper states of its synthetic experiments, beside what a run shows.

A verdict rests on the intervals of means over runs: where two overlap, it cannot be told.
"""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from rlreps.experiments.method_names import method_name
from rlreps.experiments.results import Claim
from rlreps.experiments.synthetic.config import Setting, SpectrumName, SyntheticConfig
from rlreps.experiments.synthetic.figures import Results
from rlreps.statistics import aggregate


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
    return claims


class _End(NamedTuple):
    """A mean distance over runs, with its interval."""

    mean: float
    low: float
    high: float

    def below(self, other: "_End") -> bool | None:
        """Whether this distance is the smaller one; None where the intervals overlap."""
        if self.high < other.low:
            return True
        return False if self.low > other.high else None


def _measured(setting: Setting, results: Results, point: int = -1) -> _End:
    found = aggregate(results[setting].distances[:, point])
    return _End(found["mean"], found["mean_low"], found["mean_high"])


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether all hold: False if one does not, else None if one cannot be told."""
    known = set(verdicts)
    return False if False in known else None if None in known else True


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
        holds=_all(end.below(start) for start, end in ends.values()),
    )


def _claim_rows(config: SyntheticConfig, results: Results, spectrum: SpectrumName) -> Claim:
    panel = config.panel_rows(spectrum)
    ends = [_measured(setting, results) for setting in panel.values()]
    return Claim(
        statement=f"(b) {spectrum}: rows an update, J = M = N = 1 included",
        paper="it learns from very few rows, and faster from more",
        found="; ".join(
            f"{total} rows: {end.mean:.3f}" for total, end in zip(panel, ends, strict=True)
        ),
        holds=_all(more.below(fewer) for fewer, more in itertools.pairwise(ends)),
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
        holds=_all(
            nearer.below(farther)
            for pair in ((oracle, lissa), *((lissa, other) for other in others))
            for nearer, farther in zip(*pair, strict=True)
        ),
    )


def _claim_kappa(config: SyntheticConfig, results: Results, spectrum: SpectrumName) -> Claim:
    last_below = max(kappa for kappa in config.kappa_values if kappa < 2.0)
    beyond = max(config.kappa_values)
    ends = {
        d: [_measured(by_kappa[kappa], results) for kappa in (last_below, beyond)]
        for d, by_kappa in config.panel_kappa(spectrum).items()
    }
    return Claim(
        statement=f"(d) {spectrum}: κ0 = {beyond:g} against {last_below:g}",
        paper="the series converges for κ0 < 2 and diverges beyond",
        found="; ".join(
            f"d = {d}: {below.mean:.3f} at {last_below:g}, {above.mean:.3f} at {beyond:g}"
            for d, (below, above) in ends.items()
        ),
        holds=_all(below.below(above) for below, above in ends.values()),
    )
