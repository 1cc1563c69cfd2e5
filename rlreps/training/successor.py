"""Successor representations of a user's own data: fitted, used and stored as one object.

Everything is of the policy that made the data. Data of a mixture of policies are data of their
mixture; rows of another policy (a replay buffer whose agent has since changed) give its values,
not the present one's. ``policy`` is one step of improvement on it.
"""

import contextlib
import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.config import (
    as_json,
    configurable,
    from_json,
    leaf,
    name_of,
    options,
    registry,
    with_sizes,
)
from rlreps.cumulants import CUMULANTS, Cells, Cumulants, RandomFourier
from rlreps.encoders import (
    ENCODERS,
    MLP,
    AtStates,
    Convolutional,
    Encoder,
    FourierMLP,
    Params,
    Tabular,
)
from rlreps.errors import (
    InputError,
    require,
    require_choice,
    require_interval,
    require_positive,
)
from rlreps.losses import OBJECTIVES, LargeBatch, Objective
from rlreps.numerics import seed_key
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.runs.locks import exclusive
from rlreps.runs.provenance import provenance
from rlreps.successor.data import Transitions, as_transitions
from rlreps.successor.forward_backward import (
    ActionHeads,
    ActionLikelihood,
    ForwardBackward,
    ForwardBackwardLoss,
    Inputs,
    Ridge,
    TransitionSource,
    canonical,
    discounted_sums,
    eligibilities,
    ridge_by_leave_one_out,
)
from rlreps.successor.ground_truth import GroundTruth, centring_of
from rlreps.training.optimizers import Optimizer
from rlreps.training.population import train

KIND = "successor representation"
"""Kind of the run folders that hold one."""

Scaling = Literal["singular", "white", "none"]
BehaviourName = Literal["estimated", "uniform"]

Behaviour: TypeAlias = Callable[[Any], Any]
"""Observations [m, ...] → probabilities of the actions, [m, A]."""

_BLOCK = 4096
"""Most observations that are encoded at once."""

_MOST_STATES = 2**31 - 1
"""Indices of states are int32 on a device."""


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class TemporalDifferences:
    """Forward-backward representations from single transitions (see ``ForwardBackwardLoss``).

    The next action is the data's own. Behind a terminated row nothing follows; where a record was
    cut, the target averages over the behaviour policy's actions, so that cuts cost nothing but the
    error of that estimate.

    Attributes:
        averaging_rate: Share of the new parameters in the target network's average at each update.
        orthonormality: Weight of the regulariser that keeps B orthonormal; 0 leaves it out, as the
            factors are rotated to orthonormal ones after the fit.
    """

    averaging_rate: float = 0.1
    orthonormality: float = 0.0


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeSums:
    """Any objective of the toolkit on Monte-Carlo sums along episodes (see ``eligibilities``).

    F is learned from rows (s, a) and columns of discounted sums of cumulants of the states that
    follow, B by regression of eligibilities on the states reached.

    **Bias.** A sum that a cut ends k rows after its start lacks up to γᵏ of its mass, which is
    1/(1 − γ). Starts with γᵏ > ``tolerance`` are left out unless their episode terminates. Where
    episodes are cut that might have terminated (a time limit in a task with a goal), late starts
    whose episode terminates in time are kept and others are not: near the limit, terminal states
    count for too much. Temporal differences have neither bias.

    Attributes:
        objective: What F is trained on.
        cumulants: Functions of the state reached, as encoders see it, scaled to [0, 1]; indices of
            states are places (i + 1/2)/n on a line. None is ``Cells`` that tell all indices apart,
            ``RandomFourier`` for other observations.
        num_cumulants: Columns, but of ``Cells``.
        tolerance: Largest share of the mass that a start may lack, in (0, 1).
    """

    objective: Objective = leaf(LargeBatch(precondition=1e-2, leave_one_out=True))
    cumulants: Cumulants | None = leaf(None)
    num_cumulants: int = 256
    tolerance: float = 0.05

    def __post_init__(self) -> None:
        require_positive("num_cumulants", self.num_cumulants)
        require_interval("tolerance", self.tolerance, "(0, 1)")


FitMethod: TypeAlias = TemporalDifferences | EpisodeSums

FIT_METHODS: dict[str, type] = {"td": TemporalDifferences, "monte_carlo": EpisodeSums}
"""Name → method."""

FIT_ENCODERS: dict[str, type[Encoder]] = {**ENCODERS, **registry(Convolutional)}
"""Name → encoder."""

_CLASSES: dict[str, type] = {
    **OBJECTIVES,
    **CUMULANTS,
    **FIT_ENCODERS,
    **registry(Cells, *FIT_METHODS.values()),
}
"""Name → class of everything that a stored configuration can name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How a successor representation is fitted.

    Attributes:
        num_features: d.
        discount: γ, in (0, 1).
        method: Temporal differences or sums along episodes.
        encoder: The encoder of F, with a head for each action, and of B; None is the one that fits
            the observations (``Observed.default_encoder``).
        optimizer: Of both.
        steps: Updates.
        rows: Transitions drawn per update.
        seed: Decides everything random.
        behaviour: Whether the data's policy is estimated (by counts for indices of states, else by
            a classifier) or known to be uniform.
    """

    num_features: int = 64
    discount: float = 0.95
    method: FitMethod = dataclasses.field(default=TemporalDifferences())
    encoder: Encoder | None = None
    optimizer: Optimizer = dataclasses.field(default=Optimizer(learning_rate=1e-3))
    steps: int = 5000
    rows: int = 512
    seed: int = 0
    behaviour: BehaviourName = "estimated"

    def __post_init__(self) -> None:
        for name in ("num_features", "steps", "rows"):
            require_positive(name, getattr(self, name))
        require_interval("discount", self.discount, "(0, 1)")
        require(self.rows >= 2, "rows >= 2", self.rows)
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)
        require_choice("behaviour", self.behaviour, get_args(BehaviourName))
        parts = {"encoder": Encoder | None, "optimizer": Optimizer}
        for name, kind in parts.items():
            value = getattr(self, name)
            require(isinstance(value, kind), f"{name} to be an {name.title()}", value)
        known = isinstance(self.method, TemporalDifferences | EpisodeSums)
        require(known, f"a method ({', '.join(FIT_METHODS)})", self.method)


@configurable
@dataclasses.dataclass(frozen=True)
class Flattened(Encoder):
    """An encoder of vectors that takes observations of any shape.

    Attributes:
        encoder: Takes [b, c].
    """

    encoder: Encoder = leaf()

    def init(self, key: Array) -> Params:
        return self.encoder.init(key)

    def apply(self, params: Params, inputs: Array) -> Array:
        return self.encoder.apply(params, inputs.reshape(len(inputs), -1))


@dataclasses.dataclass(frozen=True)
class Observed:
    """The observations and actions of some data.

    Attributes:
        shape: Of one observation; () for indices of states.
        num_actions: A.
        num_states: Number of indices; None for observations that are none.
        bytes: Whether observations are images of bytes, which are divided by 255.
    """

    shape: tuple[int, ...]
    num_actions: int
    num_states: int | None = None
    bytes: bool = False

    @classmethod
    def of(cls, data: Transitions) -> "Observed":
        """Describe transitions; integers without axes are indices of states."""
        states = (data.observation, data.next_observation)
        shape, count = data.observation.shape[1:], None
        if shape == () and data.observation.dtype.kind in "iub":
            least = min(int(array.min()) for array in states)
            require(least >= 0, "indices of states >= 0", least)
            count = max(int(array.max()) for array in states) + 1
            require(count <= _MOST_STATES, f"at most {_MOST_STATES} indices of states", count)
        assert data.num_actions is not None
        bytes_ = len(shape) >= 2 and all(array.dtype == np.uint8 for array in states)
        return cls(shape, data.num_actions, count, bytes_)

    @property
    def default_encoder(self) -> Encoder:
        """Return the encoder for observations of this kind.

        A table for indices of states, a convolutional network for images, else a perceptron, behind
        Fourier features where observations are at most eight numbers.
        """
        if self.num_states is not None:
            return Tabular()
        if len(self.shape) == 3:
            return Convolutional()
        return FourierMLP() if math.prod(self.shape) <= 8 else MLP()

    def sized(self, encoder: Encoder, num_features: int) -> Encoder:
        """Fit an encoder to these observations.

        Raises:
            InputError: If it does not take them or give so many features.
        """
        indices, flat = self.num_states is not None, math.prod(self.shape)
        sized = with_sizes(
            encoder,
            num_features=num_features,
            num_inputs=self.num_states if indices else flat,
            num_states=self.num_states or 1,
            frame_shape=self.shape,
        )
        tabular = isinstance(encoder, Tabular)
        require(indices or not tabular, "indices of states (integers) for tabular", self.shape)
        if indices and not tabular:
            sized = AtStates(sized, jnp.eye(self.num_states))
        elif hasattr(encoder, "num_inputs") and len(self.shape) != 1:
            sized = Flattened(sized)
        dtype = jnp.int32 if indices else jnp.float32
        example = jax.ShapeDtypeStruct((2, *self.shape), dtype)
        try:
            found = jax.eval_shape(
                lambda inputs: sized.apply(sized.init(jax.random.key(0)), inputs), example
            ).shape
        except (TypeError, ValueError) as error:
            said = str(error).splitlines()[0]
            raise InputError(
                f"expected an encoder of observations {self.shape}, got {said}"
            ) from error
        require(found == (2, num_features), f"an encoder with {num_features} features", found[1:])
        return sized

    def inputs(self, data: Transitions) -> Inputs:
        """Return the map of these data's observations to encoder inputs.

        Vectors are scaled to [0, 1] by each coordinate's range, images by the whole range (bytes
        by 255); indices stay.
        """
        states = (data.observation, data.next_observation)
        zero, one = jnp.zeros(()), jnp.ones(())
        if self.num_states is not None:
            return Inputs(zero, one, indices=True)
        if self.bytes:
            return Inputs(zero, one / 255.0)
        axes = (0,) if len(self.shape) <= 1 else None
        least = np.minimum(*(array.min(axis=axes) for array in states)).astype(np.float32)
        most = np.maximum(*(array.max(axis=axes) for array in states)).astype(np.float32)
        width = np.where(most > least, most - least, np.float32(1.0))
        return Inputs(jnp.asarray(least), jnp.asarray(np.float32(1.0) / width))


class Networks(NamedTuple):
    """The encoders of a representation.

    Attributes:
        forward: F.
        backward: B.
        behaviour: Logits of the behaviour policy; None where it is not a network.
    """

    forward: ActionHeads
    backward: Encoder
    behaviour: Encoder | None


class Arrays(NamedTuple):
    """Everything numerical of a representation, as it is stored (float32).

    Attributes:
        forward: Parameters of F's encoder.
        backward: Those of B's.
        behaviour: Those of the behaviour policy's, () without.
        forward_map: Takes the encoder's features to u √σ, [d, d].
        backward_map: Takes the encoder's features to v √σ, [d, d].
        singular_values: σ, falling, [d].
        whitening: Takes state features u to whitened ones, [d, d].
        inputs: The map from observations.
    """

    forward: Params
    backward: Params
    behaviour: Params
    forward_map: Array
    backward_map: Array
    singular_values: Array
    whitening: Array
    inputs: Inputs


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FittedValues:
    """A linear map of state features to values.

    Attributes:
        representation: Gives the features.
        ridge: The fit on its σ-scaled features.
    """

    representation: "SuccessorRepresentation"
    ridge: Ridge

    def __call__(self, observations: Any) -> np.ndarray:
        """Predict values [m] or [m, k] at observations [m, ...]."""
        features = self.representation.features(observations, scaling="singular")
        weights, intercept = (
            np.asarray(part, np.float32) for part in (self.ridge.weights, self.ridge.intercept)
        )
        return np.asarray(features @ weights + intercept)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SuccessorRepresentation:
    """Features F(s, a) = √σ u and B(s) = √σ v of a policy's successor measure, m ≈ FᵀB.

    u and v are orthonormal over the data: the leading singular functions of m, σ its singular
    values. A reward r counts on arrival: values are Σ_t γᵗ r(s_{t+1}).

    Attributes:
        config: How it was fitted.
        observed: Its observations and actions.
        networks: Its encoders.
        arrays: Its numbers.
        description: Everything that decided it, as JSON values.
        own_behaviour: The behaviour policy where the user gave it.
    """

    config: FitConfig
    observed: Observed
    networks: Networks
    arrays: Arrays
    description: Mapping[str, Any]
    own_behaviour: Behaviour | None = None

    @property
    def num_features(self) -> int:
        """Number of features, d."""
        return len(self.arrays.singular_values)

    @property
    def singular_values(self) -> np.ndarray:
        """Singular values σ of m in L2 of the data, falling, [d]; zero beyond its rank."""
        return np.asarray(self.arrays.singular_values)

    def forward(self, observations: Any) -> np.ndarray:
        """Compute F(s, a) of all actions, [m, A, d]."""
        return self._encoded(_forward, observations)

    def backward(self, observations: Any) -> np.ndarray:
        """Compute B(s), [m, d]."""
        return self._encoded(_backward, observations)

    def measure(self, observations: Any, goals: Any) -> np.ndarray:
        """Compute the density m(s, a, s⁺) of states s⁺ among those of the data, [m, A, g]."""
        forward, backward = self.forward(observations), self.backward(goals)
        measure: np.ndarray = np.einsum("mad,gd->mag", forward, backward)
        return measure

    def probabilities(self, observations: Any) -> np.ndarray:
        """Return the behaviour policy's probabilities, [m, A]."""
        if self.own_behaviour is not None:
            return _checked_policy(self.own_behaviour, observations, self.observed.num_actions)
        return self._encoded(_behaviour, observations)

    def features(self, observations: Any, *, scaling: Scaling = "singular") -> np.ndarray:
        """Compute state features [m, d]: averages of u(s, a) over the policy's actions.

        Args:
            observations: [m, ...].
            scaling: ``singular`` multiplies by σ, which keeps what matters to values large;
                ``white`` gives features with the identity for second moment over the data's
                states; ``none`` leaves u.
        """
        require_choice("scaling", scaling, get_args(Scaling))
        weights = self.probabilities(observations)
        forward = np.einsum("mad,ma->md", self.forward(observations), weights)
        values = self.singular_values
        if scaling == "singular":
            return np.asarray(forward * np.sqrt(values))
        raw = forward * np.where(values > 0.0, 1.0 / np.sqrt(np.where(values > 0, values, 1)), 0)
        if scaling == "white":
            raw = raw @ np.asarray(self.arrays.whitening).T
        return np.asarray(raw, np.float32)

    def task(self, observations: Any, rewards: Any, weights: Any = None) -> np.ndarray:
        """Return the task z = E_rho[B r], [d], for which values are Fᵀz.

        Args:
            observations: States, [m, ...], drawn as those that the data reach: some of
                ``transitions.next_observation``.
            rewards: The reward of arriving in each, [m].
            weights: Importance weights [m] of states that were drawn otherwise.
        """
        backward = self.backward(observations)
        count = len(backward)
        require(count >= 1, "at least one reward", count)
        rewards = _finite("rewards", rewards, count)
        if weights is not None:
            rewards = rewards * _finite("weights", weights, count)
        return np.asarray(np.mean(backward * rewards[:, None], axis=0), np.float32)

    def goal(self, observation: Any) -> np.ndarray:
        """Return the task of reaching a state, B(s), [d]: values are the density m there."""
        return np.asarray(self.backward(np.asarray(observation)[None])[0])

    def action_values(self, observations: Any, task: np.ndarray) -> np.ndarray:
        """Compute values Q(s, a) = F(s, a)ᵀz of the data's policy, [m, A]."""
        checked = _finite("a task", task, self.num_features).astype(np.float32)
        return np.asarray(self.forward(observations) @ checked)

    def values(self, observations: Any, reward_samples: tuple[Any, Any]) -> np.ndarray:
        """Compute values Σ_t γᵗ r(s_{t+1}) of the data's policy, [m].

        Args:
            observations: [m, ...].
            reward_samples: (observations, rewards), as of ``task``.
        """
        values = self.action_values(observations, self.task(*reward_samples))
        return np.asarray(np.einsum("ma,ma->m", values, self.probabilities(observations)))

    def policy(self, task: np.ndarray) -> Callable[[Any], np.ndarray]:
        """Return the policy observations [m, ...] → actions [m], greedy on Fᵀz.

        One step of policy improvement on the data's policy: optimal only where one step is enough.
        """
        checked = _finite("a task", task, self.num_features)
        return lambda observations: np.argmax(self.action_values(observations, checked), axis=1)

    def fit_values(self, observations: Any, returns: Any) -> FittedValues:
        """Fit values to returns [m], or k columns [m, k], by ridge regression on the features u.

        The prior variance of the weight of u_i is proportional to σ_i²; its scale is that of the
        least leave-one-out error, for each column (``ridge_by_leave_one_out``).
        """
        features = self.features(observations, scaling="singular")
        returns = np.asarray(returns, np.float64)
        fits = returns.ndim in (1, 2) and returns.shape[:1] == features.shape[:1]
        require(fits, f"returns {features.shape[:1]}, or columns of them", returns.shape)
        require(bool(np.isfinite(returns).all()), "finite returns", "NaN or infinity")
        require(len(returns) >= 2, "at least two returns", len(returns))
        return FittedValues(representation=self, ridge=ridge_by_leave_one_out(features, returns))

    def potential(self, goal: Any) -> Callable[[Any], np.ndarray]:
        """Return observations [m, ...] → −‖σu(s) − σu(goal)‖, [m], to shape rewards with.

        Adding γ Φ(s') − Φ(s) to a reward changes no optimal policy, where Φ(s') counts as 0 for a
        terminal s' (Ng, Harada & Russell 1999); at the goal itself it is 0.
        """
        target = self.features(np.asarray(goal)[None], scaling="singular")

        def potential(observations: Any) -> np.ndarray:
            offsets = self.features(observations, scaling="singular") - target
            return np.asarray(-np.linalg.norm(offsets, axis=1))

        return potential

    def components(self, truth: GroundTruth) -> np.ndarray:
        """Return features at the states of a ground truth as that truth is centred.

        Of d features [n, d]; of d − 1 where the truth's column means were removed, since one of
        the d is then (nearly) the constant: the leading ones, σ-scaled, less their means.
        """
        features = self.features(np.asarray(truth.coordinates), scaling="singular")
        if truth.settings and centring_of(truth.settings) == "rows":
            return features
        left, values, _ = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
        count = max(1, self.num_features - 1)
        return np.asarray(left[:, :count] * values[:count], np.float32)

    def distance(self, truth: GroundTruth) -> float:
        """Return the subspace distance of ``components`` from the truth's leading ones.

        A perfect fit has a distance above 0, since a truth gives each state the same weight and a
        fit as much as the data visit it: 0.006 for ten components in ``sutton``, 20 x 20 cells,
        γ = 0.95 (``scripts/distance_floor.py``).
        """
        return truth.distance(self.components(truth))

    def save(self, path: Path | str) -> None:
        """Write everything to a folder, new or of the same representation.

        Raises:
            InputError: If the folder holds something else or cannot be written, or the fit used an
                objective or cumulants that are none of the toolkit's: code is not stored.
        """
        require_stored(self.config)
        out = Path(path)
        RunFolder.find(out, kind=KIND, config=self.description)
        with exclusive(out):
            folder = RunFolder.create_or_resume(
                out, kind=KIND, config=self.description, provenance=provenance()
            )
            folder.write_summary(self.write(folder))

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        encoder: Encoder | None = None,
        backward_encoder: Encoder | None = None,
        behaviour: Behaviour | None = None,
    ) -> "SuccessorRepresentation":
        """Read a representation that ``save`` or ``rlreps fit`` wrote, bit for bit.

        Args:
            path: The folder.
            encoder: F's encoder, where it was one of the user's own: code is not stored.
            backward_encoder: B's, likewise.
            behaviour: The behaviour policy, likewise.

        Raises:
            InputError: If the folder holds none, or parts of the user's own are missing.
        """
        folder = RunFolder(Path(path))
        folder.require_kind(KIND)
        try:
            return cls._load(folder, path, encoder, backward_encoder, behaviour)
        except (AttributeError, KeyError, TypeError) as error:
            raise InputError(
                f"expected {path} to describe a representation, got {type(error).__name__}: {error}"
            ) from error

    @classmethod
    def _load(
        cls,
        folder: RunFolder,
        path: Path | str,
        encoder: Encoder | None,
        backward_encoder: Encoder | None,
        behaviour: Behaviour | None,
    ) -> "SuccessorRepresentation":
        stored = dict(folder.config)
        named = {"encoder": encoder, "backward_encoder": backward_encoder}
        for name, own in named.items():
            found = stored.pop(name)
            is_own = found is not None and found.get("own", False)
            _require_given(is_own, own, f"{name}=", path)
            if found is not None and not is_own:
                rest = {key: value for key, value in found.items() if key != "name"}
                named[name] = from_json(_CLASSES[found["name"]], rest, _CLASSES)
        observed = from_json(Observed, stored.pop("observed"))
        kind = stored.pop("behaviour")
        _require_given(kind == "own", behaviour, "behaviour=", path)
        kind = "uniform" if kind == "own" else kind
        stored.pop("data")
        config = from_json(FitConfig, {**stored, "behaviour": kind}, _CLASSES)
        assert named["encoder"] is not None
        config = dataclasses.replace(config, encoder=named["encoder"])
        networks = _networks(observed, config, named["backward_encoder"], kind)
        place = folder.path / _ARRAYS
        with contextlib.closing(Checkpoints(place, run=folder.identity)) as checkpoints:
            if checkpoints.latest_step() is None:
                raise InputError(
                    f"expected a finished fit in {path}, got none: fit again to resume"
                )
            _, arrays = checkpoints.restore_latest(_template(observed, config, networks))
        return cls(
            config=config,
            observed=observed,
            networks=networks,
            arrays=arrays,
            description=folder.config,
            own_behaviour=behaviour,
        )

    def write(self, folder: RunFolder) -> dict[str, Any]:
        """Write the numbers to a run's folder; return its summary."""
        place = folder.path / _ARRAYS
        with contextlib.closing(Checkpoints(place, keep=1, run=folder.identity)) as checkpoints:
            latest = checkpoints.latest_step()
            checkpoints.save(0 if latest is None else latest + 1, self.arrays)
        return {
            "num_features": self.num_features,
            "discount": self.config.discount,
            "rows": self.description["data"]["rows"],
            "singular_values": self.singular_values.tolist(),
        }

    def _encoded(self, part: "_Part", observations: Any) -> np.ndarray:
        """Encode observations in blocks of a few sizes, each compiled once."""
        array = np.asarray(observations)
        shape, states = self.observed.shape, self.observed.num_states
        require(
            array.shape[1:] == shape and array.ndim == len(shape) + 1,
            f"observations of shape {('m', *shape)}",
            array.shape,
        )
        require(array.dtype.kind in "iubf", "observations of numbers", array.dtype.name)
        # Bytes are divided by 255, other images are scaled by their range in the data.
        alike = len(shape) < 2 or (array.dtype == np.uint8) == self.observed.bytes
        kind = "bytes" if self.observed.bytes else "no bytes"
        require(alike, f"images of {kind}, as those of the fit", array.dtype.name)
        if states is not None:
            require(array.dtype.kind in "iub", "indices of states", array.dtype.name)
            inside = array.size == 0 or 0 <= int(array.min()) <= int(array.max()) < states
            require(inside, f"indices in [0, {states})", "others")
        elif array.dtype.kind == "f":
            require(bool(np.isfinite(array).all()), "finite observations", "NaN or infinity")
            array = array.astype(np.float32)
        return _in_blocks(
            lambda block: part(self.networks, self.arrays, block),
            array,
        )


def _finite(name: str, values: Any, count: int) -> np.ndarray:
    """Check an array [count] of finite numbers; return it in double precision."""
    array = np.asarray(values)
    require(array.shape == (count,), f"{name} of shape {(count,)}", array.shape)
    require(array.dtype.kind in "iubf", f"{name} of numbers", array.dtype.name)
    require(bool(np.isfinite(array).all()), f"finite {name}", "NaN or infinity")
    return array.astype(np.float64)


def _require_given(needed: bool, given: object, name: str, path: Path | str) -> None:
    """Refuse to load without a part of the user's own, or with one that was not the user's."""
    place = f"for the representation of {path}"
    require(not needed or given is not None, f"{name} {place}", "none")
    require(needed or given is None, f"no {name} {place}, which was not fitted with one", given)


_Part: TypeAlias = Callable[[Networks, Arrays, Array], Array]

_ARRAYS = "representation"


def _in_blocks(function: Callable[[Array], Array], *arrays: np.ndarray) -> np.ndarray:
    """Apply a function of arrays [m, ...] block by block, padded to a power of two."""
    found = []
    for start in range(0, max(1, len(arrays[0])), _BLOCK):
        blocks = [array[start : start + _BLOCK] for array in arrays]
        count = len(blocks[0])
        padded = 1 << max(0, count - 1).bit_length()
        full = [
            np.concatenate([block, np.zeros((padded - count, *block.shape[1:]), block.dtype)])
            for block in blocks
        ]
        found.append(np.asarray(function(*(jnp.asarray(array) for array in full)))[:count])
    return np.concatenate(found)


def _compiled(part: _Part) -> _Part:
    """Compile a part for its networks, which hash by what they are."""
    programs: dict[int, tuple[Networks, Any]] = {}

    def call(networks: Networks, arrays: Arrays, observations: Array) -> Array:
        # By identity: an encoder with arrays of its own does not hash.
        held = programs.get(id(networks))
        if held is None or held[0] is not networks:
            held = networks, jax.jit(functools.partial(part, networks))
            if len(programs) >= 16:
                programs.clear()
            programs[id(networks)] = held
        encoded: Array = held[1](arrays, observations)
        return encoded

    return call


@_compiled
def _forward(networks: Networks, arrays: Arrays, observations: Array) -> Array:
    heads = networks.forward.heads(arrays.forward, arrays.inputs(observations))
    return jnp.einsum("bad,ed->bae", heads, arrays.forward_map, precision="highest")


@_compiled
def _backward(networks: Networks, arrays: Arrays, observations: Array) -> Array:
    features = networks.backward.apply(arrays.backward, arrays.inputs(observations))
    return jnp.einsum("bd,ed->be", features, arrays.backward_map, precision="highest")


@_compiled
def _behaviour(networks: Networks, arrays: Arrays, observations: Array) -> Array:
    if networks.behaviour is None:
        count = networks.forward.num_actions
        return jnp.full((len(observations), count), 1.0 / count)
    logits = networks.behaviour.apply(arrays.behaviour, arrays.inputs(observations))
    return jax.nn.softmax(logits)


def _checked_policy(behaviour: Behaviour, observations: Any, num_actions: int) -> np.ndarray:
    weights = np.asarray(behaviour(observations), np.float32)
    shape = (len(observations), num_actions)
    require(weights.shape == shape, f"probabilities of shape {shape}", weights.shape)
    normal = bool((weights >= 0).all()) and bool(np.allclose(weights.sum(axis=1), 1.0, atol=1e-4))
    require(normal, "probabilities that sum to 1", weights.sum(axis=1).tolist()[:3])
    return weights


# --- Fitting --------------------------------------------------------------------------------------


def configured(config: FitConfig | None, given: Mapping[str, Any]) -> FitConfig:
    """Put a configuration together from options of ``FitConfig`` and of its method.

    Raises:
        InputError: For options that neither has.
    """
    rest, base = dict(given), FitConfig() if config is None else config
    method = rest.pop("method", base.method)
    if isinstance(method, str):
        require_choice("method", method, list(FIT_METHODS))
        method = FIT_METHODS[method]()
    own = {field.name for field in dataclasses.fields(FitConfig)} - {"method"}
    of_method = {field.name for field in options(method)}
    unknown = sorted(rest.keys() - own - of_method)
    if unknown:
        raise InputError(
            f"expected options of fit ({', '.join(sorted(own))}) or of its method "
            f"({', '.join(sorted(of_method))}), got {', '.join(unknown)}"
        )
    chosen = {name: rest.pop(name) for name in list(rest) if name in of_method}
    return dataclasses.replace(base, method=dataclasses.replace(method, **chosen), **rest)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A fit of a representation to data: its parts, before and while it runs.

    Attributes:
        data: The transitions.
        config: How it is fitted; what it leaves to the data is filled in.
        backward_encoder: That of B; None takes F's, or the default where F's has its own size.
        behaviour: The data's policy, where it is known and not uniform.
    """

    data: Transitions
    config: FitConfig
    backward_encoder: Encoder | None = None
    behaviour: Behaviour | None = None

    def __post_init__(self) -> None:
        config, observed = self.config, Observed.of(self.data)
        method, states = config.method, observed.num_states
        if isinstance(method, EpisodeSums) and method.cumulants is None:
            cumulants = RandomFourier() if states is None else Cells(bins=states)
            method = dataclasses.replace(method, cumulants=cumulants)
        encoder = observed.default_encoder if config.encoder is None else config.encoder
        filled = dataclasses.replace(config, method=method, encoder=encoder)
        object.__setattr__(self, "config", filled)

    def describe(self) -> dict[str, Any]:
        """Say everything that decides the result, as JSON values."""
        config, observed = self.config, Observed.of(self.data)
        stored = as_json(dataclasses.replace(config, encoder=None))
        digest = hashlib.sha256()
        for name in ("observation", "action", "next_observation", "terminated", "truncated"):
            array = np.ascontiguousarray(getattr(self.data, name))
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(array.data)
        return {
            **stored,
            "encoder": _named(config.encoder),
            "backward_encoder": _named(self.backward_encoder),
            "behaviour": config.behaviour if self.behaviour is None else "own",
            "observed": dataclasses.asdict(observed),
            "data": {"rows": len(self.data), "sha256": digest.hexdigest()},
        }

    def check(self) -> Networks:
        """Return the encoders; an ``InputError`` for what does not fit, before any training."""
        data, config = self.data, self.config
        if isinstance(config.method, EpisodeSums):
            complete_starts(data, config.discount, config.method.tolerance)
            config.method.objective.require_rows(config.rows)
        kind = "uniform" if self.behaviour is not None else config.behaviour
        return _networks(Observed.of(data), config, self.backward_encoder, kind)

    def run(
        self, *, folder: RunFolder | None = None, progress: bool = False
    ) -> SuccessorRepresentation:
        """Fit, in a folder or without; see ``fit``."""
        data, config = self.data, self.config
        observed = Observed.of(data)
        inputs = observed.inputs(data)
        networks = self.check()
        if folder is not None:
            require_stored(config)
        behaviour = self._behaviour_params(networks, inputs, progress)
        zero = jnp.zeros((config.num_features, config.num_features))
        arrays = Arrays((), (), behaviour, zero, zero, zero[0], zero, inputs)
        blank = SuccessorRepresentation(
            config=config,
            observed=observed,
            networks=networks,
            arrays=arrays,
            description=self.describe(),
            own_behaviour=self.behaviour,
        )
        taken = np.eye(observed.num_actions, dtype=np.float32)[data.action]
        learn = _fit_td if isinstance(config.method, TemporalDifferences) else _fit_sums
        learned = learn(data, blank, taken, folder, progress)
        forward, backward, forward_map, backward_map = learned
        arrays = arrays._replace(
            forward=forward,
            backward=backward,
            forward_map=jnp.asarray(forward_map, jnp.float32),
            backward_map=jnp.asarray(backward_map, jnp.float32),
        )
        return canonicalised(dataclasses.replace(blank, arrays=arrays), data, taken)

    def _behaviour_params(self, networks: Networks, inputs: Inputs, progress: bool) -> Params:
        """Estimate the data's policy."""
        data, encoder = self.data, networks.behaviour
        if encoder is None:
            return ()
        assert data.num_actions is not None
        if isinstance(encoder, Tabular):
            counts = np.zeros((encoder.num_states, data.num_actions), np.float32)
            np.add.at(counts, (data.observation, data.action), 1.0)
            # States without actions, such as terminal ones, get the uniform policy.
            counts[counts.sum(axis=1) == 0.0] = 1.0
            with np.errstate(divide="ignore"):
                return jnp.asarray(np.log(counts))
        source = TransitionSource(
            inputs, jnp.asarray(data.observation), jnp.asarray(data.action[:, None], jnp.float32)
        )
        result = train(
            encoder,
            ActionLikelihood(data.num_actions),
            source,
            optimizer=self.config.optimizer,
            steps=max(1, min(self.config.steps // 2, 1000)),
            rows=self.config.rows,
            seeds=[self.config.seed],
            evaluate_every=1000,
            checkpoint_every=1000,
            description="behaviour policy",
            progress=progress,
        )
        return result.params()


def fit(
    transitions: Any,
    config: FitConfig | None = None,
    *,
    backward_encoder: Encoder | None = None,
    behaviour: Behaviour | BehaviourName | None = None,
    folder: RunFolder | None = None,
    progress: bool = False,
    **given: Any,
) -> SuccessorRepresentation:
    """Fit a successor representation of the policy that made some transitions.

    Args:
        transitions: ``Transitions``, a dictionary of arrays (``Transitions.from_dictionary``) or
            arrays (observation, action, next_observation, terminated[, truncated]); of an
            environment, ``Transitions.collect(environment, steps=...)``.
        config: How; None takes the defaults.
        backward_encoder: B's encoder, if it is not of F's kind.
        behaviour: ``estimated`` (the default), ``uniform``, or the data's policy itself:
            observations [m, ...] → probabilities [m, A].
        folder: Where to log and keep checkpoints; an interrupted fit resumes from it.
        progress: Whether to show bars.
        **given: Fields of ``FitConfig`` (``num_features``, ``discount``, ``encoder``, ...), where
            ``method`` may be a name, ``td`` or ``monte_carlo``, and fields of the method
            (``objective``, ``cumulants``, ...).

    Returns:
        The representation. The same data, configuration and device give the same bits.

    Raises:
        InputError: For data that cannot be used or options that do not fit.
        TrainingDivergedError: If training became non-finite.
    """
    data = as_transitions(transitions)
    if isinstance(behaviour, str):
        given, behaviour = {**given, "behaviour": behaviour}, None
    parts = Fit(
        data=data,
        config=configured(config, given),
        backward_encoder=backward_encoder,
        behaviour=behaviour,
    )
    return parts.run(folder=folder, progress=progress)


def require_stored(config: FitConfig) -> None:
    """Raise an ``InputError`` for parts of a method that could not be named in a file."""
    if isinstance(config.method, EpisodeSums):
        for part in (config.method.objective, config.method.cumulants):
            known = _CLASSES.get(name_of(type(part))) is type(part)
            require(known, "an objective and cumulants of the toolkit to store a fit", part)


def _named(encoder: Encoder | None) -> dict[str, Any] | None:
    """Describe an encoder as JSON values; one of the user's own by its class alone."""
    if encoder is None:
        return None
    if _CLASSES.get(encoder.name) is type(encoder):
        return cast(dict[str, Any], as_json(encoder))
    return {"name": encoder.name, "own": True}


def _networks(
    observed: Observed, config: FitConfig, backward: Encoder | None, behaviour: str
) -> Networks:
    """Fit the encoders to the data's sizes."""
    d, count = config.num_features, observed.num_actions
    # One of the user's own has the width that F needs, and no other.
    encoder = observed.default_encoder if config.encoder is None else config.encoder
    general = encoder if hasattr(encoder, "num_features") else observed.default_encoder
    of_policy = Tabular() if observed.num_states is not None else general
    return Networks(
        forward=ActionHeads(
            observed.sized(encoder, count * d),
            num_actions=count,
        ),
        backward=observed.sized(general if backward is None else backward, d),
        behaviour=observed.sized(of_policy, count) if behaviour == "estimated" else None,
    )


def _template(observed: Observed, config: FitConfig, networks: Networks) -> Arrays:
    """Return the shapes of a representation's numbers."""
    vector = len(observed.shape) == 1 or (observed.shape == () and observed.num_states is None)

    def shapes() -> Arrays:
        key, d = jax.random.key(0), config.num_features
        square = jnp.zeros((d, d))
        ends = jnp.zeros(observed.shape if vector else ())
        return Arrays(
            networks.forward.init(key),
            networks.backward.init(key),
            () if networks.behaviour is None else networks.behaviour.init(key),
            *(square, square, square[0], square),
            Inputs(ends, ends, indices=observed.num_states is not None),
        )

    template: Arrays = jax.eval_shape(shapes)
    return template


_Learned: TypeAlias = tuple[Params, Params, np.ndarray, np.ndarray]
"""Parameters of F and B, and the maps [d, d] that turn their features into those of m = FᵀB."""


def _fit_td(
    data: Transitions,
    blank: SuccessorRepresentation,
    taken: np.ndarray,
    folder: RunFolder | None,
    progress: bool,
) -> _Learned:
    config, method = blank.config, blank.config.method
    assert isinstance(method, TemporalDifferences)
    following = next_weights(data, taken, blank.probabilities)
    source = TransitionSource(
        blank.arrays.inputs,
        jnp.asarray(data.observation),
        jnp.zeros((len(data), 1)),
        jnp.asarray(taken),
        jnp.asarray(data.next_observation),
        jnp.asarray(following),
    )
    encoder = ForwardBackward(blank.networks.forward, blank.networks.backward)
    objective = ForwardBackwardLoss(
        num_features=config.num_features,
        discount=config.discount,
        averaging_rate=method.averaging_rate,
        orthonormality=method.orthonormality,
        encoder=encoder,
    )
    params = _trained(config, encoder, objective, source, 1, folder, progress)
    unit = np.eye(config.num_features)
    return params["forward"], params["backward"], unit / (1.0 - config.discount), unit


def next_weights(data: Transitions, taken: np.ndarray, behaviour: Behaviour) -> np.ndarray:
    """Return the weights of the actions that follow each row, [N, A].

    A unit vector for the data's own next action, the behaviour policy's probabilities where the
    record was cut, zero behind a terminal state.

    Args:
        data: The transitions.
        taken: Unit vectors of the actions taken, [N, A].
        behaviour: The policy that made the data.
    """
    weights = np.append(taken[1:], taken[:1], axis=0)
    weights[data.terminated] = 0.0
    assert data.truncated is not None  # As transitions fill it in.
    if data.truncated.any():
        weights[data.truncated] = behaviour(data.next_observation[data.truncated])
    return weights


def _fit_sums(
    data: Transitions,
    blank: SuccessorRepresentation,
    taken: np.ndarray,
    folder: RunFolder | None,
    progress: bool,
) -> _Learned:
    config, networks, inputs = blank.config, blank.networks, blank.arrays.inputs
    method, d = config.method, config.num_features
    assert isinstance(method, EpisodeSums)
    starts = complete_starts(data, config.discount, method.tolerance)
    # Times 1 − γ: the size of the columns then does not depend on γ, nor does their subspace.
    sums = (1.0 - config.discount) * discounted_sums(
        cumulant_columns(data, blank.observed, inputs, method, config.seed),
        data.ends,
        config.discount,
    )
    objective = with_sizes(
        method.objective,
        num_features=d,
        num_tasks=sums.shape[1],
        encoder=networks.forward,
        encoder_learning_rate=config.optimizer.learning_rate,
    )
    source = TransitionSource(
        inputs,
        jnp.asarray(data.observation[starts]),
        jnp.asarray(sums[starts]),
        jnp.asarray(taken[starts]),
        with_population=objective.needs_population,
    )
    forward = _trained(config, networks.forward, objective, source, sums.shape[1], folder, progress)
    features = _taken_features(networks, forward, inputs, data.observation, taken)
    whitening = _whitening(features[starts])
    white = features @ whitening.T
    scale = len(data) / int(starts.sum())
    targets = (scale * eligibilities(white, starts, data.ends, config.discount)).astype(np.float32)
    backward, read_out = _regressed(data, blank, targets, progress)
    return forward, backward, whitening, read_out


def complete_starts(data: Transitions, discount: float, tolerance: float) -> np.ndarray:
    """Return which rows start sums that are complete to a tolerance, [N]; see ``EpisodeSums``.

    Raises:
        InputError: If ends of episodes are not known or no row does.
    """
    data.require_ends()
    lacking = np.power(discount, data.steps_left)
    starts: np.ndarray = data.reaches_terminal | (lacking <= tolerance)
    longest = math.ceil(math.log(tolerance) / math.log(discount))
    require(
        bool(starts.any()),
        f"episodes that terminate or have at least {longest} rows (discount^rows <= {tolerance})",
        f"at most {int(data.steps_left.max())}",
    )
    return starts


def cumulant_columns(
    data: Transitions, observed: Observed, inputs: Inputs, method: EpisodeSums, seed: int
) -> np.ndarray:
    """Evaluate the cumulants at the states reached, [N, k] (float32)."""
    assert method.cumulants is not None  # As a fit fills it in.
    width = 1 if observed.num_states is not None else math.prod(observed.shape)
    cumulants = with_sizes(method.cumulants, num_inputs=width)
    count = cumulants.num_cells if isinstance(cumulants, Cells) else method.num_cumulants
    params = cumulants.init(seed_key(seed, 3), count)

    def columns(states: Array) -> Array:
        places = inputs(states).reshape(len(states), -1).astype(jnp.float32)
        if observed.num_states is not None:
            places = (places + 0.5) / observed.num_states
        return cumulants.apply(params, places)

    return _in_blocks(jax.jit(columns), data.next_observation)


def _trained(
    config: FitConfig,
    encoder: Encoder,
    objective: Objective,
    source: TransitionSource,
    tasks: int,
    folder: RunFolder | None,
    progress: bool,
    description: str = "",
) -> Params:
    every = max(1, config.steps // 20)
    result = train(
        encoder,
        objective,
        source,
        optimizer=config.optimizer,
        steps=config.steps,
        rows=config.rows,
        tasks=tasks,
        seeds=[config.seed],
        evaluate_every=every,
        checkpoint_every=5 * every,
        folder=folder,
        description=description or f"{objective.title}, d = {config.num_features}",
        progress=progress,
    )
    return result.params()


def _regressed(
    data: Transitions, blank: SuccessorRepresentation, targets: np.ndarray, progress: bool
) -> tuple[Params, np.ndarray]:
    """Regress targets [N, d] on the states reached: B's parameters, and a map [d, d] behind them.

    A table holds the means; of another encoder the features are trained by ``LargeBatch``, whose
    read-out is solved for.
    """
    config, encoder, inputs = blank.config, blank.networks.backward, blank.arrays.inputs
    d = config.num_features
    if isinstance(encoder, Tabular):
        means = np.zeros((encoder.num_states, d))
        counts = np.bincount(data.next_observation, minlength=encoder.num_states)
        np.add.at(means, data.next_observation, targets)
        return jnp.asarray(means / np.maximum(counts, 1)[:, None], jnp.float32), np.eye(d)
    rest = 1.0 - config.discount
    source = TransitionSource(
        inputs, jnp.asarray(data.next_observation), jnp.asarray(rest * targets)
    )
    objective = LargeBatch(d, precondition=1e-2)
    params = _trained(config, encoder, objective, source, d, None, progress, "backward features")
    features = _in_blocks(
        jax.jit(lambda states: encoder.apply(params, inputs(states))), data.next_observation
    ).astype(np.float64)
    weights = np.linalg.lstsq(features, targets.astype(np.float64), rcond=1e-6)[0]
    return params, weights.T


def _taken_features(
    networks: Networks, forward: Params, inputs: Inputs, observations: np.ndarray, taken: np.ndarray
) -> np.ndarray:
    """Compute F's features of the actions taken, [N, d] (float64)."""

    def features(states: Array, weights: Array) -> Array:
        heads = networks.forward.heads(forward, inputs(states))
        return jnp.sum(heads * weights[:, :, None], axis=1)

    return _in_blocks(jax.jit(features), observations, taken).astype(np.float64)


def _whitening(features: np.ndarray) -> np.ndarray:
    """Return the symmetric map [d, d] to features with the identity for second moment.

    Directions beyond the numerical rank of single precision are mapped to zero.
    """
    values, vectors = np.linalg.eigh(features.T @ features / len(features))
    kept = values > len(values) * np.finfo(np.float32).eps * values[-1]
    scale = np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    return np.asarray((vectors * scale) @ vectors.T)


def canonicalised(
    rep: SuccessorRepresentation, data: Transitions, taken: np.ndarray
) -> SuccessorRepresentation:
    """Rotate F and B to the singular functions of FᵀB over the data."""
    weights = taken[:, :, None]
    forward = np.zeros((rep.num_features, rep.num_features))
    backward = np.zeros_like(forward)
    for start in range(0, len(data), _BLOCK):
        rows = slice(start, start + _BLOCK)
        features = np.sum(rep.forward(data.observation[rows]) * weights[rows], axis=1)
        reached = rep.backward(data.next_observation[rows])
        forward += features.T.astype(np.float64) @ features
        backward += reached.T.astype(np.float64) @ reached
    found = canonical(forward / len(data), backward / len(data))
    arrays = rep.arrays._replace(
        forward_map=_single(found.forward @ np.asarray(rep.arrays.forward_map, np.float64)),
        backward_map=_single(found.backward @ np.asarray(rep.arrays.backward_map, np.float64)),
        singular_values=_single(found.singular_values),
    )
    rep = dataclasses.replace(rep, arrays=arrays)
    states = rep.features(data.observation, scaling="none").astype(np.float64)
    whitened = arrays._replace(whitening=_single(_whitening(states)))
    return dataclasses.replace(rep, arrays=whitened)


def _single(array: np.ndarray) -> Array:
    return jnp.asarray(array, jnp.float32)
