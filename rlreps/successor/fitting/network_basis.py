"""Train forward-backward networks on transitions; least squares use their features as a basis."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.encoders import Encoder, Params
from rlreps.numerics import matmul
from rlreps.runs.folder import RunFolder
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import DenseBasis, in_blocks
from rlreps.successor.fitting.config import FitConfig, TemporalDifferences
from rlreps.successor.fitting.forward_backward import (
    ActionHeads,
    ForwardBackward,
    ForwardBackwardLoss,
    Step,
    TransitionSource,
)
from rlreps.successor.fitting.least_squares import Behaviour
from rlreps.successor.fitting.observed import Inputs, Observed
from rlreps.successor.fitting.transitions import Transitions

_MOST_NETWORK_FEATURES = 256
"""Largest number of features of a network that least squares use, the constant included."""
_MOST_COORDINATES = 16
"""Largest number of principal components that distances between observations use."""


def networks_of(observed: Observed, encoder: Encoder, num_features: int) -> ForwardBackward:
    """Return F and B, with encoders sized for the data.

    B takes the default encoder if F's encoder fixes its own number of features. An encoder that
    does not take the observations raises an ``InputError``.
    """
    count = observed.actions.size
    # A user's own encoder must have exactly the width that F needs.
    general = encoder if hasattr(encoder, "num_features") else observed.default_encoder
    return ForwardBackward(
        ActionHeads(observed.sized(encoder, count * num_features), num_heads=count),
        observed.sized(general, num_features),
    )


def train_networks(
    data: Transitions,
    actions: ActionBasis,
    config: FitConfig,
    networks: ForwardBackward,
    inputs: Inputs,
    policy: Behaviour,
    folder: RunFolder | None,
) -> Params:
    """Train F and B; return their parameters, ``forward`` and ``backward``.

    Temporal differences follow ``policy``, which made the data, after a cut.
    """
    # Deferred: training imports much that the mathematics and least squares do not need.
    from rlreps.training.population import train

    assert isinstance(config.method, TemporalDifferences)
    assert config.optimizer is not None
    assert config.steps is not None
    assert config.rows is not None
    taken = actions.weights(data.action)
    following = next_weights(data, taken, policy)
    now, then = inputs.centred(data.observation), inputs.centred(data.next_observation)
    source = TransitionSource(inputs, Step(*map(jnp.asarray, (now, taken, then, following))))
    objective = ForwardBackwardLoss(
        num_features=config.num_features,
        discount=config.discount,
        averaging_rate=config.method.averaging_rate,
        encoder=networks,
    )
    every = max(1, config.steps // 20)
    result = train(
        networks,
        objective,
        source,
        optimizer=config.optimizer,
        steps=config.steps,
        rows=config.rows,
        seeds=[config.seed],
        evaluate_every=every,
        checkpoint_every=5 * every,
        folder=folder,
        description=f"{objective.title}, d = {config.num_features}",
    )
    return result.params()


def next_weights(data: Transitions, taken: np.ndarray, behaviour: Behaviour) -> np.ndarray:
    """Return the weights of the actions that follow each row, [N, m_b].

    The weights are b(a') for the data's own next action, of which ``taken`` [N, m_b] holds b; the
    average of b over ``behaviour``, which made the data, after a cut; and zero after a terminal
    state.
    """
    weights = np.append(taken[1:], taken[:1], axis=0)
    weights[data.terminated] = 0.0
    assert data.truncated is not None  # ``Transitions`` fills it in.
    if data.truncated.any():
        weights[data.truncated] = behaviour(data.next_observation[data.truncated])
    return weights


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

    networks: ForwardBackward
    params: Params
    inputs: Inputs
    centre: np.ndarray
    matrix: np.ndarray

    @classmethod
    def of(
        cls, networks: ForwardBackward, params: Params, inputs: Inputs, observations: np.ndarray
    ) -> "NetworkBasis":
        """Compute components from some observations; keep those that single precision resolves."""
        program = jax.jit(functools.partial(_encoded, networks, params, inputs))
        features = in_blocks(program, inputs.centred(observations)).astype(np.float64)
        centre = features.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(features, rowvar=False, bias=True))
        # The largest come last, since the last features multiply all those of a box's actions.
        order = np.argsort(values)[1 - _MOST_NETWORK_FEATURES :]
        kept = order[values[order] > 1e-9 * max(values[-1], 1e-30)]
        matrix = vectors[:, kept] / np.sqrt(values[kept])
        # Use the memory order of a stored array, so that products have the same bits after loading.
        matrix = np.ascontiguousarray(matrix, np.float32)
        return cls(networks, params, inputs, np.asarray(centre, np.float32), matrix)

    @property
    def num_features(self) -> int:
        return int(self.matrix.shape[1]) + 1

    @property
    def num_states(self) -> int | None:
        return self.inputs.observed.num_states

    @functools.cached_property
    def program(self) -> Callable[[Any], Array]:
        """Observations [m, ...] (see ``Inputs.centred``) → features [m, p] in one compiled call."""

        def features(
            params: Params, inputs: Inputs, centre: Array, matrix: Array, block: Array
        ) -> Array:
            encoded = _encoded(self.networks, params, inputs, block)
            components = matmul(encoded - centre[None, :], matrix)
            return jnp.concatenate([components, jnp.ones_like(components[:, :1])], axis=1)

        fixed = self.params, self.inputs, jnp.asarray(self.centre), jnp.asarray(self.matrix)
        return functools.partial(jax.jit(features), *fixed)

    def __getstate__(self) -> dict[str, Any]:
        # A compiled program cannot be pickled.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def apply(self, observations: np.ndarray) -> np.ndarray:
        return in_blocks(self.program, self.inputs.centred(observations))

    def coordinates(self, observations: np.ndarray) -> np.ndarray:
        """Return the leading principal components in the networks' units, [m, k], k at most 16."""
        components = self.apply(observations)[:, :-1] / np.linalg.norm(self.matrix, axis=0)
        return np.asarray(components[:, -_MOST_COORDINATES:])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that are stored."""
        leaves = {f"parameter_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(self.params))}
        parts = {"centre": self.centre, "matrix": self.matrix, **leaves}
        parts |= {"offset": self.inputs.offset, "factor": self.inputs.factor}
        return {name: np.asarray(part) for name, part in parts.items()}

    @classmethod
    def stored(
        cls, networks: ForwardBackward, observed: Observed, arrays: Mapping[str, Any]
    ) -> "NetworkBasis":
        """Rebuild a basis from its ``arrays``; ``observed`` says what observations are."""
        shapes, structure = jax.tree.flatten(jax.eval_shape(networks.init, jax.random.key(0)))
        leaves = [
            jnp.asarray(arrays[f"parameter_{i}"], shape.dtype) for i, shape in enumerate(shapes)
        ]
        offset: Any = arrays["offset"] if observed.double else jnp.asarray(arrays["offset"])
        inputs = Inputs(observed, offset, jnp.asarray(arrays["factor"]))
        params = jax.tree.unflatten(structure, leaves)
        return cls(networks, params, inputs, arrays["centre"], arrays["matrix"])


def _encoded(networks: ForwardBackward, params: Params, inputs: Inputs, block: Array) -> Array:
    """Compute the networks' features, [m, e]."""
    states = inputs(block)
    forward = networks.forward.encoder.apply(params["forward"], states)
    backward = networks.backward.apply(params["backward"], states)
    return jnp.concatenate([forward, backward], axis=1)
