"""Successor representations as objects, against dense linear algebra on small chains."""

import dataclasses
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr

from rlreps.encoders import FourierMLP, FunctionEncoder
from rlreps.errors import FitWarning, InputError
from rlreps.subspace import PrincipalSubspace
from rlreps.successor import SuccessorRepresentation, Task, Transitions, fit
from rlreps.successor.fitting import fit as fitting
from rlreps.successor.fitting import least_squares
from rlreps.successor.fitting.least_squares import Steps
from rlreps.successor.fitting.policy_improvement import Improvement
from rlreps.successor.fitting.rewards import rewarded_task
from rlreps.successor.fitting.transitions import as_transitions
from rlreps.successor.truth.ground_truth import GroundTruth

QUICK = {"steps": 2, "rows": 8}
pytestmark = pytest.mark.filterwarnings("ignore:fewer than 50 transitions")
on_indices = pytest.mark.parametrize(
    "method", [{}, {"method": "td", **QUICK}], ids=["counts", "td"]
)
few_arrivals = pytest.mark.filterwarnings("ignore:.*transitions reach(es)? the goal")


@pytest.fixture(scope="module")
def rep(chain):
    return fit(chain.transitions(), num_features=4, discount=chain.discount)


@pytest.fixture(scope="module")
def corridor_rep(corridor):
    return fit(corridor.transitions(), num_features=5, discount=corridor.discount)


def living(chain):
    return np.flatnonzero(~chain.terminal)


def test_features_are_singular_functions_of_the_measure(chain, rep):
    states, data = living(chain), chain.transitions()
    density = chain.measure()[states] / chain.reached()
    found = rep.measure(states, np.arange(chain.size))
    np.testing.assert_allclose(found, density, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        rep.forward(data.observation, data.action),
        rep.forward(data.observation)[np.arange(len(data)), data.action],
    )
    left = rep.features(data.observation, scaling="none")
    scaled = rep.features(data.observation, scaling="singular")
    np.testing.assert_allclose(scaled, left * rep.singular_values, rtol=1e-4, atol=1e-5)
    # u averaged over actions: σu is Mv of the state.
    values = np.maximum(rep.singular_values, 1e-3)
    mean = chain.measure().mean(axis=1) @ (rep.backward(np.arange(chain.size)) / np.sqrt(values))
    expected = mean[data.observation]
    np.testing.assert_allclose(scaled, expected, rtol=1e-3, atol=1e-3)
    white = rep.features(data.observation, scaling="white")
    moment = np.linalg.eigvalsh(white.T @ white / len(data))
    np.testing.assert_allclose(moment, np.arange(4) >= 4 - len(states), atol=1e-3)


def test_values_are_those_of_the_data_policy(chain, rep):
    states, rewards = living(chain), np.array([0.5, -1.0, 2.0, 1.0])
    # The reward of a state counts on arrival: (I − γP)⁻¹ r less r itself, a step earlier.
    visits = np.linalg.inv(np.eye(chain.size) - chain.discount * chain.policy_matrix())
    expected = (visits @ rewards - rewards) / chain.discount
    # Two samples of a state count by their mean.
    with pytest.warns(FitWarning, match="differ in 1 of 4 states, by up to 2 from the mean.*noise"):
        task = rep.task(np.array([3, 0, 1, 2, 3]), [3.0, 0.5, -1.0, 2.0, -1.0])
    np.testing.assert_allclose(rep.values(states, task), expected[states], rtol=1e-4, atol=1e-4)
    task = rep.task(reward=lambda states: rewards[states])
    actions = rep.action_values(states, task)
    np.testing.assert_allclose(actions, (chain.measure() @ rewards)[states], rtol=1e-4, atol=1e-4)
    # Indices without a sample have reward 0.
    task = rep.task(np.array([1]), [2.0])
    alone = (chain.measure() @ [0.0, 2.0, 0.0, 0.0])[states]
    np.testing.assert_allclose(rep.action_values(states, task), alone, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:records are too short to judge the fit")
@pytest.mark.parametrize("discount", [0.99999])
def test_values_at_a_discount_near_one_are_exact_to_single_precision(discount):
    rng, size = np.random.default_rng(3), 4_000
    model = rng.dirichlet(np.ones(3), size=(3, 3))
    taken, path = rng.integers(3, size=size), [0]
    for action in taken:
        path.append(rng.choice(3, p=model[path[-1], action]))
    states, reached = np.array(path[:-1]), np.array(path[1:])
    counts = np.zeros((3, 3))
    np.add.at(counts, (states, reached), 1.0)  # The estimated policy makes these the chain.
    chain = counts / counts.sum(axis=1, keepdims=True)
    expected = np.linalg.solve(np.eye(3) - discount * chain, chain @ [0.3, 0.0, 1.0])
    data = as_transitions([states, taken, reached, np.zeros(size, np.bool_)])
    found = fit(data, discount=discount, num_features=2)
    values = found.values(np.arange(3), found.task(np.arange(3), [0.3, 0.0, 1.0]))
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_rewards_of_transitions_may_depend_on_the_action(chain, rep):
    data, states = chain.transitions(), living(chain)
    task = rep.task(data.next_observation, 3.0 * data.action)
    share = np.array([data.action[data.observation == s].mean() for s in states])
    later = chain.discount * chain.measure()[states][:, :, states] @ (3.0 * share)
    expected = 3.0 * np.arange(later.shape[1]) + later
    np.testing.assert_allclose(rep.action_values(states, task), expected, rtol=1e-3, atol=1e-3)


@few_arrivals
def test_the_policy_takes_as_many_steps_of_improvement_as_it_is_told(
    chain, rep, corridor, corridor_rep
):
    rewards, states = np.array([0.0, 1.0, -0.5, 2.0]), living(chain)
    task, values = rep.task(np.arange(4), rewards), chain.measure() @ rewards
    for improvements, best in ((1, values.argmax(axis=1)), (None, chain.optimal_policy(rewards))):
        np.testing.assert_array_equal(rep.policy(task, improvements)(states), best[states])
    np.testing.assert_array_equal(rep.policy(task)(states), best[states])  # None is the default.
    for goal in (0, 4):
        best = corridor.optimal_policy(np.eye(5)[goal])
        greedy = corridor_rep.policy(corridor_rep.goal(goal))
        np.testing.assert_array_equal(greedy(np.arange(5)), best)
        assert greedy(2) == best[2]


@pytest.fixture(scope="module")
def places_rep(chain):
    """A fit to the states of the chain as places on a line, with more features than states."""
    data = chain.transitions()
    places = {
        name: getattr(data, name).astype(np.float32)[:, None]
        for name in ("observation", "next_observation")
    }
    data = dataclasses.replace(data, **places, num_states=None)
    options = {"max_features": 60, "width": 0.3, "regularisation": 1e-6}
    return fit(data, num_features=4, discount=chain.discount, **options)


@pytest.mark.parametrize("constant", [0.0, -1e6])
@pytest.mark.parametrize("kind", ["indices", "places"])
def test_a_constant_in_all_rewards_adds_its_value_and_changes_no_policy(
    chain, rep, places_rep, kind, constant
):
    # A constant may decide the policy only where episodes end.
    rewards, states = np.array([0.0, 1.0, -0.5, 2.0]), living(chain)
    rep = rep if kind == "indices" else places_rep
    seen = states if kind == "indices" else states[:, None].astype(np.float32)
    reached = chain.transitions().next_observation
    task = rep.task(rep.solution.recorded.next_observation, rewards[reached] + constant)
    expected = chain.measure() @ (rewards + constant)
    values = (chain.behaviour * expected).sum(axis=1)[states]
    # Where episodes end, the equations keep the constant, with its ridge and rounding.
    endless = not chain.terminal.any()
    error = 2e-3 if endless else 2e-3 + 1e-4 * abs(constant)
    found = (
        rep.values(seen, task),
        rep.action_values(seen, task),
        rep.improved_values(task, 1)(seen),
    )
    for array, known in zip(found, (values, expected[states], expected[states]), strict=True):
        np.testing.assert_allclose(np.squeeze(array), known, rtol=0.0, atol=error)
        assert array.dtype == np.float64
    once = expected.argmax(axis=1)
    np.testing.assert_array_equal(rep.policy(task, 1)(seen), once[states])
    if endless:
        best = chain.optimal_policy(rewards)
        np.testing.assert_array_equal(rep.policy(task, None)(seen), best[states])
        known = expected if kind == "places" else chain.measure(best) @ (rewards + constant)
        improved = rep.improved_values(task, 1 if kind == "places" else None)(seen)[:, 0]
        np.testing.assert_allclose(improved, known[states], rtol=0.0, atol=error)


@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")  # A few rows, for speed.
@pytest.mark.parametrize("constant", [0.0, 1e4])
def test_far_rewards_decide_policies_whatever_the_constant(make_chain, constant):
    # A line of 60 states, rewarded at its end: values at its start are 1e-17 of those at the end.
    places, counts = np.arange(60), np.zeros((60, 2, 60), int)
    counts[places, 0, np.maximum(places - 1, 0)] = counts[places, 1, np.minimum(places + 1, 59)] = 1
    data = make_chain(counts, np.zeros(60, bool)).transitions()
    rep = fit(data, num_features=2, discount=0.8)
    task = rep.task(reward=lambda states: constant + (states == 59))
    for improvements in (1, 2, None):
        assert rep.policy(task, improvements)(places).all()


def rewards_with(some, rows=20_000, common=0.0):
    """Rewards of ``rows`` transitions: ``some`` {reward: rows that have it}, and a common one."""
    found = np.full(rows, common)
    found[: sum(some.values())] = np.repeat([*some], [*some.values()])
    return found


@pytest.mark.parametrize("constant", [0.0, 1e6])
@pytest.mark.parametrize(
    ("rewards", "told"),
    [
        (rewards_with({1.0: 201}, rows=8_000), None),
        (rewards_with({1.0: 100}), None),
        (rewards_with({1.0: 99}), "99 of 20,000 transitions have"),
        (rewards_with({1.0: 4}, rows=100), "4 of 100 transitions have"),
        (rewards_with({1.0: 5}, rows=100), None),
        # A common small reward, or noise, does not hide that few rewards are large.
        (rewards_with({100.0: 4, 0.1: 1_200}), "4 of 20,000 transitions have"),
        (rewards_with({100.0: 2, 0.1: 15_000}), "2 of 20,000 transitions have"),
        (rewards_with({100.0: 1, 0.1: 1_200}), "1 of 20,000 transitions has"),
        (rewards_with({-1e200: 3, 1e199: 1}), "3 of 20,000 transitions have"),
        (rewards_with({1.0: 3}) + np.random.default_rng(0).normal(0, 1e-3, 20_000), "3 of 20,000"),
        (np.random.default_rng(0).normal(size=20_000), None),
        (np.random.default_rng(0).normal(size=200) ** 2, None),
    ],
)
def test_rewards_that_few_transitions_decide_are_warned_of(rep, rewards, told, constant):
    index, no = np.arange(len(rewards)), np.zeros(len(rewards), bool)
    solution = dataclasses.replace(rep.solution, recorded=Steps(index, index % 2, index + 1, no))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rewarded_task(solution, rewards + constant)
    said = [str(each.message) for each in caught]
    if told is None:
        assert said == []
    else:
        (line,) = said
        few = "this one" if told.startswith("1 ") else "these few"
        assert line.startswith(told)
        assert f": values and policies depend on {few}; collect more of them" in line


@pytest.mark.parametrize("improvements", [1, 3, None])
def test_rewards_that_tell_nothing_apart_are_warned_of(chain, rep, improvements):
    task = rep.task(np.arange(4), -np.ones(4))
    if chain.terminal.any():
        best = chain.optimal_policy(-np.ones(4))[living(chain)]
        np.testing.assert_array_equal(rep.policy(task, None)(living(chain)), best)
    else:
        with pytest.warns(FitWarning, match="all transitions have the reward -1 and none ends"):
            rep.policy(task, improvements)


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize(("share", "told"), [(0.0, True), (0.05, True), (0.15, False)])
def test_rewards_of_actions_alone_are_warned_of(continuous, share, told):
    rng, n = np.random.default_rng(0), 400
    places, never = rng.normal(size=(n + 1, 2)), np.zeros(n, bool)
    actions = rng.uniform(-1.0, 1.0, (n, 1)) if continuous else rng.integers(3, size=n)
    box = {"action_low": [-1.0], "action_high": [1.0]} if continuous else {"num_actions": 3}
    data = Transitions(
        observation=places[:-1],
        action=actions,
        next_observation=places[1:],
        terminated=never,
        **box,
    )
    costs = -0.1 * np.square(actions.reshape(n))
    # States have 0, 0.25 % and 2.2 % of the variance.
    rewards = costs + share * costs.std() * np.sign(places[1:, 0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rep = fit(data, num_features=2, discount=0.9, max_features=50)
        rep.policy(rep.task(data.next_observation, rewards))
    assert any("avoid costs of actions" in str(each.message) for each in caught) == told


def test_a_reward_that_no_transition_reaches_is_warned_of(chain):
    # Bytes would wrap: 258 would be read as state 2.
    data = chain.transitions()
    columns = {
        name: getattr(data, name).astype(np.uint8) for name in ("observation", "next_observation")
    }
    small = fit(dataclasses.replace(data, **columns, num_states=300), num_features=2)
    with pytest.warns(FitWarning, match="no transition reaches a state with a reward"):
        task = small.task(np.array([258]), [1.0])
    assert not task.rewards.any()
    small.policy(task)  # Silent: it is told once.
    with pytest.warns(FitWarning, match="no transition reaches a state with a reward"):
        small.task(reward=np.zeros_like)


@pytest.mark.filterwarnings("ignore:in .*% of the data's states the policy takes an action")
@on_indices
def test_actions_that_no_row_took_count_for_nothing(method):
    # A ring of six states; the third action is never taken, and the second never in state 0.
    rng = np.random.default_rng(0)
    states, action = [0], []
    for _ in range(400):
        action.append(int(rng.integers(2)) if states[-1] else 0)
        states.append((states[-1] + (1, -1)[action[-1]]) % 6)
    seen, taken = np.asarray(states), np.asarray(action)
    ends = np.zeros(400, np.bool_)
    places = np.float32(np.stack([np.cos(seen), np.sin(seen)], axis=1))
    counted, dense = (
        dataclasses.replace(as_transitions([s[:-1], taken, s[1:], ends, ends]), num_actions=3)
        for s in (seen, places)
    )
    rep = fit(counted, num_features=4, discount=0.8)
    task = rep.task(np.arange(6), [-1.0, -1.0, -2.0, -3.0, -2.0, -1.0])
    # The policy of the data takes the first action in state 0.
    start = np.array([0])
    found = rep.values(start, task)
    np.testing.assert_allclose(found, rep.action_values(start, task, start), rtol=1e-4)
    np.testing.assert_allclose(
        rep.features(start), rep.forward(start, start) * np.sqrt(rep.singular_values), rtol=1e-4
    )
    # Pairs that no row has are named once.
    for call in (
        lambda: rep.action_values(np.arange(6), task)[0],
        lambda: rep.forward(np.arange(6))[0],
        lambda: rep.measure(np.arange(6), start)[0],
    ):
        with pytest.warns(FitWarning, match=r"no transition takes action 1 in state 0 .one of 7 p"):
            found = call()
        unknown = task.constant if found.dtype == np.float64 else 0.0
        np.testing.assert_allclose(found[1:], unknown)
    with pytest.warns(FitWarning, match="no transition takes action 2 in state 3, so"):
        rep.action_values(np.array([3, 3, 2]), task, np.array([2, 2, 1]))
    for improvements in (1, 5, None):
        chosen = rep.policy(task, improvements)(np.arange(6))
        assert chosen[0] == 0
        assert (chosen < 2).all()
    rep = fit(dense, num_features=4, discount=0.8, max_features=20, width=1.0)
    task = rep.task(reward=lambda reached: -1.0 - np.abs(reached[:, 1]))
    for improvements in (1, None):
        assert (rep.policy(task, improvements)(places) < 2).all()


def seventh(seed=0, rows=3_000):
    """Steps along states 0 to 4; 4 ends episodes, 5 ends records, and no row has 6.

    Actions are a step back, a step on, and, in state 0 alone, one that stays or leads to 5.
    """
    rng, state, found = np.random.default_rng(seed), 0, []
    for _ in range(rows):
        action = int(rng.integers(3 if state == 0 else 2))
        after = 5 if action == 2 and rng.random() < 0.2 else max(0, state + (-1, 1, 0)[action])
        found.append((state, action, after, after == 4, after == 5 or rng.random() < 0.05))
        state = int(rng.integers(4)) if any(found[-1][3:]) else after
    before, action, after, ended, cut = map(np.array, zip(*found, strict=True))
    given = {"terminated": ended, "truncated": cut & ~ended, "num_states": 7}
    return Transitions(observation=before, action=action, next_observation=after, **given)


# States 4 to 6 have features of states in which rows start, so that values there are extrapolated.
ALIKE = FunctionEncoder(
    lambda key: jax.random.normal(key, (4, 3)),
    lambda params, seen: seen @ jnp.eye(4)[jnp.array([0, 1, 2, 3, 2, 0, 1])] @ params,
)


@pytest.mark.filterwarnings("ignore:no row starts in 17% of the states reached")
@pytest.mark.parametrize(
    ("method", "behaviour"),
    [({}, "estimated"), ({}, "uniform"), ({"encoder": ALIKE, **QUICK}, "estimated")],
    ids=["counts", "counts-uniform", "td"],
)
def test_indices_are_counted_whatever_the_features(method, behaviour):
    data, gamma = seventh(), 0.9
    rep = fit(data, num_features=1, discount=gamma, behaviour=behaviour, **method)
    task = rep.task(data.next_observation, -np.ones(len(data)))
    # The counted model, in which pairs that no row has are worth 0.
    counts = np.zeros((7, 3, 7))
    np.add.at(counts, (data.observation, data.action, data.next_observation), 1.0)
    tried = counts.sum(axis=2)
    model = counts / np.maximum(tried, 1.0)[:, :, None]
    shares = tried / np.maximum(tried.sum(axis=1, keepdims=True), 1.0)
    policy = shares if behaviour == "estimated" else np.full((7, 3), 1 / 3)
    if behaviour == "estimated":
        np.testing.assert_allclose(rep.probabilities(np.arange(4)), policy[:4], rtol=1e-6)

    def solved(policy):
        values = np.zeros((7, 3))
        for _ in range(300):
            values = (tried > 0) * (gamma * model @ (policy * values).sum(axis=1) - 1.0)
        return values

    expected, states = solved(policy), np.arange(7)
    close = {"rtol": 1e-3, "atol": 1e-3}
    with pytest.warns(FitWarning, match="no transition starts from state 5 and 1 more or takes"):
        np.testing.assert_allclose(rep.action_values(states, task), expected, **close)
    with pytest.warns(FitWarning, match="no transition starts from state 5 and 1 more, so"):
        values = rep.values(states, task)
    np.testing.assert_allclose(values, (policy * expected).sum(axis=1), **close)
    np.testing.assert_array_equal(values[4:], 0.0)
    with pytest.warns(FitWarning, match="no transition starts from state 5"):
        np.testing.assert_array_equal(rep.features(states)[4:], 0.0)
    arrivals = (data.next_observation == 4) * len(data) / (data.next_observation == 4).sum()
    np.testing.assert_array_equal(rep.goal(4).rewards, arrivals)
    if behaviour == "uniform":
        return
    # The best policy of these pairs goes on: in state 0 the third action may end the costs.
    best = np.eye(3)[np.where(tried > 0, expected, -np.inf).argmax(axis=1)]
    for _ in range(9):
        best = np.eye(3)[np.where(tried > 0, solved(best), -np.inf).argmax(axis=1)]
    improved = rep.improved_values(task, None)(states)[:, 0]
    np.testing.assert_allclose(improved, solved(best), rtol=0.02, atol=1e-2)
    np.testing.assert_array_equal(rep.policy(task, None)(states[:4]), best[:4].argmax(axis=1))


@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")
def test_unknown_indices_are_named_for_actions_of_a_box():
    data = seventh()
    box = dataclasses.replace(data, action=np.float32(data.action[:, None]), num_actions=None)
    rep, states = fit(box, num_features=3, discount=0.9, method="td", **QUICK), np.arange(7)
    task = rep.task(data.next_observation, -np.ones(len(data)))
    shares = np.array([box.action[box.observation == s].mean() for s in range(4)]) - 1.0
    np.testing.assert_allclose(rep.solution.behaviour(states[:4])[:, 1], shares, rtol=1e-4)
    for call in (
        rep.features,
        lambda seen: rep.values(seen, task),
        lambda seen: rep.action_values(seen, task, np.full((7, 1), 0.5)),
        lambda seen: rep.improved_values(task, None)(seen)[:, 0],
    ):
        np.testing.assert_array_equal(call(states)[4:], 0.0)
    with pytest.warns(FitWarning, match="no transition starts from state 5 and 1 more, so act"):
        rep.policy(task)(states)


ALONE = {  # (state, action) → whether the data have it, vectors or not, and what is said.
    "one for each state": (lambda s, a: a == s % 2, False, "100% of the transitions start in"),
    "one in four of five": (lambda s, a: (a == 0) | (s == 4), False, "67% of the transitions st"),
    "one in three of five": (lambda s, a: (a == 0) | (s >= 3), False, None),
    "one, indices": (lambda s, a: a == 0, False, "all transitions have the same action"),
    "one, vectors": (lambda s, a: a == 0, True, "all transitions have the same action"),
}


@pytest.mark.parametrize(
    ("kind", "method"), [*zip(ALONE, [{"method": "td", **QUICK}, *[{}] * 4], strict=True)]
)
def test_policies_of_data_that_tried_one_action_are_warned_of(kind, method, corridor):
    has, dense, said = ALONE[kind]
    data = corridor.transitions()
    rows = [data.observation, data.action, data.next_observation, data.terminated, data.truncated]
    kept = has(data.observation, data.action)
    before, action, after, *ends = (column[kept] for column in rows)
    if dense:
        before, after = (np.float32(column)[:, None] for column in (before, after))
    data = as_transitions([before, action, after, *ends])
    rep = fit(data, num_features=2, discount=0.8, **method)
    task = rep.task(reward=lambda seen: np.float32(seen).reshape(len(seen)))
    rep.values(before, task)  # Silent.
    if said is None:
        rep.policy(task)
    else:
        with pytest.warns(FitWarning, match=said) as caught:
            policy = rep.policy(task)
        assert (len(caught), caught[0].filename) == (1, __file__)
        alone = slice(None) if dense else before < 4
        np.testing.assert_array_equal(policy(before)[alone], action[alone])


# Only action 1 leads to the reward. A log follows a rule that takes it right of 0; other actions of
# the log are random. Or it takes action 1 rarely, wherever it is.
@pytest.mark.parametrize(
    ("followed", "random", "least", "most"),
    [("right", 0.0, 0.4, 0.65), ("right", 0.5, 0.95, 1.0), ("never", 0.05, 0.95, 1.0)],
)
def test_policies_of_vectors_take_actions_that_the_log_supports(followed, random, least, most):
    rng = np.random.default_rng(0)
    places = rng.uniform(-1.0, 1.0, (2_000, 2))
    own = (places[:, 0] > 0.0) & (followed == "right")
    action = np.where(rng.random(2_000) < random, rng.integers(2, size=2_000), own)
    after = places + 0.1 * (2 * action[:, None] - 1)
    rows = [np.float32(places), action, np.float32(after), np.zeros(2_000, np.bool_)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # Of rows that do not follow each other, ...
        rep = fit(as_transitions(rows), num_features=2, max_features=50, discount=0.5)
        task = rep.task(reward=lambda reached: reached[:, 1])
        policy = rep.policy(task, improvements=1)
    assert least <= policy(rows[0]).mean() <= most


def test_policies_of_indices_run_fitted_q_iteration_once(monkeypatch):
    rounds, run = [], Improvement.fitted_q_iteration
    monkeypatch.setattr(
        Improvement,
        "fitted_q_iteration",
        lambda self, *given, **options: rounds.append(1) or run(self, *given, **options),
    )
    rep = fit(line(0, 2_000), num_features=8, method="td", **QUICK)
    rep.policy(rep.goal(11))
    assert len(rounds) == 1


@pytest.mark.parametrize("better", [True, False])
def test_policies_take_unlikely_actions_if_near_rows_show_that_they_are_better(better):
    rng = np.random.default_rng(0)
    places = rng.uniform(-1.0, 1.0, (2_000, 2))
    # A log takes action 0 on one side and 2 on the other; both move alike. Action 1 is rare.
    rare = rng.random(2_000) < 0.06
    action = np.where(rare, 1, np.where(places[:, 0] > 0.0, 0, 2))
    after = places + np.where(rare == better, 0.1, -0.1)[:, None]
    rows = [np.float32(places), action, np.float32(after), np.zeros(2_000, np.bool_)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FitWarning)
        rep = fit(as_transitions(rows), num_features=2, max_features=50, discount=0.5)
        task = rep.task(reward=lambda reached: reached[:, 1])
        policy, one = rep.policy(task), rep.policy(task, 1)
    # Near the border of the sides, all actions are likely.
    assert np.mean(one(rows[0]) == 1) < 0.35
    share = np.mean(policy(rows[0]) == 1)
    assert share > 0.8 if better else share < 0.35
    assert any("chooses from all;" in str(each.message) for each in caught) == better


def test_potentials_fall_with_the_distance_along_a_corridor(corridor_rep):
    potential = corridor_rep.potential(4)(np.arange(5))
    np.testing.assert_allclose(potential[4], 0.0, atol=1e-5)
    assert (np.diff(potential) > 0).all()


def line(seed, steps=15_000):
    """A walk on twelve cells from anywhere; the last one terminates, 60 steps cut."""
    rng, rows, state, age = np.random.default_rng(seed), [], 0, 0
    for _ in range(steps):
        action = int(rng.integers(2))
        reached, age = max(0, min(11, state + 2 * action - 1)), age + 1
        rows.append((state, action, reached, reached == 11, age == 60))
        over = reached == 11 or age == 60
        state, age = (int(rng.integers(11)), 0) if over else (reached, age)
    return as_transitions([*map(np.array, zip(*rows, strict=True))])


@on_indices
def test_the_potential_of_a_terminal_goal_follows_the_way_there(method):
    rep = fit(line(0), num_features=8, **method)
    potential = rep.potential(11)(np.arange(12))
    assert spearmanr(potential, np.arange(12)).statistic >= 0.95
    # In steps: 0 next to the goal, where its density is largest, and no distance of features.
    assert potential[10] == potential[11] == potential.max() == 0.0
    for scaling in ("singular", "white", "none"):
        np.testing.assert_array_equal(rep.features(np.array([11]), scaling=scaling), 0.0)
    np.testing.assert_array_equal(rep.values(np.array([11]), rep.goal(11)), 0.0)


def test_a_goal_of_vectors_that_ends_episodes_is_named():
    data = line(0)
    places = {
        name: getattr(data, name).astype(np.float32)[:, None]
        for name in ("observation", "next_observation")
    }
    vectors = dataclasses.replace(data, **places, num_states=None)
    rep = fit(vectors, num_features=4, discount=0.9, max_features=100)
    with pytest.warns(FitWarning, match=r"the goal 11.0 ends episodes, .* rep.task\(reward"):
        rep.goal([11.0])
    # Silent: warnings are errors here.
    rep.goal([5.0])
    rep.potential([11.0])
    with pytest.warns(FitWarning, match="no transition reaches a state with a reward"):
        assert not rep.task([[20.0]], [1.0]).rewards.any()
    # The remedy reaches it.
    arriving = rep.task(reward=lambda seen: (seen[:, 0] > 10.5).astype(np.float32))
    assert arriving.rewards.any()


@on_indices
def test_states_and_goals_that_the_data_hardly_know_are_named(method, corridor):
    data = dataclasses.replace(corridor.transitions(), num_states=8)
    rep = fit(data, num_features=3, **method)
    costs = rep.task(np.arange(5), -np.arange(1.0, 6.0))
    for call in (
        rep.features,
        rep.forward,
        lambda seen: rep.measure(seen, np.array([0])),
        lambda seen: rep.values(seen, costs),
        lambda seen: rep.action_values(seen, costs),
        lambda seen: rep.action_values(seen, costs, np.ones(4, int)),
        rep.policy(costs),
    ):
        with pytest.warns(
            FitWarning, match="no transition starts from state 5 and 1 more, so"
        ) as w:
            found = call(np.array([0, 6, 5, 6]))
        assert (len(w), w[0].filename) == (1, __file__)
        # Values of unknown states are those of the median reward; policies take the first action.
        valued = found.dtype == np.float64
        np.testing.assert_allclose(found[1:], costs.constant if valued else 0.0)
    with pytest.raises(InputError, match=r"the 8 states of the data, in \[0, 8\), got 8: give num"):
        rep.features(np.array([8]))
    with pytest.warns(FitWarning, match="8 of 40 transitions reach the goal 2: its values"):
        rep.goal(2)
    with pytest.warns(FitWarning, match="0 of 40 transitions reach the goal 7"):
        assert (rep.goal(7).rewards == 0.0).all()


def test_distance_to_a_ground_truth_of_the_same_chain_is_small(corridor_rep, corridor):
    matrix = corridor.measure().mean(axis=1)
    left, values, _ = np.linalg.svd(matrix - matrix.mean(axis=0))
    principal = PrincipalSubspace(
        basis=left[:, :4].astype(np.float32),
        singular_values=values[:4].astype(np.float32),
        total_energy=float((values**2).sum()),
        distance_bound=None,
        method="exact",
        settings={},
    )
    truth = GroundTruth(coordinates=jnp.arange(5), matrix=None, principal=principal)
    assert corridor_rep.distance(truth) < 1e-4


def walk(rows=40, cut_every=10, seed=0, continuous=False):
    """A walk of vectors [2], cut into episodes."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(rows + 1, 2)).cumsum(axis=0)
    actions = rng.normal(size=(rows, 2)) if continuous else rng.integers(3, size=rows)
    cut = np.arange(rows) % cut_every == cut_every - 1
    return as_transitions([states[:-1], actions, states[1:], np.zeros(rows, bool), cut])


def test_rewards_of_vectors_are_looked_up_or_regressed():
    data = walk()
    rep = fit(data, num_features=2)
    rewards = np.tanh(data.next_observation @ [1.0, -2.0])
    task = rep.task(data.next_observation[::2], rewards[::2])
    np.testing.assert_allclose(task.rewards[::2], rewards[::2], rtol=1e-5)
    assert np.corrcoef(task.rewards[1::2], rewards[1::2])[0, 1] > 0.7


@pytest.mark.filterwarnings("ignore:the actions tell nothing")  # So it is.
def test_rewards_of_rows_that_the_equations_leave_out_count(monkeypatch):
    data = walk(rows=4_000, cut_every=100)
    rewarded = np.zeros(4_000)
    rewarded[[700, 1_500, 2_300, 3_100]] = 5.0
    rep = fit(data, num_features=2, max_features=20, width=1.0, regularisation=1e-5)
    whole = rep.solution.rewarded(rewarded - 1.0)
    monkeypatch.setattr(fitting, "MOST_ROWS", 1_000)
    with pytest.warns(
        FitWarning, match="take 1,000 of 4,000 transitions, drawn at random; rewards"
    ):
        some = fit(data, num_features=2, max_features=20, width=1.0, regularisation=1e-5)
    solution, at = (
        some.solution,
        dict(zip(map(tuple, data.next_observation), rewarded, strict=True)),
    )
    with pytest.warns(
        FitWarning, match="^4 of 4,000 transitions have a reward far from the median, 0: "
    ):
        task = some.task(reward=lambda seen: np.array([at[tuple(place)] for place in seen]))
    assert task.rewards.sum() == 20.0
    # The mean reward, -1, is that of the rows of the equations, and the others' is exact.
    common = solution.right_hand_side(np.ones((1_000, 1)))
    exact = whole + rep.solution.right_hand_side(np.ones((4_000, 1))) - common
    np.testing.assert_allclose(solution.rewarded(rewarded - 1.0), exact, atol=1e-9)
    sampled = solution.right_hand_side(rewarded[solution.chosen, None])
    assert np.abs(sampled - solution.rewarded(rewarded)).max() > 1e-4
    # Fitted Q iteration tells states apart by rewards that no chosen row has.
    lost = np.setdiff1d(np.arange(4_000), solution.chosen)[[50, 900, 2_000]]
    task = Task(solution, np.isin(np.arange(4_000), lost).astype(np.float64))
    values = some.improved_values(task, None)
    assert values(data.observation).std() > 0.01
    # Many rewards are those of the chosen rows.
    monkeypatch.setattr(least_squares, "MOST_RARE", 3)
    np.testing.assert_array_equal(solution.rewarded(rewarded), sampled)


@pytest.mark.parametrize("kind", ["indices", "vectors"])
@pytest.mark.parametrize("chance", ["none", "of the next state", "of the reward"])
def test_rare_rewards_are_told_unless_rows_show_no_chance(kind, chance, recwarn):
    random, length = np.random.default_rng(0), 20
    start, action = random.integers(length, size=1_000), random.integers(2, size=1_000)
    slips = random.random(1_000) < (0.2 if chance == "of the next state" else 0.0)
    reached = (start + np.where(slips, 0, 2 * action - 1)) % length
    rewards = 1.0 * ((start == 3) & (reached == 4) & (action == 1))
    rewards *= random.random(1_000) if chance == "of the reward" else 1.0
    states = [start, reached]
    if kind == "vectors":
        angles = [2.0 * np.pi * places / length for places in states]
        states = [np.stack([np.cos(angle), np.sin(angle)], axis=1) for angle in angles]
    ends = np.zeros(1_000, bool), np.ones(1_000, bool)
    rep = fit(as_transitions([states[0], action, states[1], *ends]), num_features=2, discount=0.5)
    recwarn.clear()
    rep.task(reward=lambda _: rewards)
    assert bool(recwarn) is (chance != "none")
    recwarn.clear()
    if kind == "indices":  # The kernel of vectors counts neighbours of a goal.
        rep.goal(4)
        assert bool(recwarn) is (chance == "of the next state")


def test_a_reward_that_was_seen_once_is_told_where_all_else_recurs(recwarn):
    random = np.random.default_rng(0)
    start, action = random.integers(10, size=2_000), random.integers(2, size=2_000)
    reached = (start + 2 * action - 1) % 10
    start[7], action[7], reached[7] = 10, 0, 11
    rep = fit(as_transitions([start, action, reached, reached == 11, reached < 11]), num_features=2)
    recwarn.clear()
    rep.task(reward=lambda _: 1.0 * (reached == 11))
    assert "1 of 2,000 transitions has a reward far" in str(recwarn[0].message)


def test_booleans_are_indices_and_no_mask(rep):
    for function in (rep.features, rep.backward):
        np.testing.assert_array_equal(function(np.array([True, False])), function(np.array([1, 0])))


def test_zeros_of_both_signs_are_one_state():
    data = walk()
    zeros = np.where(np.arange(40) % 2, 0.0, -0.0)
    data = dataclasses.replace(
        data,
        observation=np.stack([zeros, data.observation[:, 1]], axis=1),
        next_observation=np.stack([np.roll(zeros, -1), data.next_observation[:, 1]], axis=1),
    )
    rep, rewards = fit(data, num_features=2), np.arange(40.0)
    task = rep.task((data.next_observation + 0.0)[::-1], rewards[::-1])
    np.testing.assert_array_equal(task.rewards, rewards)


METHODS = {
    "counts": {},
    "left out": {},
    "td, indices": {"method": "td", **QUICK},
    "td, box": {"method": "td", "encoder": FourierMLP(hidden=(8,), frequencies=1), **QUICK},
}


@few_arrivals
@pytest.mark.filterwarnings("ignore:fitted Q iteration diverges")  # On 40 rows.
@pytest.mark.filterwarnings(
    "ignore:one improvement is better",
    "ignore:the policy's values are not",
    "ignore:the policy leaves the data",
)
@pytest.mark.filterwarnings("ignore:the equations take 30 of 40 transitions")
@pytest.mark.parametrize("method", METHODS)
def test_what_was_saved_is_loaded_bit_for_bit(method, corridor, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "MOST_ROWS", 30 if method == "left out" else 100)
    indices = method in ("counts", "td, indices")
    data = corridor.transitions() if indices else walk(continuous="box" in method)
    rep = fit(data, num_features=3, **METHODS[method])
    for _ in range(2):
        rep.save(tmp_path / "rep")
    again, seen = SuccessorRepresentation.load(tmp_path / "rep"), data.observation
    copied = pickle.loads(pickle.dumps(rep))
    assert (again.config, again.quality) == (rep.config, rep.quality)
    goal = data.next_observation[5]
    for part in (
        lambda rep: rep.features(seen),
        lambda rep: rep.forward(seen, data.action),
        lambda rep: rep.backward(seen),
        lambda rep: rep.singular_values,
        lambda rep: rep.policy(rep.goal(goal))(seen),
    ):
        assert np.isfinite(part(rep)).all()
        for other in (again, copied):
            np.testing.assert_array_equal(part(other), part(rep))
    task = rep.task(seen, np.arange(40.0) if seen.ndim > 1 else np.float64(seen))
    used = task, rep.policy(task, 1), rep.potential(seen[0])
    again, *made = pickle.loads(pickle.dumps(used))
    np.testing.assert_array_equal(again.weights, task.weights)
    for found, expected in zip(made, used[1:], strict=True):
        np.testing.assert_array_equal(found(seen), expected(seen))
    action = rep.policy(rep.goal(goal), 1)(seen[0])
    assert (action.shape, action.dtype.kind) == (((2,), "f") if "box" in method else ((), "i"))
    other = dataclasses.replace(data, action=data.action[::-1])
    with pytest.raises(InputError, match=r"holds another run: expected data\.sha256"):
        fit(other, num_features=3, **METHODS[method]).save(tmp_path / "rep")
    (tmp_path / "rep" / "representation.npz").unlink()
    with pytest.raises(InputError, match=r"got no file .*representation\.npz; fit again"):
        SuccessorRepresentation.load(tmp_path / "rep")


def even(observations):
    return np.full((len(observations), 3), 1 / 3)


def test_parts_of_ones_own_are_asked_for_when_loading(tmp_path):
    own = FunctionEncoder(
        lambda key: jnp.ones((2, 6)) * jnp.arange(6.0)[None], lambda params, seen: seen @ params
    )
    data = walk()
    parts = {"encoder": own, "behaviour": even}
    rep = fit(data, num_features=2, **QUICK, **parts)
    rep.save(tmp_path / "rep")
    with pytest.raises(InputError, match="expected encoder= for the representation"):
        SuccessorRepresentation.load(tmp_path / "rep", behaviour=even)
    with pytest.raises(InputError, match="expected behaviour= for the representation"):
        SuccessorRepresentation.load(tmp_path / "rep", encoder=own)
    again = SuccessorRepresentation.load(tmp_path / "rep", **parts)
    np.testing.assert_array_equal(again.features(data.observation), rep.features(data.observation))


@few_arrivals
def test_observations_and_tasks_that_do_not_fit_are_refused(corridor_rep, rep):
    for call, expected in {
        lambda: rep.forward(np.array([0]), np.array([7])): "whole numbers of actions",
        lambda: corridor_rep.task(reward=lambda states: 1.0): r"rewards of shape \(40,\)",
        lambda: corridor_rep.policy(np.ones(5)): r"a task \(rep.task, rep.goal\), got 'ndarray'",
        lambda: corridor_rep.values([0], rep.goal(0)): "a task of this representation",
        lambda: corridor_rep.features([5]): r"in \[0, 5\), got 5",
        lambda: corridor_rep.task([0], [np.inf]): "finite rewards",
    }.items():
        with pytest.raises(InputError, match=expected):
            call()
