"""Pairs of states against exact enumeration of the data's rows, and of small chains."""

import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse

from rlreps.errors import InputError
from rlreps.sources import chain_source, pair_source
from rlreps.successor import Transitions

SIZE = 5
CHAIN = np.random.default_rng(4).dirichlet(np.full(SIZE, 0.4), size=SIZE)
DRAWN = 200_000


def episodes(lengths, terminated, seed=0):
    """Walk along the chain in episodes of given lengths, from uniform starts."""
    rng, parts = np.random.default_rng(seed), []
    for length, terminal in zip(lengths, terminated, strict=True):
        states = [int(rng.integers(SIZE))]
        for _ in range(length):
            states.append(int(rng.choice(SIZE, p=CHAIN[states[-1]])))
        flags = np.arange(length) == length - 1
        parts.append((states[:-1], states[1:], flags & terminal, flags & (not terminal)))
    before, after, ended, cut = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Transitions(
        observation=before,
        action=np.zeros(len(before), int),
        next_observation=after,
        terminated=ended,
        truncated=cut,
        num_actions=1,
    )


def drawn(source, count=DRAWN, seed=0):
    batch = jax.jit(source.sample, static_argnums=(1, 2))(jax.random.key(seed), count, 7)
    assert batch.targets.shape == (count, 0)
    return [np.asarray(state) for state in batch.pair]


def joint_counts(states, later):
    counts = np.zeros((SIZE, SIZE))
    np.add.at(counts, (states, later), 1)
    return counts


def assert_drawn_from(counts, joint):
    """Compare counts with expected ones: no error beyond five standard deviations."""
    assert not counts[joint == 0.0].any()
    expected = counts.sum() * joint
    error = (counts - expected)[joint > 0.0]
    error /= np.sqrt((expected * (1.0 - joint))[joint > 0.0])
    assert np.abs(error).max() < 5.0


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9])
def test_later_states_are_those_of_the_rows_own_episode_with_their_probabilities(discount):
    data = episodes([1, 7, 40, 3, 60], [True, False, True, True, False])
    joint = np.zeros((SIZE, SIZE))
    ends = np.flatnonzero(data.terminated | data.truncated)
    for row in range(len(data)):
        last = ends[ends >= row][0]
        for step in range(last - row + 1):
            share = (1.0 - discount) * discount**step
            # Whatever leads beyond the record stays at its last state.
            share = discount**step if row + step == last else share
            joint[data.observation[row], data.next_observation[row + step]] += share / len(data)
    assert joint.sum() == pytest.approx(1.0)
    counts = joint_counts(*drawn(pair_source(data, discount=discount)))
    assert_drawn_from(counts, joint)


def test_pairs_of_a_chain_come_with_its_probabilities():
    sparse = np.where(CHAIN < 0.1, 0.0, CHAIN)
    sparse /= sparse.sum(axis=1, keepdims=True)
    counts = joint_counts(*drawn(chain_source(scipy.sparse.csr_array(sparse))))
    assert_drawn_from(counts, sparse / SIZE)
    discount = 0.7
    futures = (1.0 - discount) * sparse @ np.linalg.inv(np.eye(SIZE) - discount * sparse)
    starts, later = drawn(chain_source(sparse, discount=discount))
    assert_drawn_from(joint_counts(starts, later), futures / SIZE)
    centres = np.random.default_rng(0).normal(size=(SIZE, 2)).astype(np.float32)
    for of_states, indices in zip(
        drawn(chain_source(sparse, centres), 50), drawn(chain_source(sparse), 50), strict=True
    ):
        np.testing.assert_array_equal(of_states, centres[indices])
    # Three thirds do not add up to one in float32 arithmetic; padding must never be drawn.
    source = chain_source(np.array([[1 / 3, 1 / 3, 1 / 3], [0, 1.0, 0], [0.5, 0, 0.5]]))
    cumulative, columns = np.asarray(source.cumulative), np.asarray(source.columns)
    for state, targets in enumerate([{0, 1, 2}, {1}, {0, 2}]):
        count = len(targets)
        assert set(columns[state, :count]) == targets
        assert np.all(cumulative[state, count - 1 :] == 1.0)
        np.testing.assert_allclose(cumulative[state, :count], np.arange(1, count + 1) / count)


def of_kind(states):
    """Transitions 0 → 1 → 2 → 0 of states given as observations [3, ...]."""
    zeros = np.zeros(3, int)
    return Transitions(
        observation=states,
        action=zeros,
        next_observation=np.roll(states, -1, axis=0),
        terminated=zeros,
        truncated=[0, 0, 1],
        num_states=2**25 if states.ndim == 1 else None,
    )


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (np.array([2**24 + 1, 3, 5]), np.array([2**24 + 1, 3, 5], np.int32)),
        (np.array([[0.5, 1.0], [2.0, 3.0], [-1.0, 0.0]]), None),
        (
            np.array([0, 51, 255], np.uint8).repeat(4).reshape(3, 2, 2, 1),
            np.array([0.0, 0.2, 1.0], np.float32).repeat(4).reshape(3, 2, 2, 1),
        ),
        (np.uint8([[0, 51], [255, 1], [3, 102]]), np.float32([[0, 51], [255, 1], [3, 102]]) / 255),
    ],
)
def test_observations_become_what_encoders_take(states, expected):
    expected = states.astype(np.float32) if expected is None else expected
    found, later = drawn(pair_source(of_kind(states)), 40)
    assert found.dtype == later.dtype == expected.dtype
    rows = [int(np.argmin([np.abs(each - row).max() for row in expected])) for each in found]
    assert set(rows) == {0, 1, 2}
    np.testing.assert_allclose(found, expected[rows], rtol=1e-6)
    np.testing.assert_allclose(later, np.roll(expected, -1, axis=0)[rows], rtol=1e-6)


REFUSED = {
    "Transitions .*, got dict; Transitions.from_dictionary": lambda: pair_source({}),
    r"discount in \[0, 1\), got 1.0": lambda: pair_source(of_kind(np.arange(3)), discount=1 - 1e-9),
    "single precision tells apart: subtract an offset": lambda: pair_source(
        of_kind(1.7e9 + np.arange(3.0)[:, None])
    ),
    "probabilities >= 0, got '-0.5'": lambda: chain_source(np.array([[1.5, -0.5], [0, 1]])),
    "a transition matrix of real numbers, got 'complex128'": lambda: chain_source(1j * np.eye(2)),
    "a transition matrix of real numbers, got 'str": lambda: chain_source("abc"),
    "rows that sum to 1, got": lambda: chain_source(np.array([[0.5, 0.4], [0, 1]])),
}


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
def test_a_chain_may_have_any_sparse_format(format):
    chain = scipy.sparse.csr_array([[0.5, 0.5], [0.0, 1.0]]).asformat(format)
    assert chain_source(chain).cumulative.tolist() == [[0.5, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("expected", REFUSED)
def test_what_gives_no_pairs_is_refused(expected):
    with pytest.raises(InputError, match="expected .*" + expected):
        REFUSED[expected]()
