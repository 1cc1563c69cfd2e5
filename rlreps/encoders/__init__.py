"""State encoders φ: S → R^d, as pairs of pure functions over plain parameter pytrees.

Shared networks are written in Flax NNX; ``from_nnx`` and ``from_linen`` bring in a user's. The rest
of the library sees only (init, apply): ``vmap`` over seeds, ``scan`` and sharding just work.
"""

from rlreps.encoders.base import Encoder, Params, from_linen, from_nnx
from rlreps.encoders.convolutional import convolutional
from rlreps.encoders.cosines import cosine, cosine_products
from rlreps.encoders.lookup import at_states, tabular, with_constant
from rlreps.encoders.perceptrons import cosine_features, fourier_mlp, mlp, separate_mlp
from rlreps.encoders.registry import ENCODERS, make_encoder

__all__ = [
    "ENCODERS",
    "Encoder",
    "Params",
    "at_states",
    "convolutional",
    "cosine",
    "cosine_features",
    "cosine_products",
    "fourier_mlp",
    "from_linen",
    "from_nnx",
    "make_encoder",
    "mlp",
    "separate_mlp",
    "tabular",
    "with_constant",
]
