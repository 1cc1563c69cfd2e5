"""The one dictionary from a streaming rule's name to its functions."""

from collections.abc import Callable
from typing import NamedTuple

from rlreps.streaming.base import StreamingRule
from rlreps.streaming.eigengame import eigengame
from rlreps.streaming.explicit_krasulina import explicit_krasulina
from rlreps.streaming.implicit_krasulina import implicit_krasulina
from rlreps.streaming.krasulina import krasulina
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
    """

    build: Build
    title: str
    imputes: bool
    orders_components: bool


RULES: dict[str, RuleEntry] = {
    "eigengame": RuleEntry(
        lambda features, k, rate: eigengame(features, k, learning_rate=rate),
        "EigenGame",
        imputes=False,
        orders_components=True,
    ),
    "explicit_krasulina": RuleEntry(
        lambda features, k, rate: explicit_krasulina(features, k, learning_rate=rate),
        "explicit Krasulina",
        imputes=True,
        orders_components=False,
    ),
    "implicit_krasulina": RuleEntry(
        lambda features, k, rate: implicit_krasulina(features, k, learning_rate=rate),
        "implicit Krasulina",
        imputes=True,
        orders_components=False,
    ),
    "krasulina": RuleEntry(
        lambda features, k, rate: krasulina(features, k, learning_rate=rate),
        "Krasulina",
        imputes=True,
        orders_components=False,
    ),
    "oja": RuleEntry(
        lambda features, k, rate: oja(features, k, learning_rate=rate),
        "Oja",
        imputes=True,
        orders_components=True,
    ),
    "sanger": RuleEntry(
        lambda features, k, rate: sanger(features, k, learning_rate=rate),
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
    return RULES[name].build(num_inputs, num_components, learning_rate)
