"""Monte Carlo rows against exact expectations, and what makes them reproducible."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from rlreps.envs import TimeStep
from rlreps.errors import InputError
from rlreps.successor.measure import monte_carlo
from rlreps.successor.measure.chains import (
    MarkovChain,
    environment_chain,
    standard_normal,
)
from rlreps.successor.measure.monte_carlo import RowSampler
from rlreps.successor.measure.settings import RolloutSettings


def test_normals_are_the_inverse_distribution_function_at_midpoints_of_24_bits():
    steps = np.unique(
        np.concatenate([np.arange(64), np.geomspace(1, 2**23, 500).astype(int), [2**23 - 1, 2**23]])
    )
    steps = np.concatenate([steps, 2**24 - 1 - steps])
    expected = scipy.stats.norm.ppf((steps + 0.5) / 2**24)
    got = standard_normal(jnp.asarray(steps.astype(np.uint32) << 8))
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)
    assert np.max(np.abs(got)) < 5.42


NUM_CELLS = 30
STATES_PER_CELL = 2
NUM_STATES = NUM_CELLS * STATES_PER_CELL


@dataclasses.dataclass(frozen=True)
class SlipperyRing:
    """States 0 ... NUM_STATES - 1 in a ring; action a moves a + 1 forward, unless the agent slips.

    It slips with probability 0.3, and 0.8 in the first ``mud`` states.
    """

    num_actions: int
    mud = 10

    def step(self, key, state, action):
        chance = jnp.where(state < self.mud, jnp.float32(0.2), jnp.float32(0.7))
        moves = jax.random.bernoulli(key, chance)
        state = jnp.where(moves, (state + action + 1) % NUM_STATES, state)
        never = jnp.asarray(False)
        return TimeStep(state, state, jnp.zeros(()), never, never)

    def transitions(self, action_probabilities):
        """P [states, states] in float64 for probabilities [states, actions]."""
        matrix = np.zeros((NUM_STATES, NUM_STATES))
        for state in range(NUM_STATES):
            moves = 0.2 if state < self.mud else 0.7
            matrix[state, state] += 1 - moves
            for action in range(self.num_actions):
                target = (state + action + 1) % NUM_STATES
                matrix[state, target] += moves * action_probabilities[state, action]
        return matrix


def timid_policy(key, state):
    """The first action with probability 0.9 in even states and 0.25 in odd ones, else the last."""
    chance = jnp.where(state % 2 == 0, jnp.float32(0.9), jnp.float32(0.25))
    return jnp.where(jax.random.bernoulli(key, chance), 0, 2)


def ring_start(key, cell):
    """Uniform over the cell's states."""
    offset = jax.random.bits(key, (), jnp.uint8) % jnp.uint8(STATES_PER_CELL)
    return cell * STATES_PER_CELL + offset.astype(jnp.int32)


def ring_chain(environment, policy=None, start=ring_start):
    return environment_chain(
        environment,
        num_cells=NUM_CELLS,
        start=start,
        cell=lambda state: state // STATES_PER_CELL,
        policy=policy,
    )


def ring_sampler(rollouts=10, horizon=5, discount=0.9, seed=0):
    settings = RolloutSettings(rollouts=rollouts, horizon=horizon, discount=discount, seed=seed)
    return RowSampler(ring_chain(SlipperyRing(2)), settings)


def exact_moments(transitions, settings):
    """Mean and variance [cells, cells] of one rollout's discounted visits, by dynamic programming.

    With V_k the visits over k steps of a rollout and I the indicator of the cell,
    E V_k = I + γ P E V_{k-1} and E V_k² = I (1 + 2γ P E V_{k-1}) + γ² P E V_{k-1}².
    """
    indicator = np.repeat(np.eye(NUM_CELLS), STATES_PER_CELL, axis=0)
    mean, square = np.zeros_like(indicator), np.zeros_like(indicator)
    discount = settings.discount
    for _ in range(settings.horizon):
        ahead = transitions @ mean
        square = indicator * (1 + 2 * discount * ahead) + discount**2 * (transitions @ square)
        mean = indicator + discount * ahead
    if not settings.count_start:
        mean, square = transitions @ mean, transitions @ square
    start = indicator.T / STATES_PER_CELL
    mean, square = start @ mean, start @ square
    return mean, square - mean**2


TIMID = np.where(np.arange(NUM_STATES)[:, None] % 2 == 0, [[0.9, 0.0, 0.1]], [[0.25, 0.0, 0.75]])


@pytest.mark.parametrize(
    ("policy", "probabilities", "count_start"),
    [
        (None, np.full((NUM_STATES, 2), 1 / 2), True),
        (None, np.full((NUM_STATES, 4), 1 / 4), False),
        (timid_policy, TIMID, True),
    ],
    ids=["2 actions", "4 actions", "policy"],
)
def test_rows_are_within_standard_errors_of_the_exact_sum(policy, probabilities, count_start):
    environment = SlipperyRing(probabilities.shape[1])
    settings = RolloutSettings(
        rollouts=500, horizon=40, discount=0.95, count_start=count_start, seed=2
    )
    estimates = RowSampler(ring_chain(environment, policy), settings).estimates(range(NUM_CELLS))
    mean, variance = exact_moments(environment.transitions(probabilities), settings)
    error, expected = estimates.rows - mean, np.sqrt(variance / settings.rollouts)
    assert np.all(np.abs(error) <= 8 * expected + 0.1), "the rarely visited too are not absurd"
    np.testing.assert_array_equal(estimates.rows[mean == 0], 0)
    often = settings.rollouts * mean > 20  # Enough visits to make errors Gaussian.
    off = error[often] / np.maximum(expected[often], 1e-12)
    assert np.max(np.abs(off)) < 5
    # Blocks of rollouts that shared keys would double this mean; so would too few rollouts.
    assert 0.75 < np.mean(off**2) < 1.25
    # The half difference has the variance of the rows' error and says nothing of it. About 900
    # entries are correlated along rows: their mean squares are known to a tenth.
    allowed = pytest.approx(np.mean(variance) / settings.rollouts, rel=0.3)
    assert np.mean(estimates.half_difference**2) == allowed
    assert np.mean(error**2) == allowed
    correlation = np.sum(error * estimates.half_difference) / np.sum(error**2)
    assert abs(correlation) < 0.35


@pytest.mark.parametrize(("horizon", "discount"), [(2_000, 0.999), (3, 1e-3)])
def test_a_chain_without_chance_gives_its_geometric_series_to_six_digits(horizon, discount):
    chain = MarkovChain(
        num_cells=2,
        start=lambda key, cell: cell,
        draw=lambda words, rollout, time: jnp.zeros(()),
        advance=lambda state, draws: 1 - state,
        cell=lambda state: state,
    )
    sampler = RowSampler(chain, RolloutSettings(rollouts=250, horizon=horizon, discount=discount))
    powers = discount ** np.arange(horizon)
    even, odd = powers[::2].sum(), powers[1::2].sum()
    rows = sampler.rows([0, 1])
    np.testing.assert_allclose(rows, [[even, odd], [odd, even]], atol=1e-6 * powers.sum())


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (
            lambda state: state // STATES_PER_CELL + 1,
            r"in \[0, 30\) of all states, got .others",
        ),
        (
            lambda state: state // STATES_PER_CELL - 1,
            r"in \[0, 30\) of all states, got .others",
        ),
        (lambda state: state[None] // STATES_PER_CELL, r"an integer \[\], got 'int32 \[1\]'"),
        (lambda state: state / STATES_PER_CELL, r"an integer \[\], got 'float32 \[\]'"),
    ],
)
def test_a_chain_that_leaves_its_cells_is_refused(cell, words):
    chain = environment_chain(
        SlipperyRing(2),
        num_cells=NUM_CELLS,
        start=lambda key, cell: cell * STATES_PER_CELL,
        cell=cell,
    )
    with pytest.raises(InputError, match=words):
        RowSampler(chain, RolloutSettings(rollouts=4, horizon=40, discount=0.9)).estimates()


def test_visits_that_are_seldom_lost_are_noticed():
    # A rollout leaves the cells for one step, after 25 steps or so.
    chain = environment_chain(
        SlipperyRing(2),
        num_cells=NUM_CELLS,
        start=lambda key, cell: cell * STATES_PER_CELL,
        cell=lambda state: jnp.where(state == STATES_PER_CELL * 20, NUM_CELLS, 0),
    )
    sampler = RowSampler(chain, RolloutSettings(rollouts=4, horizon=40, discount=0.7))
    with pytest.raises(InputError, match=r"others for .*e-0. of a row's visits"):
        sampler.rows([5])


def test_states_that_are_never_left_lose_no_visits_to_rounding():
    chain = environment_chain(
        SlipperyRing(2), num_cells=1, start=lambda key, cell: cell, cell=lambda state: 0 * state
    )
    settings = RolloutSettings(rollouts=300_000, horizon=4, discount=0.7)
    (row,) = RowSampler(chain, settings).rows([0])
    assert row == pytest.approx([settings.row_sum], rel=1e-4)


def test_cumulants_are_numbers_of_a_state():
    chain = environment_chain(
        SlipperyRing(2), num_cells=NUM_CELLS, start=lambda key, cell: cell, cell=lambda state: state
    )
    settings = RolloutSettings(rollouts=4, horizon=40, discount=0.9)
    with pytest.raises(InputError, match=r"cumulants \[t\] of a state, got 'shape \(\)'"):
        RowSampler(chain, settings, cumulants=lambda state: state.astype(jnp.float32))


def test_a_cell_has_the_same_bits_whatever_is_asked_for_with_it_by_any_number_of_workers(
    monkeypatch,
):
    # Tiles of 4 cells: NUM_CELLS is not a multiple of 4.
    monkeypatch.setitem(monte_carlo._CELLS_PER_TILE, "cpu", 4)
    sampler = ring_sampler()
    together = sampler.rows(range(NUM_CELLS))
    order = np.random.default_rng(0).permutation(NUM_CELLS)
    for cells in (order, [7, 7, 3, 7], *np.arange(NUM_CELLS)[:, None]):
        assert sampler.rows(cells).tobytes() == together[cells].tobytes()
    for workers in (1, 5):
        monkeypatch.setattr(sampler, "_workers", workers)
        assert sampler.rows(range(NUM_CELLS)).tobytes() == together.tobytes()
    assert [len(block.rows) for block in sampler.row_blocks([[], [3], []])] == [0, 1, 0]
    assert np.any(ring_sampler(seed=2**32 - 1).rows(range(NUM_CELLS)) != together)
    # Beyond the mud the same draws would give the same row, a cell further.
    assert np.any(np.roll(together[20], 1) != together[21])
    with pytest.raises(InputError, match=r"expected start cells in \[0, 30\)"):
        sampler.rows([3, NUM_CELLS])


def test_tiles_transfer_nothing_by_accident(forbid_transfers):
    sampler = ring_sampler()
    expected = sampler.rows(range(2))
    forbid_transfers()
    np.testing.assert_array_equal(sampler.rows(range(2)), expected)


def test_no_two_draws_share_a_key(monkeypatch):
    monkeypatch.setattr(monte_carlo, "ROLLOUTS_PER_BLOCK", 2)
    monkeypatch.setitem(monte_carlo._CELLS_PER_TILE, jax.default_backend(), 3)
    seen = []

    def note(key):
        jax.debug.callback(lambda data: seen.append(tuple(data.tolist())), jax.random.key_data(key))

    @dataclasses.dataclass(frozen=True)
    class Noting(SlipperyRing):
        def step(self, key, state, action):
            note(key)
            return super().step(key, state, action)

    def policy(key, state):
        note(key)
        return timid_policy(key, state)

    def start(key, cell):
        note(key)
        return ring_start(key, cell)

    chain = ring_chain(Noting(3), policy, start)
    RowSampler(chain, RolloutSettings(rollouts=8, horizon=5, discount=0.9)).rows([0, 1, 29])
    jax.effects_barrier()
    draws = 3 * 8 * (1 + 2 * 5)  # cells, rollouts in blocks of 2; start, step and policy
    assert len(seen) == draws
    assert len(set(seen)) == draws
