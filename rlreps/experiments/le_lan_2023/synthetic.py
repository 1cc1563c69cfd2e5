"""Known spectra: the methods on matrices whose singular values are set (Le Lan et al. 2023, 5.1).

50 x 50 Gaussian matrices with their singular values replaced by 1 … 1000 (linear) or 10⁰ … 10³
(exponential); tabular features from a standard normal; stochastic gradient descent with one task an
update. Figures 1, 2, 5 and 6 of the paper and the data permutation of its Section 6, each with
LISSA's κ0 divided by max‖φ‖² over the sampled rows, as the text says, and over all states, as the
authors' code does here.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from jax import Array

from rlreps.encoders import Tabular
from rlreps.errors import require, require_choice, require_positive
from rlreps.experiments import harness
from rlreps.experiments.harness import Experiment, Findings, Found, Run
from rlreps.losses import DanskinEmpirical, DanskinLissa, Naive, Oracle, title_of
from rlreps.losses.base import Objective, Params
from rlreps.numerics import largest_even_share
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.plotting.lines import DISTANCE, over_runs
from rlreps.report.page import Section
from rlreps.runs.intervals import Interval, aggregate, mean_interval
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

INVERSES: dict[str, str] = {"plain": "inverse", "pseudo": "pseudo-inverse"}
"""``inverse`` of Danskin-empirical and naive → what reports call it."""

LISSA = title_of("danskin_lissa")
EMPIRICAL, NAIVE = (
    tuple(f"{title_of(method)}, {inverse}" for inverse in INVERSES.values())
    for method in ("danskin_empirical", "naive")
)
"""Lines of Fig. 2 that the paper compares: of the last two, one with either inverse."""


class Setting(NamedTuple):
    """One point of the experiment: what is trained with every seed.

    All but the last two decide which program trains it.

    Attributes:
        method: The objective.
        num_features: d.
        rows: Rows of each role, J = M = N.
        option: Of LISSA ``feature_norm``, of Danskin-empirical and naive ``inverse``, else empty.
        permutations: Assignments of rows to roles that an update averages.
        spectrum: The matrix's singular values.
        kappa0: κ0 of LISSA; of no effect on other methods.
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


Panels: TypeAlias = dict[str, dict[str, dict[float, Setting]]]
"""Figure → label of a line → place along the axis → setting."""


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
        steps: Updates.
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

    def __post_init__(self) -> None:
        for name, choices in (
            ("spectra", get_args(Spectrum)),
            ("feature_norms", get_args(Normaliser)),
        ):
            values = getattr(self, name)
            require(len(values) >= 1, f"at least one of {name}", values)
            for value in values:
                require_choice(name, value, choices)
        counts = ("num_states", "rows", "more_rows", "steps", "num_seeds", "evaluate_every")
        for name in counts:
            require_positive(name, getattr(self, name))
        require(self.permutations >= 2, "permutations >= 2, to compare with 1", self.permutations)
        require(0.0 < self.step_size < math.inf, "a finite step_size > 0", self.step_size)
        # What is compared along an axis: a claim about its ends needs them in order.
        for name in (
            *("dimensions", "rows_by_total", "totals", "pseudo_totals", "more_dimensions"),
            *("kappa_values", "kappa_dimensions", "permuted_rows"),
        ):
            values = getattr(self, name)
            require(
                len(values) >= 1 and list(values) == sorted(set(values)),
                f"increasing {name}, at least one",
                values,
            )
        for name in ("rows_by_total", "permuted_rows"):
            least = getattr(self, name)[0]
            require(least >= 1, f"{name} of at least 1", getattr(self, name))
        require(
            self.checkpoint_every >= 1 and self.checkpoint_every % self.evaluate_every == 0,
            f"checkpoint_every to be a multiple of evaluate_every ({self.evaluate_every})",
            self.checkpoint_every,
        )
        for d in (
            *(self.dimension, *self.dimensions, *self.more_dimensions),
            *self.kappa_dimensions,
        ):
            require(1 <= d < self.num_states, f"d in [1, {self.num_states - 1}]", d)
        for total in (*self.totals, *self.pseudo_totals):
            require(total >= 5 and total % 5 == 0, "totals that are multiples of 5", total)
        for kappa in (self.kappa0, *self.kappa_values):
            require(0.0 < kappa < math.inf, "a finite kappa0 > 0", kappa)
        require(
            self.kappa_values[0] < 2.0 < self.kappa_values[-1],
            "kappa_values on both sides of 2, where the series stops converging",
            self.kappa_values,
        )
        require(
            self.kappa0 in self.kappa_values, f"kappa0 {self.kappa0} to be swept", self.kappa_values
        )

    def panels(self, spectrum: Spectrum, normaliser: Normaliser) -> Panels:
        """List what every figure shows of a spectrum, with LISSA's κ from one normaliser."""

        def lissa(d: int, rows: int, kappa0: float = self.kappa0, permutations: int = 1) -> Setting:
            return Setting("danskin_lissa", d, rows, normaliser, permutations, spectrum, kappa0)

        def other(method: Method, total: int, option: str) -> Setting:
            rows = total // ROLES[method]
            return Setting(method, self.dimension, rows, option, 1, spectrum, self.kappa0)

        others: dict[str, tuple[Method, str, tuple[int, ...]]] = {
            EMPIRICAL[0]: ("danskin_empirical", "plain", self.totals),
            EMPIRICAL[1]: ("danskin_empirical", "pseudo", self.pseudo_totals),
            NAIVE[0]: ("naive", "plain", self.totals),
            NAIVE[1]: ("naive", "pseudo", self.pseudo_totals),
            title_of("oracle"): ("oracle", "", self.totals),
        }
        return {
            "distance_by_dimension": {
                f"d = {d}": {d: lissa(d, self.rows)} for d in self.dimensions
            },
            "distance_by_total": {
                f"{5 * rows} rows an update": {5 * rows: lissa(self.dimension, rows)}
                for rows in self.rows_by_total
            },
            "final_distance_by_method": {
                LISSA: {total: lissa(self.dimension, total // 5) for total in self.totals},
                **{
                    label: {total: other(method, total, option) for total in totals}
                    for label, (method, option, totals) in others.items()
                },
            },
            "distance_by_dimension_at_more_rows": {
                f"d = {d}": {d: lissa(d, self.more_rows)} for d in self.more_dimensions
            },
            "final_distance_by_kappa": {
                f"d = {d}": {kappa: lissa(d, self.rows, kappa) for kappa in self.kappa_values}
                for d in self.kappa_dimensions
            },
            "final_distance_by_permutations": {
                "rows in one role" if count == 1 else f"{count} assignments averaged": {
                    5 * rows: lissa(self.dimension, rows, permutations=count)
                    for rows in self.permuted_rows
                }
                for count in (1, self.permutations)
            },
        }

    def every_panel(self, figure: str) -> Iterator[tuple[str, dict[str, dict[float, Setting]]]]:
        """List the title and the lines of each panel of a figure."""
        for spectrum, normaliser in itertools.product(self.spectra, self.feature_norms):
            title = f"{spectrum} spectrum, {NORMALISERS[normaliser]}"
            yield title, self.panels(spectrum, normaliser)[figure]

    def settings(self, figure: str | None = None) -> list[Setting]:
        """List every setting of a figure, or of any, once."""
        names = [figure] if figure else list(self.panels(self.spectra[0], self.feature_norms[0]))
        lines = (
            line for name in names for _, panel in self.every_panel(name) for line in panel.values()
        )
        return list(dict.fromkeys(setting for line in lines for setting in line.values()))


PRESETS = {
    "smoke": Config(
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
    "laptop": Config(steps=50_000, num_seeds=10, evaluate_every=1_000, checkpoint_every=10_000),
    "paper": Config(steps=1_000_000, num_seeds=30, evaluate_every=10_000, checkpoint_every=50_000),
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


MARGIN = 0.05
"""Subspace distance by which another κ0 has to end closer to count as better."""


def _exactly(value: float) -> Interval:
    return Interval(value, value, value)


class Result(NamedTuple):
    """Curves of a setting: steps [p], distances [seeds, p] and which runs diverged [seeds]."""

    steps: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float64]
    diverged: npt.NDArray[np.bool_]

    def distance(self, point: int = -1) -> Interval:
        """Compute the mean distance at one measurement with its interval."""
        return mean_interval(self.distances[:, point]).within(0.0, 1.0)

    def late_change(self) -> Interval:
        """Compute by how much the mean distance changes over the last quarter of the updates."""
        before = self.distances[:, 3 * (self.distances.shape[1] - 1) // 4]
        return mean_interval(self.distances[:, -1] - before)


Results: TypeAlias = Mapping[Setting, Result]

TURN = 25
"""d up to which the paper finds smaller dimensions easier on the exponential spectrum."""


def compare_with_paper(config: Config, results: Results) -> list[Found]:
    """Set what the paper states beside what these runs show, for each normaliser.

    A verdict rests on the intervals of means over runs: where two overlap, it cannot be told. Nor
    can it unless these are the paper's runs: a shorter run shows methods on their way.
    """
    judged = harness.agrees(config, PRESETS["paper"], ("evaluate_every", "checkpoint_every"))
    claims = []
    for about, stated, normaliser, judge in _Judges(config, results).statements():
        texts, verdicts = [], []
        for spectrum in config.spectra:
            text, parts = judge(config.panels(spectrum, normaliser), spectrum)
            verdicts.append(harness.all_hold(parts) if judged else None)
            said = f" ({harness.VERDICTS[verdicts[-1]]})" if judged else ""
            texts.append(f"{spectrum}: {text}{said}")
        holds = harness.all_hold(verdicts)
        claims.append(Found(statement=about, stated=stated, found="; ".join(texts), holds=holds))
    return claims


Judged: TypeAlias = tuple[str, list[bool | None]]
"""Findings of one spectrum, and what they say of each part of a statement."""


@dataclasses.dataclass(frozen=True)
class _Judges:
    """The paper's statements, and how each is judged by the figures of one spectrum.

    Attributes:
        config: The experiment.
        results: What was found.
    """

    config: Config
    results: Results

    def statements(
        self,
    ) -> Iterator[tuple[str, str, Normaliser, Callable[[Panels, Spectrum], Judged]]]:
        """List where each statement is, what it says, of which normaliser, and its judge."""
        config = self.config
        d, few = config.dimension, f"J ≤ d = {config.dimension}"
        ends = (config.dimensions[0], config.dimensions[-1])
        for norm in config.feature_norms:
            name = NORMALISERS[norm]
            yield (
                f"Fig. 1 left, {name}: learning at every d",
                "Danskin-LISSA recovers the principal subspace for every d, given enough updates "
                f"({harness.LEARNED}; cannot be told where it still falls)",
                norm,
                self.every_dimension,
            )
            yield (
                f"Fig. 1 left, {name}: which d is easier",
                f"exponential spectrum: the smaller; linear: d = {ends[1]} easier than {ends[0]}",
                norm,
                functools.partial(self.order, figure="distance_by_dimension"),
            )
            yield (
                f"Fig. 1 right, {name}: J = M = N = {config.rows_by_total[0]}",
                f"a reasonable approximation from very few rows ({harness.LEARNED})",
                norm,
                self.fewest_rows,
            )
            yield (
                f"Fig. 1 right, {name}: more rows an update, speed",
                "speed learning up (judged: the mean distance over training)",
                norm,
                functools.partial(self.more_rows, at_the_end=False),
            )
            yield (
                f"Sec. 3.3 and Fig. 1 right, {name}: more rows an update, end",
                "reduce bias and variance (judged: the final distance)",
                norm,
                functools.partial(self.more_rows, at_the_end=True),
            )
            for about, fewest in ((f"few rows ({few})", True), (f"more rows (J > d = {d})", False)):
                yield (
                    f"Fig. 2, {name}: {about}, LISSA against the empirical inverse",
                    "LISSA ends closer at equal rows, in particular from few",
                    norm,
                    functools.partial(self.against_empirical, fewest=fewest),
                )
            yield (
                f"Fig. 2, {name}: naive against both",
                "naive, whose bias is high, ends farther than both at equal rows",
                norm,
                self.naive_behind,
            )
            yield (
                f"Fig. 2 (caption), {name}: divergence at L = {config.totals[0]}",
                "naive diverges for very small L",
                norm,
                self.naive_diverges,
            )
            yield (
                f"Fig. 5 (App. C.1), {name}: which d is easier",
                f"linear spectrum: the larger; exponential: the smaller up to d = {TURN}, the "
                "larger beyond",
                norm,
                functools.partial(self.order, figure="distance_by_dimension_at_more_rows"),
            )
            yield (
                f"Fig. 6 (App. C.1), {name}: κ0 = {config.kappa0:g}",
                "performs well across dimensions and spectra (judged: the mean distance falls, and "
                f"no κ0 below 2 ends closer by {MARGIN:g} or more)",
                norm,
                self.published_kappa,
            )
            yield (
                f"Fig. 6 (Sec. 5.1), {name}: κ0 > 2",
                f"fares poorly (judged: ends farther than {config.kappa0:g} in the mean over them)",
                norm,
                self.kappa_beyond,
            )
            yield (
                f"Sec. 6, {name}: the same rows in several roles, averaged",
                "one can improve on rows of a single role by permuting them (judged: the distance "
                "falls from some number of rows and rises from none)",
                norm,
                self.permuted,
            )

    def every_dimension(self, panels: Panels, spectrum: Spectrum) -> Judged:
        panel = panels["distance_by_dimension"]
        text, courses = self._courses(panel)
        verdicts = [harness.learned(start, end) for start, end in courses]
        for place, (label, result) in enumerate(zip(panel, self._lines(panel), strict=True)):
            change = result.late_change()
            if verdicts[place] is False and change.below(_exactly(0.0)):
                verdicts[place] = None  # More updates may be enough.
                text += f"; {label} still falls, by {-change.value:.4f} in the last quarter"
        return text, verdicts

    def order(self, panels: Panels, spectrum: Spectrum, *, figure: str) -> Judged:
        panel = panels[figure]
        text, courses = self._courses(panel)
        dimensions = (d for line in panel.values() for d in line)
        ends = [(d, end) for d, (_, end) in zip(dimensions, courses, strict=True)]
        pairs = list(itertools.pairwise(ends))
        if spectrum == "linear" and figure == "distance_by_dimension":
            # In the text of Fig. 1 only the ends are compared here.
            pairs = [(ends[0], ends[-1])]
        return text, [
            small.below(large) if spectrum == "exponential" and d <= TURN else large.below(small)
            for (_, small), (d, large) in pairs
        ]

    def fewest_rows(self, panels: Panels, spectrum: Spectrum) -> Judged:
        (setting,) = next(iter(panels["distance_by_total"].values())).values()
        result = self.results[setting]
        start, end = result.distance(0), result.distance()
        text = f"{start.value:.2f} to {end.value:.3f}, {result.diverged.sum()} runs infinite"
        return text, [harness.learned(start, end)]

    def more_rows(self, panels: Panels, spectrum: Spectrum, *, at_the_end: bool) -> Judged:
        panel = panels["distance_by_total"]
        found = self._lines(panel)
        means = [
            each.distance() if at_the_end else mean_interval(each.distances.mean(axis=1))
            for each in found
        ]
        text = ", ".join(
            f"{mean.value:.3f} from {label.removesuffix(' an update')}"
            for label, mean in zip(panel, means, strict=True)
        )
        return text, [more.below(fewer) for fewer, more in itertools.pairwise(means)]

    def against_empirical(self, panels: Panels, spectrum: Spectrum, *, fewest: bool) -> Judged:
        totals = [
            total
            for total in self.config.totals
            if (total // ROLES["danskin_empirical"] <= self.config.dimension) is fewest
        ]
        return self._by_method(panels, [(LISSA, each) for each in EMPIRICAL], totals)

    def naive_behind(self, panels: Panels, spectrum: Spectrum) -> Judged:
        pairs = [*((LISSA, each) for each in NAIVE), *zip(EMPIRICAL, NAIVE, strict=True)]
        return self._by_method(panels, pairs, self.config.totals)

    def naive_diverges(self, panels: Panels, spectrum: Spectrum) -> Judged:
        """Judge by inverses that are not singular; runs that diverge in part tell nothing."""
        panel, total = panels["final_distance_by_method"], self.config.totals[0]
        texts, verdicts = [], []
        for label in (LISSA, *EMPIRICAL, *NAIVE):
            if (setting := panel[label].get(total)) is None:
                continue
            share = float(self.results[setting].diverged.mean())
            singular = setting.is_singular(self.config)
            texts.append(f"{label} {share:.0%}{' (singular: no verdict)' * singular}")
            if label in NAIVE and not singular:
                verdicts.append({1.0: True, 0.0: False}.get(share))
        return f"infinite runs {', '.join(texts)}", verdicts

    def published_kappa(self, panels: Panels, spectrum: Spectrum) -> Judged:
        kappa0, texts, verdicts = self.config.kappa0, [], []
        for label, found in self._by_kappa(panels):
            start, end = found[kappa0].distance(0), found[kappa0].distance()
            below = {kappa: each for kappa, each in found.items() if kappa < 2.0}
            ends = {kappa: float(each.distance().value) for kappa, each in below.items()}
            best = min(ends, key=lambda kappa: ends[kappa])
            texts.append(
                f"{label} {start.value:.2f} to {end.value:.3f}, nearest below 2 "
                f"{ends[best]:.3f} at {best:g}"
            )
            runs = {kappa: each.distances[:, -1] for kappa, each in below.items()}
            verdicts += [end.below(start)] + [
                mean_interval(runs[kappa0] - runs[kappa]).below(_exactly(MARGIN))
                for kappa in runs
                if kappa != kappa0
            ]
        return ", ".join(texts), verdicts

    def kappa_beyond(self, panels: Panels, spectrum: Spectrum) -> Judged:
        kappa0, texts, verdicts = self.config.kappa0, [], []
        for label, found in self._by_kappa(panels):
            end = found[kappa0].distance()
            beyond = {kappa: each for kappa, each in found.items() if kappa > 2.0}
            listed = "/".join(f"{each.distance().value:.3f}" for each in beyond.values())
            infinite = sum(int(each.diverged.sum()) for each in beyond.values())
            texts.append(f"{label} {end.value:.3f} against {listed} ({infinite} runs infinite)")
            ends = np.mean([each.distances[:, -1] for each in beyond.values()], axis=0)
            verdicts.append(end.below(mean_interval(ends)))
        return f"at {'/'.join(f'{kappa:g}' for kappa in beyond)}: {', '.join(texts)}", verdicts

    def permuted(self, panels: Panels, spectrum: Spectrum) -> Judged:
        once, often = panels["final_distance_by_permutations"].values()
        texts, changes = [], []
        for total, setting in often.items():
            found = [self.results[each] for each in (setting, once[total])]
            if all(each.diverged.all() for each in found):
                texts.append(f"nothing at {total} rows (all runs infinite)")
                continue
            change = mean_interval(found[0].distances[:, -1] - found[1].distances[:, -1])
            texts.append(
                f"{change.value:+.3f} [{change.low:+.3f}, {change.high:+.3f}] at {total} rows"
            )
            changes.append(change.below(_exactly(0.0)))
        # One number of rows is enough, unless another speaks against it.
        decided: list[bool | None] = [falls for falls in changes if falls is not None]
        return f"the same runs' distance changes by {', '.join(texts)}", decided

    def _lines(self, panel: Mapping[str, Mapping[float, Setting]]) -> list[Result]:
        return [self.results[each] for line in panel.values() for each in line.values()]

    def _courses(
        self, panel: Mapping[str, Mapping[float, Setting]]
    ) -> tuple[str, list[tuple[Interval, Interval]]]:
        """Describe lines of one setting each by their first and last distance."""
        courses = [(each.distance(0), each.distance()) for each in self._lines(panel)]
        text = ", ".join(
            f"{label.removesuffix(' an update')} {start.value:.2f} to {end.value:.3f}"
            for label, (start, end) in zip(panel, courses, strict=True)
        )
        return text, courses

    def _by_method(
        self, panels: Panels, pairs: Sequence[tuple[str, str]], totals: Sequence[int]
    ) -> Judged:
        """Compare pairs of lines, the nearer first, at every L that both have.

        Neither a singular inverse nor two lines whose runs all diverged decide anything.
        """
        panel, texts, verdicts = panels["final_distance_by_method"], [], []
        for pair in pairs:
            said: list[str] = []
            unjudged: dict[str, list[int]] = {"singular": [], "all runs infinite": []}
            shared = [each for each in totals if all(each in panel[label] for label in pair)]
            for total in shared:
                settings = [panel[label][total] for label in pair]
                near, far = (self.results[each] for each in settings)
                if any(each.is_singular(self.config) for each in settings):
                    unjudged["singular"].append(total)
                elif near.diverged.all() and far.diverged.all():
                    unjudged["all runs infinite"].append(total)
                else:
                    ends = near.distance(), far.distance()
                    said.append(f"{ends[0].value:.3f} and {ends[1].value:.3f} at {total}")
                    verdicts.append(ends[0].below(ends[1]))
            said += [
                f"no verdict at {', '.join(map(str, places))} ({why})"
                for why, places in unjudged.items()
                if places
            ]
            texts.append(f"{' and '.join(pair)}: {', '.join(said) or 'not run'}")
        return "; ".join(texts), verdicts

    def _by_kappa(self, panels: Panels) -> Iterator[tuple[str, dict[float, Result]]]:
        for label, line in panels["final_distance_by_kappa"].items():
            yield label, {kappa: self.results[setting] for kappa, setting in line.items()}


def report(run: Run[Config], found: Mapping[str, Any]) -> Findings:
    """Draw the figures and judge the claims."""
    config = run.config
    results = {
        setting: Result(np.asarray(part["steps"]), np.asarray(distances), np.asarray(diverged))
        for group, part in zip(cells(run).values(), found.values(), strict=True)
        for setting, distances, diverged in zip(
            group, part["distances"], part["diverged"], strict=True
        )
    }
    final: dict[Setting, dict[str, Any]] = {
        setting: {
            **setting.described(),
            "step": int(result.steps[-1]),
            "diverged": int(result.diverged.sum()),
            **aggregate(result.distances[:, -1], within=(0.0, 1.0)),
        }
        for setting, result in results.items()
    }
    seconds = sum(part["seconds"] for part in found.values())
    updates = len(results) * config.num_seeds * config.steps
    summary = {
        "settings": list(final.values()),
        "diverged": int(sum(result.diverged.sum() for result in results.values())),
        "runs": len(results) * config.num_seeds,
        "member_updates": updates,
        "seconds": round(seconds, 3),
        "member_updates_per_second": round(updates / max(seconds, 1e-9)),
    }
    note = f"{over_runs(config.num_seeds, 'run')}; a run that diverged counts 1"
    described: dict[str, tuple[str, str, dict[str, Any]]] = {
        "distance_by_dimension": (
            "Fig. 1 left: distance during training, by d",
            f"Danskin-LISSA with J = M = N = {config.rows}, L = {5 * config.rows} rows an update. "
            "A random subspace is at 1 − d / n.",
            {"x_label": "update"},
        ),
        "distance_by_total": (
            "Fig. 1 right: distance during training, by rows an update",
            f"Danskin-LISSA at d = {config.dimension}; J = M = N is a fifth of the total. "
            "Gradients are summed over the N rows, so that more rows are longer steps too.",
            {"x_label": "update"},
        ),
        "final_distance_by_method": (
            "Fig. 2: final distance by method",
            f"d = {config.dimension}, after {config.steps:,} updates, against the rows of an "
            "update over all roles; naive, with three roles, takes the largest multiple of 3. The "
            "oracle takes its gradient at as many rows as Danskin-LISSA and is given the exact "
            "weights. Gradients are summed over the N rows: naive takes steps 5/3 as long at equal "
            "L. The authors' code inverts the empirical covariance, which is singular for J < d; "
            "the pseudo-inverse, as Eq. 11 writes, is beside it at some L.",
            {"x_label": "rows an update, all roles (L)", "log_x": True, "x_ticks": config.totals},
        ),
        "distance_by_dimension_at_more_rows": (
            "Fig. 5: distance during training, by d, from more rows",
            f"Danskin-LISSA with J = M = N = {config.more_rows}, L = {5 * config.more_rows} rows "
            "an update. A random subspace is at 1 − d / n: the largest d start nearest.",
            {"x_label": "update"},
        ),
        "final_distance_by_kappa": (
            "Fig. 6: final distance by κ0",
            f"Danskin-LISSA with J = M = N = {config.rows} after {config.steps:,} updates; the "
            "paper does not say with how many rows.",
            {"x_label": "κ0", "reference_x": (2.0, "where the series stops converging")},
        ),
        "final_distance_by_permutations": (
            "Section 6: final distance with data permutation",
            f"Danskin-LISSA at d = {config.dimension}: the same rows of every update in one role "
            f"each, or averaged over {config.permutations} random assignments to roles. Runs are "
            "paired: the same matrices, features at the start and rows drawn.",
            {
                "x_label": "rows an update, all roles (L)",
                "x_ticks": [5 * rows for rows in config.permuted_rows],
            },
        ),
    }
    columns: dict[str, Any] = {
        "spectrum": "spectrum",
        "method": lambda row: title_of(row["method"]),
        "normaliser or inverse": lambda row: NORMALISERS.get(row["option"], row["option"]),
        "d": "num_features",
        "rows": "total_rows",
        "κ0": "kappa0",
        "permutations": "permutations",
        **harness.MEANS,
        "diverged": harness.diverged_of,
    }
    table_caption = "Mean final distance with its 95 % interval, and the interquartile mean."
    sections = [Section(title="Against the paper")]
    for name, (title, caption, axes) in described.items():
        settings, is_final = config.settings(name), name.startswith("final")
        ends = [final[setting] for setting in settings]
        curves = [
            row
            for setting in settings
            for row in harness.curve_rows(
                results[setting].steps, results[setting].distances, **setting.described()
            )
        ]
        panels = [
            Panel(
                title=above,
                lines=[_line(label, line, results, is_final) for label, line in panel.items()],
            )
            for above, panel in config.every_panel(name)
        ]
        figure = plot_panels(panels, y_label=DISTANCE, note=note, **axes)
        caption = f"{caption} {note.capitalize()}."
        shown = run.show(name, caption, ends if is_final else curves, figure)
        # Curves have their ends in a table, too: orderings are judged by those.
        sections.append(
            Section(
                title=title,
                figures=[shown],
                tables=[harness.table_of(ends, columns, table_caption)],
            )
        )
    return Findings(
        abstract=_abstract(config, summary),
        claims=compare_with_paper(config, results),
        sections=sections,
        summary=summary,
    )


def _line(label: str, line: Mapping[float, Setting], results: Results, is_final: bool) -> Line:
    if is_final:
        ends = [results[setting].distances[:, -1] for setting in line.values()]
        return Line.of_runs(label, list(line), np.stack(ends, axis=1), within=(0.0, 1.0))
    (setting,) = line.values()
    found = results[setting]
    return Line.of_runs(label, found.steps, found.distances, within=(0.0, 1.0))


def _abstract(config: Config, summary: Mapping[str, Any]) -> str:
    published, fewer = PRESETS["paper"], ""
    if (config.steps, config.num_seeds) < (published.steps, published.num_seeds):
        fewer = f" The paper takes {published.steps:,} updates of {published.num_seeds} runs."
    return (
        f"{config.num_states} x {config.num_states} Gaussian matrices with their singular values "
        f"replaced; tabular features from a standard normal; stochastic gradient descent with step "
        f"size {config.step_size:g} on summed gradients, one task an update, {config.steps:,} "
        f"updates of {config.num_seeds} runs of each setting.{fewer} {summary['runs']:,} runs in "
        f"{summary['seconds']:,.0f} s of training, {summary['member_updates_per_second']:,} "
        f"updates a second; {summary['diverged']} runs became infinite, count as distance 1 and "
        "are listed."
    )


EXPERIMENT = Experiment(
    name="synthetic",
    title="Synthetic matrices with known spectra",
    paper="Le Lan et al. 2023, Sections 5.1 and 6, Appendix C.1",
    presets=PRESETS,
    cells=cells,
    measure=measure,
    report=report,
    deviations={
        "feature_norms": "The text divides κ0 by max‖φ‖² over the sampled rows (batch), the "
        "authors' code for this experiment by that over all states (population). It decides "
        "whether small J diverges, so both are run.",
        "pseudo_totals": "Which inverse Danskin-empirical and naive take is ambiguous: Eq. 11 "
        "writes the pseudo-inverse, Sec. 5.1 says the inverse, which the authors' code takes. The "
        "plain one is run at every L, but where some update of a run draws fewer than d states (J "
        "up to 20) it is singular and decides nothing; the pseudo-inverse, whose "
        "eigendecompositions are slow, at some L, the smallest among them.",
        "rows of naive": "Fig. 2 compares at equal L. Naive has three roles and takes the largest "
        "multiple of 3 below it: 3, 9, 24, 48, 99 and 249 rows.",
        "rows drawn twice": "The authors' code overwrites the gradients of rows drawn twice; "
        "Algorithm 1 sums over rows, and they are added here.",
    },
)
