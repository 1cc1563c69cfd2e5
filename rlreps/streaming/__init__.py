"""Online principal component analysis.

Each rule is one frozen dataclass in ``rules``. ``Centred`` and ``WithMissingEntries`` wrap a rule
for observations that are not centred or not complete. ``run_passes`` and ``run_workers`` run a rule
over stored rows. Two classes are imported on first use, since they need extras: ``StreamingPCA``,
the scikit-learn estimator (``rlreps[sklearn]``), and ``RiverPCA``, the river transformer
(``rlreps[river]``).
"""

from typing import TYPE_CHECKING, Any

from rlreps.streaming.centring import Centred, CentredState
from rlreps.streaming.learning_rates import LearningRate, PowerDecay, Schedule
from rlreps.streaming.missing import WithMissingEntries, impute, require_imputing
from rlreps.streaming.passes import PassResult, Runs, run_passes
from rlreps.streaming.rules import RULES
from rlreps.streaming.rules.base import Rule, StreamingRule
from rlreps.streaming.rules.combining import online_em_average, projection_average
from rlreps.streaming.rules.eigengame import Eigengame, MuEigengame
from rlreps.streaming.rules.explicit_krasulina import ExplicitKrasulina
from rlreps.streaming.rules.implicit_krasulina import ImplicitKrasulina
from rlreps.streaming.rules.incremental_pca import IncrementalPCA
from rlreps.streaming.rules.krasulina import Krasulina
from rlreps.streaming.rules.msg import CappedMSG, IncrementalMSG
from rlreps.streaming.rules.oja import Oja
from rlreps.streaming.rules.sanger import Sanger
from rlreps.streaming.workers import (
    MeanThenQR,
    WorkerResult,
    run_workers,
    share_rows,
    start_workers,
    worker_mesh,
    worker_step,
)

if TYPE_CHECKING:
    from rlreps.streaming.estimator import StreamingPCA
    from rlreps.streaming.river import RiverPCA

__all__ = [
    "RULES",
    "CappedMSG",
    "Centred",
    "CentredState",
    "Eigengame",
    "ExplicitKrasulina",
    "ImplicitKrasulina",
    "IncrementalMSG",
    "IncrementalPCA",
    "Krasulina",
    "LearningRate",
    "MeanThenQR",
    "MuEigengame",
    "Oja",
    "PassResult",
    "PowerDecay",
    "RiverPCA",
    "Rule",
    "Runs",
    "Sanger",
    "Schedule",
    "StreamingPCA",
    "StreamingRule",
    "WithMissingEntries",
    "WorkerResult",
    "impute",
    "online_em_average",
    "projection_average",
    "require_imputing",
    "run_passes",
    "run_workers",
    "share_rows",
    "start_workers",
    "worker_mesh",
    "worker_step",
]


def __getattr__(name: str) -> Any:
    if name == "StreamingPCA":
        from rlreps.streaming.estimator import StreamingPCA

        return StreamingPCA
    if name == "RiverPCA":
        from rlreps.streaming.river import RiverPCA

        return RiverPCA
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
