"""The one dictionary from a streaming rule's name to its functions."""

from collections.abc import Callable
from typing import NamedTuple

from rlreps.streaming.base import StreamingRule
from rlreps.streaming.eigengame import eigengame
from rlreps.streaming.explicit_krasulina import explicit_krasulina
from rlreps.streaming.implicit_krasulina import implicit_krasulina
from rlreps.streaming.incremental_pca import incremental_pca
from rlreps.streaming.krasulina import krasulina
from rlreps.streaming.matrix_stochastic_gradient import capped_msg, incremental_msg
from rlreps.streaming.mu_eigengame import mu_eigengame
from rlreps.streaming.oja import oja
from rlreps.streaming.sanger import sanger
from rlreps.streaming.schedules import LearningRate
from rlreps.validation import require_choice

Build = Callable[[int, int, LearningRate], StreamingRule]
"""(features, k, learning rate) → rule."""


class RuleEntry(NamedTuple):
    """What is known of a rule before it is built.

    Attributes:
        build: Makes it.
        title: Its name in figures.
        imputes: Whether a missing entry can be replaced by its reconstruction, because residuals
            alone turn the rule's span, and a reconstructed entry has none.
        orders_components: Whether components are single eigenvectors, leading first.
        needs_learning_rate: Whether the rule looks at the learning rate it is built with.
        least_rows_per_update: k → rows that an update has to have, for the rule to learn at all.
    """

    build: Build
    title: str
    imputes: bool
    orders_components: bool
    needs_learning_rate: bool
    least_rows_per_update: Callable[[int], int] = lambda k: 1


RULES: dict[str, RuleEntry] = {
    "capped_msg": RuleEntry(
        lambda features, k, rate: capped_msg(features, k, learning_rate=rate),
        "capped MSG",
        imputes=True,
        orders_components=False,
        needs_learning_rate=True,
    ),
    "eigengame": RuleEntry(
        lambda features, k, rate: eigengame(features, k, learning_rate=rate),
        "EigenGame",
        imputes=False,
        orders_components=True,
        needs_learning_rate=True,
        least_rows_per_update=lambda k: k,
    ),
    "explicit_krasulina": RuleEntry(
        lambda features, k, rate: explicit_krasulina(features, k, learning_rate=rate),
        "explicit Krasulina",
        imputes=True,
        orders_components=False,
        needs_learning_rate=True,
    ),
    "implicit_krasulina": RuleEntry(
        lambda features, k, rate: implicit_krasulina(features, k, learning_rate=rate),
        "implicit Krasulina",
        imputes=True,
        orders_components=False,
        needs_learning_rate=True,
    ),
    "incremental_msg": RuleEntry(
        lambda features, k, rate: incremental_msg(features, k, learning_rate=rate),
        "incremental MSG",
        imputes=True,
        orders_components=False,
        needs_learning_rate=True,
    ),
    "incremental_pca": RuleEntry(
        lambda features, k, rate: incremental_pca(features, k),
        "incremental PCA",
        imputes=True,
        orders_components=True,
        needs_learning_rate=False,
    ),
    "krasulina": RuleEntry(
        lambda features, k, rate: krasulina(features, k, learning_rate=rate),
        "Krasulina",
        imputes=True,
        orders_components=False,
        needs_learning_rate=True,
    ),
    "mu_eigengame": RuleEntry(
        lambda features, k, rate: mu_eigengame(features, k, learning_rate=rate),
        "μ-EigenGame",
        imputes=False,
        orders_components=True,
        needs_learning_rate=True,
    ),
    "oja": RuleEntry(
        lambda features, k, rate: oja(features, k, learning_rate=rate),
        "Oja",
        imputes=True,
        orders_components=True,
        needs_learning_rate=True,
    ),
    "sanger": RuleEntry(
        lambda features, k, rate: sanger(features, k, learning_rate=rate),
        "Sanger (GHA)",
        imputes=False,
        orders_components=True,
        needs_learning_rate=True,
    ),
}
"""Rule name → entry."""


def make_rule(
    name: str, num_inputs: int, num_components: int, *, learning_rate: LearningRate
) -> StreamingRule:
    """The rule of a name.

    Args:
        name: One of ``RULES``.
        num_inputs: Features of an observation.
        num_components: k.
        learning_rate: η, or a schedule of it; rules without one do not look at it.

    Raises:
        InputError: For another name, sizes that do not fit or a rate that is not positive.
    """
    require_choice("rule", name, tuple(RULES))
    return RULES[name].build(num_inputs, num_components, learning_rate)
