"""Gymnasium environments, rolled out by the host, against exact successor measures."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from rlreps.errors import InputError
from rlreps.successor.grids import BoxGrid
from rlreps.successor.gymnasium import GymnasiumProcess, GymnasiumRowSampler, state_attribute
from rlreps.successor.settings import RolloutSettings
from rlreps.successor.visits import VisitSettings, every_visit

SIZE = 8
MODES = pytest.mark.parametrize(
    "mode",
    [
        AutoresetMode.NEXT_STEP,
        pytest.param(AutoresetMode.SAME_STEP, marks=pytest.mark.integration),
        pytest.param(AutoresetMode.DISABLED, marks=pytest.mark.integration),
    ],
    ids=lambda mode: mode.name,
)


COUNTS = pytest.mark.parametrize("count_start", [True, False])


class Walk(gymnasium.Env):
    """Ring of states; action 0 goes one back, 1 two ahead; it slips and stays with chance 0.3.

    Episodes start uniformly in one of the first ``starts`` states. With ``last_ends``, the last
    state is terminal.
    """

    observation_space = spaces.Discrete(SIZE)
    action_space = spaces.Discrete(2)

    def __init__(self, *, starts=SIZE - 1, last_ends=False):
        self.starts, self.last_ends = starts, last_ends

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(self.starts))
        return self.state, {}

    def step(self, action):
        if self.np_random.random() > 0.3:
            self.state = (self.state + (2 if action else -1)) % SIZE
        return self.state, 0.0, self.last_ends and self.state == SIZE - 1, False, {}


def walk_transitions(*, last_ends=False, ahead=0.5):
    """P [SIZE, SIZE] if action 1 is taken with probability ``ahead``; terminal states absorb."""
    matrix = np.zeros((SIZE, SIZE))
    for state in range(SIZE):
        matrix[state, state] += 0.3
        matrix[state, (state - 1) % SIZE] += 0.7 * (1 - ahead)
        matrix[state, (state + 2) % SIZE] += 0.7 * ahead
    if last_ends:
        matrix[-1] = np.eye(SIZE)[-1]
    return matrix


def exact_measure(transitions, settings):
    """The expectation of every entry, and the variance of one rollout's, [SIZE, SIZE] each."""
    first = 0 if settings.count_start else 1
    powers = [np.linalg.matrix_power(transitions, t) for t in range(settings.horizon + 1)]
    mean, square = np.zeros((SIZE, SIZE)), np.zeros((SIZE, SIZE))
    for t in range(settings.horizon):
        mean += settings.discount**t * powers[t + first]
        square += settings.discount ** (2 * t) * powers[t + first]
        for later in range(t + 1, settings.horizon):
            again = np.diag(powers[later - t])
            square += 2 * settings.discount ** (t + later) * powers[t + first] * again
    return mean, square - mean**2


def walk_process(
    copies=32, *, mode=AutoresetMode.NEXT_STEP, limit=None, policy=None, **walk_options
):
    def make():
        walk = Walk(**walk_options)
        return walk if limit is None else TimeLimit(walk, limit)

    environment = SyncVectorEnv([make] * copies, autoreset_mode=mode)
    return GymnasiumProcess(
        environment=environment, cell=lambda states: states, num_cells=SIZE, policy=policy
    )


def set_walk_state(environment, states):
    environment.set_attr("state", [int(state) for state in states])
    return states


def row_sampler(process, **changes):
    settings = {"rollouts": 400, "horizon": 9, "discount": 0.8, "seed": 3} | changes
    settings = RolloutSettings(**settings)
    return GymnasiumRowSampler(process, set_state=set_walk_state, settings=settings), settings


def assert_errors_match(estimates, transitions, settings):
    """Errors and half differences look like draws of the exact standard deviations.

    None lies beyond five deviations, and their size is right.
    """
    mean, variance = exact_measure(transitions, settings)
    rows = len(estimates.rows)
    deviations = np.sqrt(np.maximum(variance, 0.0) / settings.rollouts)[:rows]
    for errors in (estimates.rows - mean[:rows], estimates.half_difference):
        scores = np.divide(errors, deviations, where=deviations > 1e-7, out=np.zeros_like(errors))
        assert np.abs(errors[deviations <= 1e-7]).max(initial=0.0) < 1e-6
        assert np.abs(scores).max() < 5
        assert 0.6 < np.mean(scores[deviations > 1e-7] ** 2) < 1.6


@MODES
@COUNTS
def test_rows_and_half_differences_lie_within_the_exact_standard_error(mode, count_start):
    sampler, settings = row_sampler(
        walk_process(mode=mode, last_ends=True), count_start=count_start
    )
    estimates = next(sampler.row_blocks([range(SIZE - 1)]))
    assert_errors_match(estimates, walk_transitions(last_ends=True), settings)
    row_sum = (1 - settings.discount**settings.horizon) / (1 - settings.discount)
    np.testing.assert_allclose(estimates.rows.sum(axis=1), row_sum, rtol=1e-6)
    np.testing.assert_allclose(estimates.half_difference.sum(axis=1), 0.0, atol=1e-6)


def test_rows_have_the_same_bits_in_any_blocks_and_order_and_for_a_used_environment():
    process = walk_process(7, mode=AutoresetMode.SAME_STEP)
    sampler, _ = row_sampler(process, rollouts=20)
    whole = sampler.rows(range(SIZE))
    blocks = list(sampler.row_blocks([[5, 2], [], [7]]))
    np.testing.assert_array_equal(blocks[0].rows, whole[[5, 2]])
    assert blocks[1].rows.shape == (0, SIZE)
    np.testing.assert_array_equal(blocks[2].rows, whole[[7]])
    other, _ = row_sampler(walk_process(7), rollouts=20, seed=4)
    assert np.any(other.rows(range(SIZE)) != whole)


def test_a_policy_decides_the_actions():
    def timid(states, generator):
        return (generator.random(states.shape) < np.where(states < 4, 0.9, 0.2)).astype(np.int64)

    sampler, settings = row_sampler(walk_process(policy=timid))
    transitions = walk_transitions(ahead=0.9)
    transitions[4:] = walk_transitions(ahead=0.2)[4:]
    assert_errors_match(sampler.estimates(), transitions, settings)


def visit_settings(**changes):
    return VisitSettings(
        **{"steps": 1500, "horizon": 9, "discount": 0.8, "seed": 1, "count_start": True} | changes
    )


def assert_visits_agree(estimates, exact):
    """That rows are as far from the exact ones as their half differences say."""
    visited = estimates.visits.min(axis=0) >= 100
    assert visited.sum() >= SIZE - 1
    scale = np.sqrt(estimates.visits.sum(axis=0))[visited, None]
    errors = scale * (estimates.estimates.rows - exact)[visited]
    half_differences = scale * estimates.estimates.half_difference[visited]
    typical = np.sqrt(np.mean(half_differences**2))
    assert 0.6 < np.sqrt(np.mean(errors**2)) / typical < 1.6
    assert np.abs(errors).max() < 6 * typical


@MODES
@COUNTS
@pytest.mark.parametrize(
    ("last_ends", "limit"),
    [(False, None), (True, 10), pytest.param(True, None, marks=pytest.mark.integration)],
)
def test_visits_are_unbiased_whether_walks_end_or_are_cut(mode, count_start, last_ends, limit):
    settings = visit_settings(steps=6000 if last_ends else 1500, count_start=count_start)
    process = walk_process(mode=mode, limit=limit, last_ends=last_ends)
    estimates = every_visit(process, settings)
    exact, _ = exact_measure(walk_transitions(last_ends=last_ends), settings)
    assert_visits_agree(estimates, exact)
    if limit is None and not last_ends:
        assert estimates.visits.sum() == 32 * (1500 - (8 if count_start else 9) + 1)
    row_sum = (1 - settings.discount**settings.horizon) / (1 - settings.discount)
    visited = estimates.reduced().estimates.rows
    np.testing.assert_allclose(visited.sum(axis=1), row_sum, rtol=1e-6)


def test_a_visit_counts_only_if_a_whole_horizon_precedes_the_time_limit_and_the_end():
    process = walk_process(2, limit=10)
    estimates = every_visit(process, visit_settings(steps=32))
    # Episodes of ten steps, a step to reset: ages 0, 1 and 2 of each of two, age 0 ... 2 of the
    # third (steps 22 to 32, of which 22 + 2 + 8 is the last).
    assert estimates.visits.sum() == 2 * 3 * 3
    shorter = every_visit(process, visit_settings(steps=31))
    assert shorter.visits.sum() == 2 * (3 + 3 + 2)


def test_cells_without_visits_are_listed_and_left_out_of_the_reduced_rows():
    def backwards(states, generator):
        return np.zeros(2, np.int64)

    process = walk_process(2, starts=1, last_ends=True, policy=backwards)
    estimates = every_visit(process, visit_settings(steps=200, horizon=3))
    # From state 0 the only move leads to the terminal last state.
    np.testing.assert_array_equal(
        np.flatnonzero(estimates.visits.sum(axis=0) == 0), np.arange(1, SIZE - 1)
    )
    assert np.isnan(estimates.estimates.rows[1:-1]).all()
    reduced = estimates.reduced(minimum_visits=5)
    np.testing.assert_array_equal(reduced.cells, [0, SIZE - 1])
    np.testing.assert_allclose(reduced.estimates.rows[1], 2.44 * np.eye(SIZE)[-1], rtol=1e-6)
    assert np.isfinite(reduced.estimates.half_difference).all()
    with pytest.raises(InputError, match="minimum_visits <= "):
        estimates.reduced(minimum_visits=1000)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["MountainCar-v0", "Pendulum-v1", "Acrobot-v1"])
def test_classic_control_environments_can_be_started_in_any_cell(name):
    low, high = {
        "MountainCar-v0": ((-1.2, -0.07), (0.5, 0.07)),
        "Pendulum-v1": ((-np.pi, -8.0), (np.pi, 8.0)),
        "Acrobot-v1": ((-np.pi, -np.pi, -12.0, -28.0), (np.pi, np.pi, 12.0, 28.0)),
    }[name]
    environment = gymnasium.make_vec(name, 4, vectorization_mode="sync")
    grid = BoxGrid(low, high, (3,) * len(low))
    environment.reset(seed=0)
    start = state_attribute()
    cells = np.array([0, 1, 2, grid.num_cells - 1])
    states = start(environment, grid.sample_with(np.random.default_rng(0), cells))
    np.testing.assert_array_equal(grid.cell(states), cells)
    np.testing.assert_array_equal(np.stack(environment.get_attr("state")), states)
    named = state_attribute(observe=lambda states: {"place": states})(environment, states)
    np.testing.assert_array_equal(named["place"], states)
    environment.close()


class NumberedFromOne(Walk):
    """The ring of states, told as 1 … SIZE, in the attribute too."""

    observation_space = spaces.Discrete(SIZE, start=1)

    def reset(self, **options):
        state, infos = super().reset(**options)
        self.state = state + 1
        return self.state, infos

    def step(self, action):
        self.state -= 1
        state, *rest = super().step(action)
        self.state = state + 1
        return self.state, *rest


@pytest.mark.parametrize("given", [{}, {"num_cells": SIZE}], ids=str)
def test_discrete_observations_are_cells_without_a_grid_wherever_they_start(given):
    settings = RolloutSettings(rollouts=32, horizon=5, discount=0.5)
    reference, _ = row_sampler(walk_process(32), rollouts=32, horizon=5, discount=0.5, seed=0)
    for environment in (Walk(), NumberedFromOne()):
        process = GymnasiumProcess(environment=environment, **given)
        found = GymnasiumRowSampler(process, settings=settings).estimates()
        np.testing.assert_array_equal(found.rows, reference.estimates().rows)


class Line(gymnasium.Env):
    """Points of [0, 1] that the next action moves by ``stride``."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)
    action_space = spaces.Discrete(2)
    stride = 0.1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.random(1)
        return self.state, {}

    def step(self, action):
        self.state = np.clip(self.state + (self.stride if action else -self.stride), 0.0, 1.0)
        return self.state, 0.0, False, False, {}


def test_copies_have_what_was_changed_in_the_environment():
    for environment in (gymnasium.make("MountainCar-v0"), Line()):
        name = "gravity" if environment.spec else "stride"
        setattr(environment.unwrapped, name, 0.05)
        grid = BoxGrid((0.0,), (1.0,), (4,))
        process = GymnasiumProcess(environment=environment, grid=grid, copies=2)
        assert process.environment.get_attr(name) == (0.05, 0.05)
        assert len({id(each.unwrapped) for each in process.environment.envs}) == 2


class Draws(Walk):
    """The next state does not depend on the current one."""

    def step(self, action):
        self.state = int(self.np_random.integers(SIZE))
        return self.state, 0.0, False, False, {}


def test_next_states_that_do_not_depend_on_the_current_one_are_told_and_taken():
    settings = RolloutSettings(rollouts=400, horizon=4, discount=0.5)
    sampler = GymnasiumRowSampler(GymnasiumProcess(environment=Draws()), settings=settings)
    with pytest.warns(UserWarning, match="set_state made no difference to the next step"):
        estimates = sampler.estimates()
    assert_errors_match(estimates, np.full((SIZE, SIZE), 1 / SIZE), settings)


def rows_placed_by(set_state, process=None):
    settings = RolloutSettings(rollouts=2, horizon=2, discount=0.5)
    process = walk_process(2) if process is None else process
    return GymnasiumRowSampler(process, set_state=set_state, settings=settings).rows([3])


def pendulum():
    grid = BoxGrid((-1, -1, -8), (1, 1, 8), (2, 2, 2))
    return GymnasiumProcess(environment=gymnasium.make("Pendulum-v1"), grid=grid, copies=2)


def visits_of(cell, **process):
    environment = walk_process(2).environment
    seen = GymnasiumProcess(environment=environment, cell=cell, num_cells=SIZE, **process)
    return every_visit(seen, visit_settings(steps=200))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: GymnasiumProcess(environment=Walk), r"make_vec gives, got 'type'"),
        (lambda: GymnasiumProcess(environment=Line()), "a grid, or a cell function and num_cells"),
        (lambda: visits_of(lambda states: states + 1), r"cells in \[0, 8\)"),
        (lambda: visits_of(lambda states: states / 2), "one integer for each observation"),
        (lambda: every_visit(walk_process(1), visit_settings()), "at least two copies"),
        (lambda: visit_settings(steps=7), "steps >= 8"),
        (
            lambda: every_visit(walk_process(2, limit=7), visit_settings(steps=50)),
            "at least 8 steps, got truncation after 7",
        ),
        (lambda: row_sampler(walk_process(2), rollouts=3), "even number of rollouts"),
        (
            lambda: row_sampler(walk_process(limit=7), rollouts=2)[0].rows([0]),
            "runs for 8 steps, got one that is truncated after 7",
        ),
        (lambda: row_sampler(walk_process(2), rollouts=2)[0].rows([SIZE]), "start cells"),
        (lambda: rows_placed_by(lambda _, states: (states + 1) % SIZE), "in cell 3, got 4"),
        (lambda: rows_placed_by(lambda _, states: None), "as reset returns them, got None"),
        (lambda: rows_placed_by(None, pendulum()), r"of shape \(2,\), with a cell .* \(3,\)"),
    ],
)
def test_mistakes_are_named(use, message):
    with pytest.raises(InputError, match=message):
        use()


def test_an_environment_of_your_own_is_copied_and_seen_through_a_grid():

    settings = RolloutSettings(rollouts=400, horizon=9, discount=0.8, seed=3)
    grid = BoxGrid((-0.5,), (SIZE - 1.5,), (SIZE - 1,), ("state",))
    process = GymnasiumProcess(
        environment=Walk(last_ends=True),
        grid=grid,
        cell=lambda states: np.asarray(states),
        num_cells=SIZE,
        copies=40,
    )

    def set_state(environment, states):
        return set_walk_state(environment, np.round(states[:, 0]).astype(np.int64))

    sampler = GymnasiumRowSampler(process, set_state=set_state, settings=settings)
    estimates = sampler.estimates()
    assert_errors_match(estimates, walk_transitions(last_ends=True), settings)
    with pytest.raises(InputError, match="starts in cells of the grid, got 7"):
        sampler.rows([SIZE - 1])
