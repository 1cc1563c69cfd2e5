"""Ground truths: a stored matrix, centred, with its principal subspace."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.encoders import Encoder, Params, Tabular, TwoTowers
from rlreps.envs import arena_from_settings
from rlreps.envs.observations import Observation, as_observation
from rlreps.errors import InputError, require, require_memory, require_positive
from rlreps.numerics import as_inputs, as_real
from rlreps.subspace import (
    ArrayBlocks,
    PrincipalSubspace,
    RowBlocks,
    numerical_rank,
    spans_of,
    standardise,
    subspace_distance,
)
from rlreps.subspace.svd import Decomposition
from rlreps.successor.measure.grids import BoxGrid
from rlreps.successor.truth.states import read_states, state_cells
from rlreps.successor.truth.store import MatrixStore, open_store
from rlreps.successor.truth.stored_subspace import (
    ALONE,
    DEFAULT_DECOMPOSITION,
    Progress,
    Share,
    centre_matrix,
    no_progress,
    principal_subspace,
)
from rlreps.typing import ArrayLike


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GroundTruth:
    """A ground truth against which representations are measured.

    Attributes:
        coordinates: Position of every state in [0, 1]ᵏ, [n, k].
        matrix: Ψ, centred, [n, tasks]; row blocks if it is larger than memory, None if only its
            subspace is known.
        principal: Leading left singular vectors and values of Ψ, and its squared Frobenius norm.
        settings: The settings of the store it came from.
        error: Estimated subspace distance of the leading d components from the exact ones, for
            d = 1 … k, [k], if known. ``load`` takes a store's error from ``sampling_error``.
        grid: The grid whose cells are the states, with units and names, if states are cells.
        cells: Cell of each state, in ascending order, [n].
        observed: Observation of every state, [n, ...], if agents do not observe the state itself;
            ``seen_as`` fills it in. Several states may then share a cell, in any order.
    """

    coordinates: Array
    matrix: Array | RowBlocks | None
    principal: PrincipalSubspace
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    error: np.ndarray | None = None
    grid: BoxGrid | None = None
    cells: np.ndarray | None = None
    observed: Array | None = None

    def __repr__(self) -> str:
        states, components = self.principal.basis.shape
        discount = self.settings.get("discount")
        return f"<GroundTruth of {states} states, {components} components, discount {discount}>"

    @property
    def num_states(self) -> int:
        """Number of states, n."""
        return len(self.principal.basis)

    @property
    def states(self) -> Array:
        """Every state in the units of its environment, [n, k]; ``coordinates`` without a grid."""
        if self.grid is None:
            return self.coordinates
        low, high = (jnp.asarray(corner, jnp.float32) for corner in (self.grid.low, self.grid.high))
        return low[None, :] + self.coordinates * (high - low)[None, :]

    @property
    def observations(self) -> Array:
        """What an encoder or agent sees of every state, [n, ...]: ``observed``, else ``states``."""
        return self.states if self.observed is None else self.observed

    @property
    def cell_widths(self) -> np.ndarray | None:
        """Extent of a cell along each coordinate, [k], if states are cells and seen as such."""
        if self.grid is None or self.observed is not None:
            return None
        return np.float32(1.0) / np.asarray(self.grid.bins, np.float32)

    def seen_as(self, observation: Observation | str) -> "GroundTruth":
        """Return the truth with the observation of every state in its PuddleWorld.

        ``observation`` is ``Position``, ``Code`` or ``Image``, or the name of one. It may differ
        from the arena's own observation. Truths of other environments are refused.
        """
        described = self.settings.get("environment")
        if not isinstance(described, Mapping):
            raise InputError(
                "expected a ground truth of a PuddleWorld arena for observations of its states, "
                "got one of another environment"
            )
        world = arena_from_settings({**described, "observation": as_observation(observation)})
        seen = jax.eval_shape(world.observe_position, self.coordinates[0])
        size = self.num_states * seen.size * seen.dtype.itemsize
        require_memory(f"observations of {self.num_states} states", size)
        observed = jax.jit(jax.vmap(world.observe_position))(self.coordinates)
        return dataclasses.replace(self, observed=observed)

    def require_dimension(self, d: int) -> None:
        """Raise an ``InputError`` unless the subspace holds d components."""
        available = self.principal.basis.shape[1]
        require_positive("d", d)
        require(d <= available, f"1 <= d <= {available} components of the ground truth", d)

    def distance(
        self,
        features: ArrayLike,
        components: int | None = None,
        *,
        intercept: bool = False,
    ) -> float:
        """Return the subspace distance of features [n, p] from the leading components.

        The distance is the share of the leading k components outside the features' span, 1 − tr(F
        Fᵀ P_Φ) / k: 0 if the span holds them, 1 if it is orthogonal to them. It is computed in
        double precision, by the function that ``rlreps.audit`` uses.

        Args:
            features: Features of all states, [n, p].
            components: k; by default p, the convention of Le Lan et al. 2023.
            intercept: Whether the span includes the constant, as for a linear read-out with an
                intercept; a shift of features then changes nothing. The papers leave it out.

        Raises:
            InputError: For features of another shape, not real or finite, or of more components
                than the truth has.
        """
        features = as_real(features, "features")
        filled = features.ndim == 2 and features.size > 0
        require(filled, "features of shape [states, p]", features.shape)
        require(bool(np.isfinite(features).all()), "finite features", "NaN or infinity")
        fitting = len(features) == self.num_states
        require(fitting, f"features of all {self.num_states} states, a row each", features.shape)
        k = features.shape[1] if components is None else components
        self.require_dimension(k)
        basis = self.principal.truncated(k).basis.astype(np.float64)
        spans = spans_of(standardise(features), basis)
        missed = spans.missed_with_intercept if intercept else spans.missed_without_intercept
        return float(missed.mean())

    def inputs(self, encoder: Encoder) -> Array:
        """Return an encoder's inputs for all states: indices if tabular, else what it sees.

        That is ``observed``, with bytes divided by 255, or else the positions.

        Raises:
            InputError: For an encoder that is not tabular, if states have neither.
        """
        encoder = encoder.forward if isinstance(encoder, TwoTowers) else encoder
        if isinstance(encoder, Tabular):
            return jnp.arange(self.num_states)
        # A network would take the number of a state for a position.
        known = self.observed is not None or self.grid != BoxGrid.numbered(self.num_states)
        expected = "encoder tabular for states without coordinates or observations"
        require(known, expected, encoder.name)
        seen = self.coordinates if self.observed is None else self.observed
        return as_inputs(seen)

    def evaluation(self, encoder: Encoder) -> Callable[[Params], dict[str, Array]]:
        """Return a function that measures an encoder, for ``evaluate`` of ``training.train``.

        It maps parameters to ``subspace_distance`` to the leading d components and
        ``feature_rank``, both []. For ``TwoTowers``, the d features are those of f.

        Raises:
            InputError: If the encoder gives no features [n, d] of the states, or d exceeds the
                number of components.
        """
        if isinstance(encoder, TwoTowers):
            follow = self.evaluation(encoder.forward)
            return lambda params: follow(params["forward"])
        inputs = self.inputs(encoder)
        if isinstance(encoder, Tabular):
            expected = f"a tabular encoder of the {self.num_states} states"
            require(encoder.num_states == self.num_states, expected, encoder.num_states)
        shape = encoder_shape(encoder, inputs)
        require(
            len(shape) == 2 and shape[0] == self.num_states,
            f"an encoder with features of shape ({self.num_states}, d) of the states",
            shape,
        )
        self.require_dimension(shape[1])
        return distance_evaluation(encoder, inputs, self.principal.truncated(shape[1]).basis)


def encoder_shape(encoder: Encoder, inputs: Array | jax.ShapeDtypeStruct) -> tuple[int, ...]:
    """Return the shape of an encoder's features of inputs [b, ...]; refuse inputs it cannot take.

    Nothing is computed.
    """

    def features(inputs: Array) -> Array:
        return encoder.apply(encoder.init(jax.random.key(0)), inputs)

    try:
        return tuple(jax.eval_shape(features, inputs).shape)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise InputError(
            f"expected an encoder of inputs of shape {inputs.shape}, got one that cannot take "
            f"them ({first})"
        ) from error


def distance_evaluation(
    encoder: Encoder, inputs: Array, basis: np.ndarray | Array
) -> Callable[[Params], dict[str, Array]]:
    """Return a function for ``evaluate``: parameters → distance to a basis, and rank, both [].

    ``inputs`` [n, ...] are those of all states; the basis [n, d] is orthonormal.
    """
    target = jnp.asarray(basis)

    def evaluate(params: Params) -> dict[str, Array]:
        # XLA would fold convolutions of constant images while it compiles.
        features = encoder.apply(params, jax.lax.optimization_barrier(inputs))
        return {
            "subspace_distance": subspace_distance(features, target),
            "feature_rank": numerical_rank(features),
        }

    return evaluate


def load_ground_truth(
    path: str | Path,
    decomposition: Decomposition = DEFAULT_DECOMPOSITION,
    *,
    progress: Progress = no_progress,
    share: Share = ALONE,
) -> GroundTruth:
    """Read a store of a successor measure as a ground truth, with its ``principal_subspace``.

    A matrix that fits in memory is put on the default device.

    Args:
        path: The store's folder.
        decomposition: How to compute the subspace, if the store does not keep it.
        progress: Shows the progress of the decomposition.
        share: As for ``principal_subspace``.

    Raises:
        InputError: If there is no such store, blocks are missing or corrupt, or the rank exceeds
            the rank of the matrix.
    """
    store = open_store(path)
    matrix = centre_matrix(store, share)
    principal = principal_subspace(
        store, decomposition, matrix=matrix, progress=progress, share=share
    )
    held = jnp.asarray(matrix.matrix) if isinstance(matrix, ArrayBlocks) else matrix
    return truth_of_store(store, principal, matrix=held)


def truth_of_store(
    store: MatrixStore,
    principal: PrincipalSubspace,
    *,
    matrix: Array | RowBlocks | None = None,
    error: np.ndarray | None = None,
) -> GroundTruth:
    """Return the truth of a store whose subspace is known; arguments as for ``GroundTruth``."""
    grid, cells = state_cells(store)
    seen = read_states(store).get("observations")
    return GroundTruth(
        coordinates=jnp.asarray(grid.unit_centres()[cells]),
        observed=None if seen is None else jnp.asarray(seen),
        matrix=matrix,
        principal=principal,
        settings=dict(store.settings),
        error=error,
        grid=grid,
        cells=cells,
    )
