"""Features of observations; least-squares fits are linear in these features."""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
import scipy  # ``scipy.stats`` loads on first use: it takes a second.
import scipy.special
from jax import Array

from rlreps.numerics import matmul

BLOCK = 4096
"""Largest number of observations whose features are in memory at once."""

_BLOCK_NUMBERS = 2**22
"""Largest number of features in a product, which Ctrl-C cannot interrupt."""


def blocks_of(count: int, num_features: int = 1) -> list[slice]:
    """Cut rows into blocks whose features are in memory at once."""
    size = max(1, min(BLOCK, _BLOCK_NUMBERS // num_features))
    return [slice(start, start + size) for start in range(0, count, size)]


@dataclasses.dataclass(frozen=True)
class UnitVectors:
    """One-hot features of indices of states, with which least squares count transitions.

    Attributes:
        num_features: Number of states, which is the number of features, p.
    """

    num_features: int

    @property
    def num_states(self) -> int:
        """See ``DenseBasis.num_states``."""
        return self.num_features

    def project(self, observations: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """See ``DenseBasis.project``."""
        return self.projections(observations, weights)[0]

    def projections(self, observations: np.ndarray, *weights: np.ndarray) -> list[np.ndarray]:
        """See ``DenseBasis.projections``."""
        return [each[observations] for each in weights]


class DenseBasis(abc.ABC):
    """Features φ of observations, in a dense array."""

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """Number of features, p."""

    @property
    def num_states(self) -> int | None:
        """Number of states of which observations are indices; None for other observations."""
        return None

    @abc.abstractmethod
    def apply(self, observations: np.ndarray) -> np.ndarray:
        """Compute features [m, p] of observations [m, ...]."""

    @abc.abstractmethod
    def coordinates(self, observations: np.ndarray) -> np.ndarray:
        """Place observations [m, ...] so that distances tell how alike they are, [m, k]."""

    def project(self, observations: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Compute φ(s)ᵀW at observations [m, ...] for W of shape [p, ...]."""
        return self.projections(observations, weights)[0]

    def projections(self, observations: np.ndarray, *weights: np.ndarray) -> list[np.ndarray]:
        """Compute φ(s)ᵀW for several W of shape [p, ...] from features computed once."""
        count = len(observations)
        found = [np.empty((count, math.prod(each.shape[1:])), np.float32) for each in weights]
        for some in blocks_of(count):
            features = self.apply(observations[some])
            for block, each in zip(found, weights, strict=True):
                np.matmul(features, each.reshape(len(each), -1), out=block[some])
        return [
            block.reshape(count, *each.shape[1:])
            for block, each in zip(found, weights, strict=True)
        ]


Basis: TypeAlias = UnitVectors | DenseBasis


@dataclasses.dataclass(frozen=True, eq=False)
class FourierBasis(DenseBasis):
    """Random Fourier features of a Gaussian kernel, and a constant (Rahimi & Recht 2007).

    For observations s and s', φ(s)ᵀφ(s') estimates exp(−‖(s − s')ᵀ axes‖²/2) + 1.

    Attributes:
        mean: Subtracted from observations in double precision, [c].
        axes: Map from differences of observations to units of the kernel, [c, k].
        frequencies: ``axes`` times standard normal draws, [c, p − 1].
        phases: Uniform in [0, 2π), [p − 1].
    """

    mean: np.ndarray
    axes: np.ndarray
    frequencies: np.ndarray
    phases: np.ndarray

    @property
    def num_features(self) -> int:
        return len(self.phases) + 1

    @classmethod
    def of(
        cls,
        observations: np.ndarray,
        count: int,
        width: float,
        seed: int,
        axes: np.ndarray | None = None,
    ) -> "FourierBasis":
        """Draw ``count`` features, the constant included, that are scaled to observations [m, ...].

        ``width`` is the length scale of the kernel, in units of the axes [c, k]; None takes
        ``standardised`` ones.
        """
        flat = observations.reshape(len(observations), -1)
        axes = standardised(flat) if axes is None else axes
        return cls(flat.mean(axis=0, dtype=np.float64), *_waves(axes / width, count - 1, seed))

    def redrawn(self, seed: int) -> "FourierBasis":
        """Draw new frequencies and phases for the same kernel."""
        return FourierBasis(self.mean, *_waves(self.axes, len(self.phases), seed))

    def apply(self, observations: np.ndarray) -> np.ndarray:
        features = np.empty((len(observations), self.num_features), np.float32)
        waves = features[:, :-1]
        np.matmul(self._centred(observations), self.frequencies, out=waves)
        waves += self.phases
        np.cos(waves, out=waves)
        waves *= np.float32(math.sqrt(2.0 / len(self.phases)))
        features[:, -1] = 1.0
        return features

    def single(self) -> dict[str, np.ndarray]:
        """Return ``mean``, ``frequencies`` and ``phases`` in single precision.

        The phases make up for the rounding of the mean, which may be far larger than the spread.
        """
        mean = self.mean.astype(np.float32)
        rest = (self.mean - mean) @ self.frequencies.astype(np.float64)
        phases = np.remainder(self.phases - rest, 2.0 * math.pi).astype(np.float32)
        return {"mean": mean, "frequencies": self.frequencies.astype(np.float32), "phases": phases}

    def program(self, observations: Array) -> Array:
        """Compute features as ``apply`` does, but in JAX and in single precision throughout."""
        flat = observations.reshape(observations.shape[0], -1).astype(jnp.float32)
        single = {name: jnp.asarray(array) for name, array in self.single().items()}
        angles = matmul(flat - single["mean"][None, :], single["frequencies"])
        waves = jnp.cos(angles + single["phases"][None, :])
        waves = waves * jnp.float32(math.sqrt(2.0 / len(self.phases)))
        return jnp.concatenate([waves, jnp.ones_like(waves[:, :1])], axis=1)

    def coordinates(self, observations: np.ndarray) -> np.ndarray:
        """Return observations [m, ...] less their mean, in units of the kernel, [m, k]."""
        return np.asarray(self._centred(observations) @ self.axes)

    def nearness(self, observations: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Compute the kernel between observations [m, ...] and one point [1, ...], [m]."""
        offsets = self.coordinates(observations) - self.coordinates(place)
        return np.asarray(np.exp(-0.5 * np.square(offsets).sum(axis=1)))

    def _centred(self, observations: np.ndarray) -> np.ndarray:
        # An empty array has no size to infer.
        flat = observations.reshape(len(observations), len(self.mean))
        return np.asarray(flat - self.mean, np.float32)


def standardised(observations: np.ndarray, used: np.ndarray | None = None) -> np.ndarray:
    """Return axes along the coordinates of [m, c] whose unit is √k standard deviations, [c, k].

    ``used`` [c] masks the coordinates that count; None takes all.
    """
    deviation = observations.std(axis=0, dtype=np.float64)
    used = np.ones(len(deviation), np.bool_) if used is None else used
    scale = np.where(deviation > 0.0, deviation, 1.0) * math.sqrt(max(1, int(used.sum())))
    return np.diag(1.0 / scale)[:, used]


def whitened(observations: np.ndarray, used: np.ndarray | None = None) -> np.ndarray:
    """Return principal axes of standardised coordinates, with a unit of √k deviations, [c, k].

    Directions in which coordinates hardly vary, such as the differences of two frames, count as
    much as all others. Directions without variance to single precision are left out. Arguments are
    as for ``standardised``.
    """
    axes = standardised(observations, used)
    scaled = (observations - observations.mean(axis=0, dtype=np.float64)) @ axes
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    varied = values > 1e-6 * values[-1]
    return np.asarray(axes @ (vectors[:, varied] / np.sqrt(values[varied] * varied.sum())))


MOST_NUMBERS = 21_200
"""Largest size of an observation of which random Fourier features are taken."""


def _waves(axes: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return axes [c, k], frequencies [c, count] and phases [count] in single precision.

    The draws are points of a scrambled Sobol sequence, which cover the space more evenly than
    independent draws do (Yang et al. 2014). It has at most ``MOST_NUMBERS + 1`` coordinates.
    """
    sequence = scipy.stats.qmc.Sobol(axes.shape[1] + 1, rng=np.random.default_rng(seed))
    uniform = sequence.random_base2(math.ceil(math.log2(max(2, count))))[:count]
    uniform = np.clip(uniform, 1e-7, 1.0 - 1e-7).T
    frequencies, phases = axes @ scipy.special.ndtri(uniform[:-1]), 2.0 * np.pi * uniform[-1]
    return axes.astype(np.float32), frequencies.astype(np.float32), phases.astype(np.float32)


def in_blocks(function: Callable[[np.ndarray], Any], array: np.ndarray) -> np.ndarray:
    """Apply a compiled function to blocks of an array [m, ...], each padded to a power of two."""
    found = []
    for some in blocks_of(max(1, len(array))):
        block = array[some]
        count, padded = len(block), 1 << max(0, len(block) - 1).bit_length()
        if padded > count:
            block = np.concatenate(
                [block, np.zeros((padded - count, *block.shape[1:]), block.dtype)]
            )
        found.append(np.asarray(function(block))[:count])
    return np.concatenate(found)
