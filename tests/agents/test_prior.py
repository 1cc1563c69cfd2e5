"""Priors: against the representation that they are made of, and inside agents."""

import dataclasses
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
    make_program,
    prior_of,
)
from rlreps.encoders import MLP
from rlreps.envs import Code
from rlreps.errors import FitWarning, InputError
from rlreps.experiments.ours import mazes
from rlreps.successor import fit
from rlreps.successor.fitting.data import Transitions

ARENA, GOAL, SCALE, SHIFT = "five_corridors", (0.1, 0.5, 0.08), 0.5, -3.0
SIDE, ACTIONS, DISCOUNT = 5, 4, 0.9
STATES = SIDE**2
MOVES = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
CODES = Code(size=6, bins=SIDE, seed=3).table()
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
        expected = SCALE * counted.action_values(states, at_target) + SHIFT
        np.testing.assert_allclose(found[tried], expected[tried[seen]], rtol=1e-5)


def test_values_after_improvements_are_those_of_the_shortest_paths(counted, at_target):
    prior = prior_of(counted, at_target, None, observations=CODES)
    # The target is a corner, where two moves stay: reward 1 at each step from arrival on.
    steps = np.array([2 * (SIDE - 1) - s % SIDE - s // SIDE for s in range(STATES)])
    expected = DISCOUNT ** np.maximum(steps - 1, 0) / (1.0 - DISCOUNT)
    seen = np.delete(np.arange(STATES), UNSEEN)
    best = values_of(prior, CODES).max(axis=1)
    np.testing.assert_allclose(best[seen], expected[seen], rtol=1e-3)
    # Scaled and shifted, they are the values of a cost of 1 a step until the target.
    options = {"scale": DISCOUNT, "shift": -1.0 / (1.0 - DISCOUNT)}
    prior = prior_of(counted, at_target, None, observations=CODES, **options)
    costs = -(1.0 - DISCOUNT ** np.maximum(steps, 1)) / (1.0 - DISCOUNT)
    np.testing.assert_allclose(values_of(prior, CODES).max(axis=1)[seen], costs[seen], rtol=1e-3)


@pytest.mark.parametrize("improvements", [1, 2])
def test_a_prior_of_vectors_has_the_values_of_the_representation(improvements):
    generator, steps = np.random.default_rng(1), 800
    places = generator.uniform(size=(steps, 2)).astype(np.float32)
    actions = generator.integers(ACTIONS, size=steps)
    after = np.clip(places + 0.2 * MOVES[actions], 0.0, 1.0).astype(np.float32)
    never = np.zeros(steps, np.bool_)
    data = Transitions(
        observation=places,
        action=actions,
        next_observation=after,
        terminated=never,
        truncated=~never,
        num_actions=ACTIONS,
    )
    representation = fit(
        data, num_features=4, discount=DISCOUNT, max_features=60, behaviour="uniform"
    )
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
    data = walked()
    never_left = data.action != 3
    fewer = dataclasses.replace(
        data,
        **{
            name: getattr(data, name)[never_left]
            for name in ("observation", "action", "next_observation", "terminated", "truncated")
        },
    )
    other = fit(fewer, num_features=4, discount=DISCOUNT)
    with pytest.raises(InputError, match=r"transitions with all 4 actions, got \[0, 1, 2\]"):
        prior_of(other, other.task(reward=lambda states: states), observations=CODES)
    with pytest.raises(InputError, match="a finite scale, got nan"):
        prior_of(counted, at_target, observations=CODES, scale=np.nan)
    prior = prior_of(counted, at_target, observations=CODES)
    with pytest.raises(InputError, match="a prior of 2 actions"):
        make_program(AgentConfig(environment="CartPole-v1"), prior=prior)
    with pytest.raises(InputError, match=r"a prior of the discount 0\.99, got \[0\.8"):
        make_program(CONFIG, prior=prior)
    with pytest.raises(InputError, match="25 different observations, got 24"):
        prior_of(counted, at_target, observations=np.concatenate([CODES[:1], CODES[:-1]]))


CONFIG = AgentConfig(
    environment=f"puddle-world:{ARENA}",
    observation=Code(),
    goal=GOAL,
    encoder=MLP(hidden=(8,)),
    num_features=4,
    features=FeatureConfig(kind="fitted", num_components=4, refit_at=(96,)),
    dqn=DQNConfig(batch_size=8, warmup=48, target_every=2, epsilon_end=0.25),
    replay=ReplayConfig(capacity=400),
    num_envs=2,
    max_episode_steps=30,
    steps=160,
    evaluate_every=40,
    evaluation_episodes=2,
    num_seeds=2,
)


@pytest.fixture(scope="module")
def of_maze():
    """A prior for the maze, its policy, and the cells' codes."""
    model = mazes.cell_model(ARENA)
    data = mazes.free_transitions(ARENA, 6_000, 0)
    data = dataclasses.replace(
        data,
        observation=model.cells_of(data.observation),
        next_observation=model.cells_of(data.next_observation),
        num_states=model.num_states,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # Few transitions for 400 cells.
        representation = fit(data, num_features=4, behaviour="uniform", discount=0.99)
    inside = model.discs([GOAL])[:, 0]
    task = representation.task(reward=lambda cells: inside[cells])
    prior = prior_of(representation, task, 3, observations=model.observations)
    known = np.unique(data.observation)
    return prior, representation.policy(task, 3)(known), model.observations[known]


def test_agents_begin_as_the_policy_and_resume_bit_by_bit(of_maze):
    prior, policy, codes = of_maze
    with closing(make_program(CONFIG, prior=prior)) as program:
        agent, state = program.agent, program.init()
        network, learner = agent.network, state.learner
        target = network.joined(learner.target_params, network.split(learner.params)[1])
        for params in (learner.params, target):
            own = jax.tree.map(lambda leaf: leaf[1], params)
            values = np.asarray(network.values(own, jnp.asarray(codes)))
            np.testing.assert_array_equal(values, values_of(prior, codes))
            np.testing.assert_array_equal(values.argmax(axis=1), policy)
        assert [float(agent.epsilon(jnp.asarray(count))) for count in (0, 24, 80)] == [0.25] * 3
        state, _ = program.advance(state, 0, 80)
        kept = jax.device_get(state)
        whole = jax.device_get(program.advance(state, 80, 80)[0])
    with closing(make_program(CONFIG, prior=prior)) as program:
        again = jax.device_get(program.advance(program.put(kept), 80, 80)[0])
    jax.tree.map(np.testing.assert_array_equal, again, whole)
    # Learning changes the learned part alone.
    assert np.abs(whole.learner.params["head"]["weights"]).max() > 0.0
    params = whole.learner.params
    own = jax.tree.map(lambda leaf: leaf[0], params["prior"])
    jax.tree.map(np.testing.assert_array_equal, own, prior)
    assert np.abs(params["torso"]["fitted"]["weights"]).max() > 0.0
