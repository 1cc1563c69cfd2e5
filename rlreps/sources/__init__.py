"""Sources of training batches: pure, jittable samplers that are pytrees."""

from rlreps.sources.live import LiveSource, puddle_world_source
from rlreps.sources.matrix import (
    MatrixSource,
    Source,
    draw_rows_and_tasks,
    encoder_inputs,
    matrix_source,
)
from rlreps.sources.store import (
    EntryReader,
    StoreReader,
    StreamedSource,
    raise_read_failure,
    streamed_source,
)

__all__ = [
    "EntryReader",
    "LiveSource",
    "MatrixSource",
    "Source",
    "StoreReader",
    "StreamedSource",
    "draw_rows_and_tasks",
    "encoder_inputs",
    "matrix_source",
    "puddle_world_source",
    "raise_read_failure",
    "streamed_source",
]
