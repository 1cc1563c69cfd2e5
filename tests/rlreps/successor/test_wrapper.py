"""Features in place of observations, and rewards shaped by potentials."""

import gymnasium
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.successor import PotentialShaping, RepresentationObservation, fit

pytestmark = pytest.mark.filterwarnings("ignore:fewer than 50 transitions")


class Waves:
    """Features cos(x w), of indices as of vectors, and how often they were asked for."""

    num_features = 3

    def __init__(self, size=1, most=None):
        self.weights = np.random.default_rng(0).normal(size=(size, 3))
        self.most, self.calls = most, []

    def features(self, observations, *, scaling="singular"):
        self.calls.append(len(observations))
        if self.most is not None and np.max(observations) > self.most:
            raise InputError(f"expected states up to {self.most}")
        scale = {"singular": 1.0, "white": 2.0}[scaling]
        return scale * np.cos(observations.reshape(len(observations), -1) @ self.weights)


class Late(gymnasium.Env):
    """Numbers 3, 4, ... of states, of which 7 ends the episode."""

    observation_space = gymnasium.spaces.Discrete(5, start=3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 3 + int(self.np_random.integers(2))
        return self.place, {}

    def step(self, action):
        self.place += int(action)
        return self.place, float(action), self.place == 7, False, {}


def test_features_of_numbered_states_are_computed_once_and_stay_as_they_are():
    rep = Waves()
    expected = rep.features(np.arange(3, 8))
    rep.calls.clear()
    environment = RepresentationObservation(Late(), rep)
    assert rep.calls == [5]
    for state in (3, np.int64(7)):
        shown = environment.observation(state)
        np.testing.assert_allclose(shown, expected[state - 3], rtol=1e-6)
        shown[:] = np.nan
        assert np.isfinite(environment.observation(state)).all(), "a caller's own array"
    assert rep.calls == [5]
    with pytest.raises(InputError, match="states up to 6"):
        RepresentationObservation(Late(), Waves(most=6))


REFUSED = [
    (lambda places: np.zeros((2, 1)), 0.9, r"potentials \[m\] of observations"),
    (lambda places: np.full(1, np.nan), 0.9, "a finite potential, got nan"),
    (lambda places: np.zeros(1), 1.5, r"discount in \[0, 1\], got 1.5"),
]


@pytest.mark.parametrize(("potential", "discount", "message"), REFUSED)
def test_potentials_that_do_not_fit_are_refused(potential, discount, message):
    with pytest.raises(InputError, match=message):
        PotentialShaping(Walk(), potential, discount)


class Walk(gymnasium.Env):
    """A walk on five states; both ends terminate."""

    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 2
        return self.state, {}

    def step(self, action):
        self.state += 2 * int(action) - 1
        return self.state, float(self.state == 4), self.state in (0, 4), False, {}


@pytest.fixture(scope="module")
def rep(corridor):
    return fit(corridor.transitions(), num_features=5, discount=corridor.discount)


def test_an_environment_shows_features_for_observations(rep):
    environment = RepresentationObservation(Walk(), rep, scaling="white")
    assert environment.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    first, _ = environment.reset(seed=0)
    then, *_ = environment.step(1)
    expected = rep.features(np.array([2, 3]), scaling="white")
    np.testing.assert_allclose([first, then], expected, rtol=1e-5, atol=1e-6)
    assert first.dtype == np.float32
    inner = Walk()
    inner.observation_space = gymnasium.spaces.Discrete(6)
    with pytest.raises(InputError, match=r"in \[0, 5\), got 5"):
        RepresentationObservation(inner, rep)
    with pytest.raises(InputError, match=r"observations of shape \('m',\), got \(1, 4\)"):
        RepresentationObservation(gymnasium.make("CartPole-v1"), rep)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version:UserWarning")
@pytest.mark.filterwarnings("ignore:.*infinity:UserWarning")
@pytest.mark.parametrize(
    "wrapped",
    [RepresentationObservation, lambda walk, rep: PotentialShaping(walk, rep.potential(4), 0.95)],
)
def test_wrapped_environments_pass_gymnasium_s_checker(rep, wrapped):
    from gymnasium.utils.env_checker import check_env

    check_env(wrapped(Walk(), rep), skip_render_check=True)


def test_shaped_rewards_have_differences_of_potentials_and_terminal_states_none():
    potential = np.array([5.0, 1.0, 2.0, -3.0, 7.0])
    # One of three steps: 2, 3, 2, 1 and cut there.
    limited = gymnasium.wrappers.TimeLimit(Walk(), 3)
    environment = PotentialShaping(limited, lambda places: potential[places], 0.5)
    environment.reset(seed=0)
    steps = [environment.step(action) for action in (1, 0, 0)]
    assert [step[1] for step in steps] == [0.5 * -3 - 2, 0.5 * 2 + 3, 0.5 * 1 - 2]
    assert steps[-1][2:4] == (False, True)
    environment.reset()
    first, last = (environment.step(1) for _ in range(2))
    # At the terminal state 4 the potential is 0 and not 7.
    assert (last[0], last[1], last[2]) == (4, 1.0 + 0.0 + 3.0, True)
    assert (first[4]["unshaped_reward"], last[4]["unshaped_reward"]) == (0.0, 1.0)
