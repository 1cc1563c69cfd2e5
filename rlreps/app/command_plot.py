"""The commands that draw: those below ``rlreps plot``, and the page to explore."""

from typing import Any

from rlreps.app.figures import (
    draw_components,
    draw_coverage,
    draw_curves,
    draw_environment,
    draw_spectrum,
)
from rlreps.app.options import Choice
from rlreps.explore.measure import explore
from rlreps.subspace.svd import DECOMPOSITIONS, Decomposition

__all__ = [
    "draw_components",
    "draw_coverage",
    "draw_curves",
    "draw_environment",
    "draw_spectrum",
    "explore",
]

CHOICES: dict[Any, Choice] = {Decomposition: Choice("method", DECOMPOSITIONS)}
