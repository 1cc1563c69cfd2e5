"""Features of trained networks as a basis of least squares."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.encoders import Encoder, Params
from rlreps.errors import InputError
from rlreps.numerics import matmul
from rlreps.successor.basis import DenseBasis, in_blocks
from rlreps.successor.forward_backward import ActionHeads, Inputs
from rlreps.successor.methods import FitConfig, TemporalDifferences
from rlreps.successor.observed import Observed

MOST_FEATURES = 256
"""Largest number of features of a network that least squares use, the constant included."""


class Networks(NamedTuple):
    """The encoders of a representation.

    Attributes:
        forward: F.
        backward: B; None if only F is trained.
    """

    forward: ActionHeads
    backward: Encoder | None


def networks_of(
    observed: Observed, config: FitConfig, encoders: Mapping[str, Encoder | None]
) -> Networks:
    """Fit the encoders to the data's sizes.

    Raises:
        InputError: For continuous actions, which networks do not support, or encoders that do not
            take the observations.
    """
    if observed.num_actions is None:
        raise InputError(
            "continuous actions are not supported here (method td, monte_carlo); discretise them "
            "with a gymnasium.ActionWrapper before collecting, or use method least_squares"
        )
    d, count = config.num_features, observed.num_actions
    # A user's own encoder must have exactly the width that F needs.
    given, own = encoders["encoder"], encoders["backward_encoder"]
    encoder = observed.default_encoder if given is None else given
    general = encoder if hasattr(encoder, "num_features") else observed.default_encoder
    backward = observed.sized(general if own is None else own, d)
    return Networks(
        forward=ActionHeads(observed.sized(encoder, count * d), num_actions=count),
        backward=backward if isinstance(config.method, TemporalDifferences) else None,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkBasis(DenseBasis):
    """The principal components of the features of trained networks, and a constant.

    Attributes:
        networks: The encoders.
        params: Their parameters, ``forward`` and ``backward``.
        inputs: Map from observations to the encoders' inputs.
        centre: Mean of the networks' features over the data, [e].
        matrix: Maps centred features to components of unit variance, [e, p − 1].
    """

    networks: Networks
    params: Mapping[str, Params]
    inputs: Inputs
    centre: np.ndarray
    matrix: np.ndarray

    @classmethod
    def of(
        cls,
        networks: Networks,
        params: Mapping[str, Params],
        inputs: Inputs,
        observations: np.ndarray,
    ) -> "NetworkBasis":
        """Take the components at some observations; keep those that single precision resolves."""
        program = jax.jit(functools.partial(_encoded, networks, params, inputs))
        features = in_blocks(program, observations).astype(np.float64)
        centre = features.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(features, rowvar=False, bias=True))
        order = np.argsort(values)[::-1][: MOST_FEATURES - 1]
        kept = order[values[order] > 1e-9 * max(values[-1], 1e-30)]
        matrix = vectors[:, kept] / np.sqrt(values[kept])
        # In the order of a stored array, so that products have the same bits after loading.
        matrix = np.ascontiguousarray(matrix, np.float32)
        return cls(networks, params, inputs, np.asarray(centre, np.float32), matrix)

    @property
    def num_features(self) -> int:
        return int(self.matrix.shape[1]) + 1

    @functools.cached_property
    def program(self) -> Callable[[Any], Array]:
        """Observations [m, ...] → features [m, p] in one compiled call."""

        def features(
            params: Mapping[str, Params], inputs: Inputs, centre: Array, matrix: Array, block: Array
        ) -> Array:
            encoded = _encoded(self.networks, params, inputs, block)
            components = matmul(encoded - centre[None, :], matrix)
            return jnp.concatenate([components, jnp.ones_like(components[:, :1])], axis=1)

        fixed = self.params, self.inputs, jnp.asarray(self.centre), jnp.asarray(self.matrix)
        return functools.partial(jax.jit(features), *fixed)

    def apply(self, observations: np.ndarray) -> np.ndarray:
        return in_blocks(self.program, observations)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays that are stored."""
        return {
            "centre": self.centre,
            "matrix": self.matrix,
            "network": dict(self.params),
            "inputs": self.inputs,
        }

    @classmethod
    def stored(
        cls,
        observed: Observed,
        config: FitConfig,
        encoders: Mapping[str, Encoder | None],
        arrays: Mapping[str, Any],
    ) -> "NetworkBasis":
        """Rebuild a basis from its ``arrays``."""
        parts = (arrays[name] for name in ("network", "inputs", "centre", "matrix"))
        return cls(networks_of(observed, config, encoders), *parts)

    @staticmethod
    def template(
        observed: Observed, config: FitConfig, encoders: Mapping[str, Encoder | None]
    ) -> dict[str, Any]:
        """Return the shapes of those parts of ``arrays`` that are pytrees."""
        networks = networks_of(observed, config, encoders)
        indices = observed.num_states is not None
        vector = len(observed.shape) == 1 or (observed.shape == () and not indices)

        def shapes() -> dict[str, Any]:
            key = jax.random.key(0)
            ends = jnp.zeros(observed.shape if vector else ())
            params = {"forward": networks.forward.init(key)}
            if networks.backward is not None:
                params["backward"] = networks.backward.init(key)
            return {"network": params, "inputs": Inputs(ends, ends, indices=indices)}

        template: dict[str, Any] = jax.eval_shape(shapes)
        return template


def _encoded(
    networks: Networks, params: Mapping[str, Params], inputs: Inputs, block: Array
) -> Array:
    """Compute the networks' features, [m, e]."""
    states = inputs(block)
    parts = [networks.forward.encoder.apply(params["forward"], states)]
    if networks.backward is not None:
        parts.append(networks.backward.apply(params["backward"], states))
    return jnp.concatenate(parts, axis=1)
