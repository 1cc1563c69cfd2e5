"""Features in place of observations, and rewards shaped by potentials."""

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from rlreps.errors import InputError
from rlreps.successor import PotentialShaping, RepresentationObservation, fit

pytestmark = pytest.mark.filterwarnings("ignore:fewer than 50 transitions")


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
    inner.observation_space = gymnasium.spaces.Discrete(3, start=2)
    environment = RepresentationObservation(inner, rep, scaling="white")
    for _ in range(2):
        shown = environment.observation(3)
        np.testing.assert_allclose(shown, expected[1], rtol=1e-5, atol=1e-6)
        shown[:] = np.nan  # The array is the caller's own.
    inner.observation_space = gymnasium.spaces.Discrete(6)
    with pytest.raises(InputError, match=r"in \[0, 5\), got 5"):
        RepresentationObservation(inner, rep)
    with pytest.raises(InputError, match=r"observations of shape \('m',\), got \(1, 4\)"):
        RepresentationObservation(gymnasium.make("CartPole-v1"), rep)


def test_the_folder_of_a_representation_is_named_in_a_spec_as_json(rep, tmp_path, monkeypatch):
    rep.save(tmp_path / "rep")
    spec = EnvSpec("Walk-v0", entry_point=f"{__name__}:Walk")
    monkeypatch.setitem(gymnasium.registry, "Walk-v0", spec)
    walk = gymnasium.make("Walk-v0", disable_env_checker=True)
    written = RepresentationObservation(walk, tmp_path / "rep").spec.to_json()
    assert written == RepresentationObservation(walk, str(tmp_path / "rep")).spec.to_json()
    again = gymnasium.make(EnvSpec.from_json(written), disable_env_checker=True)
    np.testing.assert_array_equal(again.reset(seed=0)[0], rep.features(np.array([2]))[0])


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


def test_potentials_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"potentials \[m\] of observations"):
        PotentialShaping(Walk(), lambda places: np.zeros((2, 1)), 0.9)
    with pytest.raises(InputError, match="a finite potential, got nan"):
        PotentialShaping(Walk(), lambda places: np.full(1, np.nan), 0.9)


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
