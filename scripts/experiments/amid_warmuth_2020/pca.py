"""Shared parts of the experiments on streaming PCA (Amid & Warmuth 2020).

Rules as published, exact components, verdicts. Where the text leaves a choice open (starts, grids
of η0), the authors' code decides, except for ``DEVIATIONS``, ``START`` and ``tuning.RATES``. Their
"Sanger" is ``explicit_krasulina``; ``sanger`` is Sanger's own rule of 1989.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from rlreps.errors import require
from rlreps.experiments.amid_warmuth_2020.printed import IMPLICIT, SANGER
from rlreps.experiments.amid_warmuth_2020.tuning import Contender as Contender
from rlreps.experiments.datasets import Observations, load_observations
from rlreps.experiments.reconstruction import ExactComponents, exact_components
from rlreps.stats import Sample, Verdict, all_of
from rlreps.streaming import RULES
from rlreps.study import (
    Claim,
    Experiment,
    Frame,
    Metric,
    NotRunError,
    Results,
    Run,
    TableRows,
)

SANGER_RATES = (
    *(1e-6, 5e-6, 1e-5, 5e-5, 8e-5, 1e-4, 2e-4, 5e-4, 8e-4, 1e-3, 2e-3, 5e-3),
    *(0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
)
"""Rates that the authors' code tries for the explicit rule."""

ABOUT_SANGER = (
    'The paper\'s "Sanger" is the explicit Krasulina of this page. Its behaviour depends on '
    "η0 / ||C||² alone. As published, C starts from entries close to zero. The first steps are "
    "then much longer than C itself, and its columns become so long that later steps hardly turn "
    "them. It runs in float64 here, as in the authors' code. With our start, columns of about unit "
    "length, it takes the other rules' rates and float32."
)

ABOUT_LOSSES = (
    "Final loss, the mean of ||x − Px||² over all {data.rows.shape[0]:,} rows of {data.name}: mean "
    "± standard deviation over {config.repeats} runs. A run that diverged counts with the loss of "
    "no components, {data.exact.no_components:.3f}."
)

SUBSET = (
    "The paper's CIFAR-10 has 60,000 images. If some are missing, the run uses 8,152 training "
    "images: the report then lists the paper's statements but judges none of them."
)
PRECISION = (
    "The authors' code computes in float64. Here only the explicit rule does, because its tiny "
    "start needs float64; the other rules run in float32, the precision of accelerators."
)
START = {
    "contenders.4.initial_scale": "The authors' code starts implicit Krasulina from entries of "
    "1e-5 in Table 1 and of 1e-4 elsewhere. Here it starts from 1e-5 wherever it is judged."
}
"""Deviation of every experiment but the one on Table 1."""
DEVIATIONS: Mapping[str, str] = {"data": SUBSET, "precision": PRECISION}
"""Deviations of every experiment."""

_LEAST_SHARE = 1e-6
"""Least share of variance beyond the top components that float32 rows can represent."""


def published(start: float) -> tuple[Contender, ...]:
    """Return the paper's rules with its γ; the explicit rule's entries start at scale ``start``.

    The implicit rule has the same start in the authors' code, but entries of 1e-5 here: see
    ``START``.
    """
    return (
        Contender(rule="oja", powers=(0.9,)),
        Contender(rule="krasulina", powers=(0.9,)),
        Contender(rule="incremental_pca", powers=(), learning_rates=()),
        Contender(rule=SANGER, learning_rates=SANGER_RATES, initial_scale=start, double=True),
        Contender(rule=IMPLICIT, initial_scale=1e-5),
    )


OUR_SANGER = Contender(rule=SANGER, variant="our start")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PcaConfig:
    """Repeated runs of streaming rules, whose learning rates are chosen beforehand.

    Attributes:
        contenders: Rules, each with γ and η0 to choose from.
        components: Numbers of components k.
        tuning_fraction: Share of the rows that γ and η0 are chosen on.
        repeats: Runs of each rule, with seeds ``seed`` … ``seed + repeats - 1``. A seed sets a
            start and an order of the rows, the same for all rules.
        seed: Seed of the first repeat and of the choice of γ and η0.
    """

    contenders: tuple[Contender, ...] = published(1e-5)
    components: tuple[int, ...] = (5, 10, 20)
    tuning_fraction: float = 0.1
    repeats: int = 10
    seed: int = 0

    @property
    def seeds(self) -> range:
        """Return the seed of each repeat."""
        return range(self.seed, self.seed + self.repeats)


Config = TypeVar("Config", bound=PcaConfig)


class PcaProblem(NamedTuple):
    """Rows with their exact principal components.

    Attributes:
        exact: Rows minus their mean, and their components.
        image_shape: (height, width, ...) of rows that are images, or None.
        is_mnist: Whether the rows are MNIST's images, image for image.
    """

    name: str
    exact: ExactComponents
    image_shape: tuple[int, ...] | None
    is_mnist: bool

    @property
    def rows(self) -> npt.NDArray[np.float32]:
        """Return the rows minus their mean, [n, features]."""
        return self.exact.rows

    @property
    def data_set(self) -> str | None:
        """Return the paper's data set that the rows come from, or None."""
        if self.is_mnist:
            return "MNIST"
        return "CIFAR-10" if self.name.lower().startswith("cifar-10") else None

    @property
    def is_whole(self) -> bool:
        """Return whether the rows are a complete data set of the paper."""
        return self.is_mnist or (self.data_set == "CIFAR-10" and self.rows.shape == (60_000, 3_072))


def check(config: PcaConfig, observations: Observations, parts: int = 1) -> PcaProblem:
    """Find the exact components of rows.

    Raises:
        InputError: If there are fewer rows than parts, too few rows for an update, or more
            components than features or rows; or if the components explain all variance, so that no
            excess loss is defined.
    """
    (count, features), most = observations.rows.shape, max(config.components)
    require(parts <= count, f"at least {parts} rows", count)
    for contender in config.contenders:
        share = config.tuning_fraction if contender.learning_rates else 1.0
        least = contender.rows_per_update
        require(least <= int(count * share), f"{least} rows in {share:.0%} of all", count)
    require(most <= min(count, features), f"k in [1, {min(count, features)}]", most)
    exact = exact_components(observations.rows)
    varies = exact.exact_loss(most) > _LEAST_SHARE * exact.no_components
    require(varies, f"rows that vary beyond their top {most} components", observations.name)
    return PcaProblem(observations.name, exact, observations.image_shape, observations.is_mnist)


def cells(run: Run[Config]) -> dict[str, tuple[Contender, int]]:
    """List every contender with every k."""
    return {
        f"{contender.name}-k{k}": (contender, k)
        for k in run.config.components
        for contender in run.config.contenders
    }


def choose_rates(run: Run[Config], cell: tuple[Contender, int]) -> dict[str, Any]:
    """Choose γ and η0 of a cell; see ``Contender.choose_rates``."""
    config, (contender, k) = run.config, cell
    fraction, seed = config.tuning_fraction, config.seed
    return contender.choose_rates(run.data.rows, k, fraction=fraction, seed=seed)


def measured(
    run: Run[Any],
    cell: tuple[Contender, int],
    found: Mapping[str, Any],
    losses: npt.ArrayLike,
    **axes: Any,
) -> Frame:
    """List losses along axes as for ``Frame.grid``; they are NaN once a run has diverged.

    Returns:
        ``counted``, the loss, or that of no components for a run that diverged; ``excess``, by
        which ``counted`` exceeds the exact loss, in percent; ``diverged``; the contender, k, γ and
        η0.
    """
    (contender, k), exact, table = cell, run.data.exact, np.asarray(losses, np.float64)
    values = {
        "counted": exact.counted(table),
        "excess": exact.excess_percent(table, k),
        "diverged": ~np.isfinite(table),
    }
    about = {"rule": contender.name, "label": contender.label, "published": contender.published}
    rates = {name: found[name] for name in ("power", "learning_rate")}
    return Frame.grid(values, **about, k=k, **rates, **axes, step=found["rows_seen"])


def least_claims(
    results: Results[Any],
    statement: str,
    sample: Callable[[Contender, int], Sample],
    *,
    tuned: bool = False,
) -> Iterator[Claim]:
    """State for each k that implicit Krasulina's sample is the least among the paper's rules.

    Args:
        results: The results.
        statement: What it is about.
        sample: (rule, k) → the sample to compare, by seeds.
        tuned: Whether rules without a learning rate are left out.
    """
    rules = [
        each
        for each in results.config.contenders
        if each.published and (each.learning_rates or not tuned)
    ]

    def judged(k: int, _: Results[Any]) -> Verdict:
        found = {each.rule: sample(each, k) for each in rules}
        if IMPLICIT not in found or len(found) == 1:
            raise NotRunError("implicit Krasulina and another rule")
        ours = found.pop(IMPLICIT)
        return all_of({RULES[rule].title: ours < each for rule, each in found.items()})

    for k in results.config.components:
        stated = "implicit Krasulina's is the least of all"
        yield Claim(f"{statement}, k = {k}", stated, partial(judged, k))


def parts_of(results: Results[Any]) -> Iterator[tuple[Contender, int, Mapping[str, Any]]]:
    """Iterate over the contender, k and measurement of every cell."""
    for name, cell in cells(results.run).items():
        yield *cell, results.found[name]


def tuning_rows(results: Results[Any]) -> TableRows:
    """Tabulate the result of each pair of γ and η0 on the rows that they were chosen on."""
    return [
        {
            "rule": contender.name,
            "k": k,
            "power": power,
            "learning_rate": rate,
            "loss": loss,
            "chosen": (power, rate) == (part["power"], part["learning_rate"]),
        }
        for contender, k, part in parts_of(results)
        for power, losses in zip(contender.powers, part["tuning_losses"], strict=True)
        for rate, loss in zip(contender.learning_rates, losses, strict=True)
    ]


def experiment(presets: Mapping[str, Config], **others: Any) -> Experiment[Config]:
    """Make an experiment on a data set, with further attributes.

    Only runs on a complete data set of the paper with all of its contenders decide its statements.
    """
    paper = presets["paper"]
    theirs = {*paper.contenders}
    return Experiment(
        presets=presets,
        load=load_observations,
        cells=cells,
        value=Metric(value="excess", label="excess over the exact loss (%)", log=True),
        decided_on=paper,
        free=("components", "repeats", "seed", "contenders"),
        decides=lambda r: r.run.data.is_whole and theirs <= {*r.config.contenders},
        **others,
    )
