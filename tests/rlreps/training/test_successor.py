"""Successor representations as objects, against dense linear algebra on small chains."""

import dataclasses

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.config import configurable
from rlreps.cumulants import Cells, RandomFourier
from rlreps.encoders import MLP, FourierMLP, FunctionEncoder, Tabular
from rlreps.errors import InputError
from rlreps.losses import DanskinEmpirical, LargeBatch
from rlreps.runs.folder import RunFolder
from rlreps.subspace import PrincipalSubspace
from rlreps.successor import (
    PotentialShaping,
    RepresentationObservation,
    SuccessorRepresentation,
    Transitions,
    fit,
)
from rlreps.successor.ground_truth import GroundTruth
from rlreps.training.optimizers import Optimizer
from rlreps.training.successor import (
    EpisodeSums,
    Fit,
    FitConfig,
    canonicalised,
    complete_starts,
    configured,
    next_weights,
)

QUICK = {"steps": 2, "rows": 8}


def exact_representation(chain):
    """A representation whose product is the measure itself, by a table; one update is made."""
    data = chain.transitions()
    options = {"num_features": chain.size, "discount": chain.discount, "steps": 1, "rows": 4}
    parts = Fit(data=data, config=configured(None, options))
    rep = parts.run()
    density = chain.measure() / chain.reached()
    density[chain.terminal] = 0.0
    unit = jnp.eye(chain.size)
    arrays = rep.arrays._replace(
        forward=jnp.asarray(density.reshape(chain.size, -1), jnp.float32),
        backward=unit,
        forward_map=unit,
        backward_map=unit,
    )
    taken = np.eye(2, dtype=np.float32)[data.action]
    return canonicalised(dataclasses.replace(rep, arrays=arrays), data, taken)


@pytest.fixture(scope="module")
def exact(chain):
    return exact_representation(chain)


@pytest.fixture(scope="module")
def exact_corridor(corridor):
    return exact_representation(corridor)


def living(chain):
    return np.flatnonzero(~chain.terminal)


def test_canonical_features_are_singular_functions_of_the_measure(chain, exact):
    states, data = living(chain), chain.transitions()
    density = chain.measure()[states] / chain.reached()
    found = exact.measure(states, np.arange(chain.size))
    np.testing.assert_allclose(found, density, rtol=1e-4, atol=1e-4)
    weights = np.zeros((chain.size, 2))
    np.add.at(weights, (data.observation, data.action), 1.0 / len(data))
    matrix = density.reshape(-1, chain.size) * np.sqrt(chain.reached())
    matrix *= np.sqrt(weights[states].reshape(-1, 1))
    values = np.linalg.svd(matrix, compute_uv=False)
    np.testing.assert_allclose(exact.singular_values[: len(values)], values, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        exact.features(data.observation, scaling="singular"),
        exact.features(data.observation, scaling="none") * exact.singular_values,
        rtol=1e-4,
        atol=1e-5,
    )
    white = exact.features(data.observation, scaling="white")
    moment = white.T @ white / len(data)
    np.testing.assert_allclose(
        np.linalg.eigvalsh(moment), np.arange(4) >= 4 - len(states), atol=1e-3
    )


def test_values_are_those_of_the_data_policy(chain, exact):
    states, rewards = living(chain), np.array([0.5, -1.0, 2.0, 1.0])
    reached = chain.transitions().next_observation
    # The reward of a state counts on arrival: (I − γP)⁻¹ r less r itself, a step earlier.
    visits = np.linalg.inv(np.eye(chain.size) - chain.discount * chain.policy_matrix())
    expected = (visits @ rewards - rewards) / chain.discount
    found = exact.values(states, (reached, rewards[reached]))
    np.testing.assert_allclose(found, expected[states], rtol=1e-4, atol=1e-4)
    # The same from a sample of another distribution, weighted.
    some = np.arange(chain.size)
    task = exact.task(some, rewards, weights=chain.size * chain.reached())
    actions = exact.action_values(states, task)
    np.testing.assert_allclose(actions, (chain.measure() @ rewards)[states], rtol=1e-4, atol=1e-4)


def test_nothing_follows_a_terminal_state(chain, exact):
    states = living(chain)
    mass = exact.measure(states, np.arange(chain.size)) @ chain.reached()
    whole = 1.0 / (1.0 - chain.discount)
    if chain.terminal.any():
        assert (mass < whole - 0.1).all()
    else:
        np.testing.assert_allclose(mass, whole, rtol=1e-4)


def test_the_policy_is_one_step_of_improvement(chain, exact, corridor, exact_corridor):
    rewards = np.array([0.0, 1.0, -0.5, 2.0])
    reached = chain.transitions().next_observation
    chosen = exact.policy(exact.task(reached, rewards[reached]))(living(chain))
    improved = (chain.measure() @ rewards).argmax(axis=1)
    np.testing.assert_array_equal(chosen, improved[living(chain)])
    # In a corridor one step is enough for a reward at either end.
    for goal in (0, 4):
        rewards = np.eye(5)[goal]
        best = corridor.optimal_policy(rewards)
        greedy = exact_corridor.policy(exact_corridor.goal(goal))(np.arange(5))
        np.testing.assert_array_equal(greedy, best)


def test_potentials_fall_with_the_distance_along_a_corridor(exact_corridor):
    potential = exact_corridor.potential(4)(np.arange(5))
    np.testing.assert_allclose(potential[4], 0.0, atol=1e-5)
    assert (np.diff(potential) > 0).all()


def test_values_are_fitted_from_returns(exact_corridor, corridor):
    rewards = np.array([0.0, 1.0, 0.0, 3.0, -1.0])
    values = (corridor.measure() @ rewards).mean(axis=1)
    fitted = exact_corridor.fit_values(np.tile(np.arange(5), 3), np.tile(values, 3))
    np.testing.assert_allclose(fitted(np.arange(5)), values, atol=1e-3)
    columns = np.tile(np.stack([values, 2.0 - values], axis=1), (3, 1))
    found = exact_corridor.fit_values(np.tile(np.arange(5), 3), columns)(np.arange(5))
    np.testing.assert_allclose(found, columns[:5], atol=1e-3)
    with pytest.raises(InputError, match="finite returns"):
        exact_corridor.fit_values([0, 1], [0.0, np.nan])


def test_distance_to_a_ground_truth_of_the_same_chain_is_small(exact_corridor, corridor):
    matrix = corridor.measure().mean(axis=1)
    matrix = matrix - matrix.mean(axis=0)
    left, values, _ = np.linalg.svd(matrix)
    truth = GroundTruth(
        coordinates=jnp.arange(5),
        matrix=None,
        principal=PrincipalSubspace(
            basis=left[:, :4].astype(np.float32),
            singular_values=values[:4].astype(np.float32),
            total_energy=float((values**2).sum()),
            distance_bound=None,
            method="exact",
            settings={},
        ),
    )
    assert exact_corridor.distance(truth) < 1e-4


@pytest.mark.integration
def test_temporal_differences_reach_the_measure_of_the_transition_matrix(chain):
    rep = fit(
        chain.transitions(),
        num_features=chain.size,
        discount=chain.discount,
        method="td",
        averaging_rate=0.05,
        optimizer=Optimizer(learning_rate=0.02),
        steps=4000,
        rows=128,
    )
    states = living(chain)
    found = rep.measure(states, np.arange(chain.size)) * chain.reached()
    expected = chain.measure()[states]
    np.testing.assert_allclose(found, expected, atol=0.03 * expected.max())


@pytest.mark.integration
def test_sums_along_episodes_reach_the_measure(chain):
    data = episodes_of(chain, 20_000)
    rep = fit(
        data,
        num_features=chain.size,
        discount=chain.discount,
        method="monte_carlo",
        tolerance=0.01,
        optimizer=Optimizer(learning_rate=0.02),
        steps=1500,
        rows=1000,
    )
    states = living(chain)
    rho = np.bincount(data.next_observation, minlength=chain.size) / len(data)
    found = rep.measure(states, np.arange(chain.size)) * rho
    expected = chain.measure()[states]
    # Sampling: 20,000 steps, correlated over 1 / (1 − γ) of them.
    np.testing.assert_allclose(found, expected, atol=0.06 * expected.max())


def episodes_of(chain, steps):
    """Follow the chain with uniform actions, restarting after terminal states and 40 steps."""
    rng, rows, state, age = np.random.default_rng(0), [], 0, 0
    cumulated = chain.probabilities.cumsum(axis=2)
    for _ in range(steps):
        action = int(rng.integers(2))
        following = int((rng.random() > cumulated[state, action]).sum())
        terminated, age = bool(chain.terminal[following]), age + 1
        rows.append((state, action, following, terminated, age == 40 and not terminated))
        over = terminated or age == 40
        state, age = (int(rng.choice(living(chain))), 0) if over else (following, age)
    names = ("observation", "action", "next_observation", "terminated", "truncated")
    return Transitions(**dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True)))


def walk(rows=40, cut_every=10, seed=0):
    """A walk of vectors [2], cut into episodes."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(rows + 1, 2)).cumsum(axis=0)
    return Transitions(
        observation=states[:-1],
        action=rng.integers(3, size=rows),
        next_observation=states[1:],
        terminated=np.zeros(rows, bool),
        truncated=np.arange(rows) % cut_every == cut_every - 1,
    )


def test_starts_with_sums_cut_short_are_left_out():
    data = walk()
    # Half the mass at most: two steps left at γ = 0.7.
    starts = complete_starts(data, 0.7, 0.5)
    np.testing.assert_array_equal(starts, data.steps_left >= 2)
    ends = np.arange(40) == 9
    kept = {f.name: getattr(data, f.name) for f in dataclasses.fields(data) if f.init}
    ended = Transitions(**{**kept, "terminated": ends})
    starts = complete_starts(ended, 0.7, 0.5)
    np.testing.assert_array_equal(starts, (ended.steps_left >= 2) | (np.arange(40) < 10))
    with pytest.raises(InputError, match=r"have at least 31 rows .* got 'at most 10'"):
        complete_starts(data, 0.9, 0.04)


def test_the_next_action_is_the_data_s_own_where_there_is_one():
    kept = {f.name: getattr(walk(), f.name) for f in dataclasses.fields(Transitions) if f.init}
    data = Transitions(**{**kept, "terminated": np.arange(40) == 19})
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


@pytest.mark.integration
def test_images_and_numbers_without_axes_are_observations_too(tmp_path):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, size=(31, 8, 8, 1)).astype(np.uint8)
    numbers = rng.normal(size=31).astype(np.float32)
    for states, encoder in ((frames, None), (frames, MLP(hidden=(4,))), (numbers, None)):
        given = {} if encoder is None else {"encoder": encoder}
        arrays = (states[:-1], rng.integers(2, size=30), states[1:], np.zeros(30, bool))
        rep = fit(arrays, num_features=2, **QUICK, **given)
        folder = tmp_path / f"{rep.config.encoder.name}-{states.ndim}"
        rep.save(folder)
        again = SuccessorRepresentation.load(folder)
        np.testing.assert_array_equal(again.features(states), rep.features(states))
        if states is frames:
            # Bytes are divided by 255; pictures that were already would be divided again.
            with pytest.raises(InputError, match="images of bytes, as those of the fit"):
                again.features(frames / 255.0)


METHODS = {
    "td": {"method": "td", "encoder": FourierMLP(hidden=(8,), frequencies=1)},
    "monte_carlo": {
        "method": "monte_carlo",
        "objective": DanskinEmpirical(),
        "cumulants": RandomFourier(length_scale=0.5),
        "num_cumulants": 6,
        "tolerance": 0.5,
        "discount": 0.8,
        "encoder": MLP(hidden=(8,)),
        "rows": 30,
    },
}


def test_a_table_is_saved_and_loaded_bit_for_bit(exact_corridor, tmp_path):
    exact_corridor.save(tmp_path / "rep")
    again, seen = SuccessorRepresentation.load(tmp_path / "rep"), np.arange(5)
    for part in ("forward", "backward", "probabilities"):
        np.testing.assert_array_equal(
            getattr(again, part)(seen), getattr(exact_corridor, part)(seen)
        )
    for name in ("singular_values", "whitening"):
        found, saved = (getattr(rep.arrays, name) for rep in (again, exact_corridor))
        np.testing.assert_array_equal(found, saved)
    (tmp_path / "rep" / "representation" / "0" / "seal.json").unlink()
    with pytest.raises(InputError, match="expected a finished fit"):
        SuccessorRepresentation.load(tmp_path / "rep")


@pytest.mark.integration
@pytest.mark.parametrize("method", METHODS)
def test_what_was_saved_is_loaded_bit_for_bit(method, tmp_path):
    data = walk()
    rep = fit(data, num_features=3, **{**QUICK, **METHODS[method]})
    rep.save(tmp_path / "rep")
    rep.save(tmp_path / "rep")
    again = SuccessorRepresentation.load(tmp_path / "rep")
    assert again.config == rep.config
    for part in ("features", "forward", "backward", "probabilities"):
        found = getattr(again, part)(data.observation)
        assert np.isfinite(found).all()
        np.testing.assert_array_equal(found, getattr(rep, part)(data.observation))
    assert RunFolder(tmp_path / "rep").read_summary()["rows"] == 40
    with pytest.raises(InputError, match=r"holds another run: expected data\.sha256"):
        fit(walk(seed=1), num_features=3, **{**QUICK, **METHODS[method]}).save(tmp_path / "rep")


def test_parts_of_ones_own_are_asked_for_when_loading(tmp_path):
    own = FunctionEncoder(
        lambda key: jnp.ones((2, 6)) * jnp.arange(6.0)[None], lambda params, seen: seen @ params
    )
    half = FunctionEncoder(lambda key: jnp.eye(2), lambda params, seen: seen @ params)
    data = walk()

    def even(observations):
        return np.full((len(observations), 3), 1 / 3)

    parts = {"encoder": own, "backward_encoder": half, "behaviour": even}
    rep = fit(data, num_features=2, **QUICK, **parts)
    rep.save(tmp_path / "rep")
    with pytest.raises(InputError, match="expected encoder= for the representation"):
        SuccessorRepresentation.load(tmp_path / "rep", behaviour=even)
    with pytest.raises(InputError, match="expected behaviour= for the representation"):
        SuccessorRepresentation.load(tmp_path / "rep", encoder=own, backward_encoder=half)
    again = SuccessorRepresentation.load(tmp_path / "rep", **parts)
    fit(data, num_features=2, **QUICK).save(tmp_path / "plain")
    for part, value in parts.items():
        with pytest.raises(InputError, match=f"expected no {part}= for the representation"):
            SuccessorRepresentation.load(tmp_path / "plain", **{part: value})
    seen = data.observation
    np.testing.assert_array_equal(again.features(seen), rep.features(seen))


@configurable
@dataclasses.dataclass(frozen=True)
class OwnObjective(LargeBatch):
    """An objective that no file can name."""


def test_a_fit_that_could_not_be_loaded_is_not_written(exact_corridor, tmp_path):
    method = EpisodeSums(objective=OwnObjective(precondition=0.01), cumulants=Cells(bins=5))
    config = dataclasses.replace(exact_corridor.config, method=method)
    rep = dataclasses.replace(exact_corridor, config=config)
    with pytest.raises(InputError, match="objective and cumulants of the toolkit to store a fit"):
        rep.save(tmp_path / "rep")
    assert not (tmp_path / "rep").exists()


def bad_policy(observations):
    return np.ones((len(observations), 3))


REFUSED_FITS = {
    r"one of monte_carlo, td, got 'sarsa'": {"method": "sarsa"},
    "expected options of fit .* got objective": {"objective": LargeBatch()},
    r"expected discount in \(0, 1\)": {"discount": 1.0},
    "expected num_features >= 1": {"num_features": 0},
    r"indices of states \(integers\) for tabular": {"encoder": Tabular()},
    "expected an encoder with 6 features": {
        "encoder": FunctionEncoder(lambda key: jnp.eye(2), lambda params, seen: seen @ params)
    },
    "expected behaviour to be one of": {"behaviour": "greedy"},
    "probabilities that sum to 1": {"behaviour": bad_policy},
    "expected encoder to be an Encoder": {"encoder": "mlp"},
    "have at least 45 rows": {"method": "monte_carlo", "tolerance": 0.1},
}


@pytest.mark.parametrize("expected", REFUSED_FITS)
def test_fits_that_make_no_sense_are_refused(expected):
    with pytest.raises(InputError, match=expected) as refusal:
        fit(walk(), **{"num_features": 2, **QUICK, **REFUSED_FITS[expected]})
    assert "\n" not in str(refusal.value)


def test_indices_beyond_32_bits_are_refused():
    many = np.array([0, 2**31 - 1])
    with pytest.raises(InputError, match="at most 2147483647 indices of states, got 2147483648"):
        fit((many, np.array([0, 1]), many[::-1], np.zeros(2, bool)), **QUICK)


def test_sums_without_ends_of_episodes_are_refused():
    data = walk(cut_every=100)
    arrays = (data.observation, data.action, data.next_observation, data.terminated)
    with pytest.raises(InputError, match="expected ends of episodes"):
        fit(arrays, num_features=2, method="monte_carlo", **QUICK)


def test_observations_and_tasks_that_do_not_fit_are_refused(exact_corridor):
    rep = exact_corridor
    for call, expected in {
        lambda: rep.features(["a"]): "observations of numbers",
        lambda: rep.task([], []): "indices of states",
        lambda: rep.task(np.zeros(0, int), []): "at least one reward",
        lambda: rep.policy(np.full(5, np.nan)): "finite a task",
        lambda: rep.policy(np.ones(3)): r"a task of shape \(5,\)",
        lambda: rep.task([0], [1.0], weights=[np.nan]): "finite weights",
        lambda: rep.features([[0.0, 1.0]]): r"observations of shape \('m',\)",
        lambda: rep.features([0.5]): "indices of states",
        lambda: rep.features([5]): r"indices in \[0, 5\)",
        lambda: rep.features([0], scaling="half"): "expected scaling to be one of",
        lambda: rep.task([0, 1], [1.0]): r"rewards of shape \(2,\)",
        lambda: rep.task([0], [np.inf]): "finite rewards",
        lambda: rep.task([0], [1.0], weights=[1.0, 2.0]): r"weights of shape \(1,\)",
        lambda: rep.action_values([0], np.ones(3)): r"a task of shape \(5,\)",
        lambda: rep.fit_values([0], [1.0]): "at least two returns",
    }.items():
        with pytest.raises(InputError, match=expected):
            call()


def test_indices_take_networks_as_well_as_tables(corridor):
    data = corridor.transitions()
    rep = fit(data, num_features=2, encoder=MLP(hidden=(4,)), **QUICK)
    assert rep.forward(np.arange(5)).shape == (5, 2, 2)
    # Behaviour is counted, whatever the encoder.
    np.testing.assert_allclose(rep.probabilities(np.arange(5)), 0.5)
    sums = Fit(data=data, config=configured(None, {"method": "monte_carlo"})).config
    assert (sums.method.cumulants, sums.encoder) == (Cells(bins=5), Tabular())
    assert configured(FitConfig(num_features=7), {}).num_features == 7


@pytest.mark.integration
def test_an_estimated_behaviour_policy_is_that_of_the_data():
    rng = np.random.default_rng(0)
    states = rng.uniform(size=(4001, 1)).astype(np.float32)
    ahead = 0.2 + 0.6 * states[:-1, 0]
    actions = (rng.uniform(size=4000) < ahead).astype(int)
    data = Transitions(
        observation=states[:-1],
        action=actions,
        next_observation=states[1:],
        terminated=np.zeros(4000, bool),
    )
    config = Optimizer(learning_rate=3e-3)
    rep = fit(data, num_features=2, encoder=MLP(hidden=(32,)), optimizer=config, steps=600)
    seen = np.linspace(0.1, 0.9, 9, dtype=np.float32)[:, None]
    np.testing.assert_allclose(rep.probabilities(seen)[:, 1], 0.2 + 0.6 * seen[:, 0], atol=0.08)


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


def test_an_environment_shows_features_for_observations(exact_corridor):
    environment = RepresentationObservation(Walk(), exact_corridor, scaling="white")
    assert environment.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    first, _ = environment.reset(seed=0)
    then, *_ = environment.step(1)
    expected = exact_corridor.features(np.array([2, 3]), scaling="white")
    np.testing.assert_allclose([first, then], expected, rtol=1e-5, atol=1e-6)
    assert first.dtype == np.float32
    space = gymnasium.spaces.Discrete(5, seed=1)
    expected, inner = gymnasium.spaces.Discrete(5, seed=1).sample(), Walk()
    inner.observation_space = space
    RepresentationObservation(inner, exact_corridor)
    assert space.sample() == expected, "a space's own random numbers stay as they are"
    inner.observation_space = gymnasium.spaces.Discrete(6)
    with pytest.raises(InputError, match=r"indices in \[0, 5\)"):
        RepresentationObservation(inner, exact_corridor)
    with pytest.raises(InputError, match=r"observations of shape \('m',\), got \(1, 4\)"):
        RepresentationObservation(gymnasium.make("CartPole-v1"), exact_corridor)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version:UserWarning")
@pytest.mark.filterwarnings("ignore:.*infinity:UserWarning")
def test_the_wrapped_environment_passes_gymnasium_s_checker(exact_corridor):
    from gymnasium.utils.env_checker import check_env

    check_env(RepresentationObservation(Walk(), exact_corridor), skip_render_check=True)


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


@pytest.mark.parametrize(
    ("potential", "discount", "said"),
    [
        (lambda places: np.zeros((2, 1)), 0.9, r"potentials \[m\] of observations"),
        (lambda places: np.full(1, np.nan), 0.9, "a finite potential, got nan"),
        (lambda places: np.zeros(1), 1.5, r"discount in \[0, 1\], got 1.5"),
    ],
)
def test_potentials_that_cannot_shape_are_refused(potential, discount, said):
    with pytest.raises(InputError, match=said):
        PotentialShaping(Walk(), potential, discount)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version:UserWarning")
def test_the_shaped_environment_passes_gymnasium_s_checker(exact_corridor):
    from gymnasium.utils.env_checker import check_env

    shaped = PotentialShaping(Walk(), exact_corridor.potential(4), 0.95)
    check_env(shaped, skip_render_check=True)
