"""State encoders φ: S → R^d: frozen dataclasses with ``init`` and ``apply``.

Parameters are plain pytrees, so ``vmap`` over seeds, ``scan`` and sharding work. Flax modules enter
through ``from_nnx`` and ``from_linen``, any other functions through ``FunctionEncoder``.
"""

from rlreps.config import registry
from rlreps.encoders.base import Encoder, FunctionEncoder, Params, from_linen, from_nnx
from rlreps.encoders.cosines import Cosine, cosine_products
from rlreps.encoders.lookup import AtStates, Tabular, TwoTowers, WithConstant
from rlreps.encoders.networks import (
    MLP,
    BlockSparse,
    Convolutional,
    FourierMLP,
    Layer,
    SeparateMLP,
    channels_first,
    cosine_features,
    dense,
    init_layers,
)

ENCODERS: dict[str, type[Encoder]] = registry(Cosine, FourierMLP, MLP, Tabular)
"""Name → encoder of states that are coordinates or (``tabular``) indices."""

EVERY_ENCODER: dict[str, type[Encoder]] = {**ENCODERS, **registry(Convolutional)}
"""Name → encoder of coordinates, indices or (``convolutional``) images of states."""

__all__ = [
    "ENCODERS",
    "EVERY_ENCODER",
    "MLP",
    "AtStates",
    "BlockSparse",
    "Convolutional",
    "Cosine",
    "Encoder",
    "FourierMLP",
    "FunctionEncoder",
    "Layer",
    "Params",
    "SeparateMLP",
    "Tabular",
    "TwoTowers",
    "WithConstant",
    "channels_first",
    "cosine_features",
    "cosine_products",
    "dense",
    "from_linen",
    "from_nnx",
    "init_layers",
]
