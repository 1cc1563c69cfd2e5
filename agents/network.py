"""Values of actions, linear in the features of a torso."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.agents.features import WithFitted
from rlreps.agents.prior import Prior
from rlreps.config import checked
from rlreps.encoders import Encoder, FunctionEncoder
from rlreps.losses.base import Params
from rlreps.numerics import as_inputs


@checked
@dataclasses.dataclass(frozen=True)
class QNetwork:
    """Values Q(s, ·) = φ(s)ᵀW + b, linear in the features φ of a torso, plus the prior if any.

    Parameters are ``{"torso": ..., "head": {"weights": [d, a], "biases": [a]}}``. Observations of
    bytes, such as images, are divided by 255 first.

    Attributes:
        torso: The encoder φ.
        num_features: d.
        num_actions: a.
        auxiliary_head: Encoder [b, d] → [b, d] between φ and an auxiliary task, with parameters
            ``auxiliary_head``; None gives the task φ itself.
        prior: Fixed action values, with parameters ``prior``. W then starts at 0.
    """

    torso: Encoder
    num_features: int
    num_actions: int
    auxiliary_head: Encoder | None = None
    prior: Prior | None = None

    def init(self, key: Array) -> Params:
        """Draw parameters."""
        torso_key, head_key = jax.random.split(key)
        scaled = jax.nn.initializers.lecun_normal()
        weights = scaled(head_key, (self.num_features, self.num_actions), jnp.float32)
        head = {"weights": weights, "biases": jnp.zeros((self.num_actions,), jnp.float32)}
        params = {"torso": self.torso.init(torso_key), "head": head}
        if self.auxiliary_head is not None:
            params["auxiliary_head"] = self.auxiliary_head.init(jax.random.fold_in(head_key, 1))
        if self.prior is not None:
            # Agents begin with the policy of the prior.
            head["weights"] = jnp.zeros_like(weights)
            params["prior"] = jax.tree.map(jnp.asarray, self.prior)
        return params

    def features(self, torso_params: Params, observations: Array) -> Array:
        """Compute features [b, d] of observations [b, ...]."""
        return self.torso.apply(torso_params, as_inputs(observations))

    def values(self, params: Params, observations: Array) -> Array:
        """Compute one value per action [b, a] for observations [b, ...]."""
        head = params["head"]
        features = self.features(params["torso"], observations)
        values: Array = features @ head["weights"] + head["biases"][None]
        if self.prior is None:
            return values
        # Only the learned part changes.
        shifted: Array = values + lax.stop_gradient(params["prior"].values(observations))
        return shifted

    def split(self, params: Params) -> tuple[Params, Params]:
        """Split parameters into learned ones and fixed ones, ``fitted`` and ``prior``."""
        learned, fixed = {**params}, dict[str, Any]()
        if isinstance(self.torso, WithFitted):
            learned["torso"] = {**params["torso"]}
            fixed["fitted"] = learned["torso"].pop("fitted")
        if self.prior is not None:
            fixed["prior"] = learned.pop("prior")
        return learned, fixed

    def joined(self, learned: Params, fixed: Params) -> Params:
        """Join learned and fixed parameters; ``fixed`` replaces fixed ones among ``learned``."""
        params = {**learned, **fixed}
        if "fitted" in fixed:
            params["torso"] = {**learned["torso"], "fitted": params.pop("fitted")}
        return params

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
