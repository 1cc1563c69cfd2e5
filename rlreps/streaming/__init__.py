"""Online principal component analysis.

Each rule is one frozen dataclass in ``rules``. ``Centred`` wraps a rule for observations that are
not centred. ``run_passes`` runs a rule over stored rows. Two classes need extras and are imported
on first use: ``StreamingPCA``, the scikit-learn estimator (``rlreps[sklearn]``), and ``RiverPCA``,
the river transformer (``rlreps[river]``).
"""

from typing import TYPE_CHECKING, Any

from rlreps.streaming.centring import Centred
from rlreps.streaming.passes import MakeRule, PassResult, Runs, run_passes
from rlreps.streaming.rules import RULES
from rlreps.streaming.rules.base import PowerDecay, StreamingRule
from rlreps.streaming.rules.eigengame import Eigengame, MuEigengame
from rlreps.streaming.rules.factor import ExplicitKrasulina, ImplicitKrasulina
from rlreps.streaming.rules.gradient import Krasulina, Oja, Sanger
from rlreps.streaming.rules.incremental_pca import IncrementalPCA
from rlreps.streaming.rules.orthonormal import mean_then_qr

if TYPE_CHECKING:
    from rlreps.streaming.estimator import StreamingPCA
    from rlreps.streaming.river import RiverPCA

__all__ = [
    "RULES",
    "Centred",
    "Eigengame",
    "ExplicitKrasulina",
    "ImplicitKrasulina",
    "IncrementalPCA",
    "Krasulina",
    "MakeRule",
    "MuEigengame",
    "Oja",
    "PassResult",
    "PowerDecay",
    "RiverPCA",
    "Runs",
    "Sanger",
    "StreamingPCA",
    "StreamingRule",
    "mean_then_qr",
    "run_passes",
]


def __getattr__(name: str) -> Any:
    if name == "StreamingPCA":
        from rlreps.streaming.estimator import StreamingPCA

        return StreamingPCA
    if name == "RiverPCA":
        from rlreps.streaming.river import RiverPCA

        return RiverPCA
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
