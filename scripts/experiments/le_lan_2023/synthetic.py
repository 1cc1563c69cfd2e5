"""Known spectra: the methods on matrices whose singular values are set (Le Lan et al. 2023, 5.1).

50 x 50 Gaussian matrices with their singular values replaced by 1 … 1000 (linear) or 10⁰ … 10³
(exponential); tabular features from a standard normal; stochastic gradient descent with one task an
update. The report has Figures 1, 2, 5 and 6 of the paper and the data permutation of its Section 6.
Every figure is made twice: with LISSA's κ0 divided by max‖φ‖² over the sampled rows, as in the
text, and over all states, as in the authors' code for this experiment.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlreps.experiments.le_lan_2023.planted import (
    INVERSES,
    METHODS,
    PAPER,
    PRESETS,
    Config,
    Setting,
    make_members,
)
from rlreps.losses import OBJECTIVES, DanskinLissa
from rlreps.stats import Sample, Verdict, all_of, any_of, judge_share
from rlreps.study import (
    HALVED,
    STEP,
    SUBSPACE_DISTANCE,
    Axis,
    Claim,
    Curve,
    Experiment,
    Frame,
    Part,
    Results,
    Run,
    design_of,
    falling,
    halved,
    in_path,
    tabulate_summary,
)
from rlreps.subspace import subspace_distance
from rlreps.training import train_population

NORMALISERS = {"batch": "κ over the sampled rows", "population": "κ over all states"}
"""``feature_norm`` of LISSA → its name in reports."""

LISSA = DanskinLissa.title
EMPIRICAL, NAIVE = (
    tuple(f"{OBJECTIVES[method].title}, {inverse}" for inverse in INVERSES.values())
    for method in ("danskin_empirical", "naive")
)
"""Lines of Fig. 2 that the paper compares; the last two methods have a line for each inverse."""


def cells(run: Run[Config]) -> dict[str, list[Setting]]:
    """Group settings that differ only in spectrum and κ0: one program can run them together.

    A group has at most nine settings, and fewer at large d, so that the tables of 30 seeds fit a
    processor's cache. At d = 25, groups of three settings made twice as many updates per processor
    second as groups of nine.
    """
    cells: dict[str, list[Setting]] = {}
    settings = sorted(run.config.settings(), key=lambda each: each[:-2])
    for shape, same in itertools.groupby(settings, key=lambda each: each[:-2]):
        group, together = list(same), min(9, max(1, 90 // shape[1]))
        for start in range(0, len(group), together):
            cells[in_path(f"{shape}-{start}")] = group[start : start + together]
    return cells


def measure(run: Run[Config], name: str, group: Sequence[Setting]) -> dict[str, Any]:
    """Train all settings of one shape with all seeds; return the ``history`` of the training."""
    config = run.config
    members = [(setting, seed) for setting in group for seed in range(config.num_seeds)]
    learners, source, basis = make_members(config, members)
    result = train_population(
        learners,
        source,
        own_sources=True,
        seeds=[seed for _, seed in members],
        evaluate=lambda params, own: {"subspace_distance": subspace_distance(params, own)},
        measured=basis,
        **run.training(
            name,
            config.steps,
            config.evaluations,
            title=f"{name}, {len(members)} runs",
            members=len(members),
            settings=[setting._asdict() for setting in group],
        ),
    )
    return {"history": result.history}


def frame(run: Run[Config], group: Sequence[Setting], found: Mapping[str, Any]) -> Frame:
    """List subspace distances: a row for each setting, seed and step."""
    seeds = range(run.config.num_seeds)
    members = [{**setting.described(), "seed": seed} for setting in group for seed in seeds]
    return Frame.of_history(found["history"], members)


MARGIN = 0.05
"""Least subspace distance by which another κ0 counts as closer, and permuted rows as farther."""

TURN = 25
"""d up to which the paper finds smaller dimensions easier on the exponential spectrum."""


class View(NamedTuple):
    """The results of one spectrum under one normaliser."""

    results: Results[Config]
    spectrum: str
    normaliser: str

    def settings(self, figure: str) -> list[Setting]:
        """List a panel's settings: LISSA's with its normaliser, and all of other methods."""
        return [
            each
            for each in self.results.config.figures[figure]
            if each.spectrum == self.spectrum
            and (each.method != "danskin_lissa" or each.option == self.normaliser)
        ]

    def end(self, setting: Setting, **changed: Any) -> Sample:
        """Return the final distances of a setting, or of the settings with some fields changed."""
        return self.results.end(**{**setting._asdict(), **changed})

    def diverged(self, setting: Setting) -> float:
        """Return the share of a setting's runs that diverged."""
        return self.results.end("diverged", **setting._asdict()).mean

    def halves(self, setting: Setting) -> Verdict:
        """Judge that a setting ends below half of where it started."""
        return halved(self.results.start(**setting._asdict()), self.end(setting))


def learns(view: View) -> Verdict:
    """Judge that the distance halves at every d; a d whose distance still falls is undecided."""
    verdicts, steps = {}, np.unique(view.results.frame["step"])
    before = steps[3 * (len(steps) - 1) // 4]
    for each in view.settings("distance_by_dimension"):
        verdict, earlier = view.halves(each), view.results.sample(**each._asdict(), step=before)
        falls = verdict.holds is False and (view.end(each) < earlier).holds
        verdicts[f"d = {each.num_features}"] = verdict.open() if falls else verdict
    return all_of(verdicts)


def order(view: View, figure: str) -> Verdict:
    """Judge which d is easier, by comparing neighbouring values of d."""
    settings, verdicts = view.settings(figure), {}
    if view.spectrum == "linear" and figure == "distance_by_dimension":
        # For Fig. 1, the text compares only the least and the largest d here.
        settings = [settings[0], settings[-1]]
    for small, large in itertools.pairwise(settings):
        first = view.spectrum == "exponential" and large.num_features <= TURN
        near, far = (small, large) if first else (large, small)
        about = f"d = {near.num_features} below {far.num_features}"
        verdicts[about] = view.end(near) < view.end(far)
    return all_of(verdicts)


def more_rows(view: View, measure: Callable[..., Sample]) -> Verdict:
    """Judge that more rows are closer, by comparing neighbouring numbers of rows."""
    settings = view.settings("distance_by_total")
    return falling({f"{each.total} rows": measure(**each._asdict()) for each in settings})


def nearer(view: View, pairs: Iterable[tuple[str, str]], few: bool | None = None) -> Verdict:
    """Judge that the first line of each pair ends closer, at every L that both have.

    Args:
        view: The results.
        pairs: Labels of the lines.
        few: Whether to compare at few rows, J ≤ d, or at more; None compares at every L.

    Settings with a singular inverse, and pairs whose runs all diverged, are left out.
    """
    config, verdicts = view.results.config, {}
    places = {
        (each.label, each.total): each
        for each in view.settings(METHODS)
        if few is None or few == (each.total <= 5 * config.dimension)
    }
    for (near, far), total in itertools.product(pairs, config.totals):
        both = [places[label, total] for label in (near, far) if (label, total) in places]
        decides = len(both) == 2 and not any(each.is_singular for each in both)
        if decides and min(map(view.diverged, both)) < 1.0:
            verdicts[f"{near} and {far} at {total}"] = view.end(both[0]) < view.end(both[1])
    return all_of(verdicts)


def naive_diverges(view: View) -> Verdict:
    """Judge, where no inverse is singular, that most runs diverge."""
    verdicts, config = {}, view.results.config
    for each in view.settings(METHODS):
        fewest = each.method == "naive" and each.total == config.totals[0]
        if fewest and not each.is_singular:
            diverged = view.results.end("diverged", **each._asdict()).values
            words = f"{diverged.mean():.0%} of runs infinite"
            verdicts[each.label] = judge_share(0.5, diverged, words)
    return all_of(verdicts)


def published_kappa(view: View) -> Verdict:
    """Judge that the distance falls, and that no κ0 below 2 ends closer by the margin."""
    verdicts = {}
    for each in view.settings("final_distance_by_kappa"):
        about, ours = f"d = {each.num_features}", each._replace(kappa0=view.results.config.kappa0)
        if each == ours:
            verdicts[about] = view.end(ours) < view.results.start(**ours._asdict())
        elif each.kappa0 < 2.0:
            closer = view.end(ours).against(view.end(each), effect=MARGIN).below
            verdicts[f"{about}, κ0 = {each.kappa0:g}"] = closer
    return all_of(verdicts)


def kappa_beyond(view: View) -> Verdict:
    """Judge that κ0 above 2 ends farther, averaged over its values."""
    return all_of(
        {
            f"d = {each.num_features}": view.end(each) < view.end(each, kappa0=lambda k: k > 2.0)
            for each in view.settings("final_distance_by_kappa")
            if each.kappa0 == view.results.config.kappa0
        }
    )


def permuted(view: View) -> Verdict:
    """Judge that permutation reduces the distance at some number of rows and raises it at none.

    It raises the distance if it adds the margin.
    """
    falls, keeps = {}, {}
    for each in view.settings("final_distance_by_permutations"):
        once = each._replace(permutations=1)
        if each != once and min(map(view.diverged, (each, once))) < 1.0:
            about, distance = f"{each.total} rows", view.end(each)
            falls[about] = distance < view.end(once)
            keeps[about] = distance.against(view.end(once), effect=MARGIN).below
    return (any_of(falls) & all_of(keeps)).saying(any_of(falls).words)


AGAINST_EMPIRICAL = [(LISSA, each) for each in EMPIRICAL]
CLOSER = "LISSA ends closer at equal rows, in particular from few"
STATEMENTS: Sequence[tuple[str, str, str, Callable[[View], Verdict]]] = (
    (
        "Fig. 1 left",
        "learning at every d",
        "Danskin-LISSA recovers the principal subspace for every d, given enough updates "
        f"({HALVED}; cannot be told where it still falls)",
        learns,
    ),
    (
        "Fig. 1 left",
        "which d is easier",
        "exponential spectrum: the smaller; linear: the largest easier than the smallest",
        lambda view: order(view, "distance_by_dimension"),
    ),
    (
        "Fig. 1 right",
        "J = M = N = {config.rows_by_total[0]}",
        f"a reasonable approximation from very few rows ({HALVED})",
        lambda view: view.halves(view.settings("distance_by_total")[0]),
    ),
    (
        "Fig. 1 right",
        "more rows an update, speed",
        "speed learning up (judged: the mean distance over training)",
        lambda view: more_rows(view, view.results.sample),
    ),
    (
        "Sec. 3.3 and Fig. 1 right",
        "more rows an update, end",
        "reduce bias and variance (judged: the final distance)",
        lambda view: more_rows(view, view.results.end),
    ),
    (
        "Fig. 2",
        "few rows (J ≤ d = {config.dimension}), LISSA against the empirical inverse",
        CLOSER,
        lambda view: nearer(view, AGAINST_EMPIRICAL, few=True),
    ),
    (
        "Fig. 2",
        "more rows (J > d = {config.dimension}), LISSA against the empirical inverse",
        CLOSER,
        lambda view: nearer(view, AGAINST_EMPIRICAL, few=False),
    ),
    (
        "Fig. 2",
        "naive against both",
        "naive, whose bias is high, ends farther than both at equal rows",
        lambda view: nearer(
            view, [*((LISSA, each) for each in NAIVE), *zip(EMPIRICAL, NAIVE, strict=True)]
        ),
    ),
    (
        "Fig. 2 (caption)",
        "divergence at L = {config.totals[0]}",
        "naive diverges for very small L",
        naive_diverges,
    ),
    (
        "Fig. 5 (App. C.1)",
        "which d is easier",
        f"linear spectrum: the larger; exponential: the smaller up to d = {TURN}, the larger "
        "beyond",
        lambda view: order(view, "distance_by_dimension_at_more_rows"),
    ),
    (
        "Fig. 6 (App. C.1)",
        "κ0 = {config.kappa0:g}",
        "performs well across dimensions and spectra (judged: the mean distance falls, and no "
        f"κ0 below 2 ends closer by {MARGIN:g} or more)",
        published_kappa,
    ),
    (
        "Fig. 6 (Sec. 5.1)",
        "κ0 > 2",
        "fares poorly (judged: ends farther than {config.kappa0:g} in the mean over them)",
        kappa_beyond,
    ),
    (
        "Sec. 6",
        "the same rows in several roles, averaged",
        "one can improve on rows of a single role by permuting them (judged: the distance "
        f"falls from some number of rows and rises by {MARGIN:g} or more from none)",
        permuted,
    ),
)
"""Place, topic and text of each statement, and the function that judges it on a spectrum."""


def claims(results: Results[Config]) -> Iterator[Claim]:
    """Judge statements under each normaliser; a statement has to hold on every spectrum."""
    spectra, normalisers = results.config.spectra, results.config.feature_norms
    for normaliser, (where, about, stated, judge) in itertools.product(normalisers, STATEMENTS):
        views = {each: View(results, each, normaliser) for each in spectra}
        verdicts = {name: judge(view) for name, view in views.items()}
        yield Claim(f"{where}, {NORMALISERS[normaliser]}: {about}", stated, all_of(verdicts))


def shown(results: Results[Config], frame: Frame, *, figure: str, panels: bool = False) -> Frame:
    """Return the measurements of a figure, each once or once for every panel that shows it."""
    config, parts = results.config, frame.groups(*Setting._fields)
    if not panels:
        return Frame.concat(parts[setting] for setting in config.figures[figure])
    return Frame.concat(
        parts[setting].adding(normaliser=NORMALISERS[normaliser])
        for spectrum, normaliser in itertools.product(config.spectra, config.feature_norms)
        for setting in View(results, spectrum, normaliser).settings(figure)
    )


SETTINGS = (*Setting._fields, "total_rows")
"""Columns of a setting."""


def shows(name: str, caption: str, line: str, x: Axis = STEP, **axes: Any) -> Sequence[Part]:
    """Show a figure with a table of final distances, by which orderings are judged."""
    final = x is not STEP
    return [
        Curve(
            name=name,
            caption=caption,
            x=x,
            line=line,
            panel="{spectrum} spectrum, {normaliser}",
            of=partial(shown, figure=name, panels=True),
            at_end=final,
            file=partial(shown, figure=name),
            keys=(*SETTINGS, *(["step"] if final else [])),
            beside=("diverged",) if final else (),
            axes=axes,
        ),
        tabulate_summary(
            caption="Final distance: mean with its 95 % interval, and interquartile mean.",
            keys=SETTINGS,
            of=partial(shown, figure=name),
            beside=("diverged",),
        ),
    ]


TOTAL = Axis("total", "rows an update, all roles (L)", log=True, ticks=True)

SECTIONS: Mapping[str, Sequence[Part]] = {
    "Against the paper": [design_of(__doc__)],
    "Fig. 1 left: distance during training, by d": shows(
        "distance_by_dimension",
        "Danskin-LISSA with J = M = N = {config.rows}. A random subspace is at 1 − d / n.",
        "d = {num_features}",
    ),
    "Fig. 1 right: distance during training, by rows an update": shows(
        "distance_by_total",
        "Danskin-LISSA at d = {config.dimension}; J = M = N is a fifth of the total. "
        "Gradients are summed over the N rows, so that more rows also mean longer steps.",
        "{total} rows an update",
    ),
    "Fig. 2: final distance by method": shows(
        METHODS,
        "d = {config.dimension}, after {config.steps:,} updates, against the rows of an update "
        "over all roles. The oracle takes its gradient at as many rows as Danskin-LISSA and is "
        "given the exact weights. Gradients are summed over the N rows, so naive's steps are 5/3 "
        "as long at equal L.",
        "label",
        TOTAL,
    ),
    "Fig. 5: distance during training, by d, from more rows": shows(
        "distance_by_dimension_at_more_rows",
        "Danskin-LISSA with J = M = N = {config.more_rows}. A random subspace is at 1 − d / n: the "
        "largest d start closest.",
        "d = {num_features}",
    ),
    "Fig. 6: final distance by κ0": shows(
        "final_distance_by_kappa",
        "Danskin-LISSA with J = M = N = {config.rows} after {config.steps:,} updates; "
        "the paper does not say with how many rows.",
        "d = {num_features}",
        Axis("kappa0", "κ0"),
        reference_x=(2.0, "where the series stops converging"),
    ),
    "Section 6: final distance with data permutation": shows(
        "final_distance_by_permutations",
        "Danskin-LISSA at d = {config.dimension}: each row of an update has one role, or the "
        "update averages {config.permutations} random assignments of rows to roles.",
        "roles",
        dataclasses.replace(TOTAL, log=False),
    ),
}


EXPERIMENT = Experiment(
    name="synthetic",
    title="Synthetic matrices with known spectra",
    paper="Le Lan et al. 2023, Sections 5.1 and 6, Appendix C.1",
    presets=PRESETS,
    cells=cells,
    measure=measure,
    frame=frame,
    value=dataclasses.replace(SUBSPACE_DISTANCE, floor=None),
    claims=claims,
    sections=SECTIONS,
    decided_on=PAPER,
    free=("evaluations",),
    deviations={
        "feature_norms": "The text divides κ0 by max‖φ‖² over the sampled rows (batch), the "
        "authors' code for this experiment by max‖φ‖² over all states (population). The choice "
        "decides whether small J diverges, so both are run.",
        "pseudo_totals": "It is ambiguous which inverse Danskin-empirical and naive take: Eq. 11 "
        "writes the pseudo-inverse, Sec. 5.1 says the inverse, which the authors' code takes. The "
        "plain inverse is run at every L. If some update of a run draws fewer than d states (J up "
        "to 20), the inverse is singular, and the run judges no statement. The pseudo-inverse, "
        "whose eigendecompositions are slow, is run at some L, the smallest among them.",
        "rows of naive": "Fig. 2 compares at equal L. Naive has three roles and takes the largest "
        "multiple of 3 below it: 3, 9, 24, 48, 99 and 249 rows.",
        "rows drawn twice": "The authors' code overwrites the gradients of rows drawn twice; "
        "Algorithm 1 sums over rows, and they are added here.",
    },
)
