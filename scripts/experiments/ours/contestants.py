"""The rows of the benchmark as data: objectives, the batches they see, and their truths."""

import dataclasses
import hashlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from jax import Array

from rlreps import losses
from rlreps.config import configurable, import_object, options
from rlreps.cumulants import Cumulants
from rlreps.errors import InputError, own_code, require, require_choice
from rlreps.experiments.ours.chain_truths import ChainTruths, Truth
from rlreps.losses import Objective
from rlreps.operators import Slowness

BEHIND = "walk behind the constant"
"""Truth of objectives that leave out the constant function."""

TRUTHS: Mapping[str, Callable[[ChainTruths], Truth]] = {
    "Ψ": ChainTruths.successor_measure,
    "M̃": ChainTruths.density_ratio,
    "log M̃": ChainTruths.log_density_ratio,
    "walk": ChainTruths.walk,
    BEHIND: lambda chain: chain.walk().behind_constant(),
    "walk, largest |λ|": ChainTruths.largest_of_walk,
    "steps, largest |λ|": lambda chain: dataclasses.replace(chain, discount=0.0).largest_of_walk(),
}
"""Name → truth of a chain."""

FIXED_POINT = "fixed point of TD"
"""Truth of temporal differences, which depends on d and on the cumulants."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        method: Its label.
        objective: The objective that is trained; None for a control.
        option: Its option that is tuned together with the learning rate, if any.
        values: Values of ``option`` to try.
        sees: Kind of the rows in its batches.
        truth: Name of its truth: one of ``TRUTHS``, or ``FIXED_POINT``.
        ordered: Whether its k-th feature should equal the k-th function.
        towers: Whether two encoders are trained, f and g.
    """

    method: str
    objective: Objective | None = None
    option: str = ""
    values: tuple[float, ...] = ()
    _: dataclasses.KW_ONLY
    sees: Literal["entries", "transitions", "futures", "nothing"] = "futures"
    truth: str = "M̃"
    ordered: bool = False
    towers: bool = False

    @property
    def family(self) -> str:
        """Name of the rows that share a figure: they see the same batches and are ordered alike."""
        return f"{self.sees}, ordered" if self.ordered else self.sees


COSINES = Row("cosines, no data", sees="nothing")
RANDOM = Row("random features, no data", sees="nothing")
COUNTED = Row("counted model", sees="transitions")
OF_PLANE = (COSINES, RANDOM)
"""Controls for agents that see their place in a plane."""

CONTROLS = (*OF_PLANE, COUNTED)

_ENTRIES: Any = {"sees": "entries", "truth": "Ψ"}
_IN_ORDER: Any = {"truth": "walk", "ordered": True}
_NESTED: Any = {"towers": True, "ordered": True}
_STEPS: Any = {"sees": "transitions"}
_RATES = (0.03, 0.1, 0.3)
_PENALTIES = (2.0, 5.0, 20.0)
_LARGE_BATCH = losses.LargeBatch(precondition=1e-2, leave_one_out=True)
_EXPLICIT = losses.Explicit(weight_learning_rate=0.03)
_SEQUENTIAL = losses.NestedLora(nesting="sequential")
_GENERALISED = losses.GeneralizedGraphDrawing()
_SELF, _FUTURE_SELF = losses.SelfPrediction(), losses.BYOLGamma()

OBJECTIVES = (
    Row("large batch", _LARGE_BATCH, "precondition", (1e-3, 1e-2, 1e-1), **_ENTRIES),
    Row("Danskin-LISSA", losses.DanskinLissa(), "kappa0", (0.5, 1.0, 1.9), **_ENTRIES),
    Row("Danskin in chunks", losses.DanskinChunked(), "chunk_step", (0.25, 0.5, 0.75), **_ENTRIES),
    Row("explicit", _EXPLICIT, "weight_learning_rate", (3e-3, 3e-2, 3e-1), **_ENTRIES),
    Row("SpIN", losses.Spin(operator=Slowness()), **_IN_ORDER),
    Row("graph drawing", losses.GraphDrawing(), "penalty", _PENALTIES, truth="walk"),
    Row("generalised graph drawing", _GENERALISED, "penalty", _PENALTIES, **_IN_ORDER),
    Row("ALLO", losses.AugmentedLagrangian(), "dual_rate", (1e-3, 1e-2, 1e-1), **_IN_ORDER),
    Row("OMM", losses.OrbitalMinimization(), **_IN_ORDER),
    Row("NeuralEF", losses.NeuralEigenfunctions(), **_IN_ORDER),
    Row("spectral contrastive", losses.SpectralContrastive(), towers=True),
    Row("NestedLoRA", losses.NestedLora(), **_NESTED),
    Row("NestedLoRA, sequential", _SEQUENTIAL, **_NESTED),
    Row("InfoNCE", losses.InfoNCE(), truth="log M̃", towers=True),
    Row(
        *("TD InfoNCE", losses.TDInfoNCE(), "averaging_rate", _RATES),
        **{**_STEPS, "truth": "log M̃", "towers": True},
    ),
    Row(
        *("TD low rank", losses.TDLowRank(), "averaging_rate", _RATES),
        **{**_STEPS, "truth": FIXED_POINT, "towers": True},
    ),
    Row(
        *("random cumulants by TD", losses.CumulantDifferences(), "averaging_rate", _RATES),
        **{**_STEPS, "truth": FIXED_POINT},
    ),
    Row("Barlow Twins", losses.BarlowTwins(), "redundancy", (5e-3, 5e-2, 5e-1), truth=BEHIND),
    Row("VICReg", losses.VICReg(), "covariance", (1.0, 10.0, 100.0), truth=BEHIND),
    Row(
        *("self-prediction", _SELF, "averaging_rate", (0.03, 0.3, 1.0)),
        **{**_STEPS, "truth": "steps, largest |λ|"},
    ),
    Row("BYOL-γ", _FUTURE_SELF, "averaging_rate", (0.03, 0.3, 1.0), truth="walk, largest |λ|"),
)
"""Every objective that is compared."""


@configurable
@dataclasses.dataclass(frozen=True)
class OfPixels:
    """Cumulants of the pixels of frames [b, height, width, channels]."""

    family: Cumulants

    def init(self, key: Array, num_tasks: int) -> Any:
        """Draw cumulants."""
        return self.family.init(key, num_tasks)

    def apply(self, params: Any, frames: Array) -> Array:
        """Evaluate the cumulants, [b, t]."""
        return self.family.apply(params, frames.reshape(len(frames), -1))


def import_instance(place: str, expected: str) -> Any:
    """Import an object as ``import_object`` does; make an instance of a class with its defaults.

    Raises:
        InputError: As for ``import_object``, or if the class cannot be called without arguments.
    """
    found = import_object(place, expected)
    if not isinstance(found, type):
        return found
    with own_code(f"{expected} at {place}"):
        return found()


def digest_of_code(place: str, objective: Any) -> str:
    """Return the SHA-256 of an objective's place and of the file that defines its class.

    A class that no file defines, as in a notebook, has its place alone.
    """
    module = sys.modules.get(type(objective).__module__)
    file = getattr(module, "__file__", None)
    code = b"" if file is None else Path(file).read_bytes()
    return hashlib.sha256(place.encode() + b"\0" + code).hexdigest()


def row_of(place: str) -> Row:
    """Load a row of the user's own.

    An objective whose rows are pairs sees futures and has one encoder; its truth is the walk. Any
    other objective sees entries; its truth is Ψ. A ``Row`` names its batches and its truth.

    Args:
        place: ``module:name`` of an objective, of a class of objectives whose options all have
            defaults, or of a ``Row``. The working folder is searched too.

    Raises:
        InputError: If there is no such object, if the table has a row of the same name, or if a row
            names an option that its objective lacks.
    """
    found = import_instance(place, "an objective")
    if isinstance(found, Objective):
        sees: Any = {"truth": "walk"} if found.needs_clips else _ENTRIES
        found = Row(found.title, found, **sees)
    if not (isinstance(found, Row) and found.objective is not None):
        raise InputError(f"expected an Objective or a Row at {place}, got {type(found).__name__}")
    taken = {row.method for row in (*OBJECTIVES, *CONTROLS)}
    require(found.method not in taken, "a title that no row of the table has", found.method)
    require_choice("truth", found.truth, (*TRUTHS, FIXED_POINT))
    require_choice("sees", found.sees, ("entries", "transitions", "futures"))
    if found.option or found.values:
        require_choice("option", found.option, [each.name for each in options(found.objective)])
        require(len(found.values) >= 1, f"values of {found.option} to try", found.values)
    return found
