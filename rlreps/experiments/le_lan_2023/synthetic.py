"""Known spectra: the methods on matrices whose singular values are set (Le Lan et al. 2023, 5.1).

50 x 50 Gaussian matrices with their singular values replaced by 1 … 1000 (linear) or 10⁰ … 10³
(exponential); tabular features from a standard normal; stochastic gradient descent with one task an
update. Four panels vary d, the rows of an update, the method at equal rows, and κ0 of LISSA.
"""

import dataclasses
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
from rlreps.experiments.harness import Claim, Experiment, Findings, Run
from rlreps.losses import DanskinEmpirical, DanskinLissa, Naive, Oracle, title_of
from rlreps.losses.base import Objective, Params
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.plotting.lines import DISTANCE
from rlreps.report.page import Section
from rlreps.runs.intervals import Interval, aggregate, mean_interval
from rlreps.sources.matrix import MatrixSource
from rlreps.subspace import subspace_distance
from rlreps.training import train_population
from rlreps.training.devices import largest_even_share
from rlreps.training.optimizers import GivenOptimizer
from rlreps.training.update import Learner

Spectrum: TypeAlias = Literal["linear", "exponential"]
Method: TypeAlias = Literal["danskin_lissa", "danskin_empirical", "naive", "oracle"]

SPECTRA: dict[Spectrum, Callable[[int], npt.NDArray[np.float64]]] = {
    "linear": lambda size: np.linspace(1.0, 1000.0, size),
    "exponential": lambda size: np.logspace(0.0, 3.0, size),
}
"""Name → singular values for a size."""

ROLES: dict[Method, int] = {"danskin_lissa": 5, "danskin_empirical": 5, "naive": 3, "oracle": 5}
"""Method → groups of rows that it shares its total out to.

The oracle needs no rows for its weights; it takes the gradient at as many as Danskin-LISSA does, so
that what separates the two is the estimate of the weights alone.
"""


class Setting(NamedTuple):
    """One point of the experiment: what is trained with every seed.

    Attributes:
        method: The objective.
        num_features: d.
        rows: Rows of each role, J = M = N.
        spectrum: The matrix's singular values.
        kappa0: κ0 of LISSA; of no effect on other methods.
    """

    method: Method
    num_features: int
    rows: int
    spectrum: Spectrum
    kappa0: float

    def described(self) -> dict[str, Any]:
        """Return its columns of result files."""
        return {**self._asdict(), "total_rows": ROLES[self.method] * self.rows}


Panels: TypeAlias = dict[str, dict[str, dict[float, Setting]]]
"""Figure → label of a line → place along the axis → setting."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The four panels of the synthetic experiment.

    Attributes:
        num_states: States and tasks of the square matrix.
        spectra: Singular values: ``linear`` 1 … 1000 or ``exponential`` 10⁰ … 10³.
        step_size: α of stochastic gradient descent on gradients summed over the N rows.
        kappa0: κ0 where it is not what varies.
        rows: J = M = N where they are not what varies.
        dimension: d where it is not what varies.
        dimensions: d of panel (a), increasing.
        rows_by_total: J = M = N of panel (b), increasing.
        totals: Rows an update of panel (c), all roles together; increasing multiples of 15.
        kappa_values: κ0 of panel (d), increasing, on both sides of 2.
        kappa_dimensions: d of panel (d), increasing.
        steps: Updates.
        num_seeds: Runs of each setting, each with a matrix of its own.
        evaluate_every: Updates between measurements.
        checkpoint_every: Updates between checkpoints; a multiple of ``evaluate_every``.
    """

    num_states: int = 50
    spectra: tuple[Spectrum, ...] = ("linear", "exponential")
    step_size: float = 0.001
    kappa0: float = 1.9
    rows: int = 5
    dimension: int = 10
    dimensions: tuple[int, ...] = (1, 5, 10, 25, 30, 35, 40, 45)
    rows_by_total: tuple[int, ...] = (1, 2, 5, 10, 20)
    totals: tuple[int, ...] = (15, 30, 75, 150, 300)
    kappa_values: tuple[float, ...] = (0.25, 0.5, 1.0, 1.5, 1.9, 2.1, 2.5, 3.0, 4.0)
    kappa_dimensions: tuple[int, ...] = (1, 5, 10, 25)
    steps: int
    num_seeds: int
    evaluate_every: int
    checkpoint_every: int

    def __post_init__(self) -> None:
        require(len(self.spectra) >= 1, "at least one of spectra", self.spectra)
        for spectrum in self.spectra:
            require_choice("spectra", spectrum, get_args(Spectrum))
        for name in ("num_states", "rows", "steps", "num_seeds", "evaluate_every"):
            require_positive(name, getattr(self, name))
        require(0.0 < self.step_size < math.inf, "a finite step_size > 0", self.step_size)
        # What is compared along an axis: a claim about its ends needs them in order.
        for name in ("dimensions", "rows_by_total", "totals", "kappa_values", "kappa_dimensions"):
            values = getattr(self, name)
            require(
                len(values) >= 1 and list(values) == sorted(set(values)),
                f"increasing {name}, at least one",
                values,
            )
        require(self.rows_by_total[0] >= 1, "rows_by_total of at least 1", self.rows_by_total)
        require(
            self.checkpoint_every >= 1 and self.checkpoint_every % self.evaluate_every == 0,
            f"checkpoint_every to be a multiple of evaluate_every ({self.evaluate_every})",
            self.checkpoint_every,
        )
        for d in (self.dimension, *self.dimensions, *self.kappa_dimensions):
            require(1 <= d < self.num_states, f"d in [1, {self.num_states - 1}]", d)
        for total in self.totals:
            require(total >= 15 and total % 15 == 0, "totals that are multiples of 15", total)
        for kappa in (self.kappa0, *self.kappa_values):
            require(0.0 < kappa < math.inf, "a finite kappa0 > 0", kappa)
        require(
            self.kappa_values[0] < 2.0 < self.kappa_values[-1],
            "kappa_values on both sides of 2, where the series stops converging",
            self.kappa_values,
        )

    def panels(self, spectrum: Spectrum) -> Panels:
        """List what every panel shows of a spectrum."""

        def lissa(d: int, rows: int, kappa0: float = self.kappa0) -> Setting:
            return Setting("danskin_lissa", d, rows, spectrum, kappa0)

        return {
            "distance_by_dimension": {
                f"d = {d}": {d: lissa(d, self.rows)} for d in self.dimensions
            },
            "distance_by_total": {
                f"{5 * rows} rows an update": {5 * rows: lissa(self.dimension, rows)}
                for rows in self.rows_by_total
            },
            "final_distance_by_method": {
                title_of(method): {
                    total: Setting(
                        method, self.dimension, total // ROLES[method], spectrum, self.kappa0
                    )
                    for total in self.totals
                }
                for method in get_args(Method)
            },
            "final_distance_by_kappa": {
                f"d = {d}": {kappa: lissa(d, self.rows, kappa) for kappa in self.kappa_values}
                for d in self.kappa_dimensions
            },
        }

    def settings(self, figure: str | None = None) -> list[Setting]:
        """List every setting of a panel, or of any, once."""
        lines = (
            line
            for spectrum in self.spectra
            for name, panel in self.panels(spectrum).items()
            if figure in (None, name)
            for line in panel.values()
        )
        return list(dict.fromkeys(setting for line in lines for setting in line.values()))


PRESETS = {
    "smoke": Config(
        dimensions=(1, 10),
        rows_by_total=(1, 5),
        totals=(15, 75),
        kappa_values=(1.9, 3.0),
        kappa_dimensions=(10,),
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
        group: Setting and seed of each member; method, d and rows are the same for all.

    Returns:
        The population of learners, the members' sources, and the leading d left singular vectors of
        each member's matrix [members, size, d].
    """
    size, (method, d, rows, *_) = config.num_states, group[0][0]
    planted = [planted_matrix(setting.spectrum, size, seed) for setting, seed in group]
    matrix = jnp.asarray(np.stack([each for each, _ in planted]))
    indices = jnp.broadcast_to(jnp.arange(size), (len(group), size))
    kappa0: Any = jnp.asarray([setting.kappa0 for setting, _ in group], jnp.float32)
    roles: dict[str, Any] = {"gradient_rows": rows, "weight_rows": rows, "covariance_rows": rows}
    danskin = DanskinLissa(num_features=d, **roles)
    objectives: dict[Method, Objective] = {
        # An array passes unchecked: the sweep of κ0 goes beyond 2.
        "danskin_lissa": dataclasses.replace(danskin, kappa0=kappa0),
        "danskin_empirical": DanskinEmpirical(num_features=d, **roles),
        "naive": Naive(num_features=d, **roles),
        "oracle": Oracle(num_features=d),
    }
    learner = Learner(
        encoder=Tabular(d, num_states=size),
        objective=objectives[method],
        # Objectives average the gradient over their N rows; the paper's algorithm sums it.
        optimizer=GivenOptimizer(optax.sgd(config.step_size * rows)),
        # The oracle's batch holds its gradient rows alone.
        rows=rows * (1 if method == "oracle" else ROLES[method]),
        tasks=1,
        resets_diverged=True,
    )
    basis = jnp.asarray(np.stack([left[:, :d] for _, left in planted]))
    return learner, MatrixSource(indices, matrix, method == "oracle"), basis


def cells(run: Run[Config]) -> dict[str, list[Setting]]:
    """Group settings that one program can run together: those of one method, d and rows."""
    groups: dict[str, list[Setting]] = {}
    for each in sorted(run.config.settings(), key=lambda each: each[:3]):
        name = f"{each.method}-d{each.num_features}-rows{each.rows}"
        groups.setdefault(name, []).append(each)
    return groups


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


class Result(NamedTuple):
    """Curves of a setting: steps [p], distances [seeds, p] and which runs diverged [seeds]."""

    steps: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float64]
    diverged: npt.NDArray[np.bool_]

    def distance(self, point: int = -1) -> Interval:
        """Compute the mean distance at one measurement with its interval."""
        return mean_interval(self.distances[:, point])


Results: TypeAlias = Mapping[Setting, Result]


def compare_with_paper(config: Config, results: Results) -> list[Claim]:
    """Set what the paper states beside what these runs show.

    A verdict rests on the intervals of means over runs: where two overlap, it cannot be told. Nor
    can it before the paper's number of updates: a shorter run shows methods on their way.
    """
    claims = [claim for spectrum in config.spectra for claim in _claims(config, results, spectrum)]
    if config.steps >= PRESETS["paper"].steps:
        return claims
    return [dataclasses.replace(claim, holds=None) for claim in claims]


def _claims(config: Config, results: Results, spectrum: Spectrum) -> Iterator[Claim]:
    by_d, by_rows, by_method, by_kappa = config.panels(spectrum).values()

    def learned(panel: Mapping[str, Mapping[float, Setting]]) -> tuple[str, list[Any], list[Any]]:
        """Describe lines of one setting each; whether each learned, and their last distances."""
        pairs = [
            (results[setting].distance(0), results[setting].distance())
            for line in panel.values()
            for setting in line.values()
        ]
        text = "; ".join(
            f"{label.removesuffix(' an update')}: {start.value:.2f} to {end.value:.3f}"
            for label, (start, end) in zip(panel, pairs, strict=True)
        )
        return text, [end.below(start) for start, end in pairs], [end for _, end in pairs]

    found, verdicts, _ = learned(by_d)
    yield Claim(
        statement=f"(a) {spectrum}: learning at every d",
        stated="Danskin-LISSA approaches the principal subspace for every d",
        found=found,
        holds=harness.all_hold(verdicts),
    )
    found, verdicts, ends = learned(by_rows)
    yield Claim(
        statement=f"(b) {spectrum}: rows an update, J = M = N = 1 included",
        stated="it learns from very few rows, and faster from more",
        found=found,
        holds=harness.all_hold(
            verdicts + [more.below(fewer) for fewer, more in itertools.pairwise(ends)]
        ),
    )
    last = {
        method: [results[setting].distance() for setting in line.values()]
        for method, line in by_method.items()
    }
    lissa, empirical, plain, exact = last.values()
    found = "; ".join(
        f"{method} {', '.join(f'{end.value:.3f}' for end in line)}" for method, line in last.items()
    )
    yield Claim(
        statement=f"(c) {spectrum}: methods at equal rows",
        stated="Danskin-LISSA ends closest of the sampled methods, above the oracle",
        found=f"{found} at {', '.join(map(str, config.totals))} rows",
        holds=harness.all_hold(
            nearer.below(farther)
            for pair in ((exact, lissa), (lissa, empirical), (lissa, plain))
            for nearer, farther in zip(*pair, strict=True)
        ),
    )
    # The largest κ0 below 2 against the largest of all, at every d.
    inside = max(kappa for kappa in config.kappa_values if kappa < 2.0)
    beyond = max(config.kappa_values)
    texts, verdicts = [], []
    for d, line in by_kappa.items():
        pair = results[line[inside]], results[line[beyond]]
        start, converging, diverging = pair[0].distance(0), pair[0].distance(), pair[1].distance()
        infinite = [int(each.diverged.sum()) for each in pair]
        texts.append(
            f"{d}: {start.value:.2f} to {converging.value:.3f} at {inside:g}, "
            f"{diverging.value:.3f} at {beyond:g} ({infinite[0]} and {infinite[1]} runs infinite)"
        )
        verdicts += [converging.below(start), converging.below(diverging)]
    yield Claim(
        statement=f"(d) {spectrum}: κ0 = {beyond:g} against {inside:g}",
        stated="features approach the subspace where the series converges (κ0 < 2), and end "
        "farther from it where the series diverges",
        found="; ".join(texts),
        holds=harness.all_hold(verdicts),
    )


def report(run: Run[Config], found: Mapping[str, Any]) -> Findings:
    """Draw the four panels and judge the claims."""
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
            **aggregate(result.distances[:, -1]),
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
    note = (
        f"mean over {config.num_seeds} runs, 95 % bootstrap interval; a run that diverged counts 1"
    )
    described: dict[str, tuple[str, str, dict[str, Any]]] = {
        "distance_by_dimension": (
            "(a) Distance during training, by d",
            f"Danskin-LISSA with J = M = N = {config.rows}.",
            {"x_label": "update"},
        ),
        "distance_by_total": (
            "(b) Distance during training, by rows an update",
            f"Danskin-LISSA at d = {config.dimension}; J = M = N is a fifth of the total. "
            "Gradients are summed over the N rows, so that more rows are longer steps too.",
            {"x_label": "update"},
        ),
        "final_distance_by_method": (
            "(c) Final distance by method",
            f"d = {config.dimension}, after {config.steps:,} updates, against the rows of an "
            "update over all roles. The oracle takes its gradient at as many rows as Danskin-LISSA "
            "and is given the exact weights. Gradients are summed over the N rows: naive, with "
            "three roles, takes steps 5/3 as long at equal L.",
            {
                "x_label": "rows an update, all roles (L)",
                "log_x": True,
                "x_ticks": config.totals,
            },
        ),
        "final_distance_by_kappa": (
            "(d) Final distance by κ0",
            f"Danskin-LISSA with J = M = N = {config.rows} after {config.steps:,} updates.",
            {"x_label": "κ0", "reference_x": (2.0, "where the series stops converging")},
        ),
    }
    columns: dict[str, Any] = {
        "spectrum": "spectrum",
        "method": lambda row: title_of(row["method"]),
        "d": "num_features",
        "rows": "total_rows",
        "κ0": "kappa0",
        **harness.MEANS,
        "diverged": harness.diverged_of,
    }
    table_caption = (
        "Mean final distance with its 95 % bootstrap interval, and the interquartile mean."
    )
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
                title=f"{spectrum} spectrum",
                lines=[
                    _line(label, line, results, is_final)
                    for label, line in config.panels(spectrum)[name].items()
                ],
            )
            for spectrum in config.spectra
        ]
        figure = plot_panels(panels, y_label=DISTANCE, note=note, **axes)
        shown = run.show(name, f"{caption} {note}.", ends if is_final else curves, figure)
        tables = [harness.table_of(ends, columns, table_caption)] if is_final else []
        sections.append(Section(title=title, figures=[shown], tables=tables))
    return Findings(
        abstract=_abstract(config, summary),
        claims=compare_with_paper(config, results),
        sections=sections,
        summary=summary,
    )


def _line(label: str, line: Mapping[float, Setting], results: Results, is_final: bool) -> Line:
    if is_final:
        ends = [results[setting].distances[:, -1] for setting in line.values()]
        return Line.of_runs(label, list(line), np.stack(ends, axis=1))
    (setting,) = line.values()
    return Line.of_runs(label, results[setting].steps, results[setting].distances)


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
    paper="Le Lan et al. 2023, Section 5.1",
    presets=PRESETS,
    cells=cells,
    measure=measure,
    report=report,
)
