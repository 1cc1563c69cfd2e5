"""Sources of training batches: pure, jittable samplers that are pytrees."""

from rlreps.sources.live import LiveSource, puddle_world_source
from rlreps.sources.matrix import (
    MatrixSource,
    Source,
    draw_rows_and_tasks,
    encoder_inputs,
    matrix_source,
)
from rlreps.sources.pairs import (
    ChainSource,
    PairSource,
    StateSource,
    chain_source,
    pair_source,
    state_source,
)
from rlreps.sources.store import (
    EntryReader,
    StoreReader,
    StreamedSource,
    raise_read_failure,
    streamed_source,
)

__all__ = [
    "ChainSource",
    "EntryReader",
    "LiveSource",
    "MatrixSource",
    "PairSource",
    "Source",
    "StateSource",
    "StoreReader",
    "StreamedSource",
    "chain_source",
    "draw_rows_and_tasks",
    "encoder_inputs",
    "matrix_source",
    "pair_source",
    "puddle_world_source",
    "raise_read_failure",
    "state_source",
    "streamed_source",
]
