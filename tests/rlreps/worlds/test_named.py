"""Worlds by name: what they hold, their copies played beside the originals, and their cache."""

import importlib.metadata

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.envs import Code
from rlreps.errors import InputError
from rlreps.worlds import WORLDS, World, build, estimate_arena, load, named


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RLREPS_CACHE_DIR", str(tmp_path / "cache"))


def play(env, world, observe, episodes, steps):
    """Play half at random, half greedily, in an environment and in the compiled copy.

    Every step must agree; returns how many pay.
    """
    rng, shape = np.random.default_rng(0), (episodes, steps)
    best = world.optimal_action_values(0.95).argmax(axis=1)
    actions, rewards = np.zeros(shape, np.int32), np.zeros(shape)
    ended, seen = np.zeros(shape, bool), np.zeros((*shape, *world.observations.shape[1:]), np.uint8)
    for episode in range(episodes):
        env.reset(seed=0)
        index = int(world.start.argmax())
        for step in range(steps):
            greedy = rng.random() < 0.5
            action = int(best[index] if greedy else rng.integers(world.num_actions))
            _, reward, ended[episode, step], _, _ = env.step(action)
            actions[episode, step], rewards[episode, step] = action, float(reward > 0.0)
            seen[episode, step] = observe(env)
            if ended[episode, step]:
                break
            index = world.next_states[index, action]
    copy = world.environment()

    def episode(actions):
        def step(state, action):
            taken = copy.step(jax.random.key(0), state, action)
            return taken.state, (taken.reward, taken.terminated, taken.observation)

        return jax.lax.scan(step, copy.reset(jax.random.key(0)), actions)[1]

    ours = jax.jit(jax.vmap(episode))(jnp.asarray(actions))
    played = np.cumsum(ended, axis=1) - ended == 0
    for found, expected in zip(ours, (rewards, ended, seen), strict=True):
        np.testing.assert_array_equal(np.asarray(found)[played], expected[played])
    return int(rewards.sum())


# Name → states, rewarded actions, phases of doors and what is carried.
GAMES = {
    "minigrid-keycorridors3r1": (160, 4, 14),
    "minigrid-lavagaps5": (20, 1, 1),
}


@pytest.mark.parametrize("name", GAMES)
def test_a_game_of_minigrid_pays_and_its_copy_plays_as_the_original(name):
    pytest.importorskip("minigrid")
    world = build(name, view="grid")
    states, pays, phases = GAMES[name]
    assert world.num_states == states
    assert (world.rewards > 0.0).sum() == pays
    assert len(world.about["values"]["phase"]) == phases
    assert world.about["package"] == f"minigrid {importlib.metadata.version('minigrid')}"
    env = gymnasium.make(world.about["name"]).unwrapped
    env.reset(seed=0)
    start = world.coordinates[world.start.argmax()]
    assert tuple(start[:3]) == (*env.agent_pos, env.agent_dir)
    assert play(env, world, named.codes_of, 10, 80) > 0


@pytest.mark.integration
def test_a_thousand_random_episodes_agree_with_the_original():
    pytest.importorskip("minigrid")
    for name, view in (("minigrid-empty-5x5", "image"), ("minigrid-gotodoor-5x5", "agent")):
        world = build(name, view=view)
        env = gymnasium.make(world.about["name"]).unwrapped
        observe = {
            "image": lambda env: env.get_frame(False, 8),
            "agent": lambda env: env.gen_obs()["image"],
        }[view]
        assert play(env, world, observe, 100, 12) > 0
        assert (world.num_aliased > 0) == (view == "agent")


@pytest.mark.integration
@pytest.mark.usefixtures("users_promotion")
def test_games_of_jax_and_of_atari_are_tables():
    pytest.importorskip("gymnax")
    pytest.importorskip("ale_py")
    sea = build("gymnax-deepsea-10")
    assert sea.num_states == 65
    assert sea.optimal_values(0.99).max() > 0.9
    catch = build("gymnax-catch")
    assert sorted(catch.start)[-5:] == [0.2] * 5
    assert catch.optimal_values(1.0 - 1e-9) @ catch.start == pytest.approx(1.0)
    road = build("atari-freeway-10")
    assert road.observations.shape[1:] == (105, 80, 1)
    assert road.about["package"].startswith("ale-py")


@pytest.mark.integration
def test_a_maze_is_a_world_of_sparse_chances():
    world = build("maze-spiral")
    assert world.next_states is None
    said = "estimated: one move of each action from 256 random positions in each cell"
    assert world.truth().settings["method"] == said
    assert world.transitions.nnz < 0.05 * world.num_states**2 * 4
    goal = world.observations[world.terminal]
    assert np.abs(goal - 0.9).max() < 0.08
    assert world.optimal_values(0.95).argmax() not in np.flatnonzero(world.terminal)
    seen = estimate_arena("spiral", 20, observation="code")
    np.testing.assert_array_equal(seen.observations, Code(bins=20).table())
    assert not seen.rewards.any()
    assert not seen.terminal.any()
    moves = [each.transitions.toarray().reshape(400, 4, 400) for each in (world, seen)]
    np.testing.assert_array_equal(*(each[~world.terminal] for each in moves))


def test_a_loaded_world_is_kept_and_a_damaged_copy_is_named(monkeypatch):
    first = load("cliffwalking")
    path = named.cached("cliffwalking")
    assert path.is_file()
    monkeypatch.setattr(named, "build", None)
    assert load("cliffwalking").digest == first.digest
    assert load(path).about == first.about
    assert World.load(path).num_states == 38
    path.write_bytes(b"damaged")
    with pytest.raises(InputError, match=f"got the corrupt {path}"):
        load("cliffwalking")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "minigrid-nowhere"}, "the name of a world to be one of atari-freeway-10, "),
        ({"name": "taxi", "view": "side"}, "view to be one of agent, grid, image"),
        ({"name": "taxi", "seed": -1}, "seed >= 0"),
        ({"name": "taxi", "view": "image"}, "a view of a world of MiniGrid, not of taxi"),
        ({"name": "own.npz", "view": "grid"}, "no seed or view of the file own.npz"),
        ({"name": "own.npz", "seed": 1}, "no seed or view of the file own.npz"),
    ],
)
def test_unknown_names_views_and_seeds_are_refused(arguments, said):
    with pytest.raises(InputError, match=f"expected {said}"):
        load(**arguments)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    def missing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(InputError, match=r'got none: pip install "rlreps\[minigrid\]"'):
        build("minigrid-unlock")


def test_other_rules_than_the_published_ones_are_refused(monkeypatch):
    known = named.known_rules()
    assert {*WORLDS} - {*known} == {name for name in WORLDS if name.startswith("maze-")}
    other = {"cliffwalking": {"package": "gymnasium 0.1", "rules": "another"}}
    monkeypatch.setattr(named, "known_rules", lambda: other)
    said = "cliffwalking with the rules of gymnasium 0.1, got others from gymnasium .*; install"
    with pytest.raises(InputError, match=said):
        load("cliffwalking")
    assert not named.cached("cliffwalking").exists()
    world = load("cliffwalking", any_version=True)
    assert world.rules_digest == known["cliffwalking"]["rules"]
    with pytest.raises(InputError, match=said):  # Accepted once, it lies in the cache.
        load("cliffwalking")
    assert load("cliffwalking", any_version=True).digest == world.digest


def test_a_world_made_in_another_way_is_not_taken_from_the_cache(monkeypatch):
    path, other = named.cached("cliffwalking"), build("frozenlake-4x4")
    path.parent.mkdir(parents=True)
    other.save(path)
    assert load("cliffwalking", any_version=True).digest == other.digest
    monkeypatch.setattr(named, "_CACHE_FORMAT", named._CACHE_FORMAT + 1)
    assert load("cliffwalking").digest == build("cliffwalking").digest


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        ((0.9, 0.9), "with a positive radius"),
        ((0.5, 0.5, 5.0), "centres of some cells, and not of all"),
    ],
)
def test_goals_of_arenas_that_reach_no_cell_or_all_are_refused(goal, expected):
    with pytest.raises(InputError, match=expected):
        estimate_arena("empty", 4, goal=goal)
