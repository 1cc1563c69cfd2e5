"""Streaming rules against exact components: excess loss over rows and over time (Figure 1)."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from matplotlib.figure import Figure

from rlreps.errors import require, require_positive
from rlreps.experiments.amid_warmuth_2020 import pca
from rlreps.experiments.harness import Claim, Experiment, Findings, Run, aligned
from rlreps.plotting.lines import Line, Panel, plot_panels
from rlreps.plotting.maps import plot_signed_images
from rlreps.report.page import Section
from rlreps.report.table import Table
from rlreps.runs.intervals import mean_interval
from rlreps.sources.datasets import load_observations
from rlreps.streaming import RULES, Runs, run_passes
from rlreps.streaming.rules.orthonormal import orthonormalize

PAPER_RULES = ("implicit_krasulina", "explicit_krasulina", "krasulina", "oja")
"""The four rules that the paper compares, its own first; "Sanger" is ``explicit_krasulina``."""

WITH_QR = "qr"
"""Oja's update where a QR decomposition restores orthonormality."""

Against = Literal["rows_seen", "seconds"]
Times = Mapping[str, Sequence[float]]
"""Rule, or ``WITH_QR``, → seconds a row in each trial."""

_POINTS = 25
"""Most points of a drawn curve, evenly spaced on a logarithmic axis as far as there are any."""
_TIMED_ROWS = 1000
_TRIALS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A streaming rule, and how rows are fed to it.

    Attributes:
        rule: One of ``rlreps.streaming.RULES``.
        rows_per_update: b, rows of an update.
        power: γ of the learning rate η0 / t^γ, t = 1, 2, … the update.
        learning_rates: η0 to choose from; none for a rule that has no learning rate.
        shown: Whether its components are drawn beside the exact ones.
    """

    rule: str
    rows_per_update: int = 1
    power: float = 0.8
    learning_rates: tuple[float, ...] = pca.AUTHORS_RATES
    shown: bool = False

    def __post_init__(self) -> None:
        require_positive("rows_per_update", self.rows_per_update)
        pca.require_rules((self.rule,), (self.power,), self.learning_rates)

    @property
    def name(self) -> str:
        """Return what files call it; contenders of one name are the same."""
        return f"{self.rule}-{self.rows_per_update}"

    @property
    def label(self) -> str:
        """Return its name in figures, with the rows of an update where they are several."""
        title, rows = RULES[self.rule].title, self.rows_per_update
        return title if rows == 1 else f"{title} ({rows:,})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(pca.PcaConfig):
    """Percent excess loss of streaming rules over the exact components.

    Attributes:
        contenders: Rules, each with rows of its updates and its learning rates.
        passes: Times that every row is seen.
        evaluations: Most points of each pass's curve, equally many updates apart; updates that do
            not fill the last interval are left out.
        shown_components: k of the figure of components, one of ``components``.
    """

    contenders: tuple[Contender, ...]
    components: tuple[int, ...] = (5, 10, 20, 50)
    repeats: int = 3
    passes: int = 1
    evaluations: int = 100
    shown_components: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        pca.require_different("contenders", [contender.name for contender in self.contenders])
        for count in (self.passes, self.evaluations):
            require_positive("passes and evaluations", count)
        require(
            self.shown_components in self.components,
            f"shown_components among components {self.components}",
            self.shown_components,
        )

    @property
    def all_passes(self) -> str:
        """Return how often all rows are seen, in words."""
        return "one pass" if self.passes == 1 else f"{self.passes} passes"

    def interval(self, contender: Contender, count: int) -> int:
        """Return the rows between evaluations, whole updates, of ``count`` rows in all."""
        updates = count // contender.rows_per_update
        return contender.rows_per_update * math.ceil(updates / self.evaluations)


# γ is the paper's for its four rules, and ours for the others: what served best among 0.2, 0.5 and
# 0.8 on MNIST. The generalised Hebbian algorithm diverges at every rate of the authors' grid.
_HEBBIAN_RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
_ONE_BY_ONE = (
    Contender(rule="implicit_krasulina", shown=True),
    Contender(rule="explicit_krasulina"),
    Contender(rule="krasulina", power=0.9),
    Contender(rule="oja", power=0.9, shown=True),
    Contender(rule="sanger", power=0.5, learning_rates=_HEBBIAN_RATES),
)
_IN_BATCHES = (
    Contender(rule="implicit_krasulina", rows_per_update=100),
    Contender(rule="incremental_pca", rows_per_update=100, learning_rates=()),
    Contender(rule="capped_msg", rows_per_update=100, power=0.5),
    Contender(rule="eigengame", rows_per_update=256),
    Contender(rule="mu_eigengame", rows_per_update=256),
)

PRESETS = {
    "smoke": Config(
        contenders=(
            Contender(rule="implicit_krasulina", learning_rates=(1.0, 10.0), shown=True),
            Contender(rule="oja", power=0.9, learning_rates=(0.1, 1.0), shown=True),
            Contender(rule="incremental_pca", rows_per_update=20, learning_rates=()),
        ),
        components=(2, 4),
        repeats=2,
        evaluations=10,
        shown_components=4,
    ),
    "laptop": Config(contenders=(*_ONE_BY_ONE, *_IN_BATCHES)),
    # Incremental MSG without a cap keeps a matrix of features x features: an eigendecomposition of
    # that size in every update, which would take hours on two cores.
    "paper": Config(
        contenders=(
            *_ONE_BY_ONE,
            *_IN_BATCHES,
            Contender(rule="incremental_msg", rows_per_update=1000, power=0.5),
        ),
        repeats=10,
        passes=5,
    ),
}


def check(config: Config, observations: Any) -> pca.PcaProblem:
    """Refuse contenders whose updates the rows do not fill, then find the exact components."""
    for contender in config.contenders:
        needs = RULES[contender.rule].needs_learning_rate
        require(
            needs == bool(contender.learning_rates),
            f"{'learning rates' if needs else 'no learning rate'} to choose from for "
            f"{contender.rule}",
            contender.learning_rates,
        )
        count = len(observations.rows)
        available = int(count * config.tuning_fraction) if needs else count
        where = f"the {config.tuning_fraction:.0%} that η0 is chosen on" if needs else "all"
        require(
            contender.rows_per_update <= available,
            f"at least {contender.rows_per_update} rows, an update of {contender.rule}, in {where}",
            available,
        )
    return pca.make_problem(config, observations)


def cells(run: Run[Config]) -> dict[str, tuple[Contender, int]]:
    """List every contender with every k."""
    config = run.config
    return {
        f"{contender.name}-k{k}": (contender, k)
        for k in config.components
        for contender in config.contenders
    }


def measure(run: Run[Config], name: str, cell: tuple[Contender, int]) -> dict[str, Any]:
    """Choose η0 and stream every repeat, one after another: each has the device to itself."""
    config, problem, (contender, k) = run.config, run.data, cell
    build = pca.decaying_rule(contender.rule, problem.rows.shape[1], k, contender.power)
    rates, rows = contender.learning_rates, contender.rows_per_update
    try:
        tuned = pca.choose_rate(
            config, contender.rule, build, problem, rates, rows_per_update=rows, devices=run.devices
        )
        diverged = False
    except pca.RatesDivergedError:
        # Of rates that all diverge, the least: what becomes of it is part of the result.
        tuned = {"learning_rate": min(rates), "tuning_losses": [None] * len(rates)}
        diverged = True
    streams = [
        run_passes(
            build,
            problem.rows,
            Runs([seed], [pca.rate_to_run(tuned)]),
            evaluate=problem.loss,
            evaluate_every=config.interval(contender, len(problem.rows)),
            rows_per_update=rows,
            passes=config.passes,
            devices=run.devices and run.devices[:1],
        )
        for seed in config.seeds
    ]
    part = {
        **tuned,
        "all_rates_diverged": diverged,
        "rows_seen": streams[0].rows_seen.tolist(),
        "seconds": [stream.seconds.tolist() for stream in streams],
        "losses": [stream.figures[:, 0].tolist() for stream in streams],
    }
    if contender.shown and k == config.shown_components:
        part["components"] = streams[0].components[0].tolist()
    return part


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """A contender's repeats for one k.

    Attributes:
        contender: The rule.
        k: Components.
        learning_rate: The η0 that was chosen; None for a rule without one.
        all_rates_diverged: Whether every η0 that was tried diverged; the least was taken then.
        rows_seen: Rows that a run had seen at each point, the start included, [points].
        seconds: Time in updates until then, [repeats, points].
        losses: Mean of ‖x − Px‖² over all rows, NaN once diverged, [repeats, points].
        excess: Percent over the exact loss, diverged runs with that of no components, as losses.
        components: The first repeat's, [features, k], where they are to be shown.
    """

    contender: Contender
    k: int
    learning_rate: float | None
    all_rates_diverged: bool
    rows_seen: npt.NDArray[np.int64]
    seconds: pca.DoubleArray
    losses: pca.DoubleArray
    excess: pca.DoubleArray
    components: pca.DoubleArray | None

    @classmethod
    def from_part(
        cls, contender: Contender, k: int, part: Mapping[str, Any], problem: pca.PcaProblem
    ) -> "Curve":
        """Read the curve of a part that ``measure`` made."""
        losses = np.asarray(part["losses"], np.float64)
        shown = part.get("components")
        return cls(
            contender,
            k,
            part["learning_rate"] if math.isfinite(part["learning_rate"]) else None,
            bool(part["all_rates_diverged"]),
            np.asarray(part["rows_seen"], np.int64),
            np.asarray(part["seconds"], np.float64),
            losses,
            problem.excess_percent(losses, k),
            None if shown is None else np.asarray(shown, np.float64),
        )

    @property
    def diverged(self) -> int:
        """Return how many repeats ended with numbers that are not finite."""
        return int(np.count_nonzero(~np.isfinite(self.losses[:, -1])))

    def after_one_pass(self, figures: pca.DoubleArray, passes: int) -> pca.DoubleArray:
        """Return each repeat's loss or excess when it had seen the rows once, [repeats]."""
        once: pca.DoubleArray = figures[:, (len(self.rows_seen) - 1) // passes]
        return once


def paper_curves(curves: Sequence[Curve], k: int) -> dict[str, Curve]:
    """Select the curves for k of the paper's rules that see one row an update, by rule."""
    return {
        each.contender.rule: each
        for each in curves
        if each.k == k
        and each.contender.rule in PAPER_RULES
        and each.contender.rows_per_update == 1
    }


def seconds_per_row(
    problem: pca.PcaProblem, k: int, curves: Sequence[Curve], devices: Sequence[jax.Device] | None
) -> dict[str, list[float]]:
    """Time a row of the paper's rules, and of Oja's with a QR decomposition, in turns.

    The library's Oja and Krasulina have a closed form in the decomposition's place. All go over
    the same rows, one an update, in a single dispatch.

    Returns:
        Rule, or ``WITH_QR``, → seconds a row, one number for each trial.
    """

    def update_each_with_qr(basis: Array, rows: Array) -> Array:
        def update(basis: Array, row: Array) -> tuple[Array, None]:
            weights = jnp.matmul(basis, row)
            return orthonormalize(basis + 1e-3 * jnp.outer(weights, row)), None

        last: Array = jax.lax.scan(update, basis, rows)[0]
        return last

    features = problem.rows.shape[1]
    with jax.default_device(None if devices is None else devices[0]):
        rows, key = jnp.asarray(problem.rows[:_TIMED_ROWS]), jax.random.key(0)
        start = orthonormalize(jax.random.normal(key, (k, features)))

        def ready(update_each: Callable[[Any, Array], Any], state: Any) -> Callable[[], Any]:
            """Compile, and go over the rows: a factor's first updates are anchored one by one."""
            compiled = jax.jit(update_each)
            state = jax.block_until_ready(compiled(state, rows))
            return lambda: jax.block_until_ready(compiled(state, rows))

        timed = {WITH_QR: ready(update_each_with_qr, start)}
        for rule, curve in paper_curves(curves, k).items():
            build = pca.decaying_rule(rule, features, k, curve.contender.power)
            made = build(jnp.asarray(curve.learning_rate, jnp.float32))
            timed[rule] = ready(made.update_each, made.init(key))
        trials: dict[str, list[float]] = {name: [] for name in timed}
        # In turns, so that what slows the machine meets them all.
        for _ in range(_TRIALS):
            for name, run_once in timed.items():
                began = time.perf_counter()
                run_once()
                trials[name].append((time.perf_counter() - began) / len(rows))
    return trials


def compare_with_paper(
    config: Config, curves: Sequence[Curve], times: Mapping[int, Times]
) -> list[Claim]:
    """Make two claims for each k: implicit Krasulina's excess after one pass, and its time a row.

    A claim that a preset has not all rules for cannot be told. Without implicit Krasulina there is
    none.
    """

    def entry(curve: Curve) -> pca.Entry:
        excess = curve.after_one_pass(curve.excess, config.passes).mean()
        losses = curve.after_one_pass(curve.losses, config.passes)
        return pca.Entry(curve.contender.label, losses, f"{excess:.3g} %")

    claims = []
    for k in config.components:
        found = paper_curves(curves, k)
        ours = found.pop(pca.IMPLICIT, None)
        if ours is None:
            continue
        others = [entry(each) for each in found.values()]
        claims.append(
            pca.least_claim(
                f"k = {k}: implicit Krasulina's excess loss after one pass",
                "the least of the four rules",
                entry(ours),
                others,
                complete=len(found) == len(PAPER_RULES) - 1,
            )
        )
        mine, with_qr = times[k][pca.IMPLICIT], times[k][WITH_QR]
        closed = ", ".join(
            f"{RULES[rule].title}'s {min(times[k][rule]) / min(mine):.2g}"
            for rule in ("oja", "krasulina")
            if rule in times[k]
        )
        # Trials have to be apart; a run that diverged spent its time on numbers that are not.
        apart = max(mine) < min(with_qr) or max(with_qr) < min(mine)
        claims.append(
            Claim(
                statement=f"k = {k}: implicit Krasulina's time for a row",
                stated="less than with a QR decomposition for every row, as Oja's and Krasulina's",
                found=f"{1e6 * min(mine):.3g} µs; with QR {min(with_qr) / min(mine):.2g} times as "
                "much" + (f"; closed forms of the same, {closed} times" if closed else ""),
                holds=min(mine) < min(with_qr) if apart and not ours.diverged else None,
            )
        )
    return claims


def figure_groups(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    """Group the curves of each figure by the beginning of its name.

    ``excess`` has the rules that see one row an update, as the paper's figures have; ``batches``
    the others, beside implicit Krasulina on single rows.
    """
    singles = [each for each in curves if each.contender.rows_per_update == 1]
    batches = [each for each in curves if each.contender.rows_per_update > 1]
    reference = [each for each in singles if each.contender.rule == pca.IMPLICIT]
    groups = {"excess": singles, "batches": [*reference, *batches] if batches else []}
    return {name: group for name, group in groups.items() if group}


def describe_lines(curves: Sequence[Curve]) -> str:
    """Say what lines and bands are, and what stands in brackets."""
    repeats = len(curves[0].losses)
    text = "one run" if repeats == 1 else f"mean over {repeats} runs, 95 % bootstrap interval"
    if any(curve.contender.rows_per_update > 1 for curve in curves):
        text += "; in brackets: rows of an update, where more than one"
    return text


def draw_excess(
    config: Config, curves: Sequence[Curve], against: Against
) -> tuple[list[dict[str, object]], Figure]:
    """Draw percent excess loss, a panel for each k, on logarithmic axes, with its numbers."""
    rows: list[dict[str, object]] = []
    panels = []
    for k in config.components:
        lines: list[Line] = []
        for curve in (each for each in curves if each.k == k):
            # The start is left out: no row and no time is behind it.
            last = len(curve.rows_seen) - 1
            spread = np.geomspace(1, last, _POINTS) if last > _POINTS else np.arange(1, last + 1)
            chosen = np.unique(spread.round().astype(int))
            x = curve.rows_seen if against == "rows_seen" else curve.seconds.mean(axis=0)
            line = Line.of_runs(curve.contender.label, x[chosen], curve.excess[:, chosen])
            lines.append(line)
            points = {
                against: line.x,
                "excess_percent": line.mean,
                "excess_percent_low": line.low,
                "excess_percent_high": line.high,
            }
            rows += [
                {"rule": curve.contender.name, "k": k, **dict(zip(points, values, strict=True))}
                for values in zip(*map(np.asarray, points.values()), strict=True)
            ]
        panels.append(Panel(title=f"k = {k}", lines=lines))
    return rows, plot_panels(
        panels,
        x_label="rows seen" if against == "rows_seen" else "seconds in updates",
        y_label="excess loss over the exact components (%)",
        log_x=True,
        note=describe_lines(curves),
    )


def draw_components(
    config: Config, problem: pca.PcaProblem, curves: Sequence[Curve]
) -> tuple[list[dict[str, object]], Figure] | None:
    """Draw exact components above learned ones, which are rotated in their span onto them.

    Returns:
        |cosines| and the figure; None where rows are not images or nothing is to be shown. Of
        images with channels, the mean over channels is drawn.
    """
    shown = {
        curve.contender: np.nan_to_num(curve.components)
        for curve in curves
        if curve.components is not None
    }
    shape = problem.image_shape
    if shape is None or len(shape) not in (2, 3) or not shown:
        return None
    exact = problem.basis[:, : config.shown_components]
    maps, cosines = aligned(exact, {each.label: learned for each, learned in shown.items()})
    rows: list[dict[str, object]] = [
        {"rule": contender.name, "component": component, "cosine": cosine}
        for contender in shown
        for component, cosine in enumerate(cosines[contender.label].tolist(), start=1)
    ]
    images = {}
    for label, basis in {"exact": exact, **maps}.items():
        each = basis.T.reshape(-1, *shape)
        images[label] = each if len(shape) == 2 else each.mean(axis=-1)
    titles = [str(number) for number in range(1, config.shown_components + 1)]
    return rows, plot_signed_images(images, titles=titles, cosines=cosines)


def final_row(curve: Curve, problem: pca.PcaProblem) -> dict[str, object]:
    """Tabulate where a curve ends."""
    excess = mean_interval(curve.excess[:, -1])
    exact = problem.exact_loss(curve.k)
    return {
        "rule": curve.contender.name,
        "k": curve.k,
        "rows_per_update": curve.contender.rows_per_update,
        "power": curve.contender.power if curve.learning_rate is not None else None,
        "learning_rate": curve.learning_rate,
        "exact_loss": exact,
        "loss": exact * (1.0 + excess.value / 100.0),
        "excess_percent": excess.value,
        "excess_percent_low": excess.low,
        "excess_percent_high": excess.high,
        "rows_seen": int(curve.rows_seen[-1]),
        "seconds": float(curve.seconds[:, -1].mean()),
        "microseconds_per_row": 1e6 * float(np.median(curve.seconds[:, -1]) / curve.rows_seen[-1]),
        "repeats": len(curve.losses),
        "diverged": curve.diverged,
        "all_rates_diverged": curve.all_rates_diverged,
    }


def excess_cell(row: Mapping[str, Any]) -> str:
    """Write where a curve ends, for the report's table."""
    text = f"{row['excess_percent']:.3g}"
    if math.isfinite(row["excess_percent_low"]):  # NaN of a single run.
        text += f" [{row['excess_percent_low']:.3g}, {row['excess_percent_high']:.3g}]"
    return f"{text}, {row['diverged']} diverged" if row["diverged"] else text


def end_tables(config: Config, final: Sequence[Mapping[str, Any]], lines: str) -> list[Table]:
    """Tabulate final excess, and settings and times, a line for each contender."""
    found = {(row["rule"], row["k"]): row for row in final}
    ends: list[tuple[object, ...]] = []
    settings: list[tuple[object, ...]] = []
    for contender in config.contenders:
        own = [found[contender.name, k] for k in config.components]
        rates = (row["learning_rate"] for row in own)
        times = (f"{row['microseconds_per_row']:.3g}" for row in own)
        ends.append((contender.label, *map(excess_cell, own)))
        settings.append((contender.label, own[0]["power"], *rates, *times))
    exact = (f"{row['exact_loss']:.3f}" for row in own)
    columns = [f"k = {k}" for k in config.components]
    return [
        Table(
            ("rule", *columns),
            [("exact components: loss", *exact), *ends],
            f"Percent excess loss at the end of {config.all_passes}: {lines}.",
        ),
        Table(
            ("rule", "γ", *(f"η0, {k}" for k in columns), *(f"µs a row, {k}" for k in columns)),
            settings,
            "Power and chosen initial value of the learning rate η0 / t^γ, and the median time a "
            "row.",
        ),
    ]


def report(run: Run[Config], found: Mapping[str, Mapping[str, Any]]) -> Findings:
    """Make the findings of all contenders and k."""
    config, problem = run.config, run.data
    curves = [
        Curve.from_part(contender, k, part, problem)
        for (contender, k), part in zip(cells(run).values(), found.values(), strict=True)
    ]
    times = {
        k: run.folder.part(f"times-k{k}", partial(seconds_per_row, problem, k, curves, run.devices))
        for k in config.components
    }
    final = [final_row(curve, problem) for curve in curves]
    run.write_rows("final_excess", final)
    rules = {contender.rule for contender in config.contenders}
    opening = {"excess": "One row an update", "batches": "Several rows an update"}
    axes: dict[Against, tuple[str, str]] = {
        "rows_seen": ("rows", "the rows that were seen"),
        "seconds": ("seconds", "the time spent in updates"),
    }
    figures = [
        run.show(
            f"{name}_by_{end}",
            f"{opening[name]}: excess loss against {words}. Lines: {describe_lines(group)}.",
            *draw_excess(config, group, against),
        )
        for name, group in figure_groups(curves).items()
        for against, (end, words) in axes.items()
    ]
    uncapped = (
        "\n\nIncremental MSG without a cap takes an eigendecomposition of size features x features "
        "an update: the capped form stands for it here."
        if "capped_msg" in rules and "incremental_msg" not in rules
        else ""
    )
    lost = "; ".join(
        f"{each.contender.label}, k = {each.k}: {each.diverged}" for each in curves if each.diverged
    )
    endings = [
        "A run that diverged counts with the loss of no components at all, in means and curves "
        f"alike. Diverged runs: {lost}."
        if lost
        else "No run diverged."
    ]
    if "explicit_krasulina" in rules:
        endings.append(pca.EXPLICIT_START)
    sections = [
        Section(
            title="What the paper states",
            text="Amid & Warmuth 2020, \"An Implicit Form of Krasulina's k-PCA Update without the "
            'Orthonormality Constraint". Their "Sanger" is the explicit Krasulina of this page; '
            "Sanger's own algorithm (1989) is called GHA. The four rules see one row an update "
            "here, as there. The library's Oja and Krasulina replace the QR decomposition by a "
            "closed form of the same result. Updates of one row by implicit Krasulina, by the "
            "closed forms of this run and by Oja with a QR decomposition are timed apart from the "
            "curves, in turns and over the same rows: the least of several trials is given, and a "
            "verdict needs trials that do not overlap.\n\n"
            "The paper's curves were not at hand: the order of the rules is compared, no value of "
            "theirs is. It is decided where the 95 % interval of the difference, of runs paired by "
            "their seeds, leaves out 0 and no run diverged.",
        ),
        Section(
            title="Excess loss",
            text="The loss is the mean of ||x - Px||² over all rows, with their mean removed; the "
            "excess is 100 (loss / exact loss - 1). Every run goes over the rows in an order of "
            "its own, which all rules share. η0 of η0 / t^γ was chosen by one pass over a random "
            f"{config.tuning_fraction:.0%} of the rows. Runs are timed one after another: seconds "
            "are those of one stream in its updates, without compilation and evaluation."
            + uncapped,
            figures=figures,
        ),
        Section(
            title="Where every rule ends",
            text="\n\n".join(endings),
            tables=end_tables(config, final, describe_lines(curves)),
        ),
    ]
    components = draw_components(config, problem, curves)
    if components is not None:
        channels = problem.image_shape is not None and len(problem.image_shape) == 3
        caption = (
            f"The exact {config.shown_components} components above learned ones (first run), which "
            "are rotated within their span onto them; below each image, its |cosine| with the "
            "exact one." + (" Images have channels: the mean over them is shown." * channels)
        )
        figure = run.show("components", caption, *components)
        sections.append(Section(title="Components", figures=[figure]))
    ends = [
        min((each.excess[:, -1].mean(), each.contender.label) for each in curves if each.k == k)
        for k in config.components
    ]
    least = "; ".join(
        f"k = {k}: {label}, {excess:.3g} %"
        for k, (excess, label) in zip(config.components, ends, strict=True)
    )
    return Findings(
        abstract=f"{len(config.contenders)} streaming rules on {problem.name}, "
        f"{config.all_passes}, {config.repeats} runs each, against the exact components. Least "
        f"excess loss at the end: {least}.",
        claims=compare_with_paper(config, curves, times),
        sections=sections,
        summary={
            **pca.exact_summary(config, run.folder.config, problem),
            "curves": final,
            "seconds_per_row": {
                str(k): {name: min(trials) for name, trials in by_name.items()}
                for k, by_name in times.items()
            },
        },
    )


EXPERIMENT = Experiment[Config](
    name="online-pca",
    title="Online principal components",
    paper="Amid & Warmuth 2020, Figure 1",
    presets=PRESETS,
    load=load_observations,
    check=check,
    cells=cells,
    measure=measure,
    report=report,
    counts_cells=True,
)
