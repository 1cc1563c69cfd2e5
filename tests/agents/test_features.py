"""Features fitted to replay, and priors: against models by hand, and inside agents."""

import dataclasses
import itertools
import warnings
from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import (
    AgentConfig,
    DQNConfig,
    FeatureConfig,
    Prior,
    ReplayConfig,
    ReplayRows,
    make_program,
    prior_of,
)
from rlreps.agents.config import JOINT_UNITS, make_torso
from rlreps.agents.features import fit_features, fitted_features, number_observations, replayed
from rlreps.encoders import MLP, Convolutional
from rlreps.envs import Code, Image, Position
from rlreps.errors import FitWarning, InputError
from rlreps.experiments.ours import mazes
from rlreps.numerics import as_inputs
from rlreps.successor import fit
from rlreps.successor.fitting.least_squares import Steps
from rlreps.successor.fitting.transitions import Transitions
from rlreps.successor.measure.grids import Grid

SIDE, ACTIONS, DISCOUNT = 5, 4, 0.9
STATES = SIDE**2
MOVES = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
CODES = Code(size=6, bins=SIDE, seed=3).table()
GOAL = STATES - 1
FREE = [s for s in range(STATES) if s % SIDE != 2 or s >= 4 * SIDE]
features_at, numbers_at = jax.jit(fitted_features), jax.jit(number_observations)


def following(state, action):
    """The next cell: moves stop at the sides and at a wall of the cells (2, 0) to (2, 3)."""
    place = np.array([state % SIDE, state // SIDE])
    after = np.clip(place + MOVES[action], 0, SIDE - 1)
    blocked = after[0] == 2 and after[1] < 4
    return state if blocked else after[1] * SIDE + after[0]


def played(steps, num_envs=2, seed=0):
    """Rows [steps, environments] of random actions, from random cells to the goal."""
    generator, columns = np.random.default_rng(seed), []
    for _ in range(num_envs):
        state, ended, rows = 0, False, []
        for _ in range(steps):
            action = int(generator.integers(ACTIONS))
            after = generator.choice(FREE[:-1]) if ended else following(state, action)
            arrived = not ended and after == GOAL
            rows.append((CODES[state], action, -1.0, arrived, ended))
            state, ended = after, arrived
        columns.append(rows)
    parts = zip(*(zip(*rows, strict=True) for rows in columns), strict=True)
    kinds = (np.float32, np.int32, np.float32, bool, bool)
    return ReplayRows(
        *(np.stack(part, axis=1).astype(kind) for part, kind in zip(parts, kinds, strict=True))
    )


def config_of(**options):
    given = {
        "basis": "counted",
        "basis_size": 40,
        "num_components": 5,
        "feature_discount": DISCOUNT,
    }
    return FeatureConfig(kind="fitted", **{**given, **options})


def nothing(config, inputs=6):
    torso = make_torso(
        AgentConfig(features=config, encoder=MLP(hidden=(4,)), num_features=2), (inputs,)
    )
    return torso.init(jax.random.key(0))["fitted"]


def fitted(rows, count, previous=None, config=None, seed=0):
    config = config_of() if config is None else config
    previous = nothing(config, rows.observation.shape[-1]) if previous is None else previous
    return fit_features(config, replayed(rows, count), ACTIONS, previous, seed)


def by_hand(rows):
    """Left singular functions of the counted measure times singular values, [states, 5]."""
    places = np.argmin(np.linalg.norm(rows.observation[:, :, None] - CODES, axis=-1), axis=-1)
    taken = ~rows.last[:-1]
    before, action, after = places[:-1][taken], rows.action[:-1][taken], places[1:][taken]
    tried, reached = np.zeros((STATES, ACTIONS)), np.zeros(STATES)
    np.add.at(tried, (before, action), 1.0 / len(before))
    np.add.at(reached, after, 1.0 / len(before))
    step = np.zeros((STATES, ACTIONS, STATES))
    for state in range(STATES):
        for move in range(ACTIONS):
            if tried[state, move] > 0.0:
                step[state, move, following(state, move)] = 1.0
    # Nothing follows the goal, where no action was taken.
    walk = step.mean(axis=1)
    measure = step + DISCOUNT * step @ np.linalg.solve(np.eye(STATES) - DISCOUNT * walk, walk)
    tall, arrived = np.sqrt(tried.reshape(-1)), np.sqrt(reached)
    over = np.where(arrived > 0.0, 1.0 / np.where(arrived > 0.0, arrived, 1.0), 0.0)
    u, values, _ = np.linalg.svd(tall[:, None] * measure.reshape(-1, STATES) * over[None])
    scale = np.where(tall > 0.0, 1.0 / np.where(tall > 0.0, tall, 1.0), 0.0)
    functions = (scale[:, None] * u[:, :5] * values[:5]).reshape(STATES, ACTIONS, 5)
    return functions.mean(axis=1)


def gram(features):
    product = features @ features.T
    return product / np.trace(product)


def test_counted_features_are_singular_functions_of_the_counted_measure():
    rows = played(800)
    found = np.asarray(features_at(fitted(rows, 800), CODES))
    # Up to a common factor and an orthogonal map.
    np.testing.assert_allclose(gram(found), gram(by_hand(rows)), atol=1e-5)
    seen = np.flatnonzero(np.abs(found).sum(axis=1))
    np.testing.assert_array_equal(seen, FREE[:-1])  # Nothing follows the goal.
    assert np.mean(np.square(found[FREE])) == pytest.approx(1.0, rel=1e-4)
    np.testing.assert_array_equal(features_at(fitted(rows, 800), CODES + 1e-3), 0.0)


def test_a_joint_network_reads_features_of_images_and_the_fitted_features_of_what_they_show():
    rows = played(800)
    places = np.argmin(np.linalg.norm(rows.observation[:, :, None] - CODES, axis=-1), axis=-1)
    pictures = (255 * np.eye(STATES, dtype=np.uint8)).reshape(STATES, SIDE, SIDE, 1)
    images = rows._replace(observation=pictures[places])
    encoder = Convolutional(channels=(2,), hidden=4)
    config = AgentConfig(features=config_of(), encoder=encoder, num_features=2)
    torso = make_torso(config, (SIDE, SIDE, 1))
    params = torso.init(jax.random.key(0))
    found = fit_features(config.features, replayed(images, 800), ACTIONS, params["fitted"], 0)
    seen = as_inputs(jnp.asarray(pictures))
    features = np.asarray(features_at(found, seen.reshape(STATES, -1)))
    np.testing.assert_allclose(gram(features), gram(by_hand(rows)), atol=1e-5)
    of_images = np.maximum(torso.network.apply(params["network"], seen), 0.0)
    first, last = jax.tree.map(np.asarray, params["joint"])
    both = np.concatenate([of_images, features], axis=1)
    hidden = np.maximum(both @ first["kernel"] + first["bias"], 0.0)
    expected = hidden @ last["kernel"] + last["bias"]
    params = {**params, "fitted": found}
    np.testing.assert_allclose(torso.apply(params, seen), expected, atol=1e-5)
    layers = torso.hidden_activations(params, seen)
    assert [layer.shape[-1] for layer in layers] == [2, 4, 2, JOINT_UNITS]
    np.testing.assert_allclose(layers[-1], hidden, atol=1e-5)


def test_a_read_out_keeps_its_values_when_features_are_fitted_to_more_data():
    rows, generator = played(8_000), np.random.default_rng(1)
    first = fitted(rows, 2_000)
    turn = np.linalg.qr(generator.normal(size=(5, 5)))[0].astype(np.float32)
    turned = {**first, "weights": first["weights"] @ turn}
    again, unaligned = (fitted(rows, 8_000, previous=each) for each in (turned, None))
    old, new, other = (np.asarray(features_at(each, CODES)) for each in (turned, again, unaligned))
    read_out = generator.normal(size=(5, 8))

    def changed(features):
        return np.linalg.norm((features - old) @ read_out) / np.linalg.norm(old @ read_out)

    assert changed(new) < 0.15
    assert changed(other) > 0.8
    np.testing.assert_allclose(gram(new), gram(other), atol=1e-5)


def test_vectors_have_the_features_of_the_least_squares_fit():
    random = np.random.default_rng(0)
    places, actions = np.zeros((601, 2), np.float32), random.integers(ACTIONS, size=600)
    for t, move in enumerate(0.1 * MOVES[actions] + random.normal(0.0, 0.02, (600, 2))):
        places[t + 1] = np.clip(places[t] + move, 0.0, 1.0)
    steps = (places[:-1], actions, places[1:], np.zeros(600, bool))
    config = config_of(basis="fourier")
    found = fit_features(config, Steps(*steps), ACTIONS, nothing(config, inputs=2), 0)
    names = ("observation", "action", "next_observation", "terminated")
    expected = fit(
        Transitions(**dict(zip(names, steps, strict=True)), num_actions=ACTIONS),
        num_features=5,
        discount=DISCOUNT,
        method="least_squares",
        max_features=40,
        width=0.5,
        regularisation=1e-5,
        behaviour="uniform",
    ).features(places)
    np.testing.assert_allclose(gram(features_at(found, places)), gram(expected), atol=2e-4)


def test_transitions_of_a_full_memory_are_those_between_the_rows_it_still_holds():
    steps, slots = 37, 10
    rows = played(steps)
    held = jax.tree.map(
        lambda part: np.stack(
            [part[max(t for t in range(steps) if t % slots == s)] for s in range(slots)]
        ),
        rows,
    )
    data = replayed(held, steps)
    seen, kept = rows.observation, range(steps - slots, steps - 1)
    expected = [
        (*seen[t, e], rows.action[t, e], *seen[t + 1, e], rows.terminated[t, e])
        for t, e in itertools.product(kept, range(2))
        if not rows.last[t, e]
    ]
    found = np.column_stack([data.observation, data.action, data.next_observation, data.terminated])
    np.testing.assert_array_equal(found, np.asarray(expected, np.float64))


def test_random_features_belong_to_a_state_and_an_agent_and_outlast_other_states():
    config = dataclasses.replace(config_of(), kind="random")
    rows = played(800)
    few, all_of_them, other = (
        np.asarray(features_at(fitted(rows, count, config=config, seed=seed), CODES))
        for count, seed in ((12, 0), (800, 0), (800, 1))
    )
    known = np.flatnonzero(few.any(axis=1))
    assert 0 < len(known) < len(FREE)
    ratio = few[known] / all_of_them[known]
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-4)
    np.testing.assert_array_equal(np.flatnonzero(all_of_them.any(axis=1)), FREE)
    assert not np.allclose(other, all_of_them, atol=0.1)


def test_numbers_tell_codes_and_unit_vectors_apart():
    for table in (Code().table(), np.eye(400, dtype=np.float32)):
        numbers = np.asarray(numbers_at(table))
        assert len(np.unique(numbers)) == 400
        assert ((numbers >= 0) & (numbers < 2**24)).all()
        np.testing.assert_array_equal(number_observations(table), numbers)
        for count in (number_observations, numbers_at):
            np.testing.assert_array_equal(
                count(np.where(table == 0, np.float32(-0.0), table)), numbers
            )


def test_fits_follow_the_warm_up_and_are_rounded_to_updates():
    config = FeatureConfig(kind="fitted", refit_at=(1_000, 5_004, 3_000))
    assert config.fit_times(1_000, 8) == (1_000, 3_000, 5_000)
    assert dataclasses.replace(config, kind="fitted_once").fit_times(1_000, 8) == (1_000,)
    assert FeatureConfig().fit_times(1_000, 8) == ()


MAZE, GOAL_DISC = "five_corridors", (0.1, 0.5, 0.08)
CONFIG = AgentConfig(
    environment=f"puddle-world:{MAZE}",
    observation=Code(),
    goal=GOAL_DISC,
    encoder=MLP(hidden=(8,)),
    num_features=4,
    features=FeatureConfig(kind="fitted", num_components=4, refit_at=(96, 200)),
    dqn=DQNConfig(batch_size=8, warmup=48, target_every=1, target_rate=0.3),
    replay=ReplayConfig(capacity=400),
    num_envs=2,
    max_episode_steps=30,
    steps=240,
    evaluate_every=40,
    evaluation_episodes=2,
    num_seeds=2,
)


def run(program, chunks, start=0, state=None):
    state, metrics = program.init() if state is None else state, []
    for chunk in chunks:
        state, found = program.advance(state, start, chunk)
        metrics.append(found)
        start += chunk
    return jax.device_get(state), metrics


@pytest.mark.integration
def test_agents_fit_on_schedule_whatever_the_chunks_and_both_networks_share_the_features():
    with closing(make_program(CONFIG)) as program:
        whole, (metrics,) = run(program, [240])
        # A chunk that ends at a fit leaves it to the next one, as a checkpoint there does.
        kept, of_chunks = run(program, [40, 56])
        assert kept.learner.params["torso"]["fitted"]["weights"].std() > 0.0
        again, _ = run(program, [44, 100], start=96, state=program.put(kept))
        network = program.agent.network
    jax.tree.map(np.testing.assert_array_equal, again, whole)
    assert "value_loss" not in of_chunks[0]
    assert of_chunks[0]["fit_seconds"].tolist() == [0.0, 0.0]
    assert (metrics["fit_seconds"] > 0.0).all()
    assert np.isfinite(metrics["value_loss"]).all()
    online, target = (
        jax.device_get(of["torso"]) for of in (whole.learner.params, whole.learner.target_params)
    )
    assert "fitted" not in target
    assert not np.array_equal(online["network"][0]["kernel"], target["network"][0]["kernel"])
    for seed in range(2):
        rows, own = jax.tree.map(lambda leaf, seed=seed: leaf[seed], (whole.replay, online))
        # The last fit was that of step 200: it knows the states that 100 rows held.
        before = rows.observation[:100].reshape(-1, 16)
        found = features_at(own["fitted"], before)
        states = np.unique(np.asarray(numbers_at(before)))
        kept = own["fitted"]["states"]
        np.testing.assert_array_equal(kept[kept < 2**24], states)
        assert np.asarray(found).any(axis=1).mean() > 0.9
        inputs = np.concatenate([before, found], axis=1)
        expected = network.torso.network.apply(own["network"], jnp.asarray(inputs))
        np.testing.assert_allclose(network.features(own, before), expected, atol=1e-5)


@pytest.mark.integration
def test_agents_on_the_host_fit_too():
    features = dataclasses.replace(CONFIG.features, basis="fourier", basis_size=24)
    config = dataclasses.replace(
        CONFIG, environment="CartPole-v1", goal=None, features=features, checkpoint_every=120
    )
    config = dataclasses.replace(config, observation=AgentConfig().observation)
    with closing(make_program(config)) as program:
        state, metrics = run(program, [40, 80])
    weights = state.learner.params["torso"]["fitted"]["weights"]
    assert (np.abs(weights).max(axis=(1, 2)) > 0.0).all()
    assert np.isfinite(metrics[1]["value_loss"]).all()


def test_features_that_cannot_be_fitted_are_refused():
    with pytest.raises(InputError, match=r"fewer components than basis_size \(8\), got 8"):
        FeatureConfig(kind="fitted", basis="fourier", basis_size=8, num_components=8)
    rows = played(800)
    with pytest.raises(InputError, match=r"at most 20 distinct observations to count .* got 21"):
        fitted(rows, 800, config=config_of(basis_size=20))


def test_observations_that_share_a_number_are_warned_of():
    seen = np.random.default_rng(0).random((20_000, 3), np.float32)
    numbers = number_observations(seen)
    order = np.argsort(numbers)
    same = order[np.flatnonzero(np.diff(numbers[order]) == 0.0)[0] :][:2]
    ring = np.concatenate([seen[same], seen[:4], seen[same[:1]]])
    steps = Steps(ring[:-1], np.zeros(6, np.int32), ring[1:], np.zeros(6, bool))
    config = config_of(basis_size=20, num_components=2)
    with pytest.warns(UserWarning, match="1 of 6 observations have the number of another one"):
        fit_features(config, steps, 1, nothing(config, 3), seed=0)


def test_agents_keep_their_features_when_later_observations_outgrow_the_table():
    config, rows = config_of(basis_size=20), played(800)
    first = fitted(rows, 60, config=config)
    with pytest.warns(UserWarning, match=r"got 21.*agent with seed 3 keeps its features"):
        later = fitted(rows, 800, first, config, seed=3)
    assert np.abs(first["weights"]).max() > 0.0
    jax.tree.map(np.testing.assert_array_equal, later, first)


@pytest.mark.parametrize(
    ("observation", "shape", "basis"),
    [
        (Code(), (16,), "counted"),
        (Code(bins=30), (16,), "counted"),
        (Image(size=8, bins=20), (8, 8, 3), "counted"),
        (Image(size=8), (8, 8, 3), "fourier"),
        (Position(), (2,), "fourier"),
    ],
)
def test_only_observations_of_cells_are_counted_unless_told_otherwise(observation, shape, basis):
    encoder = Convolutional(channels=(2,)) if len(shape) == 3 else MLP(hidden=(8,))
    config = AgentConfig(
        observation=observation, encoder=encoder, features=FeatureConfig(kind="fitted")
    )
    chosen = make_torso(config, shape).config
    assert chosen.basis == basis
    bins = getattr(observation, "bins", None) or 0
    assert chosen.basis_size == max(512, bins**2)
    told = dataclasses.replace(config.features, basis="counted")
    assert make_torso(dataclasses.replace(config, features=told), shape).config.basis == "counted"


def test_the_basis_follows_the_observation_of_an_arena_file(tmp_path):
    arena = tmp_path / "pond.toml"
    arena.write_text('observation = "code"\n', encoding="utf-8")
    config = AgentConfig(environment=f"puddle-world:{arena}", features=FeatureConfig(kind="fitted"))
    assert make_torso(config, (16,)).config.basis == "counted"


def test_observations_of_more_numbers_than_a_sobol_point_are_refused():
    config = AgentConfig(
        encoder=Convolutional(channels=(2,)), features=FeatureConfig(kind="fitted")
    )
    with pytest.raises(InputError, match=r"at most 21,200 numbers .*, got 28224"):
        make_torso(config, (84, 84, 4))


# Priors.

SCALE, SHIFT = 0.5, -3.0
TARGET, UNTRIED, UNSEEN = STATES - 1, (7, 2), 13


def walked(steps=4_000):
    """Random steps in a grid without a state, and without an action in another state."""
    generator = np.random.default_rng(0)
    states, actions = (
        generator.integers(STATES, size=steps),
        generator.integers(ACTIONS, size=steps),
    )
    places = np.stack([states % SIDE, states // SIDE], axis=1) + MOVES[actions]
    after = np.clip(places, 0, SIDE - 1) @ np.array([1, SIDE])
    kept = (
        (states != UNSEEN) & (after != UNSEEN) & ~((states == UNTRIED[0]) & (actions == UNTRIED[1]))
    )
    never = np.zeros(kept.sum(), np.bool_)
    return Transitions(
        observation=states[kept],
        action=actions[kept],
        next_observation=after[kept],
        terminated=never,
        truncated=~never,
        num_states=STATES,
        num_actions=ACTIONS,
    )


@pytest.fixture(scope="module")
def counted():
    with pytest.warns(FitWarning, match="cut before returns are complete"):
        return fit(walked(), num_features=4, discount=DISCOUNT)


@pytest.fixture(scope="module")
def at_target(counted):
    return counted.task(reward=lambda states: 1.0 * (states == TARGET))


def values_of(prior, observations):
    return np.asarray(jax.jit(Prior.values)(prior, jnp.asarray(observations)))


@pytest.mark.parametrize("improvements", [1, 5])
def test_a_prior_of_counted_states_is_greedy_like_the_policy(counted, at_target, improvements):
    prior = prior_of(counted, at_target, improvements, observations=CODES, scale=SCALE, shift=SHIFT)
    found = values_of(prior, CODES)
    seen = np.arange(STATES) != UNSEEN
    states = np.flatnonzero(seen)
    policy = counted.policy(at_target, improvements)
    np.testing.assert_array_equal(found.argmax(axis=1)[seen], policy(states))
    tried, data = np.zeros((STATES, ACTIONS), np.bool_), walked()
    tried[data.observation, data.action] = True
    assert not tried[UNTRIED]
    assert (found[~tried & seen[:, None]] < found[tried].min()).all()
    np.testing.assert_allclose(found[UNSEEN], found[tried].mean(), rtol=1e-5)
    np.testing.assert_allclose(values_of(prior, CODES[:1] + 1e-3)[0], found[UNSEEN], rtol=1e-6)
    if improvements == 1:
        states, actions = np.nonzero(tried)
        expected = SCALE * counted.action_values(states, at_target, actions) + SHIFT
        np.testing.assert_allclose(found[tried], expected, rtol=1e-5)


def test_values_after_improvements_are_those_of_the_shortest_paths(counted, at_target):
    prior = prior_of(counted, at_target, None, observations=CODES)
    # The target is a corner, where two moves stay: reward 1 at each step from arrival on.
    steps = np.array([2 * (SIDE - 1) - s % SIDE - s // SIDE for s in range(STATES)])
    expected = DISCOUNT ** np.maximum(steps - 1, 0) / (1.0 - DISCOUNT)
    seen = np.delete(np.arange(STATES), UNSEEN)
    best = values_of(prior, CODES).max(axis=1)
    np.testing.assert_allclose(best[seen], expected[seen], rtol=1e-3)


PLACES = np.random.default_rng(1).uniform(size=(800, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def of_vectors():
    """A representation fitted to moves from places of the square."""
    actions, never = np.arange(800) % ACTIONS, np.zeros(800, np.bool_)
    after = np.clip(PLACES + 0.2 * MOVES[actions], 0.0, 1.0).astype(np.float32)
    options = {"num_features": 4, "discount": DISCOUNT, "max_features": 60}
    with pytest.warns(FitWarning, match="cut before returns are complete"):
        return fit([PLACES, actions, after, never, ~never], behaviour="uniform", **options)


@pytest.mark.parametrize("improvements", [1, 2])
def test_a_prior_of_vectors_has_the_values_of_the_representation(of_vectors, improvements):
    representation, places = of_vectors, PLACES
    task = representation.task(reward=lambda seen: seen.sum(axis=1))
    found = values_of(
        prior_of(representation, task, improvements, scale=SCALE, shift=SHIFT), places
    )
    values = representation.improved_values(task, improvements)
    np.testing.assert_allclose(found, SCALE * values(places)[:, 0] + SHIFT, rtol=2e-4, atol=2e-4)
    policy = representation.policy(task, improvements)
    assert np.mean(found.argmax(axis=1) == policy(places)) > 0.99
    if improvements == 1:
        expected = SCALE * representation.action_values(places, task) + SHIFT
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_priors_that_do_not_fit_are_refused(counted, at_target):
    with pytest.raises(InputError, match="observations= of all 25 states"):
        prior_of(counted, at_target)
    with pytest.raises(InputError, match="a finite shift, got inf"):
        prior_of(counted, at_target, observations=CODES, shift=np.inf)
    data = walked()
    never_left = data.action != 3
    fewer = dataclasses.replace(
        data,
        **{
            name: getattr(data, name)[never_left]
            for name in ("observation", "action", "next_observation", "terminated", "truncated")
        },
    )
    with pytest.warns(FitWarning, match="cut before returns are complete"):
        other = fit(fewer, num_features=4, discount=DISCOUNT)
    with pytest.raises(InputError, match=r"transitions with all 4 actions, got \[0, 1, 2\]"):
        prior_of(other, other.task(reward=lambda states: states), observations=CODES)
    prior = prior_of(counted, at_target, observations=CODES)
    with pytest.raises(InputError, match="a prior of 2 actions"):
        make_program(AgentConfig(environment="CartPole-v1"), prior=prior)
    with pytest.raises(InputError, match=r"a prior of the discount 0\.99, got \[0\.8"):
        make_program(CONFIG, prior=prior)
    with pytest.raises(InputError, match="25 different observations, got 24"):
        prior_of(counted, at_target, observations=np.concatenate([CODES[:1], CODES[:-1]]))


WITH_PRIOR = dataclasses.replace(
    CONFIG,
    features=dataclasses.replace(CONFIG.features, refit_at=(96,)),
    dqn=dataclasses.replace(CONFIG.dqn, target_every=2, target_rate=1.0, epsilon_end=0.25),
    steps=160,
)


@pytest.fixture(scope="module")
def of_maze():
    """A prior for the maze, its policy, and the cells' codes."""
    data, codes = mazes.free_transitions(MAZE, 6_000, 0).numbered()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # Few transitions for 400 cells.
        representation = fit(data, num_features=4, behaviour="uniform", discount=0.99)
    cells = [np.flatnonzero((Code().table() == code).all(axis=1))[0] for code in codes]
    inside = np.linalg.norm(Grid(20).centres()[cells] - GOAL_DISC[:2], axis=1) < GOAL_DISC[2]
    assert inside.any()
    task = representation.task(reward=lambda numbers: inside[numbers])
    prior = prior_of(representation, task, 3, observations=codes)
    known = np.unique(data.observation)
    return prior, representation.policy(task, 3)(known), codes[known]


def test_agents_begin_as_the_policy_and_learn_the_learned_part_alone(of_maze):
    prior, policy, codes = of_maze
    with closing(make_program(WITH_PRIOR, prior=prior)) as program:
        agent, state = program.agent, program.init()
        network, learner = agent.network, state.learner
        target = network.joined(learner.target_params, network.split(learner.params)[1])
        for params in (learner.params, target):
            own = jax.tree.map(lambda leaf: leaf[1], params)
            values = np.asarray(network.values(own, jnp.asarray(codes)))
            np.testing.assert_array_equal(values, values_of(prior, codes))
            np.testing.assert_array_equal(values.argmax(axis=1), policy)
        assert [float(agent.epsilon(jnp.asarray(count))) for count in (0, 24, 80)] == [0.25] * 3
        params = jax.device_get(program.advance(state, 0, 160)[0].learner.params)
    assert np.abs(params["head"]["weights"]).max() > 0.0
    own = jax.tree.map(lambda leaf: leaf[0], params["prior"])
    jax.tree.map(np.testing.assert_array_equal, own, prior)
    assert np.abs(params["torso"]["fitted"]["weights"]).max() > 0.0
