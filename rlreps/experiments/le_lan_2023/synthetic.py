"""Known spectra: the methods on matrices whose singular values are set (Le Lan et al. 2023, 5.1).

50 x 50 Gaussian matrices with their singular values replaced by 1 … 1000 (linear) or 10⁰ … 10³
(exponential); tabular features from a standard normal; stochastic gradient descent with one task an
update. The report has Figures 1, 2, 5 and 6 of the paper and the data permutation of its Section 6,
each with LISSA's κ0 divided by max‖φ‖² over the sampled rows, as in the text, and over all states,
as in the authors' code for this experiment.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from jax import Array

from rlreps.encoders import Tabular
from rlreps.experiments.harness import (
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
    Summary,
    Text,
    design_of,
    falling,
    halved,
    summarised,
    varied,
)
from rlreps.losses import OBJECTIVES, DanskinEmpirical, DanskinLissa, Naive, Oracle
from rlreps.losses.base import Objective, Params
from rlreps.numerics import largest_even_share
from rlreps.runs.contrasts import Sample, Verdict, all_of
from rlreps.sources.matrix import MatrixSource
from rlreps.subspace import subspace_distance
from rlreps.training import train_population
from rlreps.training.optimizers import GivenOptimizer
from rlreps.training.update import Learner

Spectrum: TypeAlias = Literal["linear", "exponential"]
Method: TypeAlias = Literal["danskin_lissa", "danskin_empirical", "naive", "oracle"]
Normaliser: TypeAlias = Literal["batch", "population"]

SPECTRA: dict[Spectrum, Callable[[int], npt.NDArray[np.float64]]] = {
    "linear": lambda size: np.linspace(1.0, 1000.0, size),
    "exponential": lambda size: np.logspace(0.0, 3.0, size),
}
"""Name → singular values for a size."""

NORMALISERS: dict[Normaliser, str] = {
    "batch": "κ over the sampled rows",
    "population": "κ over all states",
}
"""``feature_norm`` of LISSA → what reports call it."""

ROLES: dict[Method, int] = {"danskin_lissa": 5, "danskin_empirical": 5, "naive": 3, "oracle": 5}
"""Method → groups of rows that it shares its total out to.

The oracle needs no rows for its weights; it takes the gradient at as many as Danskin-LISSA does, so
that what separates the two is the estimate of the weights alone.
"""

METHODS = "final_distance_by_method"
"""Fig. 2."""

INVERSES: dict[str, str] = {"plain": "inverse", "pseudo": "pseudo-inverse"}
"""``inverse`` of Danskin-empirical and naive → what reports call it."""

LISSA = DanskinLissa.title
EMPIRICAL, NAIVE = (
    tuple(f"{OBJECTIVES[method].title}, {inverse}" for inverse in INVERSES.values())
    for method in ("danskin_empirical", "naive")
)
"""Lines of Fig. 2 that the paper compares: of the last two, one with either inverse."""


class Setting(NamedTuple):
    """One point of the experiment: a method and its options, trained with every seed.

    All but the last two decide which program trains it.

    Attributes:
        num_features: d.
        rows: Rows of each role, J = M = N.
        option: Of LISSA ``feature_norm``, of Danskin-empirical and naive ``inverse``, else empty.
        permutations: Assignments of rows to roles that an update averages.
        kappa0: κ0 of LISSA; other methods ignore it.
    """

    method: Method
    num_features: int
    rows: int
    option: str
    permutations: int
    spectrum: Spectrum
    kappa0: float

    @property
    def program(self) -> str:
        """Name of the program that trains it."""
        option = f"-{self.option}" if self.option else ""
        permuted = f"-permutations{self.permutations}" if self.permutations > 1 else ""
        return f"{self.method}-d{self.num_features}-rows{self.rows}{option}{permuted}"

    @property
    def label(self) -> str:
        """Line of Fig. 2: the method, and the inverse that it takes."""
        title = OBJECTIVES[self.method].title
        return f"{title}, {INVERSES[self.option]}" if self.option in INVERSES else title

    @property
    def total(self) -> int:
        """L at which Fig. 2 compares: naive, which has three roles, takes somewhat fewer rows."""
        return 5 * math.ceil(ROLES[self.method] * self.rows / 5)

    def every(self, **values: Sequence[Any]) -> list["Setting"]:
        """List the settings that differ from this one in fields with several values."""
        every = itertools.product(*values.values())
        return [self._replace(**dict(zip(values, each, strict=True))) for each in every]

    def is_under(self, normaliser: Normaliser) -> bool:
        """Return whether panels of a normaliser show it: of LISSA its own, of others both."""
        return self.method != "danskin_lissa" or self.option == normaliser

    def is_singular(self, config: "Config") -> bool:
        """Return whether a run inverts singular covariances, which decides nothing of a method.

        That is, if an update is expected among a hundred runs whose J rows, drawn with replacement,
        are of fewer than d states. A million updates meet one at J = 20 and d = 10.
        """
        if self.option != "plain":
            return False
        states = np.arange(config.num_states + 1) / config.num_states
        share = np.zeros(config.num_states + 1)
        share[0] = 1.0
        for _ in range(self.rows):
            again, new = share * states, share * (1.0 - states)
            share = again + np.append(0.0, new[:-1])
        return bool(100.0 * config.steps * share[: self.num_features].sum() >= 1.0)

    def objective(self) -> Objective:
        """Return what it minimises, with κ0 left at its default."""
        if self.method == "oracle":
            return Oracle(num_features=self.num_features)
        roles = dict.fromkeys(("gradient_rows", "weight_rows", "covariance_rows"), self.rows)
        cls, name = {
            "danskin_lissa": (DanskinLissa, "feature_norm"),
            "danskin_empirical": (DanskinEmpirical, "inverse"),
            "naive": (Naive, "inverse"),
        }[self.method]
        options = {name: self.option, "permutations": self.permutations, **roles}
        objective: Objective = cls(self.num_features, **options)
        return objective

    def described(self) -> dict[str, Any]:
        """Return its columns of result files."""
        return {**self._asdict(), "total_rows": ROLES[self.method] * self.rows}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The figures of the synthetic experiment.

    Attributes:
        num_states: States and tasks of the square matrix.
        spectra: Singular values: ``linear`` 1 … 1000 or ``exponential`` 10⁰ … 10³.
        feature_norms: What LISSA's κ0 is divided by: max‖φ‖² over the sampled rows (``batch``) or
            over all states (``population``).
        step_size: α of stochastic gradient descent on gradients summed over the N rows.
        kappa0: κ0 where it is not what varies.
        rows: J = M = N of Fig. 1 left and Fig. 6.
        dimension: d where it is not what varies.
        dimensions: d of Fig. 1 left, increasing.
        rows_by_total: J = M = N of Fig. 1 right, increasing.
        totals: L of Fig. 2, rows an update of all roles together: increasing multiples of 5. Naive,
            which has three roles, takes the largest multiple of 3.
        pseudo_totals: Those at which the pseudo-inverse is run beside the inverse, which is
            singular for J ≤ d. Its eigendecompositions take most of the time.
        more_rows: J = M = N of Fig. 5.
        more_dimensions: d of Fig. 5, increasing.
        kappa_values: κ0 of Fig. 6, increasing, on both sides of 2.
        kappa_dimensions: d of Fig. 6, increasing.
        permutations: Assignments of rows to roles that an update averages (Sec. 6), beside 1.
        permuted_rows: J = M = N of that comparison, increasing.
        num_seeds: Runs of each setting, each with a matrix of its own.
        evaluate_every: Updates between measurements.
        checkpoint_every: Updates between checkpoints; a multiple of ``evaluate_every``.
    """

    num_states: int = 50
    spectra: tuple[Spectrum, ...] = ("linear", "exponential")
    feature_norms: tuple[Normaliser, ...] = ("batch", "population")
    step_size: float = 0.001
    kappa0: float = 1.9
    rows: int = 5
    dimension: int = 10
    dimensions: tuple[int, ...] = (1, 5, 10, 25)
    rows_by_total: tuple[int, ...] = (1, 2, 5, 10, 20)
    totals: tuple[int, ...] = (5, 10, 25, 50, 100, 250)
    pseudo_totals: tuple[int, ...] = (5, 25, 50, 100)
    more_rows: int = 10
    more_dimensions: tuple[int, ...] = (1, 5, 10, 25, 30, 35, 40, 45)
    kappa_values: tuple[float, ...] = (0.25, 0.5, 1.0, 1.5, 1.9, 2.1, 2.5, 3.0, 4.0)
    kappa_dimensions: tuple[int, ...] = (1, 5, 10, 25)
    permutations: int = 5
    permuted_rows: tuple[int, ...] = (1, 5)
    steps: int
    num_seeds: int
    evaluate_every: int
    checkpoint_every: int

    @cached_property
    def figures(self) -> dict[str, list[Setting]]:
        """The settings of every figure."""
        lissa = Setting(
            "danskin_lissa", self.dimension, self.rows, "batch", 1, "linear", self.kappa0
        )
        both: dict[str, Any] = {"spectrum": self.spectra, "option": self.feature_norms}
        by_method = lissa.every(**both, rows=[total // 5 for total in self.totals])
        others: list[tuple[Method, str, Sequence[int]]] = [
            ("danskin_empirical", "plain", self.totals),
            ("danskin_empirical", "pseudo", self.pseudo_totals),
            ("naive", "plain", self.totals),
            ("naive", "pseudo", self.pseudo_totals),
            ("oracle", "", self.totals),
        ]
        for method, option, totals in others:
            other = lissa._replace(method=method, option=option)
            rows = [total // ROLES[method] for total in totals]
            by_method += other.every(spectrum=self.spectra, rows=rows)
        more, times = lissa._replace(rows=self.more_rows), (1, self.permutations)
        by_kappa = {"num_features": self.kappa_dimensions, "kappa0": self.kappa_values}
        return {
            "distance_by_dimension": lissa.every(**both, num_features=self.dimensions),
            "distance_by_total": lissa.every(**both, rows=self.rows_by_total),
            METHODS: by_method,
            "distance_by_dimension_at_more_rows": more.every(
                **both, num_features=self.more_dimensions
            ),
            "final_distance_by_kappa": lissa.every(**both, **by_kappa),
            "final_distance_by_permutations": lissa.every(
                **both, permutations=times, rows=self.permuted_rows
            ),
        }

    def settings(self) -> list[Setting]:
        """List every setting of any figure, once."""
        return list(dict.fromkeys(itertools.chain(*self.figures.values())))


PAPER = Config(steps=1_000_000, num_seeds=30, evaluate_every=10_000, checkpoint_every=50_000)

PRESETS = {
    "smoke": varied(
        PAPER,
        dimensions=(1, 10),
        rows_by_total=(1, 5),
        totals=(5, 25),
        pseudo_totals=(25,),
        more_dimensions=(10,),
        kappa_values=(1.9, 3.0),
        kappa_dimensions=(10,),
        permuted_rows=(5,),
        steps=400,
        num_seeds=3,
        evaluate_every=100,
        checkpoint_every=400,
    ),
    "laptop": varied(
        PAPER, steps=50_000, num_seeds=10, evaluate_every=1_000, checkpoint_every=10_000
    ),
    "paper": PAPER,
}


def planted_matrix(
    spectrum: Spectrum, size: int, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Draw a Gaussian matrix and replace its singular values.

    Returns:
        The matrix and its left singular vectors by falling singular value, both [size, size].
    """
    gaussian = np.random.default_rng(seed).standard_normal((size, size))
    left, _, right = np.linalg.svd(gaussian)
    values = np.sort(SPECTRA[spectrum](size))[::-1]
    return ((left * values) @ right).astype(np.float32), left.astype(np.float32)


def make_members(
    config: Config, group: Sequence[tuple[Setting, int]]
) -> tuple[Learner, MatrixSource, Array]:
    """Build the learners and the sources of members of one shape.

    Args:
        config: The experiment.
        group: Setting and seed of each member; all run in one program.

    Returns:
        The population of learners, the members' sources, and the leading d left singular vectors of
        each member's matrix [members, size, d].
    """
    size, (first, _) = config.num_states, group[0]
    planted = [planted_matrix(setting.spectrum, size, seed) for setting, seed in group]
    matrix = jnp.asarray(np.stack([each for each, _ in planted]))
    indices = jnp.broadcast_to(jnp.arange(size), (len(group), size))
    objective = first.objective()
    if isinstance(objective, DanskinLissa):
        # An array passes unchecked: the sweep of κ0 goes beyond 2.
        kappa0: Any = jnp.asarray([setting.kappa0 for setting, _ in group], jnp.float32)
        objective = dataclasses.replace(objective, kappa0=kappa0)
    learner = Learner(
        encoder=Tabular(first.num_features, num_states=size),
        objective=objective,
        # Objectives average the gradient over their N rows; the paper's algorithm sums it.
        optimizer=GivenOptimizer(optax.sgd(config.step_size * first.rows)),
        # The oracle's batch holds its gradient rows alone.
        rows=first.rows * (1 if first.method == "oracle" else ROLES[first.method]),
        tasks=1,
        resets_diverged=True,
    )
    basis = jnp.asarray(np.stack([left[:, : first.num_features] for _, left in planted]))
    return learner, MatrixSource(indices, matrix, objective.needs_population), basis


def cells(run: Run[Config]) -> dict[str, list[Setting]]:
    """Group settings that one program can run together: those that differ in spectrum and κ0.

    At most nine, and fewer of many features: the tables of 30 seeds then fit a processor's cache.
    At d = 25 three settings made twice as many updates for each second of a processor as nine.
    """
    groups: dict[str, list[Setting]] = {}
    for each in sorted(run.config.settings(), key=lambda each: each[:-2]):
        groups.setdefault(each.program, []).append(each)
    cells: dict[str, list[Setting]] = {}
    for program, group in groups.items():
        together = min(9, max(1, 90 // group[0].num_features))
        for start in range(0, len(group), together):
            name = f"{program}-{start}" if start else program
            cells[name] = group[start : start + together]
    return cells


def measure(run: Run[Config], name: str, group: Sequence[Setting]) -> dict[str, Any]:
    """Train all settings of one shape with all seeds.

    Returns:
        ``steps`` [p], subspace ``distances`` [settings, seeds, p] (1 from where a run diverged),
        ``diverged`` [settings, seeds] and ``seconds`` of training.
    """
    config = run.config
    members = [(setting, seed) for setting in group for seed in range(config.num_seeds)]
    learners, source, basis = make_members(config, members)

    def evaluate(params: Params, own: Array) -> dict[str, Array]:
        return {"subspace_distance": subspace_distance(params, own)}

    result = train_population(
        learners,
        source,
        own_sources=True,
        steps=config.steps,
        seeds=[seed for _, seed in members],
        evaluate=evaluate,
        measured=basis,
        evaluate_every=config.evaluate_every,
        folder=run.training_folder(name, settings=[setting._asdict() for setting in group]),
        checkpoint_every=config.checkpoint_every,
        devices=run.devices and largest_even_share(run.devices, len(members)),
        description=f"{name}, {len(members)} runs",
        progress=run.progress,
    )
    shape = (len(group), config.num_seeds)
    distances = np.transpose([record["subspace_distance"] for record in result.history])
    return {
        "steps": [record["step"] for record in result.history],
        "distances": distances.reshape(*shape, -1).tolist(),
        "diverged": np.reshape(result.history[-1]["diverged"], shape).tolist(),
        "seconds": result.seconds,
    }


def frame(run: Run[Config], group: Sequence[Setting], found: Mapping[str, Any]) -> Frame:
    """List subspace distances: a row each setting, seed and step."""
    seeds = range(run.config.num_seeds)
    parts = zip(group, found["distances"], found["diverged"], strict=True)
    return Frame.concat(
        Frame.grid(
            {"subspace_distance": distances, "diverged": np.asarray(diverged)[:, None]},
            seed=seeds,
            step=found["steps"],
            **setting.described(),
            label=setting.label,
            total=setting.total,
            roles="rows in one role"
            if setting.permutations == 1
            else f"{setting.permutations} assignments averaged",
        )
        for setting, distances, diverged in parts
    )


# --- The paper's statements -----------------------------------------------------------------------

MARGIN = 0.05
"""Subspace distance by which another κ0 has to end closer to count as better."""

TURN = 25
"""d up to which the paper finds smaller dimensions easier on the exponential spectrum."""


class View(NamedTuple):
    """The results of one spectrum under one normaliser."""

    results: Results[Config]
    spectrum: Spectrum
    normaliser: Normaliser

    def settings(self, figure: str) -> list[Setting]:
        """List the settings of a panel."""
        return [
            each
            for each in self.results.config.figures[figure]
            if each.spectrum == self.spectrum and each.is_under(self.normaliser)
        ]

    def end(self, setting: Setting, **changed: Any) -> Sample:
        """Return a setting's final distances, or those of settings that differ in a field."""
        return self.results.end(**{**setting._asdict(), **changed})

    def infinite(self, *settings: Setting) -> bool:
        """Return whether all runs of all settings diverged."""
        shares = [self.results.end("diverged", **each._asdict()).mean for each in settings]
        return min(shares) == 1.0

    def halves(self, setting: Setting) -> Verdict:
        """Judge that a setting ends below half of where it started."""
        return halved(self.results.start(**setting._asdict()), self.end(setting))

    def learns(self, setting: Setting) -> Verdict:
        """Judge that a setting learns; not whether it does not where it still falls."""
        verdict, steps = self.halves(setting), np.unique(self.results.frame["step"])
        before = self.results.sample(**setting._asdict(), step=steps[3 * (len(steps) - 1) // 4])
        still = verdict.holds is False and (self.end(setting) < before).holds
        return verdict.open() if still else verdict

    def order(self, figure: str) -> Verdict:
        """Judge which d is easier, by neighbours."""
        settings = self.settings(figure)
        pairs = list(itertools.pairwise(settings))
        if self.spectrum == "linear" and figure == "distance_by_dimension":
            # In the text of Fig. 1 only the ends are compared here.
            pairs = [(settings[0], settings[-1])]
        verdicts = {}
        for small, large in pairs:
            first = self.spectrum == "exponential" and large.num_features <= TURN
            near, far = (small, large) if first else (large, small)
            about = f"d = {near.num_features} below {far.num_features}"
            verdicts[about] = self.end(near) < self.end(far)
        return all_of(verdicts)

    def more_rows(self, measure: Callable[..., Sample]) -> Verdict:
        """Judge that more rows are nearer, by neighbours."""
        settings = self.settings("distance_by_total")
        return falling({f"{each.total} rows": measure(**each._asdict()) for each in settings})

    def nearer(self, pairs: Iterable[tuple[str, str]], totals: Sequence[int]) -> Verdict:
        """Compare pairs of lines of Fig. 2, the nearer first, at every L that both have.

        Neither a singular inverse nor two lines whose runs all diverged decide anything.
        """
        places = {(each.label, each.total): each for each in self.settings(METHODS)}
        verdicts = {}
        for (near, far), total in itertools.product(pairs, totals):
            both = [places[label, total] for label in (near, far) if (label, total) in places]
            singular = any(each.is_singular(self.results.config) for each in both)
            if len(both) == 2 and not singular and not self.infinite(*both):
                verdicts[f"{near} and {far} at {total}"] = self.end(both[0]) < self.end(both[1])
        return all_of(verdicts)

    def naive_diverges(self) -> Verdict:
        """Judge by inverses that are not singular; runs that diverge in part tell nothing."""
        verdicts, config = {}, self.results.config
        for each in self.settings(METHODS):
            fewest = each.method == "naive" and each.total == config.totals[0]
            if fewest and not each.is_singular(config):
                share = self.results.end("diverged", **each._asdict()).mean
                words = f"{share:.0%} of runs infinite"
                verdicts[each.label] = Verdict({1.0: True, 0.0: False}.get(share), words)
        return all_of(verdicts)

    def published_kappa(self) -> Verdict:
        """Judge that the distance falls, and that no κ0 below 2 ends closer by the margin."""
        verdicts = {}
        for each in self.settings("final_distance_by_kappa"):
            about = f"d = {each.num_features}"
            ours = each._replace(kappa0=self.results.config.kappa0)
            if each == ours:
                verdicts[about] = self.end(ours) < self.results.start(**ours._asdict())
            elif each.kappa0 < 2.0:
                closer = self.end(ours).against(self.end(each), effect=MARGIN).below
                verdicts[f"{about}, κ0 = {each.kappa0:g}"] = closer
        return all_of(verdicts)

    def kappa_beyond(self) -> Verdict:
        """Judge that κ0 beyond 2 ends farther, in the mean over them."""
        verdicts = {}
        for each in self.settings("final_distance_by_kappa"):
            if each.kappa0 == self.results.config.kappa0:
                beyond = self.end(each, kappa0=lambda k: k > 2.0)
                verdicts[f"d = {each.num_features}"] = self.end(each) < beyond
        return all_of(verdicts)

    def permuted(self) -> Verdict:
        """Judge that the distance falls from some number of rows, and rises from none."""
        found = {}
        for each in self.settings("final_distance_by_permutations"):
            once = each._replace(permutations=1)
            if each != once and not self.infinite(each, once):
                found[f"{each.total} rows"] = self.end(each) < self.end(once)
        decided = {label: verdict for label, verdict in found.items() if verdict.holds is not None}
        return all_of(decided or found)


def _claim(
    normaliser: Normaliser, about: str, stated: str, judge: Callable[[View], Verdict]
) -> Claim:
    """State something under a normaliser; it holds if it does on every spectrum."""

    def on_every_spectrum(results: Results[Config]) -> Verdict:
        spectra = results.config.spectra
        return all_of({str(each): judge(View(results, each, normaliser)) for each in spectra})

    where, _, what = about.partition(": ")
    return Claim(f"{where}, {NORMALISERS[normaliser]}: {what}", stated, on_every_spectrum)


def claims(results: Results[Config]) -> Iterator[Claim]:
    """Set what the paper states, for each normaliser."""
    config = results.config
    d, ends = config.dimension, (config.dimensions[0], config.dimensions[-1])
    few = [total for total in config.totals if total <= 5 * d]
    many = [total for total in config.totals if total > 5 * d]
    ours = [(LISSA, each) for each in EMPIRICAL]
    closer = "LISSA ends closer at equal rows, in particular from few"
    for normaliser in config.feature_norms:
        claim = partial(_claim, normaliser)
        yield claim(
            "Fig. 1 left: learning at every d",
            "Danskin-LISSA recovers the principal subspace for every d, given enough updates "
            f"({HALVED}; cannot be told where it still falls)",
            lambda v: all_of(
                {f"d = {s.num_features}": v.learns(s) for s in v.settings("distance_by_dimension")}
            ),
        )
        yield claim(
            "Fig. 1 left: which d is easier",
            f"exponential spectrum: the smaller; linear: d = {ends[1]} easier than {ends[0]}",
            lambda v: v.order("distance_by_dimension"),
        )
        yield claim(
            f"Fig. 1 right: J = M = N = {config.rows_by_total[0]}",
            f"a reasonable approximation from very few rows ({HALVED})",
            lambda v: v.halves(v.settings("distance_by_total")[0]),
        )
        yield claim(
            "Fig. 1 right: more rows an update, speed",
            "speed learning up (judged: the mean distance over training)",
            lambda v: v.more_rows(results.sample),
        )
        yield claim(
            "Sec. 3.3 and Fig. 1 right: more rows an update, end",
            "reduce bias and variance (judged: the final distance)",
            lambda v: v.more_rows(results.end),
        )
        yield claim(
            f"Fig. 2: few rows (J ≤ d = {d}), LISSA against the empirical inverse",
            closer,
            lambda v: v.nearer(ours, few),
        )
        yield claim(
            f"Fig. 2: more rows (J > d = {d}), LISSA against the empirical inverse",
            closer,
            lambda v: v.nearer(ours, many),
        )
        yield claim(
            "Fig. 2: naive against both",
            "naive, whose bias is high, ends farther than both at equal rows",
            lambda v: v.nearer(
                [*((LISSA, each) for each in NAIVE), *zip(EMPIRICAL, NAIVE, strict=True)],
                config.totals,
            ),
        )
        yield claim(
            f"Fig. 2 (caption): divergence at L = {config.totals[0]}",
            "naive diverges for very small L",
            View.naive_diverges,
        )
        yield claim(
            "Fig. 5 (App. C.1): which d is easier",
            f"linear spectrum: the larger; exponential: the smaller up to d = {TURN}, the larger "
            "beyond",
            lambda v: v.order("distance_by_dimension_at_more_rows"),
        )
        yield claim(
            f"Fig. 6 (App. C.1): κ0 = {config.kappa0:g}",
            "performs well across dimensions and spectra (judged: the mean distance falls, and no "
            f"κ0 below 2 ends closer by {MARGIN:g} or more)",
            View.published_kappa,
        )
        yield claim(
            "Fig. 6 (Sec. 5.1): κ0 > 2",
            f"fares poorly (judged: ends farther than {config.kappa0:g} in the mean over them)",
            View.kappa_beyond,
        )
        yield claim(
            "Sec. 6: the same rows in several roles, averaged",
            "one can improve on rows of a single role by permuting them (judged: the distance "
            "falls from some number of rows and rises from none)",
            View.permuted,
        )


# --- Figures --------------------------------------------------------------------------------------


def shown(results: Results[Config], frame: Frame, *, figure: str, panels: bool = False) -> Frame:
    """Return the measurements of a figure: each once, or in every panel that shows it."""
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


def shows(
    name: str, caption: Text, line: str, x: Axis = STEP, **axes: Any
) -> Sequence[Curve | Summary]:
    """Show a figure with a table of its ends: orderings are judged by those."""
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
        Summary(
            caption="Mean final distance with its 95 % interval, and the interquartile mean.",
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
        lambda r: (
            f"Danskin-LISSA with J = M = N = {r.config.rows}, L = {5 * r.config.rows} rows an "
            "update. A random subspace is at 1 − d / n."
        ),
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
        "d = {config.dimension}, after {config.steps:,} updates, against the rows of an "
        "update over all roles; naive, with three roles, takes the largest multiple of 3. The "
        "oracle takes its gradient at as many rows as Danskin-LISSA and is given the exact "
        "weights. Gradients are summed over the N rows: naive takes steps 5/3 as long at equal "
        "L. The authors' code inverts the empirical covariance, which is singular for J < d; "
        "the pseudo-inverse of Eq. 11 is shown at some L.",
        "label",
        TOTAL,
    ),
    "Fig. 5: distance during training, by d, from more rows": shows(
        "distance_by_dimension_at_more_rows",
        lambda r: (
            f"Danskin-LISSA with J = M = N = {r.config.more_rows}, L = {5 * r.config.more_rows} "
            "rows an update. A random subspace is at 1 − d / n: the largest d start nearest."
        ),
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
        "Danskin-LISSA at d = {config.dimension}: the rows of every update in one role "
        "each, or averaged over {config.permutations} random assignments to roles. Runs are "
        "paired: the same matrices, initial features and drawn rows.",
        "roles",
        dataclasses.replace(TOTAL, log=False),
    ),
}


def summary(results: Results[Config]) -> dict[str, Any]:
    """Collect the ends of all settings, and what they cost."""
    beside, within = ("diverged",), SUBSPACE_DISTANCE.within
    keys = (*SETTINGS, "step")
    ends = summarised(results.ends, keys, "subspace_distance", "seed", within=within, beside=beside)
    seconds = sum(part["seconds"] for part in results.found.values())
    updates = results.config.num_seeds * results.config.steps * len(ends)
    return {
        "settings": ends,
        "seconds": round(seconds, 3),
        "member_updates_per_second": round(updates / max(seconds, 1e-9)),
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
    summary=summary,
    decided_on=PAPER,
    free=("evaluate_every", "checkpoint_every"),
    deviations={
        "feature_norms": "The text divides κ0 by max‖φ‖² over the sampled rows (batch), the "
        "authors' code for this experiment by max‖φ‖² over all states (population). The choice "
        "decides whether small J diverges, so both are run.",
        "pseudo_totals": "It is ambiguous which inverse Danskin-empirical and naive take: Eq. 11 "
        "writes the pseudo-inverse, Sec. 5.1 says the inverse, which the authors' code takes. The "
        "plain inverse is run at every L. If some update of a run draws fewer than d states (J "
        "up to 20) it is singular and decides nothing. The pseudo-inverse, whose "
        "eigendecompositions are slow, is run at some L, the smallest among them.",
        "rows of naive": "Fig. 2 compares at equal L. Naive has three roles and takes the largest "
        "multiple of 3 below it: 3, 9, 24, 48, 99 and 249 rows.",
        "rows drawn twice": "The authors' code overwrites the gradients of rows drawn twice; "
        "Algorithm 1 sums over rows, and they are added here.",
    },
)
