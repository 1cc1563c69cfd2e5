"""What the paper states of its synthetic experiments, beside what a run shows."""

import itertools

import numpy as np

from rlreps.experiments.method_names import method_name
from rlreps.experiments.results import Claim
from rlreps.experiments.synthetic.config import Setting, SpectrumName, SyntheticConfig
from rlreps.experiments.synthetic.figures import Results


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


def _mean(setting: Setting, results: Results, point: int = -1) -> float:
    return float(np.mean(results[setting].distances[:, point]))


def _claim_learning(config: SyntheticConfig, results: Results, spectrum: SpectrumName) -> Claim:
    panel = config.panel_dimensions(spectrum)
    ends = {d: (_mean(each, results, 0), _mean(each, results)) for d, each in panel.items()}
    return Claim(
        statement=f"(a) {spectrum}: learning at every d",
        paper="Danskin-LISSA approaches the principal subspace for every d",
        found="; ".join(f"d = {d}: {start:.2f} to {end:.3f}" for d, (start, end) in ends.items()),
        holds=all(end < start for start, end in ends.values()),
    )


def _claim_rows(config: SyntheticConfig, results: Results, spectrum: SpectrumName) -> Claim:
    panel = config.panel_rows(spectrum)
    ends = [_mean(setting, results) for setting in panel.values()]
    return Claim(
        statement=f"(b) {spectrum}: rows an update, J = M = N = 1 included",
        paper="it learns from very few rows, and faster from more",
        found="; ".join(f"{total} rows: {end:.3f}" for total, end in zip(panel, ends, strict=True)),
        holds=all(after <= before for before, after in itertools.pairwise(ends)),
    )


def _claim_methods(config: SyntheticConfig, results: Results, spectrum: SpectrumName) -> Claim:
    panel = config.panel_methods(spectrum)
    ends = {
        method: [_mean(setting, results) for setting in by_total.values()]
        for method, by_total in panel.items()
    }
    lissa, *others = (ends[name] for name in ("danskin_lissa", "danskin_empirical", "naive"))
    return Claim(
        statement=f"(c) {spectrum}: methods at equal rows",
        paper="Danskin-LISSA ends closest of the sampled methods, above the oracle",
        found="; ".join(
            f"{method_name(method)} {', '.join(f'{value:.3f}' for value in values)}"
            for method, values in ends.items()
        )
        + f" at {', '.join(map(str, config.totals))} rows",
        holds=all(mine <= min(theirs) for mine, *theirs in zip(lissa, *others, strict=True)),
    )


def _claim_kappa(config: SyntheticConfig, results: Results, spectrum: SpectrumName) -> Claim:
    panel = config.panel_kappa(spectrum)
    below, above, found = [], [], []
    for d, by_kappa in panel.items():
        ends = {kappa: _mean(setting, results) for kappa, setting in by_kappa.items()}
        below.append(min(end for kappa, end in ends.items() if kappa < 2.0))
        above.append(max(end for kappa, end in ends.items() if kappa > 2.0))
        found.append(f"d = {d}: best {below[-1]:.3f} below 2, worst {above[-1]:.3f} above")
    return Claim(
        statement=f"(d) {spectrum}: κ0 across 2",
        paper="the series converges for κ0 < 2 and diverges beyond",
        found="; ".join(found),
        holds=all(worse > better for better, worse in zip(below, above, strict=True)),
    )
