"""Tables of transitions and rewards from arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rlreps.errors import InputError, require
from rlreps.numerics import as_real, bytes_of
from rlreps.typing import ArrayLike, DoubleArray
from rlreps.worlds.planning import TransitionTable, require_chances

Mask = npt.NDArray[np.bool_]

_DOUBLE, _SINGLE = 1e-12, 1e-6
"""How far the rounding of float64 and of float32 brings sums of probabilities off 1."""


def build_table(
    next_states: ArrayLike | None,
    probabilities: Any,
    rewards: ArrayLike | None,
    transition_rewards: Any,
    terminal: ArrayLike | None,
) -> tuple[Mask, TransitionTable, DoubleArray, DoubleArray | None]:
    """Build a table in which terminal states lead to themselves and pay nothing.

    The arguments are those of ``World.from_arrays``.

    Returns:
        Terminal states, [n]; probabilities of next states, sparse, [n A, n]; expected rewards, [n,
        A]; and the reward of each entry of the table, None if each action pays the same.

    Raises:
        InputError: For arrays that do not fit each other.
    """
    one = (rewards is None) != (transition_rewards is None)
    require(one, "either rewards or transition_rewards", "both or neither")
    one = (next_states is None) != (probabilities is None)
    require(one, "either next_states or probabilities", "both or neither")
    given = None
    if rewards is None:
        given = _by_states(transition_rewards, "transition_rewards")
        states, actions = given.shape[1], given.shape[0] // given.shape[1]
    else:
        paid = as_real(rewards, "rewards").astype(np.float64)
        states, actions = checked_shape(paid, "rewards", 2)
    flags = np.zeros(states) if terminal is None else as_real(terminal, "terminal")
    require(flags.shape == (states,), f"terminal [{states}]", flags.shape)
    others = flags[(flags != 0) & (flags != 1)]
    require(not others.size, "terminal states as booleans, or 0 and 1", others[:1].tolist())
    ends = flags.astype(np.bool_)
    if next_states is not None:
        table = _of_next_states(as_real(next_states, "next_states"), (states, actions))
    else:
        table = _by_states(probabilities, "probabilities", (actions, states))
        sums = np.asarray(table.sum(axis=1), np.float64)
        table.data /= np.repeat(rounded_sums(sums), np.diff(table.indptr))
    if given is not None:
        paid = table.multiply(given).sum(axis=1).reshape(states, actions)
    stay = np.flatnonzero(np.repeat(ends, actions))
    keep = scipy.sparse.diags_array(np.repeat(~ends, actions).astype(np.float64))
    loops = scipy.sparse.csr_array(
        (np.ones(len(stay)), (stay, stay // actions)), (states * actions, states)
    )
    table = scipy.sparse.csr_array(keep @ table + loops)
    table.eliminate_zeros()
    table.sort_indices()
    paid[ends] = 0.0
    return ends, table, paid, None if given is None else _rewards_at(given, table, ends)


def restart(
    table: TransitionTable, each: DoubleArray | None, terminal: Mask, start: DoubleArray
) -> tuple[TransitionTable, DoubleArray | None]:
    """Lead terminal states to first states; return the table and the rewards of its entries.

    Args:
        table: Probabilities of next states, sparse, [n A, n].
        each: Reward of each entry of the table; None if each action pays the same.
        terminal: Terminal states, [n].
        start: Distribution of the first state, [n].
    """
    actions = table.shape[0] // table.shape[1]
    ends = scipy.sparse.csr_array(np.repeat(terminal, actions)[:, None] * 1.0)
    going = scipy.sparse.diags_array(1.0 - ends.toarray().ravel()) @ table
    restarted = scipy.sparse.csr_array(going + ends @ scipy.sparse.csr_array([start]))
    if each is None:
        return restarted, None
    given = scipy.sparse.csr_array((each, table.indices, table.indptr), table.shape)
    return restarted, _rewards_at(given, restarted, terminal)


def rounded_sums(sums: DoubleArray) -> DoubleArray:
    """Return what to divide distributions by that add up to ``sums``: the rounding of float32.

    It is 1 for sums in double precision, so that exact distributions stay as they are. It is 1 for
    sums that are further from 1 than rounding brings them, too: later checks refuse these sums.
    """
    off = np.abs(sums - 1.0)
    return np.where((off > _DOUBLE) & (off < _SINGLE), sums, 1.0)


def as_observations(given: ArrayLike) -> npt.NDArray[Any]:
    """Return observations [n, ...] as uint8 if they are, else as float32.

    Raises:
        InputError: If they are not real numbers, or float32 makes two of them one.
    """
    seen = as_real(given, "observations")
    require(seen.ndim > 0, "observations [n, ...]", given)
    if seen.dtype == np.uint8:
        return seen
    with np.errstate(over="ignore", invalid="ignore"):  # Infinite numbers are refused later.
        single = seen.astype(np.float32)
        if np.can_cast(seen.dtype, np.float32) or not seen.size:
            return single
        _, first, group = np.unique(
            bytes_of(single, single.dtype), return_index=True, return_inverse=True
        )
        twins = seen[first[group]]
        apart = seen != twins
        if seen.dtype.kind == "f":  # A smaller difference is the rounding of double precision.
            apart &= np.abs(seen - twins) > 1e-12 * np.abs(seen)
    for place in np.argwhere(apart)[:1]:
        raise InputError(
            f"expected observations that single precision tells apart, got {twins[*place]} and "
            f"{seen[*place]}, which it rounds alike: subtract an offset"
        )
    return single


def checked_shape(array: npt.NDArray[Any], name: str, axes: int) -> tuple[int, ...]:
    """Return the shape of an array with this number of axes, none of which is empty."""
    filled = array.ndim == axes and array.size > 0
    require(filled, f"{name} with {axes} axes", f"shape {array.shape}")
    return array.shape


def check_table(table: TransitionTable, shape: tuple[int, int]) -> None:
    """Check that a table [n A, n] holds probabilities of next states; ``shape`` is (n, A)."""
    states, actions = shape
    expected = f"transitions [{states * actions}, {states}]"
    require(table.shape == (states * actions, states), expected, table.shape)
    chances = table.data
    require(chances.dtype == np.float64, "chances of type float64", chances.dtype.name)
    try:  # SciPy's products read and write wherever indices say.
        table.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"expected a valid sparse matrix of transitions, got {error}") from error
    off = float(np.abs(table.sum(axis=1) - 1.0).max(initial=0.0))
    require_chances("next states", chances)
    require(off < 1e-9, "probabilities of next states that sum to 1", f"{off:g} off")


def check_entries(each: DoubleArray, table: TransitionTable, rewards: DoubleArray) -> None:
    """Check that ``rewards`` [n, A] are the expectations of the rewards of a table's entries."""
    chances = table.data
    fits = each.dtype == np.float64 and each.shape == chances.shape
    require(fits, f"transition_rewards {list(chances.shape)} of type float64", each.shape)
    means = np.add.reduceat(chances * each, table.indptr[:-1])
    meant = np.allclose(means, rewards.ravel(), rtol=1e-9)
    require(meant, "rewards that are means of transition_rewards", "others")


def _by_states(given: Any, name: str, shape: tuple[int, int] | None = None) -> TransitionTable:
    """Stack matrices [n, n] of A actions, dense or sparse, as a table [n A, n]."""
    sparse = scipy.sparse.issparse(given)
    require(not sparse, f"{name} [A, n, n]", f"one sparse matrix {getattr(given, 'shape', '')}")
    try:
        each = [scipy.sparse.csr_array(part, dtype=np.float64) for part in given]
    except (TypeError, ValueError) as error:
        raise InputError(f"expected {name} [A, n, n], got {error}") from error
    require(bool(each), f"{name} [A, n, n]", "none")
    actions, states = (len(each), each[0].shape[-1]) if shape is None else shape
    shapes = [part.shape for part in each]
    odd = next((found for found in shapes if found != (states, states)), shapes[0])
    fits = (len(each), *odd) == (actions, states, states)
    require(fits, f"{name} [{actions}, {states}, {states}]", (len(each), *odd))
    order = np.arange(states * actions).reshape(actions, states).T.ravel()
    return scipy.sparse.csr_array(scipy.sparse.vstack(each, format="csr"))[order]


def _rewards_at(given: TransitionTable, table: TransitionTable, ends: Mask) -> DoubleArray | None:
    """Return rewards at the entries of a table; None if those of each row are equal."""
    rows = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    each = np.asarray(given[rows, table.indices], np.float64).ravel()
    each[ends[rows // (table.shape[0] // table.shape[1])]] = 0.0
    first = table.indptr[:-1]
    most, least = (which.reduceat(each, first) for which in (np.maximum, np.minimum))
    return None if np.allclose(most, least, rtol=1e-12, atol=0.0) else each


def _of_next_states(given: npt.NDArray[Any], shape: tuple[int, int]) -> TransitionTable:
    states, actions = shape
    whole = np.issubdtype(given.dtype, np.integer) and given.shape == shape
    require(whole, f"next states {list(shape)} as integers", (given.dtype.name, given.shape))
    inside = bool((given >= 0).all() and (given < states).all())
    require(inside, f"next states in [0, {states})", (int(given.min()), int(given.max())))
    rows = np.arange(states * actions + 1)
    return scipy.sparse.csr_array(
        (np.ones(states * actions), given.ravel(), rows), (states * actions, states)
    )
