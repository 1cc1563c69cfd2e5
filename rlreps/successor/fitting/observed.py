"""The kinds of observations and actions in some data, and the encoders that fit them."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.config import configurable, leaf, with_sizes
from rlreps.encoders import (
    MLP,
    AtStates,
    Convolutional,
    Encoder,
    FourierMLP,
    Params,
    Tabular,
    channels_first,
)
from rlreps.errors import InputError, require
from rlreps.numerics import require_unmasked
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.transitions import Transitions
from rlreps.successor.truth.ground_truth import encoder_shape


@configurable
@dataclasses.dataclass(frozen=True)
class Flattened(Encoder):
    """An encoder of vectors that flattens observations of any shape first.

    Attributes:
        encoder: Encodes [b, c].
    """

    encoder: Encoder = leaf()

    def init(self, key: Array) -> Params:
        return self.encoder.init(key)

    def apply(self, params: Params, inputs: Array) -> Array:
        return self.encoder.apply(params, inputs.reshape(inputs.shape[0], -1))


_MOST_NUMBERS = 70
"""Longest vector that a fit takes to least squares by default; larger ones go to networks."""


@dataclasses.dataclass(frozen=True)
class Observed:
    """The observations and actions of some data.

    Attributes:
        shape: Shape of one observation; () for indices of states.
        num_actions: A; None for continuous actions.
        num_states: Number of indices; None for observations that are not indices.
        bytes: Whether observations are images of bytes.
        action_low: Lower bounds of continuous actions, k numbers.
        action_high: Upper bounds of continuous actions.
        double: Whether vectors keep double precision (see ``Transitions.observation``).
    """

    shape: tuple[int, ...]
    num_actions: int | None
    num_states: int | None = None
    bytes: bool = False
    action_low: tuple[float, ...] | None = None
    action_high: tuple[float, ...] | None = None
    double: bool = False

    @classmethod
    def of(cls, data: Transitions) -> "Observed":
        """Describe transitions; observations that are single integers are indices of states."""
        states = (data.observation, data.next_observation)
        shape = data.observation.shape[1:]
        bytes_ = len(shape) >= 2 and all(array.dtype == np.uint8 for array in states)
        low, high = (
            None if bound is None else tuple(float(number) for number in bound)
            for bound in (data.action_low, data.action_high)
        )
        double = data.observation.dtype == np.float64
        return cls(shape, data.num_actions, data.num_states, bytes_, low, high, double)

    @property
    def frame(self) -> tuple[int, ...]:
        """Shape of one observation as encoders see it, with the channels of images last."""
        first = channels_first(self.shape)
        return (*self.shape[1:], self.shape[0]) if first else self.shape

    def lines(self) -> list[str]:
        """Describe how observations and actions are read, in a line each."""
        actions = f"actions: {self.num_actions} discrete ones"
        if self.action_low is not None:
            actions = f"actions: a box of {len(self.action_low)} numbers"
        if self.num_states is not None:
            return [f"observations: indices of {self.num_states:,} states", actions]
        if len(self.shape) < 3:
            return [f"observations: numbers of shape {self.shape}", actions]
        height, width, channels = self.frame
        said = f"observations: images of {height} x {width} with {channels} channels"
        given = " (the first axis)" if self.frame != self.shape else " (the last axis)"
        return [said + given + (", bytes" if self.bytes else ""), actions]

    @property
    def actions(self) -> ActionBasis:
        """Return the features of actions."""
        low, high = (
            None if bound is None else np.asarray(bound, np.float32)
            for bound in (self.action_low, self.action_high)
        )
        return ActionBasis(self.num_actions, low, high)

    def checked(self, observations: Any) -> np.ndarray:
        """Check observations [m, ...] against the data's; return them as the fit takes them."""
        require_unmasked("observations", observations)
        array = np.asarray(observations)
        shape, states = self.shape, self.num_states
        require(
            array.shape[1:] == shape and array.ndim == len(shape) + 1,
            f"observations of shape {('m', *shape)}",
            array.shape,
        )
        require(array.dtype.kind in "iubf", "observations of numbers", array.dtype)
        # Floats are often bytes divided by 255: one kind of image cannot stand for the other.
        alike = len(shape) < 2 or (array.dtype == np.uint8) == self.bytes
        kind = "bytes" if self.bytes else "no bytes"
        require(alike, f"images of {kind}, as those of the fit", array.dtype)
        if states is not None:
            require(array.dtype.kind in "iub", "indices of states", array.dtype)
            array = array.astype(np.int64) if array.dtype.kind == "b" else array
            outside = array[(array < 0) | (array >= states)]
            if outside.size:
                raise InputError(
                    f"expected indices of the {states} states of the data, in [0, {states}), got "
                    f"{outside[0]}: give num_states= with the data if it is a state never reached"
                )
        elif array.dtype.kind == "f":
            require(bool(np.isfinite(array).all()), "finite observations", "NaN or infinity")
            array = array.astype(np.float64 if self.double else np.float32)
        return array

    def checked_actions(self, actions: Any, count: int) -> np.ndarray:
        """Check discrete actions [count], or continuous actions [count, k]."""
        require_unmasked("actions", actions)
        array, number = np.asarray(actions), self.num_actions
        if number is None:
            assert self.action_low is not None
            shape = count, len(self.action_low)
            fits = array.shape == shape or (array.shape == (count,) and shape[1] == 1)
            require(fits, f"actions of shape {shape}", array.shape)
            return check_finite("actions", array.ravel(), array.size).reshape(shape)
        require(array.shape == (count,), f"actions of shape {(count,)}", array.shape)
        inside = array.dtype.kind in "iu" and bool(((array >= 0) & (array < number)).all())
        require(inside, f"whole numbers of actions in [0, {number})", array[:4].tolist())
        return array

    @property
    def is_small(self) -> bool:
        """Tell whether a fit uses least squares by default (see ``FitConfig.method``)."""
        if self.num_states is not None:
            return self.num_actions is not None
        return len(self.shape) <= 1 and math.prod(self.shape) <= _MOST_NUMBERS

    @property
    def default_encoder(self) -> Encoder:
        """Return the encoder for observations of this kind.

        Indices of states get a table, and images get a convolutional network. Other observations
        get a perceptron, which starts with Fourier features for at most eight numbers.
        """
        if self.num_states is not None:
            return Tabular()
        if len(self.shape) == 3:
            return Convolutional()
        return FourierMLP() if math.prod(self.shape) <= 8 else MLP()

    def sized(self, encoder: Encoder, num_features: int) -> Encoder:
        """Return an encoder with the sizes that these observations need; nothing is trained.

        Raises:
            InputError: If it does not take the observations, or has a fixed other number of
                features.
        """
        indices, flat = self.num_states is not None, math.prod(self.shape)
        sized = with_sizes(
            encoder,
            num_features=num_features,
            num_inputs=self.num_states if indices else flat,
            num_states=self.num_states or 1,
            frame_shape=self.frame,
        )
        tabular = isinstance(encoder, Tabular)
        require(indices or not tabular, "indices of states (integers) for tabular", self.shape)
        if indices and not tabular:
            sized = AtStates(sized, jnp.eye(self.num_states))
        elif hasattr(encoder, "num_inputs") and len(self.shape) != 1:
            sized = Flattened(sized)
        dtype = jnp.int32 if indices else jnp.float32
        found = encoder_shape(sized, jax.ShapeDtypeStruct((2, *self.frame), dtype))
        require(found == (2, num_features), f"an encoder with {num_features} features", found[1:])
        return sized

    def inputs(self, data: Transitions) -> "Inputs":
        """Return the map from observations to encoder inputs, scaled by the range of the data.

        Vectors are scaled to [0, 1] by each coordinate's range, images by their common range.
        """
        states = (data.observation, data.next_observation)
        if self.num_states is not None:
            return Inputs(self, jnp.zeros(()), jnp.ones(()))
        axes = (0,) if len(self.shape) <= 1 else None
        # Differences of booleans are undefined, and those of small integers overflow.
        least = np.min([array.min(axis=axes) for array in states], axis=0).astype(np.float64)
        most = np.max([array.max(axis=axes) for array in states], axis=0).astype(np.float64)
        width = np.where(most > least, most - least, 1.0).astype(np.float32)
        offset: Any = least if self.double else jnp.asarray(least, jnp.float32)
        return Inputs(self, offset, jnp.asarray(np.float32(1.0) / width))


@configurable
@dataclasses.dataclass(frozen=True)
class Inputs:
    """Map from observations to encoder inputs.

    Indices of states stay unchanged. The channels of images come last.

    Attributes:
        observed: The kind of the observations.
        offset: Subtracted from observations; shape of one observation, or [].
        factor: Multiplies the differences; shape of one observation, or [].
    """

    observed: Observed
    offset: Array = leaf()
    factor: Array = leaf()

    def centred(self, observations: np.ndarray) -> np.ndarray:
        """Prepare observations for ``__call__``: subtract the offset if they are ``double``.

        NumPy subtracts it, since devices compute in single precision.
        """
        if not self.observed.double:
            return observations
        return np.asarray(observations - np.asarray(self.offset), np.float32)

    def __call__(self, observations: Array) -> Array:
        """Return inputs [b, ...], float32, or int32 for indices."""
        if self.observed.num_states is not None:
            return observations.astype(jnp.int32)
        values = observations.astype(jnp.float32)
        shape = (1, *self.offset.shape) if self.offset.ndim else (1,) * values.ndim
        if not self.observed.double:
            values = values - self.offset.reshape(shape)
        inputs: Array = values * self.factor.reshape(shape)
        return jnp.moveaxis(inputs, 1, -1) if channels_first(self.observed.shape) else inputs


def check_finite(name: str, values: Any, count: int) -> np.ndarray:
    """Check an array [count] of finite numbers; return it in double precision."""
    require_unmasked(name, values)
    array = np.asarray(values)
    require(array.shape == (count,), f"{name} of shape {(count,)}", array.shape)
    require(array.dtype.kind in "iubf", f"{name} of numbers", array.dtype.name)
    require(bool(np.isfinite(array).all()), f"finite {name}", "NaN or infinity")
    return array.astype(np.float64)


def format_observation(observation: np.ndarray) -> str:
    """Write an observation, of several numbers the first four, for a message."""
    flat = np.asarray(observation).ravel()
    return np.array2string(flat[:4], precision=3) if flat.size > 1 else str(flat[0])
