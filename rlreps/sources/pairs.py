"""Sources of pairs of states: along the episodes of transitions, and from a transition matrix.

Both give rows whose inputs are a ``Clip`` of two states, ``state, later = batch.pair``, and no
targets, for ``Spin`` with ``Slowness``, for ``PAIR_OBJECTIVES`` and for losses of your own.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import Array, lax

from rlreps.batch import Batch, Clip
from rlreps.errors import InputError, require, require_interval
from rlreps.numerics import as_inputs
from rlreps.sources.matrix import encoder_inputs

if TYPE_CHECKING:  # The successor package imports this one.
    from rlreps.successor import Transitions


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PairSource:
    """Pairs (s, s⁺) of states of an episode; rows of transitions are drawn uniformly.

    Row i is drawn with replacement, and s⁺ is the state k steps after the next state, with
    P(k) = (1 − γ)γᵏ: s⁺ = S_{i+1+k}. If k leads beyond the end of the episode or of its record, s⁺
    is the last state reached. So a terminal state counts as if the episode stayed there for ever.
    If the record is cut l rows after row i, the last state gets the remaining probability γ^l,
    which belongs to unknown later states. For long records with few cuts, s⁺ given s is distributed
    as (1 − γ) Σ_{t≥0} γᵗ P^{t+1}(s, ·), the normalised successor measure of the data's policy.

    Attributes:
        observation: s of every row, [N, ...].
        next_observation: The state that each row leads to, [N, ...].
        steps_left: Rows from each row to the end of its episode, itself included, [N] (int32).
        discount: γ, []; 0 gives pairs of consecutive states.
    """

    observation: Array
    next_observation: Array
    steps_left: Array
    discount: Array
    num_tasks: ClassVar[None] = None

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw ``num_rows`` pairs; targets are empty, [num_rows, 0]."""
        del num_tasks
        row_key, step_key = jax.random.split(key)
        rows = jax.random.randint(row_key, (num_rows,), 0, len(self.steps_left), jnp.int32)
        # At least one: the number of trials up to and with the first success.
        steps = jax.random.geometric(step_key, 1.0 - self.discount, (num_rows,), jnp.int32)
        later = rows + jnp.minimum(steps, self.steps_left[rows]) - 1
        pair = (_inputs(self.observation[rows]), _inputs(self.next_observation[later]))
        return Batch(Clip(pair), jnp.zeros((num_rows, 0)))


def pair_source(transitions: "Transitions", *, discount: float = 0.0) -> PairSource:
    """Return a source of pairs (s, s') or, with a discount, (s, s⁺) along episodes.

    Args:
        transitions: The data. Batches hold indices of states as int32, bytes divided by 255, and
            other observations unchanged (float32): scale them as the encoder expects.
        discount: γ in [0, 1), as for ``PairSource``; 0 gives the next state.

    Raises:
        InputError: For anything but ``Transitions``, or a discount out of range.
    """
    from rlreps.successor import Transitions

    if not isinstance(transitions, Transitions):
        raise InputError(
            f"expected Transitions (rlreps.successor), got {type(transitions).__name__}; "
            "Transitions.from_dictionary reads a dictionary of arrays"
        )
    single = transitions.observation.dtype != np.float64
    require(single, "observations that single precision tells apart: subtract an offset", "others")
    return PairSource(
        jnp.asarray(transitions.observation),
        jnp.asarray(transitions.next_observation),
        jnp.asarray(transitions.steps_left, jnp.int32),
        _checked_discount(discount),
    )


def _checked_discount(discount: float) -> Array:
    """Return γ in single precision; raise an ``InputError`` unless 0 <= γ < 1 there."""
    require_interval("discount", float(np.float32(discount)), "[0, 1)")
    return jnp.asarray(discount, jnp.float32)


def _inputs(observations: Array) -> Array:
    """Convert observations [b, ...] to inputs of encoders."""
    if observations.ndim == 1 and jnp.issubdtype(observations.dtype, jnp.integer):
        return observations.astype(jnp.int32)
    return as_inputs(observations)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ChainSource:
    """Pairs (s, s') or (s, s⁺) of states of a Markov chain: s uniform, s⁺ some steps after s'.

    With a discount γ, s⁺ given s is distributed as (1 − γ) Σ_{t≥0} γᵗ P^{t+1}(s, ·). The same key
    gives the same s for every γ, and the same first step.

    Attributes:
        inputs: Encoder input of each state, [n, ...].
        columns: Possible next states of each state, padded with repetitions, [n, k] (int32).
        cumulative: Cumulative probability of these next states, padded with ones, [n, k].
        discount: γ, []; 0 gives pairs of consecutive states.
    """

    inputs: Array
    columns: Array
    cumulative: Array
    discount: Array
    num_tasks: ClassVar[None] = None

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw ``num_rows`` pairs; targets are empty, [num_rows, 0]."""
        del num_tasks
        state_key, step_key = jax.random.split(key)
        dtype = self.cumulative.dtype
        states = jax.random.randint(state_key, (num_rows,), 0, len(self.columns), jnp.int32)

        def step(states: Array, key: Array) -> Array:
            levels = jax.random.uniform(key, (num_rows,), dtype)
            passed = jnp.sum(self.cumulative[states] <= levels[:, None], axis=1, dtype=jnp.int32)
            return self.columns[states, passed]

        count_key, walk_key = jax.random.split(jax.random.fold_in(step_key, 0))
        # At least one: the number of trials up to and with the first success.
        steps = jax.random.geometric(count_key, 1.0 - self.discount, (num_rows,), jnp.int32)

        def walk_on(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            taken, later = carry
            moved = step(later, jax.random.fold_in(walk_key, taken))
            return taken + 1, jnp.where(taken < steps, moved, later)

        _, later = lax.while_loop(
            lambda carry: carry[0] < steps.max(), walk_on, (jnp.int32(1), step(states, step_key))
        )
        pair = (self.inputs[states], self.inputs[later])
        return Batch(Clip(pair), jnp.zeros((num_rows, 0), dtype))


def chain_source(
    transition: Any, inputs: Array | np.ndarray | None = None, *, discount: float = 0.0
) -> ChainSource:
    """Return a source of the pairs of a known chain.

    Args:
        transition: P, [n, n], dense or a SciPy sparse array, rows sum to 1.
        inputs: Encoder input of each state, [n, ...]; None gives state indices [n] (int32).
        discount: γ in [0, 1), as for ``ChainSource``; 0 gives the next state.

    Raises:
        InputError: If P is not real or square, an entry is negative, a row does not sum to 1, there
            is not one input per state, or a discount is out of range.
    """
    given: Any = transition if scipy.sparse.issparse(transition) else np.asarray(transition)
    kind = given.dtype
    require(kind.kind in "biuf", "a transition matrix of real numbers", kind.name)
    chain = scipy.sparse.csr_array(transition).astype(np.float64)
    chain.eliminate_zeros()
    states = chain.shape[0]
    require(chain.shape == (states, states), "a transition matrix [n, n]", chain.shape)
    least = float(chain.data.min(initial=np.inf))
    require(least >= 0.0, "probabilities >= 0", f"{least:g}")
    off = float(np.abs(chain.sum(axis=1) - 1.0).max(initial=0.0))
    require(states >= 1 and off < 1e-5, "rows that sum to 1", f"a sum off by {off:g}")
    entries, cumulative = padded_chances(chain)
    return ChainSource(
        encoder_inputs(inputs, states),
        jnp.asarray(chain.indices[entries].astype(np.int32)),
        jnp.asarray(cumulative.astype(jnp.result_type(float))),
        _checked_discount(discount),
    )


def padded_chances(table: "scipy.sparse.csr_array") -> tuple[np.ndarray, np.ndarray]:
    """Return the entries of each row of probabilities, and their cumulative sums, [n, k] each.

    Entries are places in ``table.data``; the last one of a row repeats. Sums are exactly one from
    the last entry on, where rounding would leave a gap.
    """
    last = np.diff(table.indptr)[:, None] - 1
    place = np.arange(last.max() + 1)[None, :]
    entries = table.indptr[:-1, None] + np.minimum(place, last)
    return entries, np.where(place < last, np.cumsum(table.data[entries], axis=1), 1.0)
