"""The one dictionary from a streaming rule's name to its functions."""

from collections.abc import Callable
from typing import NamedTuple

from rlreps.errors import require_choice
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


class RuleEntry(NamedTuple):
    """What is known of a rule before it is built.

    Attributes:
        build: (features, k) and, as ``learning_rate``, η where the rule has one → rule.
        title: Its name in figures.
        imputes: Whether a missing entry can be replaced by its reconstruction, because residuals
            alone turn the rule's span, and a reconstructed entry has none.
        orders_components: Whether components are single eigenvectors, leading first.
        needs_learning_rate: Whether the rule has a learning rate.
        least_rows_per_update: k → rows that an update has to have, for the rule to learn at all.
    """

    build: Callable[..., StreamingRule]
    title: str
    imputes: bool
    orders_components: bool
    needs_learning_rate: bool = True
    least_rows_per_update: Callable[[int], int] = lambda k: 1


RULES: dict[str, RuleEntry] = {
    "capped_msg": RuleEntry(
        capped_msg,
        "capped MSG",
        imputes=True,
        orders_components=False,
    ),
    "eigengame": RuleEntry(
        eigengame,
        "EigenGame",
        imputes=False,
        orders_components=True,
        least_rows_per_update=lambda k: k,
    ),
    "explicit_krasulina": RuleEntry(
        explicit_krasulina,
        "explicit Krasulina",
        imputes=True,
        orders_components=False,
    ),
    "implicit_krasulina": RuleEntry(
        implicit_krasulina,
        "implicit Krasulina",
        imputes=True,
        orders_components=False,
    ),
    "incremental_msg": RuleEntry(
        incremental_msg,
        "incremental MSG",
        imputes=True,
        orders_components=False,
    ),
    "incremental_pca": RuleEntry(
        incremental_pca,
        "incremental PCA",
        imputes=True,
        orders_components=True,
        needs_learning_rate=False,
    ),
    "krasulina": RuleEntry(
        krasulina,
        "Krasulina",
        imputes=True,
        orders_components=False,
    ),
    "mu_eigengame": RuleEntry(
        mu_eigengame,
        "μ-EigenGame",
        imputes=False,
        orders_components=True,
    ),
    "oja": RuleEntry(
        oja,
        "Oja",
        imputes=True,
        orders_components=True,
    ),
    "sanger": RuleEntry(
        sanger,
        "Sanger (GHA)",
        imputes=False,
        orders_components=True,
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
    entry = RULES[name]
    rate = {"learning_rate": learning_rate} if entry.needs_learning_rate else {}
    return entry.build(num_inputs, num_components, **rate)
