"""Values of actions, linear in the features of a torso."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.agents.fitted import WithFitted
from rlreps.agents.replay import as_inputs
from rlreps.encoders import Encoder, FunctionEncoder
from rlreps.losses.base import Params


@dataclasses.dataclass(frozen=True)
class QNetwork:
    """Values Q(s, ·) = φ(s)ᵀW + b, linear in the features φ of a torso.

    Parameters are ``{"torso": ..., "head": {"weights": [d, a], "biases": [a]}}``. Observations of
    bytes, such as images, are divided by 255 first.

    Attributes:
        torso: The encoder φ.
        num_features: d.
        num_actions: a.
        auxiliary_head: Encoder [b, d] → [b, d] between φ and an auxiliary task, with parameters
            ``auxiliary_head``; None gives the task φ itself.
    """

    torso: Encoder
    num_features: int
    num_actions: int
    auxiliary_head: Encoder | None = None

    def init(self, key: Array) -> Params:
        """Draw parameters."""
        torso_key, head_key = jax.random.split(key)
        scaled = jax.nn.initializers.lecun_normal()
        weights = scaled(head_key, (self.num_features, self.num_actions), jnp.float32)
        head = {"weights": weights, "biases": jnp.zeros((self.num_actions,), jnp.float32)}
        params = {"torso": self.torso.init(torso_key), "head": head}
        if self.auxiliary_head is not None:
            params["auxiliary_head"] = self.auxiliary_head.init(jax.random.fold_in(head_key, 1))
        return params

    def features(self, torso_params: Params, observations: Array) -> Array:
        """Compute features [b, d] of observations [b, ...]."""
        return self.torso.apply(torso_params, as_inputs(observations))

    def values(self, params: Params, observations: Array) -> Array:
        """Compute one value per action [b, a] for observations [b, ...]."""
        head = params["head"]
        features = self.features(params["torso"], observations)
        values: Array = features @ head["weights"] + head["biases"][None]
        return values

    def split(self, params: Params) -> tuple[Params, Params]:
        """Split parameters into those that gradients change and the fitted features, () if none."""
        if not isinstance(self.torso, WithFitted):
            return params, ()
        torso = {**params["torso"]}
        fitted = torso.pop("fitted")
        return {**params, "torso": torso}, fitted

    def joined(self, learned: Params, fitted: Params) -> Params:
        """Join what ``split`` has split."""
        if not isinstance(self.torso, WithFitted):
            return learned
        return {**learned, "torso": {**learned["torso"], "fitted": fitted}}

    @property
    def auxiliary_encoder(self) -> Encoder:
        """Return the encoder that an auxiliary task trains: the torso, with its head if any."""
        head = self.auxiliary_head
        if head is None:
            return self.torso

        def init(key: Array) -> Params:
            return self.auxiliary_params(self.init(key))

        return FunctionEncoder(init, self.auxiliary_features)

    def auxiliary_params(self, params: Params) -> Params:
        """Return the parameters that an auxiliary task trains: the torso's, with its head's."""
        if self.auxiliary_head is None:
            return params["torso"]
        return {name: params[name] for name in ("torso", "auxiliary_head")}

    def auxiliary_features(self, params: Params, observations: Array) -> Array:
        """Compute the features of ``auxiliary_params`` that an auxiliary task sees, [b, d]."""
        if self.auxiliary_head is None:
            return self.features(params, observations)
        features = self.features(params["torso"], observations)
        return self.auxiliary_head.apply(params["auxiliary_head"], features)

    def hidden(self, torso_params: Params, observations: Array) -> list[Array] | None:
        """Compute activations of the torso's hidden layers; None if the torso cannot tell."""
        return self.torso.hidden_activations(torso_params, as_inputs(observations))
