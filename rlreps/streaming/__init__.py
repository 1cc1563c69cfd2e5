"""Online principal component analysis.

``StreamingPCA``, the scikit-learn estimator, is imported when it is asked for: it needs the extra
``rlreps[sklearn]``, the rest does not.
"""

from typing import TYPE_CHECKING, Any

from rlreps.streaming.base import StreamingRule
from rlreps.streaming.centring import CentredState, running_mean, with_running_mean
from rlreps.streaming.combining import online_em_average, projection_average
from rlreps.streaming.eigengame import eigengame
from rlreps.streaming.explicit_krasulina import explicit_krasulina
from rlreps.streaming.implicit_krasulina import implicit_krasulina
from rlreps.streaming.incremental_pca import incremental_pca
from rlreps.streaming.krasulina import krasulina
from rlreps.streaming.matrix_stochastic_gradient import capped_msg, incremental_msg
from rlreps.streaming.missing import impute, require_imputing, with_missing_entries
from rlreps.streaming.mu_eigengame import mu_eigengame
from rlreps.streaming.oja import oja
from rlreps.streaming.passes import Runs, StreamedPasses, stream_passes
from rlreps.streaming.registry import RULES, RuleEntry, make_rule
from rlreps.streaming.sanger import sanger
from rlreps.streaming.schedules import LearningRate, Schedule, power_decay
from rlreps.streaming.workers import (
    WorkerPasses,
    share_rows,
    start_workers,
    stream_workers,
    worker_mesh,
    worker_step,
)

if TYPE_CHECKING:
    from rlreps.streaming.estimator import StreamingPCA

__all__ = [
    "RULES",
    "CentredState",
    "LearningRate",
    "RuleEntry",
    "Runs",
    "Schedule",
    "StreamedPasses",
    "StreamingPCA",
    "StreamingRule",
    "WorkerPasses",
    "capped_msg",
    "eigengame",
    "explicit_krasulina",
    "implicit_krasulina",
    "impute",
    "incremental_msg",
    "incremental_pca",
    "krasulina",
    "make_rule",
    "mu_eigengame",
    "oja",
    "online_em_average",
    "power_decay",
    "projection_average",
    "require_imputing",
    "running_mean",
    "sanger",
    "share_rows",
    "start_workers",
    "stream_passes",
    "stream_workers",
    "with_missing_entries",
    "with_running_mean",
    "worker_mesh",
    "worker_step",
]


def __getattr__(name: str) -> Any:
    if name == "StreamingPCA":
        from rlreps.streaming.estimator import StreamingPCA

        return StreamingPCA
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
