"""The transition method against brute force, closed forms and rollouts."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import scipy.sparse
from scipy.stats import norm

from rlreps.envs import PuddleWorld, load_arena
from rlreps.errors import FitWarning
from rlreps.successor.measure.grids import Grid
from rlreps.successor.measure.methods import MonteCarlo
from rlreps.successor.measure.settings import TransitionSettings
from rlreps.successor.measure.transition_kernels import estimator as transition
from rlreps.successor.measure.transition_kernels import matrix
from rlreps.successor.measure.transition_kernels.estimator import TransitionEstimator
from rlreps.successor.measure.transition_kernels.matrix import one_step
from rlreps.successor.measure.transition_kernels.modes import slow_modes
from rlreps.successor.measure.transition_kernels.solver import factorise

BINS = 16


@functools.cache
def steps(arena, bins=BINS):
    return one_step(load_arena(arena), Grid(bins), points=64, seed=1)


def estimator(monkeypatch, arena="sutton", bins=BINS, **settings):
    """A small estimator; equal one-step probabilities are counted once for all tests."""
    settings = {"horizon": 30, "discount": 0.95, "points": 64, "seed": 1, **settings}
    monkeypatch.setattr(transition, "one_step", lambda _, grid, **__: steps(arena, grid.bins))
    return TransitionEstimator(load_arena(arena), Grid(bins), TransitionSettings(**settings))


@functools.cache
def brute_force(arena, bins, refinement, horizon, discount, count_start):
    """The sum, term by term, in float64."""
    one = steps(arena, bins * refinement)
    # Which cell each sub-cell is in, [bins², fine²], and the mean over their free parts.
    along = np.repeat(np.eye(bins), refinement, axis=1)
    within = np.kron(along, along)
    mean = within * one.free
    mean /= np.maximum(mean.sum(axis=1, keepdims=True), 1e-12)
    # Transposed and sparse: 700 dense products would take most of these tests' time.
    chain, gather = scipy.sparse.csr_array(one.chain.T), scipy.sparse.csr_array(within)
    moved = mean @ one.first.toarray()
    total = np.eye(bins**2) if count_start else np.zeros((bins**2, bins**2))
    weight = discount if count_start else 1.0
    for _ in range(horizon - 1 if count_start else horizon):
        total += weight * (gather @ moved.T).T
        moved, weight = (chain @ moved.T).T, weight * discount
    states = np.flatnonzero(~walls_of(arena, bins))
    inside = np.flatnonzero(walls_of(arena, bins))
    assert not total[np.ix_(states, inside)].any()
    return total[np.ix_(states, states)]


def walls_of(arena, bins):
    """Mask of the cells [bins²] that lie wholly in a wall, from the corners of two_room's."""
    low, high = np.arange(bins) / bins + 1e-9, np.arange(1, bins + 1) / bins - 1e-9
    rows, columns = (high < 0.4) | (low > 0.6), (low > 0.4) & (high < 0.6)
    return (arena == "two_room") & (rows[:, None] & columns).ravel()


def kernel_1d(bins, shift, noise):
    """P(cell → cell) of x + shift + noise·z clipped to [0, 1], x uniform in a cell, exactly."""
    edges = np.arange(bins + 1) / bins

    def below(edge):  # ∫ P(x + shift + noise z < edge) dx over each cell, times bins
        def integral(x):
            scaled = (edge - x - shift) / noise
            return -noise * (scaled * norm.cdf(scaled) + norm.pdf(scaled))

        return bins * (integral(edges[1:]) - integral(edges[:-1]))

    cumulative = np.stack([below(edge) for edge in edges[1:-1]], axis=1)
    zeros, ones = np.zeros((bins, 1)), np.ones((bins, 1))
    return np.diff(np.concatenate([zeros, cumulative, ones], axis=1), axis=1)


def test_first_steps_in_an_empty_arena_are_products_of_clipped_gaussians():
    bins, size, noise = 12, 0.05, 0.02
    world = PuddleWorld(step_size=size, noise=noise)
    forth, stay, back = (kernel_1d(bins, shift, noise) for shift in (size, 0.0, -size))
    expected = sum(
        np.kron(rows, columns)
        for rows, columns in ((forth, stay), (stay, forth), (back, stay), (stay, back))
    )
    found = one_step(world, Grid(bins), points=4096, seed=0)
    difference = found.first.toarray() - expected / 4
    # As many independent samples would give 3e-3 for the largest entries' standard error.
    assert np.abs(difference).max() < 4e-3
    assert np.sqrt(np.mean(np.square(difference))) < 2.5e-4
    np.testing.assert_array_equal(found.free, 1.0)


def test_counts_are_used_up_and_transferred_once_for_each_worker(monkeypatch):
    make = matrix._kernel

    def guarded(*arguments):
        kernel = make(*arguments)

        def count(cells, counted, entered):
            with jax.transfer_guard("disallow"):
                found = kernel(cells, counted, entered)
            assert entered.is_deleted()
            return found

        return count

    monkeypatch.setattr(matrix, "_kernel", guarded)
    one_step(PuddleWorld(), Grid(6), points=2**12, seed=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_banded_solves_equal_dense_ones(dtype):
    bins, discount = 9, 0.9
    rng = np.random.default_rng(0)
    rows = np.arange(bins**2) // bins
    near = np.abs(rows[:, None] - rows) <= 2
    chain = np.where(near, rng.uniform(size=near.shape), 0.0)
    chain /= chain.sum(axis=1, keepdims=True)
    solver = factorise(scipy.sparse.csr_array(chain), bins, discount, dtype)
    inverse = np.linalg.inv(np.eye(bins**2) - discount * chain)
    right = rng.standard_normal((bins**2, 5))
    late = np.where(rows[:, None] >= 6, right, 0.0)
    tolerance = {"rtol": 0.0, "atol": 1e-5 if dtype == np.float32 else 1e-12}
    assert len(solver.strips) == 5
    np.testing.assert_allclose(solver.columns(right), inverse @ right, **tolerance)
    np.testing.assert_allclose(solver.rows(right.T), right.T @ inverse, **tolerance)
    np.testing.assert_allclose(solver.rows(late.T), late.T @ inverse, **tolerance)
    np.testing.assert_array_equal(solver.rows(np.zeros((2, bins**2))), 0.0)


def test_every_closed_room_has_a_mode_of_its_own():
    bins, side = 40, 8
    rows, columns = np.divmod(np.arange(bins**2), bins)
    room = rows // side * (bins // side) + columns // side
    near = np.abs(rows[:, None] - rows) + np.abs(columns[:, None] - columns) <= 1
    steps = near & (room[:, None] == room)
    chain = scipy.sparse.csr_array(steps / steps.sum(axis=1, keepdims=True))
    modes = slow_modes(chain, factorise(chain, bins, 0.99, np.float64), 0.995)
    assert np.count_nonzero(np.abs(np.linalg.eigvals(modes.step)) > 1.0 - 1e-9) == 25
    # The steps of a chain keep constants: no mode of eigenvalue 1 is left out.
    np.testing.assert_allclose(modes.right @ (modes.left @ np.ones(bins**2)), 1.0, atol=1e-5)


@pytest.mark.parametrize(
    ("arena", "bins", "refinement", "horizon", "discount", "count_start", "dense"),
    [
        ("sutton", BINS, 1, 1, 0.9, True, True),
        ("sutton", BINS, 1, 2, 0.9, False, False),
        ("sutton", BINS, 1, 9, 0.99, True, False),
        ("sutton", BINS, 1, 700, 0.99, False, True),
        ("sutton", BINS, 1, 700, 0.99, True, False),
        ("two_room", 8, 2, 60, 0.97, True, True),
        ("two_room", 8, 2, 60, 0.97, False, False),
    ],
)
def test_rows_equal_the_sum_term_by_term(
    monkeypatch, arena, count_start, bins, refinement, horizon, discount, dense
):
    if not dense:
        monkeypatch.setattr(transition, "_LARGEST_DENSE_CHAIN", 0)
    settings = {"horizon": horizon, "discount": discount, "count_start": count_start}
    expected = brute_force(arena, bins, refinement, **settings)
    method = estimator(monkeypatch, arena, bins, refinement=refinement, **settings)
    rows = method.rows(np.arange(len(expected)))
    row_sum = (1 - discount**horizon) / (1 - discount)
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=2e-7 * row_sum)
    np.testing.assert_allclose(rows.sum(axis=1, dtype=np.float64), row_sum, rtol=1e-6)
    weights = np.random.default_rng(0).normal(size=(len(expected), 2))
    products = expected.T @ weights
    np.testing.assert_allclose(
        method.transposed(weights), products, rtol=1e-5, atol=1e-5 * np.abs(products).max()
    )


def test_rows_have_the_same_bits_whichever_are_asked_for_together(monkeypatch):
    whole = estimator(monkeypatch).rows(np.arange(BINS**2))
    other = estimator(monkeypatch)
    blocks = [range(190, 210), [3, 250, 3], range(95, 120), np.empty(0, np.int64)]
    for block, estimates in zip(blocks, other.row_blocks(blocks), strict=True):
        np.testing.assert_array_equal(estimates.rows, whole[np.asarray(block, np.int64)])
        assert estimates.half_difference is None
        assert estimates.rows.dtype == np.float32


def test_moves_without_noise_are_warned_of():
    still = dataclasses.replace(load_arena("sutton"), noise=0.0)
    settings = TransitionSettings(horizon=2, discount=0.9, points=64)
    with pytest.warns(FitWarning, match="noise of moves, 0, is far below the width"):
        TransitionEstimator(still, Grid(4), settings)


@pytest.mark.integration
def test_transition_method_and_rollouts_agree_within_their_stated_errors(monkeypatch):
    arena = "two_room"
    world = load_arena(arena)
    cached = functools.cache(lambda bins: one_step(world, Grid(bins), points=256, seed=0))
    monkeypatch.setattr(transition, "one_step", lambda _, grid, **__: cached(grid.bins))
    bins, settings = 8, {"horizon": 60, "discount": 0.95}
    rollouts = [
        MonteCarlo(arena=arena, bins=bins, rollouts=1000, seed=seed, **settings) for seed in (0, 1)
    ]
    halves = [config.estimator().rows(np.arange(config.num_states)) for config in rollouts]
    mean, sampling = (halves[0] + halves[1]) / 2, np.mean(np.square(halves[0] - halves[1])) / 4
    # Visits are rare events: the variance of an entry is proportional to the entry.
    variance = sampling * mean / mean.mean()
    grid = Grid(bins)
    excess = []
    for refinement in (1, 2):
        chosen = TransitionSettings(refinement=refinement, points=256, **settings)
        finer = dataclasses.replace(chosen, refinement=2 * refinement)
        rows, finer_rows = (
            TransitionEstimator(world, grid, each).rows(np.arange(len(mean)))
            for each in (chosen, finer)
        )
        stated = 4.0 / 3.0 * (rows - finer_rows)  # of an error that falls with the squared width
        excess.append(np.mean(np.square(rows - mean)) - sampling)
        # The estimate may be too low on a grid as coarse as this, but not by more than twofold.
        assert excess[-1] < 4.0 * np.mean(np.square(stated))
        allowed = 16.0 * variance + 9.0 * np.square(stated) + 1e-4
        assert np.mean(np.square(rows - mean) > allowed) < 0.03
    assert excess[1] < excess[0] / 2.0
