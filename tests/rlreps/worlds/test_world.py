"""Tables: their files, values, exact truths, and compiled copies."""

import dataclasses
import fractions
import itertools
import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import rlreps
from rlreps.errors import InputError
from rlreps.files import read_archive, write_archive
from rlreps.numerics import digest_of
from rlreps.subspace.svd import ExactSVD, RandomizedSVD
from rlreps.worlds import World
from rlreps.worlds.planning import epsilon_greedy


def random_world(states=40, actions=3, seed=0, stochastic=True, ends=3):
    rng = np.random.default_rng(seed)
    terminal = np.arange(states) >= states - ends
    parts = {"next_states": rng.integers(states, size=(states, actions))}
    if stochastic:
        chances = rng.random((actions, states, states)) * (rng.random((states, states)) < 0.2)
        chances += 0.01 * np.roll(np.eye(states), 1, axis=1)
        parts = {"probabilities": chances / chances.sum(axis=2, keepdims=True)}
    return World.from_arrays(
        **parts,
        rewards=rng.normal(size=(states, actions)),
        terminal=terminal,
        observations=rng.integers(256, size=(states, 8, 8, 3), dtype=np.uint8),
        coordinates=np.stack([np.arange(states) % 5, np.arange(states) // 5], axis=1),
        names=("x", "y"),
        about={"name": "random"},
    )


def room(width=19, height=15):
    """Four moves in a room with a wall across most of it; the last place ends the game."""
    x, y = (part.ravel() for part in np.meshgrid(np.arange(width), np.arange(height)))
    moved = []
    for right, up in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        to_x, to_y = np.clip(x + right, 0, width - 1), np.clip(y + up, 0, height - 1)
        blocked = (np.minimum(x, to_x) == 6) & (to_x != x) & (y > 2)
        moved.append(np.where(blocked, y * width + x, to_y * width + to_x))
    next_states, last = np.stack(moved, axis=1), width * height - 1
    terminal = np.arange(width * height) == last
    paid = ((next_states == last) & ~terminal[:, None]).astype(float)
    return World.from_arrays(next_states=next_states, rewards=paid, terminal=terminal)


WORLDS = {
    "stochastic": random_world,
    "deterministic": lambda: random_world(stochastic=False),
    "endless": lambda: random_world(ends=0),
    "lake": lambda: World.from_gymnasium_table(gymnasium.make("FrozenLake-v1")),
    "cliff": lambda: World.from_gymnasium_table(gymnasium.make("CliffWalking-v1")),
}


def dense_chain(world, policy, terminal):
    chain = np.einsum(
        "sa,sat->st",
        policy,
        world.transitions.toarray().reshape(world.num_states, world.num_actions, -1),
    )
    if terminal != "absorb":
        chain[world.terminal] = 0.0 if terminal == "leave" else world.start
    return chain


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("terminal", ["leave", "absorb", "restart"])
def test_the_successor_measure_is_the_dense_inverse(name, terminal):
    world = WORLDS[name]()
    policy = np.random.default_rng(1).dirichlet(np.ones(world.num_actions), world.num_states)
    chain = dense_chain(world, policy, terminal)
    expected = np.linalg.inv(np.eye(world.num_states) - 0.9 * chain)
    if terminal == "restart":
        world, terminal = world.restarted(), "absorb"
    solver = world.successor(policy, discount=0.9, terminal=terminal)
    np.testing.assert_allclose(solver.matrix, expected, atol=1e-10)
    if terminal == "absorb":
        np.testing.assert_allclose(solver.matrix.sum(axis=1), 10.0)
    truth = world.truth(policy, discount=0.9, terminal=terminal)
    values = np.linalg.svd(expected - expected.mean(axis=0), compute_uv=False)
    kept = truth.principal.singular_values
    np.testing.assert_allclose(kept, values[: len(kept)], atol=1e-10)


@pytest.mark.parametrize("centring", ["columns", "rows", "both"])
def test_iterated_products_agree_with_the_matrix_within_their_bound(centring):
    world = room()
    exact = world.truth(centring=centring, decomposition=ExactSVD(rank=20))
    found = world.truth(centring=centring, decomposition=RandomizedSVD(rank=20))
    np.testing.assert_allclose(
        found.principal.singular_values, exact.principal.singular_values, rtol=1e-6
    )
    assert found.principal.total_energy == pytest.approx(exact.principal.total_energy)
    made = [each.settings for each in (exact, found)]
    assert [each["decomposition"] for each in made] == ["exact", "randomized"]
    assert [each["method"] for each in made] == ["exact", "exact"]
    for d in (1, 5, 20):
        basis, other = (each.principal.basis[:, :d] for each in (exact, found))
        apart = 1.0 - np.square(basis.T @ other).sum() / d
        assert apart <= found.error[d - 1] + 1e-12


@pytest.mark.parametrize("decomposition", [None, RandomizedSVD()])
@pytest.mark.parametrize("centring", ["columns", "rows", "both"])
def test_means_left_by_rounding_are_no_component(centring, decomposition):
    places = np.arange(20)
    ring = World.from_arrays(next_states=(places[:, None] + [[1]]) % 20, rewards=np.zeros((20, 1)))
    for nines in (1, 2, 3, 6, 8):
        discount = 1.0 - 10.0**-nines
        truth = ring.truth(discount=discount, centring=centring, decomposition=decomposition)
        # A circulant matrix: the constant is the eigenvector that centring removes.
        values = 1.0 / np.abs(1.0 - discount * np.exp(2j * np.pi * places[1:] / 20))
        found = truth.principal.singular_values
        np.testing.assert_allclose(found, np.sort(values)[::-1], rtol=1e-6)
        assert np.abs(truth.principal.basis.sum(axis=0)).max() < 1e-5


@pytest.mark.parametrize("name", WORLDS)
def test_optimal_values_are_those_of_value_iteration(name):
    world = WORLDS[name]()
    table = world.transitions.toarray().reshape(world.num_states, world.num_actions, -1)
    values = np.zeros(world.num_states)
    for _ in range(700):
        values = (world.rewards + 0.95 * table @ values).max(axis=1)
    np.testing.assert_allclose(world.optimal_values(0.95), values, atol=1e-8)
    greedy = epsilon_greedy(world.optimal_action_values(0.95))
    np.testing.assert_allclose(world.policy_values(greedy, 0.95), values, atol=1e-8)


def test_the_end_of_a_long_chain_is_seen_from_its_start():
    # Action 1 goes on, action 0 stays; the last step pays.
    here = np.arange(60)
    last = np.arange(61) == 60
    world = World.from_arrays(
        next_states=np.append(np.stack([here, here + 1], axis=1), [[60, 60]], axis=0),
        rewards=np.append(np.outer(here == 59, [0.0, 1.0]), [[0.0, 0.0]], axis=0),
        terminal=last,
        start=np.arange(61) == 0,
    )
    best = world.optimal_action_values(0.5)
    np.testing.assert_allclose(best.max(axis=1)[:60], 0.5 ** (59.0 - here), rtol=1e-12)
    np.testing.assert_array_equal(epsilon_greedy(best)[:60, 1], 1.0)
    # The random policy goes on half of the time: its best action is right at once.
    assert 1.0 < world.effective_horizon(0.5) < 100.0


def test_rounding_exchanges_no_policies_and_ties_stay_ties():
    # Two equal actions, and values near 0 that are sums of large rewards.
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(30), size=30)
    world = World.from_arrays(
        probabilities=np.stack([chances, chances]),
        rewards=np.repeat(rng.normal(size=(30, 1)), 2, axis=1) * 1e6,
    )
    best = world.optimal_action_values(0.9999)
    np.testing.assert_array_equal(epsilon_greedy(best), 0.5)
    # Both ways out of state 0 are worth 0, the one as a difference of larger numbers.
    rewards = [[123e3, 17e3], [-123e3 / 0.7] * 2, [-17e3 / 0.7] * 2, [0.0, 0.0]]
    ways = World.from_arrays(next_states=[[1, 2], [3, 3], [3, 3], [3, 3]], rewards=rewards)
    np.testing.assert_array_equal(epsilon_greedy(ways.optimal_action_values(0.7))[0], 0.5)


@pytest.mark.parametrize(
    ("states", "discount", "penalty"),
    [(200, 0.9, 1e6), (400, 0.9, 1e2), (120, 0.75, 1.0), (120, 0.9, 1e9), (6, 0.9, 1e15)],
)
def test_penalties_of_forbidden_actions_hide_no_prize(states, discount, penalty):
    # Stay, go on, or a forbidden action; the last place pays 1 for ever.
    here = np.arange(states)
    last = here == states - 1
    world = World.from_arrays(
        next_states=np.stack([here, np.minimum(here + 1, states - 1), here], axis=1),
        rewards=np.stack([last, last, np.full(states, -penalty)], axis=1),
    )
    found = world.optimal_action_values(discount)
    values = discount ** (states - 1.0 - here) / (1.0 - discount)
    stay = np.where(last, values, discount * values)
    expected = np.stack([stay, values, discount * values - penalty], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(epsilon_greedy(found)[:-1], np.eye(3)[[1] * (states - 1)])


def solve_exactly(rows, right):
    """Solve rows x = right by elimination in fractions."""
    table = [[*row, value] for row, value in zip(rows, right, strict=True)]
    for i in range(len(table)):
        pivot = next(j for j in range(i, len(table)) if table[j][i])
        table[i], table[pivot] = table[pivot], table[i]
        table[i] = [each / table[i][i] for each in table[i]]
        for j in range(len(table)):
            if j != i and table[j][i]:
                factor = table[j][i]
                table[j] = [a - factor * b for a, b in zip(table[j], table[i], strict=True)]
    return [row[-1] for row in table]


@pytest.mark.parametrize("digits", [3, 8])
def test_far_sighted_values_and_policies_are_those_of_fractions(digits):
    discount = 1.0 - 10.0**-digits
    gamma = fractions.Fraction(discount)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        # Multiples of 1/16 are exact; the last two actions are one.
        counts = rng.multinomial(16, rng.dirichlet(np.full(3, 0.5), size=(3, 3)))
        rewards = rng.integers(-32, 32, size=(3, 3)) / 16
        counts[2], rewards[:, 2] = counts[1], rewards[:, 1]
        chances = [
            [[fractions.Fraction(int(c), 16) for c in row] for row in part] for part in counts
        ]
        paid = [[fractions.Fraction(each) for each in row] for row in rewards.tolist()]
        solved = [
            solve_exactly(
                [
                    [(s == t) - gamma * chances[a][s][t] for t in range(3)]
                    for s, a in enumerate(policy)
                ],
                [paid[s][a] for s, a in enumerate(policy)],
            )
            for policy in itertools.product(range(2), repeat=3)
        ]
        best = [max(each) for each in zip(*solved, strict=True)]
        exact = [
            [
                paid[s][a] + gamma * sum(chances[a][s][t] * best[t] for t in range(3))
                for a in range(3)
            ]
            for s in range(3)
        ]
        world = World.from_arrays(probabilities=counts / 16, rewards=rewards)
        found = world.optimal_action_values(discount)
        np.testing.assert_allclose(found, np.asarray(exact, float), rtol=1e-13, atol=1e-9)
        optimal = np.array([[each == max(row) for each in row] for row in exact])
        np.testing.assert_array_equal(epsilon_greedy(found) > 0.0, optimal)


def test_discounts_that_leave_no_digits_are_refused():
    with pytest.raises(InputError, match="at most 1 - 1e-9"):
        room(2, 3).optimal_values(1.0 - 1e-12)


def test_words_for_numbers_and_folders_for_files_are_refused(tmp_path):
    world = room(2, 3)
    with pytest.raises(InputError, match="a policy of real numbers, got"):
        world.policy_values("greedy")
    computed = [world.optimal_values, world.effective_horizon, world.successor]
    for compute in (*computed, world.truth, world.policy_values):
        for given in ("a", None, [0.9], np.array([0.9, 0.8])):
            said = re.escape(f"discount to be a number, got {given!r}")
            with pytest.raises(InputError, match=said):
                compute(discount=given)
        with pytest.raises(InputError, match=r"discount in \[0, 1\), got 1.5"):
            compute(discount=np.array(1.5))
    with pytest.raises(InputError, match="discount to be a number, got None"):
        world.save_truth(tmp_path / "truth", discount=None)
    with pytest.raises(InputError, match="the path of a file, got 'the folder"):
        world.save(tmp_path)


def test_a_policy_that_explores_shares_ties():
    table = epsilon_greedy([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]], 0.3)
    np.testing.assert_allclose(table, [[0.45, 0.45, 0.1], [0.1, 0.8, 0.1]])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.ma.masked_array([[5.0, 1.0]], [[True, False]]), "without masked entries"),
        ([[np.nan, 1.0]], "a finite best value"),
        ([[-np.inf, -np.inf]], "a finite best value"),
        ([1.0, 2.0], r"action values \[n, A\], got \(2,\)"),
    ],
)
def test_action_values_that_rank_no_action_are_refused(values, expected):
    with pytest.raises(InputError, match=expected):
        epsilon_greedy(values)


def test_the_effective_horizon_of_a_game_that_takes_two_looks_is_by_hand():
    # A sure half now, or 1 for the right one of two actions in the next state.
    world = World.from_arrays(
        next_states=[[2, 1], [2, 2], [2, 2]],
        rewards=[[0.5, 0.0], [0.0, 1.0], [0.0, 0.0]],
        terminal=[False, False, True],
        start=[1.0, 0.0, 0.0],
    )
    extra = np.log2(6.0 * np.log(2.0 * 100 * 2))
    # Of the random policy's values, 0.5 and 0.9 / 2, the wrong one is greater: k is 2.
    assert world.effective_horizon(0.9) == pytest.approx(2.0 + np.log2(0.9**2 / 0.4**2) + extra)
    # For a far-sighted agent with more steps, k stays 2 and the gap is wider.
    assert world.effective_horizon(0.99, steps=200) == pytest.approx(
        2.0 + np.log2(0.99**2 / 0.49**2) + np.log2(6.0 * np.log(2.0 * 200 * 2))
    )
    with pytest.raises(InputError, match="deterministic transitions"):
        random_world().effective_horizon()
    assert room(2, 3).effective_horizon() > 1.0
    assert World.from_arrays(next_states=[[0, 0]], rewards=[[0, 0]]).effective_horizon() is None


def test_a_saved_world_is_the_same_and_a_changed_file_is_refused(tmp_path):
    world = random_world()
    path = world.save(tmp_path / "world.npz")
    again = World.load(path)
    assert again.digest == world.digest
    assert again.about == world.about
    assert repr(again) == "<World random of 40 states, 3 actions, observations [8, 8, 3] uint8>"
    np.testing.assert_array_equal(again.transitions.toarray(), world.transitions.toarray())
    other = random_world(seed=1)
    assert other.digest != world.digest
    arrays, record = read_archive(path, "it")
    arrays["rewards"][0, 0] += 1.0
    write_archive(path, arrays, record)
    with pytest.raises(InputError, match="got 'another one'"):
        World.load(path)
    path.write_bytes(b"PK damaged")
    with pytest.raises(InputError, match="got the corrupt"):
        World.load(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"next_states": [[0, 2], [1, 0]]}, "next states in .0, 2."),
        ({"next_states": [[0.0, 1.0], [1.0, 0.0]]}, "as integers"),
        ({"next_states": None}, "either next_states or probabilities"),
        ({"next_states": None, "probabilities": 3}, "probabilities .A, n, n., got 'int' object"),
        *[
            ({"next_states": None, "probabilities": given}, f"probabilities {said}")
            for given, said in (
                (scipy.sparse.eye_array(2), r"\[A, n, n\], got 'one sparse matrix \(2, 2\)"),
                (np.ones((3, 2, 2)), r"\[2, 2, 2\], got \(3, 2, 2\)"),
                ([np.eye(2), np.eye(3)], r"\[2, 2, 2\], got \(2, 3, 3\)"),
                (np.eye(2), r"\[2, 2, 2\], got \(2, 2\)"),
                ([[[1.5, -0.5], [0, 1]]] * 2, "of next states that are not negative, got -0.5"),
                (np.full((2, 2, 2), np.nan), "of next states that sum to 1, got 'nan off'"),
            )
        ],
        ({"rewards": [[0.0, np.nan], [0.0, 0.0]]}, "finite rewards"),
        ({"rewards": [0.0, 0.0]}, "rewards with 2 axes"),
        ({"rewards": None}, "either rewards or transition_rewards"),
        ({"rewards": None, "transition_rewards": []}, "transition_rewards .A, n, n., got 'none'"),
        (
            {"rewards": None, "transition_rewards": np.zeros((2, 2, 3))},
            "transition_rewards .2, 3, 3.",
        ),
        ({"terminal": [True]}, "terminal .2."),
        ({"start": [0.0, 0.0]}, "a start distribution that sums to 1"),
        ({"start": [1.5, -0.5]}, "probabilities of first states that are not negative, got -0.5"),
        ({"start": [np.nan, 1.0]}, "a start distribution that sums to 1, got nan"),
        ({"observations": np.zeros((3, 2))}, "observations of 2 states, got .3, 2."),
        ({"observations": 5.0}, "observations .n, ...., got 5.0"),
        ({"coordinates": np.zeros((2, 1))}, "coordinates .2, 0., as named"),
        *[({"terminal": [0, value]}, "booleans, or 0 and 1") for value in (2, 0.5, np.nan)],
        *[
            ({name: [["a"], ["b"]]}, f"{name} of real numbers")
            for name in ("next_states", "rewards", "terminal", "start", "observations")
        ],
        ({"observations": [2**24, 2**24 + 1]}, "single precision tells apart, got 16777216 and"),
        ({"observations": 1.7e9 + np.arange(2.0)}, "single precision tells apart"),
        *[
            ({"observations": np.float64([value, value])}, "finite observations")
            for value in (1e39, np.inf, np.nan)
        ],
        *[
            ({"coordinates": [[0.0], [value]], "names": ["x"]}, "finite coordinates")
            for value in (np.nan, -np.inf)
        ],
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes, said):
    arrays = {"next_states": [[0, 1], [1, 0]], "rewards": np.zeros((2, 2)), **changes}
    with pytest.raises(InputError, match=said):
        World.from_arrays(**arrays)


def test_probabilities_of_single_precision_are_normalised_and_exact_ones_are_kept():
    chances = np.random.default_rng(0).dirichlet(np.ones(60), size=(3, 60))
    arrays = {"rewards": np.zeros((60, 3)), "start": chances[0, 0]}
    exact = World.from_arrays(probabilities=chances, **arrays)
    np.testing.assert_array_equal(
        exact.transitions.toarray(), chances.swapaxes(0, 1).reshape(180, 60), strict=True
    )
    np.testing.assert_array_equal(exact.start, chances[0, 0], strict=True)
    short = {**arrays, "start": chances[0, 0].astype(np.float32)}
    found = World.from_arrays(probabilities=chances.astype(np.float32), **short)
    for given, rounded in ((exact.transitions, found.transitions), (exact.start, found.start)):
        np.testing.assert_allclose(rounded.sum(axis=-1), 1.0, rtol=0.0, atol=1e-12)
        difference = np.abs(rounded - given).max()
        assert 0.0 < difference < 1e-7
    with pytest.raises(InputError, match="sum to 1, got '1e-05 off'"):
        World.from_arrays(probabilities=chances * (1.0 + 1e-5), **arrays)


def test_observations_that_differ_by_rounding_may_be_one():
    seen = [[0.1 + 0.2, 2**24], [0.3, 2**24], [5.0, 2**25]]
    world = World.from_arrays(next_states=[[0], [1], [2]], rewards=[[0.0]] * 3, observations=seen)
    assert world.num_aliased == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"policy": np.ones((40, 3))}, "probabilities of actions that sum to 1"),
        ({"policy": np.ones((3, 3))}, r"a policy \[40, 3\]"),
        ({"policy": np.tile([2.0, -1.0, 0.0], (40, 1))}, "actions that are not negative, got -1.0"),
        ({"discount": 1.0}, "discount in"),
        ({"centring": "none"}, "centring to be one of both, columns, rows"),
        ({"terminal": "stay"}, "terminal to be one of absorb, leave"),
    ],
)
def test_a_truth_refuses_what_does_not_fit(options, said):
    with pytest.raises(InputError, match=said):
        random_world().truth(**options)


def test_a_world_of_one_state_has_no_truth(tmp_path):
    world = World.from_arrays(next_states=[[0, 0]], rewards=[[0.0, 1.0]])
    said = "a world of several states, which a truth tells apart, got 1"
    with pytest.raises(InputError, match=said):
        world.truth()
    with pytest.raises(InputError, match=said):
        world.save_truth(tmp_path / "store")


@pytest.mark.parametrize("name", ["stochastic", "deterministic"])
def test_a_compiled_copy_steps_as_the_table(name):
    world = WORLDS[name]()
    env = world.environment(max_steps=9)
    assert isinstance(env, rlreps.envs.Environment)
    keys = jax.random.split(jax.random.key(0), 4_000)
    states = jax.vmap(env.reset)(keys)
    counts = np.bincount(np.asarray(states.number), minlength=world.num_states) / 4_000
    np.testing.assert_allclose(counts, world.start, atol=0.02)
    actions = jnp.arange(4_000, dtype=jnp.int32) % world.num_actions
    taken = jax.jit(jax.vmap(env.step))(keys, states, actions)
    before, after = np.asarray(states.number), np.asarray(taken.state.number)
    rows = before * world.num_actions + np.asarray(actions)
    assert (world.transitions[rows, after] > 0.0).all()
    np.testing.assert_array_equal(taken.terminated, world.terminal[after])
    np.testing.assert_array_equal(taken.observation, world.observations[after])
    paid = world.rewards[before, np.asarray(actions)]
    np.testing.assert_allclose(taken.reward, paid, rtol=1e-6)
    # One state and action, many times.
    here = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[0], (4_000,)), states)
    many = jax.vmap(env.step)(keys, here, jnp.zeros(4_000, jnp.int32)).state.number
    row = world.transitions[[before[0] * world.num_actions]].toarray()[0]
    found = np.bincount(np.asarray(many), minlength=world.num_states) / 4_000
    np.testing.assert_allclose(found, row, atol=0.04)


def test_a_compiled_copy_pays_what_happens_and_not_the_mean(tmp_path):
    lake = WORLDS["lake"]()
    world = World.load(lake.save(tmp_path / "lake.npz"))
    assert world.digest == lake.digest
    env = world.environment()
    beside, right = np.argwhere(world.rewards[:, 2:3] > 0.0)[0][0], jnp.int32(2)
    assert world.rewards[beside, 2] == pytest.approx(1.0 / 3.0)
    state = env.reset(jax.random.key(0))._replace(number=jnp.int32(beside))
    keys = jax.random.split(jax.random.key(1), 3_000)
    taken = jax.jit(jax.vmap(lambda key: env.step(key, state, right)))(keys)
    np.testing.assert_array_equal(taken.reward, np.asarray(taken.terminated, np.float32))
    after, paid = np.asarray(taken.state.number), np.asarray(taken.reward)
    counts = np.unique(np.stack([after, paid]), axis=1, return_counts=True)[1]
    np.testing.assert_allclose(counts / 3_000, 1.0 / 3.0, atol=0.04)
    # Restarts pay nothing, and all else is paid as before.
    again = lake.restarted()
    assert repr(again).startswith("<World FrozenLakeEnv, restarted, of 16 states")
    assert again.truth().settings["restarted"] is True
    played = again.environment()
    paid = jax.jit(jax.vmap(lambda key: played.step(key, state, right)))(keys).reward
    np.testing.assert_array_equal(paid, taken.reward)
    ends = np.repeat(lake.terminal, 4)[np.repeat(np.arange(64), np.diff(again.transitions.indptr))]
    assert not again.transition_rewards[ends].any()
    # The cliff's rewards depend on state and action alone.
    assert WORLDS["cliff"]().transition_rewards is None


def test_a_chain_of_sparse_matrices_is_that_of_dense_ones():
    world = random_world()
    dense = world.transitions.toarray().reshape(40, 3, 40).transpose(1, 0, 2)
    sparse = World.from_arrays(
        probabilities=[scipy.sparse.csr_array(part) for part in dense],
        rewards=world.rewards,
        terminal=world.terminal,
        observations=world.observations,
    )
    np.testing.assert_allclose(sparse.transitions.toarray(), world.transitions.toarray())


def test_an_audit_takes_a_world_s_truth_and_its_images():
    world = random_world(60, seed=2)
    truth = world.truth()
    assert truth.observations.dtype == jnp.uint8
    pixels = rlreps.audit(lambda seen: np.asarray(seen).reshape(60, -1)[:, :20], truth)
    assert 0.0 < next(iter(pixels.findings.values())).leading() < 1.0
    assert "look alike" not in " ".join(rlreps.audit(np.eye(60)[:, :9], truth).lines())
    own = rlreps.audit(truth.principal.basis[:, :10], truth)
    assert own.findings["features"].leading() == pytest.approx(1.0)
    assert truth.distance(truth.principal.basis[:, :5]) < 1e-6


def test_an_audit_says_what_no_function_of_the_observation_holds():
    world = room(6, 5)
    # Rows 1 and 2, and rows 3 and 4, look alike.
    look = np.array([0, 1, 1, 2, 2])[np.arange(30) // 6] * 6 + np.arange(30) % 6
    seen = dataclasses.replace(world, observations=np.eye(18, dtype=np.float32)[look])
    assert seen.num_aliased == 24
    truth = seen.truth()
    # One unit for each look is the best that an encoder can do.
    found = rlreps.audit(lambda observations: observations, truth)
    best = found.findings["features"].components
    np.testing.assert_allclose(found.observable, best, atol=1e-9)
    assert 0.0 < found.observable.min() < 0.9 < found.observable.max() <= 1.0 + 1e-12
    said = f"at most {best[:10].mean():.3f} of the leading 10 components"
    assert said in found.lines()[0]


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("columns", [0, 2**30, 1, 0], "matrix of transitions, got indices must be < 2"),
        ("columns", [0, -1, 1, 0], "matrix of transitions, got indices must be >= 0"),
        ("columns", [0.0, 1.0, 1.0, 0.0], "the world written to .*, got 'another one'"),
        ("rows", [0, 3, 1, 3, 4], "matrix of transitions, got .* non-decreasing"),
        ("rows", [0, 1, 2, 3, 9], "index pointer"),
        ("probabilities", np.ones(4, np.int8), "chances of type float64, got 'int8'"),
        ("rewards", np.zeros((2, 2), np.float32), "rewards of type float64, got 'float32'"),
        ("terminal", ["a", "b"], "terminal of type bool, got 'str"),
        ("start", ["1", "0"], "start of type float64, got 'str"),
    ],
)
def test_a_world_s_file_with_a_right_digest_and_wrong_arrays_is_refused(
    tmp_path, name, changed, said
):
    world = World.from_arrays(next_states=[[0, 1], [1, 0]], rewards=np.zeros((2, 2)))
    path = world.save(tmp_path / "world.npz")
    arrays, record = read_archive(path, "it")
    arrays[name] = np.asarray(changed)
    record["digest"] = digest_of(arrays, "[]")
    write_archive(path, arrays, record)
    with pytest.raises(InputError, match=said):
        World.load(path)
