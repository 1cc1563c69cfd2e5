"""Fits of representations: what they solve, choose, warn of and refuse."""

import dataclasses
import warnings

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP, FunctionEncoder, Tabular
from rlreps.errors import FitWarning, InputError
from rlreps.successor import LeastSquaresFit, TemporalDifferences, Transitions, fit
from rlreps.successor.fitting import fit as fitting
from rlreps.successor.fitting.config import configured
from rlreps.successor.fitting.fit import Fit
from rlreps.successor.fitting.network_basis import next_weights
from rlreps.successor.fitting.observed import Observed
from rlreps.successor.fitting.transitions import as_transitions

pytestmark = pytest.mark.filterwarnings("ignore:fewer than 50 transitions")


def walk(rows=40, cut_every=10):
    """A walk of vectors [2], cut into episodes."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(rows + 1, 2)).cumsum(axis=0)
    actions, cut = rng.integers(3, size=rows), np.arange(rows) % cut_every == cut_every - 1
    return as_transitions([states[:-1], actions, states[1:], np.zeros(rows, bool), cut])


def test_the_method_is_chosen_for_the_data(corridor):
    def chosen(data, **given):
        return Fit(data=data, given=configured(None, given)).config

    assert chosen(corridor.transitions()).method == LeastSquaresFit()
    assert chosen(walk()).method == LeastSquaresFit()
    networks = TemporalDifferences
    for shape, kind in (((70,), LeastSquaresFit), ((71,), networks), ((8, 8, 1), networks)):
        states = np.random.default_rng(0).normal(size=(5, *shape))
        data = as_transitions([states[:-1], np.arange(4) % 2, states[1:], np.zeros(4, bool)])
        assert chosen(data).method == kind()
    # An encoder asks for a method that trains one; a table learns faster.
    assert chosen(walk(), encoder=MLP()).method == TemporalDifferences()
    assert chosen(corridor.transitions(), averaging_rate=0.5).encoder == Tabular()
    assert chosen(walk(), max_features=7).method == LeastSquaresFit(max_features=7)
    # Counts have one block for each discrete action.
    assert chosen(as_transitions(data_of("indices, box"))).method == TemporalDifferences()


def test_images_with_channels_first_are_arranged_as_agents_arrange_them():
    frames = np.random.default_rng(0).integers(256, size=(41, 4, 6, 7), dtype=np.uint8)
    data = as_transitions([frames[:-1], np.arange(40) % 2, frames[1:], np.zeros(40, bool)])
    parts = Fit(data=data, given=configured(None, {"num_features": 2}))
    assert parts.check().backward.frame_shape == (6, 7, 4)
    inputs = parts.observed.inputs(parts.data)(jnp.asarray(frames))
    np.testing.assert_allclose(inputs, np.moveaxis(frames, 1, -1) / np.float32(255), rtol=1e-6)
    assert parts.observed.lines() == [
        "observations: images of 6 x 7 with 4 channels (the first axis), bytes",
        "actions: 2 discrete ones",
    ]


@pytest.mark.parametrize("shape", [(40,), (4, 5, 1)])
@pytest.mark.parametrize(
    ("dtype", "low", "high"), [(bool, 0, 1), (np.uint8, 0, 10), (np.int8, -100, 100)]
)
def test_inputs_of_networks_span_the_unit_interval_whatever_the_type(shape, dtype, low, high):
    drawn = np.random.default_rng(0).integers(2, size=(41, *shape))
    drawn[0], drawn[1] = 0, 1  # Every coordinate varies.
    states = np.where(drawn, high, low).astype(dtype)
    data = as_transitions([states[:-1], np.arange(40) % 2, states[1:], np.zeros(40, bool)])
    inputs = Observed.of(data).inputs(data)(jnp.asarray(states))
    np.testing.assert_allclose(np.asarray(inputs), drawn, atol=1e-6)


def test_vectors_at_a_large_offset_are_fitted_as_those_at_none():
    near, offset = walk(), np.array([5e6, -3e6])
    columns = {
        name: np.float64(getattr(near, name)) + offset
        for name in ("observation", "next_observation")
    }
    far = dataclasses.replace(near, **columns)
    inputs = []
    for data in (near, far):
        parts = Fit(data=data, given=configured(None, {"method": "td"}))
        scale = parts.observed.inputs(data)
        inputs.append(scale(scale.centred(data.observation)))
    np.testing.assert_allclose(*inputs, atol=1e-5)
    features = [
        fit(data, num_features=2, max_features=10).features(data.observation)
        for data in (near, far)
    ]
    np.testing.assert_allclose(*features, atol=1e-3)


def pendulum(rows):
    """A noisy oscillation of vectors [2] with actions of a box."""
    states, turn = np.zeros((rows + 1, 2)), np.array([[0.9, 0.3], [-0.3, 0.9]])
    push = np.random.default_rng(0).uniform(-1.0, 1.0, rows)
    for row in range(rows):
        states[row + 1] = turn @ states[row] + [0.0, push[row]]
    cut = np.arange(rows) % 100 == 99
    return as_transitions([states[:-1], push[:, None], states[1:], np.zeros(rows, bool), cut])


def test_networks_are_trained_without_the_rows_that_judge_them(monkeypatch):
    train, seen = fitting.train_networks, []

    def recorded(data, *rest):
        seen.append(data)
        return train(data, *rest)

    monkeypatch.setattr(fitting, "train_networks", recorded)
    data = walk(240, cut_every=12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # Two updates teach nothing.
        rep = fit(data, num_features=2, discount=0.5, method="td", steps=2, rows=16)
    held = data.held_out(0.2, 0)
    assert held.any()
    np.testing.assert_array_equal(seen[0].action, data.action[~held])
    # Their read-out takes all.
    assert len(rep.solution.rows.action) == 240


def test_width_and_ridge_are_searched_for_and_the_same_every_time():
    data = pendulum(600)
    given = {"num_features": 4, "discount": 0.8, "max_features": 30}
    one, other = (fit(data, **given) for _ in range(2))
    np.testing.assert_array_equal(one.factors.forward, other.factors.forward)
    assert one.quality == other.quality
    basis = one.solution.basis
    assert basis.num_features <= 30
    # Along its axes the data have one variance: 1 / (number of axes · width²).
    spread = ((data.observation - data.observation.mean(axis=0)) @ basis.axes).std(axis=0)
    width = 1.0 / (spread * np.sqrt(basis.axes.shape[1]))
    assert min(np.ptp([*width, each]) for each in (1.0, 0.5, 0.25)) < 1e-5
    # Nothing ends: mass is 1 / (1 − γ).
    assert abs(0.2 * one.singular_values[0] - 1.0) < 0.02


@pytest.mark.integration
def test_temporal_differences_reach_the_measure_of_the_transition_matrix(chain):
    rep = fit(
        chain.transitions(),
        num_features=chain.size,
        discount=chain.discount,
        method="td",
        averaging_rate=0.05,
        steps=2000,
        rows=128,
    )
    states = np.flatnonzero(~chain.terminal)
    found = rep.measure(states, np.arange(chain.size)) * chain.reached()
    expected = chain.measure()[states]
    np.testing.assert_allclose(found, expected, atol=0.01 * expected.max())


def frames_of(places):
    """Draw a spot at places [m] in [0, 1] on frames of bytes, [m, 8, 8, 1]."""
    near = np.exp(-np.square(4.0 * places[:, None] - np.linspace(0.0, 4.0, 8)))
    return (255.0 * near[:, None, :, None] * np.ones((8, 1, 1))).astype(np.uint8)


def test_images_of_few_states_are_told_that_counts_serve():
    random = np.random.default_rng(0)
    places, action = random.integers(6, size=301), random.integers(2, size=300)
    pictures = random.integers(256, size=(6, 4, 4, 1), dtype=np.uint8)
    rows = [pictures[places[:-1]], action, pictures[places[1:]], np.zeros(300, bool)]
    few = {"num_features": 2, "discount": 0.5, "steps": 2, "rows": 16}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(rows, **few)
    (said,) = (each for each in caught if "only 2.0% of" in str(each.message))
    assert "only 2.0% of the observations differ: transitions.numbered()" in str(said.message)


@pytest.mark.integration
def test_images_with_actions_of_a_box_reach_the_analytic_best():
    rng = np.random.default_rng(0)
    places, steps = np.zeros(2_001), rng.uniform(-0.3, 0.3, 2_000)
    for row in range(2_000):
        places[row + 1] = np.clip(places[row] + steps[row], 0.0, 1.0)
    frames = frames_of(places)
    rows = frames[:-1], steps.astype(np.float32)[:, None], frames[1:], np.zeros(2_000, bool)
    rep = fit(rows, discount=0.8, num_features=8, steps=200, rows=64)
    goal = np.float32(frames_of(np.array([0.5])))
    task = rep.task(reward=lambda seen: -np.square(seen - goal).mean(axis=(1, 2, 3)))
    starts = np.linspace(0.1, 0.9, 5)
    chosen = rep.policy(task, improvements=None)(frames_of(starts))[:, 0]
    # The best is to go to 0.5 at once, as far as the box allows.
    np.testing.assert_allclose(chosen, np.clip(0.5 - starts, -0.3, 0.3), atol=0.1)


def test_the_next_action_is_the_data_s_own_where_there_is_one():
    walked, over = walk(), np.arange(40) == 19
    reached = np.where(over[:, None], np.float32(9.0), walked.next_observation)
    data = dataclasses.replace(walked, terminated=over, next_observation=reached)
    taken, seen = np.eye(3, dtype=np.float32)[data.action], []

    def behaviour(observations):
        seen.append(observations)
        return np.tile(np.float32([0.5, 0.3, 0.2]), (len(observations), 1))

    weights = next_weights(data, taken, behaviour)
    np.testing.assert_array_equal(weights[19], 0.0)
    cut = [9, 29, 39]
    np.testing.assert_allclose(weights[cut], [[0.5, 0.3, 0.2]] * 3)
    np.testing.assert_array_equal(seen, [data.next_observation[cut]])
    others = np.setdiff1d(np.arange(40), [*cut, 19])
    np.testing.assert_array_equal(weights[others], taken[others + 1])


def bad_policy(observations):
    return np.ones((len(observations), 3))


own_encoder = FunctionEncoder(lambda key: jnp.eye(2), lambda params, seen: seen @ params)
REFUSED_FITS = [
    ({"method": "td", "max_features": 9}, "expected options of fit .* got max_features"),
    ({"encoder": Tabular()}, r"indices of states \(integers\) for tabular"),
    ({"steps": 5}, "no steps with method least_squares, which trains no network, got 5"),
    ({"encoder": own_encoder}, "expected an encoder with 6 features"),
    ({"behaviour": bad_policy}, "probabilities that sum to 1"),
    ({"data": "indices, box", "max_features": 9}, "got a box; use method td"),
    ({"data": "box", "behaviour": "uniform"}, "expected discrete actions for"),
    ({"data": "images", "method": "least_squares"}, "states or vectors for method least_squares"),
]


def data_of(kind):
    if kind in ("walk", "box"):
        return {"walk": walk, "box": pendulum}[kind](40)
    if kind == "indices, box":
        return np.arange(4), np.float32([[0.5], [0.2]] * 2), np.arange(1, 5), np.zeros(4, bool)
    states = np.arange(2, dtype=np.uint8).repeat(64).reshape(2, 8, 8, 1)
    return states, np.array([0, 1]), states[::-1], np.zeros(2, bool)


@pytest.mark.parametrize(("given", "expected"), REFUSED_FITS)
def test_fits_that_make_no_sense_are_refused(given, expected):
    given = {"data": "walk", "num_features": 2, **given}
    with pytest.raises(InputError, match=expected) as refusal:
        fit(data_of(given.pop("data")), **given)
    assert "\n" not in str(refusal.value)


# --- Problems that a new user tries first ---------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("seed", [21])
def test_a_random_model_of_200_states_is_fitted_as_its_exact_components_are(seed):
    rng, d, gamma = np.random.default_rng(seed), 32, 0.95
    chances = rng.dirichlet(np.full(200, 0.05), size=(200, 4))
    actions, state = rng.integers(4, size=40_000), [0]
    for action, chance in zip(actions, rng.random(40_000), strict=True):
        cumulated = chances[state[-1], action].cumsum()
        state.append(min(199, int(np.searchsorted(cumulated, chance))))
    state = np.array(state)
    rep = fit((state[:-1], actions, state[1:], np.zeros(40_000, bool)), num_features=d)
    assert abs(rep.singular_values[0] * (1.0 - gamma) - 1.0) < 0.02

    # The exact measure, and its components of rank d in L2 of the stationary distribution.
    chain = chances.mean(axis=1)
    visits = np.linalg.matrix_power(chain, 1_000)[0]
    measure = chances.reshape(800, 200) @ np.linalg.inv(np.eye(200) - gamma * chain)
    left, right = np.sqrt(np.repeat(visits, 4) / 4.0), np.sqrt(visits)
    u, values, vt = np.linalg.svd(left[:, None] * measure / right, full_matrices=False)
    exact = ((u[:, :d] * values[:d]) @ vt[:d]) / left[:, None] * right
    rewards = rng.normal(size=(200, 50))

    def error(found):
        """Of the values of states, in L2."""
        missed = (found - measure @ rewards).reshape(200, 4, 50).mean(axis=1)
        return np.sqrt(visits @ np.square(missed)).mean()

    states = np.arange(200)
    found = rep.measure(states, states).reshape(800, 200) * visits
    assert error(found @ rewards) < 1.1 * error(exact @ rewards)
    whole = np.stack([rep.values(states, rep.task(states, reward)) for reward in rewards.T])
    assert error(np.repeat(whole.T, 4, axis=0)) < 1.1 * error(exact @ rewards)


@pytest.mark.integration
@pytest.mark.parametrize(("slippery", "seed"), [(False, 11), (True, 12)])
@pytest.mark.filterwarnings("ignore:.*transitions reach the goal 15")  # About 100 of them.
def test_frozen_lake_is_solved_from_random_steps(slippery, seed):
    environment = gymnasium.make("FrozenLake-v1", map_name="4x4", is_slippery=slippery)
    rep = fit(Transitions.collect(environment, steps=50_000, seed=seed))
    policy = rep.policy(rep.goal(15), improvements=5)(np.arange(16))
    probabilities = np.zeros((16, 4, 16))
    for state, actions in environment.unwrapped.P.items():
        for action, ends in actions.items():
            for chance, end, _, _ in ends:
                probabilities[state, action, end] += chance * (state not in (5, 7, 11, 12, 15))
    rewards = np.eye(16)[15]

    def success(choose):
        values = np.zeros(16)
        for _ in range(99):  # Its limit of 100 steps.
            values = choose(probabilities @ (rewards + values))
        return values[0]

    best = success(lambda values: values.max(axis=1))
    assert success(lambda values: values[np.arange(16), policy]) >= 0.95 * best
