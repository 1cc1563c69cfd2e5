"""The successor measure of state-action pairs as a product of features: the mathematics.

Data of a policy π have rows (s, a, s'), with distribution rho_sa of (s, a) and rho of the states s'
reached. The successor measure has the density m with respect to rho:

    m(s, a, s⁺) rho(ds⁺) = Σ_{t≥0} γᵗ P(S_{t+1} ∈ ds⁺ | S_0 = s, A_0 = a, π).

The sum starts at the state that the first action leads to. It counts a terminal state once, on
arrival. A factorisation of rank d is m ≈ F(s, a)ᵀB(s⁺). The best factorisation in L2(rho_sa x rho)
is the truncated singular value decomposition of m (Blier, Tallec & Ollivier 2021; Touati & Ollivier
2021).
"""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.batch import Batch
from rlreps.config import configurable, leaf, size
from rlreps.encoders import Encoder, Params, TwoTowers
from rlreps.losses.base import Encode
from rlreps.losses.low_rank import TDLowRank
from rlreps.numerics import take_rows
from rlreps.successor.fitting.observed import Inputs

# --- Encoders of states with actions --------------------------------------------------------------


class Step(NamedTuple):
    """Transitions, with the actions that follow them.

    Attributes:
        state: s as the encoder takes it, [b, ...].
        weights: Features b of the action taken, [b, m_b]; unit vectors if actions are discrete.
        reached: s', [b, ...].
        following: Features b of the actions in s', or their average over a policy, [b, m_b]; zero
            if nothing follows.
    """

    state: Array
    weights: Array
    reached: Array
    following: Array


@configurable
@dataclasses.dataclass(frozen=True)
class ActionHeads(Encoder):
    """F(s, a) = Σ_c b(a)_c F_c(s): an encoder of states computes one block of d features a head.

    For discrete actions, b(a) is a unit vector, and each action has its own head.

    Attributes:
        encoder: Computes m_b · d features, starting with the d features of head 0.
        num_heads: m_b, the number of features of an action.
    """

    encoder: Encoder = leaf()
    _: dataclasses.KW_ONLY
    num_heads: int = size(2)

    def init(self, key: Array) -> Params:
        return self.encoder.init(key)

    def apply(self, params: Params, inputs: tuple[Array, Array]) -> Array:
        """Compute features of states, weighted over actions with weights [b, m_b], [b, d]."""
        states, weights = inputs
        heads = self.encoder.apply(params, states)
        heads = heads.reshape(len(heads), self.num_heads, -1)
        # An explicit sum over the actions: accelerators compute matrix products in low precision.
        features: Array = jnp.sum(heads * weights[:, :, None], axis=1)
        return features


@configurable
@dataclasses.dataclass(frozen=True)
class ForwardBackward(TwoTowers):
    """F and B along transitions: ``Step`` → [F(s, w), B(s'), F(s', w')], [b, 3d].

    Attributes:
        forward: F.
        backward: B, on the same inputs as F's encoder.
    """

    forward: ActionHeads = leaf()

    def apply(self, params: Params, inputs: Step) -> Array:
        here = self.forward.apply(params["forward"], (inputs.state, inputs.weights))
        there = self.forward.apply(params["forward"], (inputs.reached, inputs.following))
        reached = self.backward.apply(params["backward"], inputs.reached)
        return jnp.concatenate([here, reached, there], axis=1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TransitionSource:
    """Batches of transitions, drawn uniformly with replacement.

    Attributes:
        inputs: The map from observations.
        steps: All transitions, with observations for states.
    """

    inputs: Inputs
    steps: Step
    num_tasks: ClassVar[None] = None

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw rows; targets are empty, [num_rows, 0]."""
        del num_tasks
        rows = jax.random.randint(key, (num_rows,), 0, len(self.steps.weights), jnp.int32)
        drawn = take_rows(self.steps, rows)
        seen = {"state": self.inputs(drawn.state), "reached": self.inputs(drawn.reached)}
        return Batch(drawn._replace(**seen), jnp.zeros((num_rows, 0)))


# --- Temporal differences -------------------------------------------------------------------------


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class ForwardBackwardLoss(TDLowRank):
    """``TDLowRank`` with actions: F and B of a ``ForwardBackward`` encoder, on ``Step`` rows.

    The network computes (1 − γ) F(s, a), whose size does not depend on γ.

    Attributes:
        discount: γ.
    """

    discount: float = size(0.95)

    title: ClassVar[str] = "forward-backward"

    @property
    def needs_clips(self) -> bool:
        return False

    def parts(self, params: Params, encode: Encode, batch: Batch) -> tuple[Array, Array, Array]:
        here, reached, there = jnp.split(encode(params, batch.inputs), 3, axis=1)
        return here, reached, there
