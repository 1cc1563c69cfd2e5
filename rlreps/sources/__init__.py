"""Sources of training batches: pure, jittable samplers that are pytrees."""

from rlreps.sources.live import LiveSource, puddle_world_source
from rlreps.sources.matrix import MatrixSource, Source, draw_rows_and_tasks, matrix_source
from rlreps.sources.pairs import ChainSource, PairSource, chain_source, pair_source
from rlreps.sources.store import EntryReader, StoreReader, StreamedSource, streamed_source

__all__ = [
    "ChainSource",
    "EntryReader",
    "LiveSource",
    "MatrixSource",
    "PairSource",
    "Source",
    "StoreReader",
    "StreamedSource",
    "chain_source",
    "draw_rows_and_tasks",
    "matrix_source",
    "pair_source",
    "puddle_world_source",
    "streamed_source",
]
