"""Sources of training batches: pure, jittable samplers that are pytrees."""

from rlreps.sources.datasets import (
    MNIST_CHECKSUM,
    Images,
    Observations,
    load_images,
    load_observations,
)
from rlreps.sources.live import LiveSource, puddle_world_source
from rlreps.sources.matrix import MatrixSource, Source, draw_rows_and_tasks, matrix_source
from rlreps.sources.pairs import ChainSource, PairSource, chain_source, pair_source
from rlreps.sources.store import EntryReader, StoreReader, StreamedSource, streamed_source

__all__ = [
    "MNIST_CHECKSUM",
    "ChainSource",
    "EntryReader",
    "Images",
    "LiveSource",
    "MatrixSource",
    "Observations",
    "PairSource",
    "Source",
    "StoreReader",
    "StreamedSource",
    "chain_source",
    "draw_rows_and_tasks",
    "load_images",
    "load_observations",
    "matrix_source",
    "pair_source",
    "puddle_world_source",
    "streamed_source",
]
