"""What a streaming rule is: the contract that every online principal component analysis meets."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array


class StreamingPCA(NamedTuple):
    """Online principal component analysis as pure functions, for ``scan`` and ``vmap``.

    Attributes:
        init: key → state.
        update: (state, batch [b, features]) → state; rows are centred observations.
        components: state → estimated components [features, k], unit columns, leading first.
    """

    init: Callable[[Array], Any]
    update: Callable[[Any, Array], Any]
    components: Callable[[Any], Array]
