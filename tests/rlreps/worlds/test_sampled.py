"""Truths from rollouts of sampled states, against those of tables."""

import dataclasses
import json
import shutil
from shlex import split as words

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlreps
from rlreps.app.main import main
from rlreps.config import with_sizes
from rlreps.cumulants import Discs, RandomFourier, RandomIndicators
from rlreps.envs import Code, load_arena
from rlreps.errors import InputError
from rlreps.subspace import centre_in_place, exact_svd, nested_distances, noise_floor
from rlreps.successor.measure import monte_carlo
from rlreps.successor.truth.store.estimates import open_estimates
from rlreps.worlds import StateSampling, World, sample_to_store, sampled

WIDTH, HEIGHT = 6, 5


def room(**options):
    """Four moves in a room; the last place ends the game."""
    x, y = (part.ravel() for part in np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT)))
    moved = [
        np.clip(y + up, 0, HEIGHT - 1) * WIDTH + np.clip(x + right, 0, WIDTH - 1)
        for right, up in ((1, 0), (-1, 0), (0, 1), (0, -1))
    ]
    last = np.arange(WIDTH * HEIGHT) == WIDTH * HEIGHT - 1
    next_states = np.stack(moved, axis=1)
    paid = 0.0 * next_states
    return World.from_arrays(next_states=next_states, rewards=paid, terminal=last, **options)


SMALL = StateSampling(states=25, tasks=40, rollouts=200, horizon=40, discount=0.8, seed=3)
CHANCES = jnp.asarray([0.5, 0.1, 0.3, 0.1])


def mostly_right(key, observation):
    return jax.random.choice(key, 4, p=CHANCES)


@pytest.mark.parametrize(
    ("policy", "cumulants"),
    [(None, RandomIndicators(input_scale=2.0)), (mostly_right, RandomFourier(length_scale=1.0))],
    ids=["uniform, indicators", "policy, waves"],
)
def test_sums_are_those_of_the_table_within_the_stated_error(sample, policy, cumulants):
    world = room()
    options = dataclasses.replace(SMALL, cumulants=cumulants)
    found = sample(world.environment(max_steps=30), options, policy=policy)
    numbers = np.argmax(found.observations, axis=1)
    assert len({*numbers}) == 25
    assert not world.terminal[numbers].any()
    # The last place counts once, as in Ψ of an episode that leaves the game.
    chances = None if policy is None else np.tile(CHANCES, (world.num_states, 1))
    psi = world.successor(chances, discount=0.8).matrix
    family = with_sizes(cumulants, num_inputs=world.num_states)
    params = sampled._draw_cumulants(family, options, jnp.asarray(found.observations))
    exact = (psi @ np.asarray(family.apply(params, jnp.asarray(world.observations))))[numbers]
    rows, half = found.estimates
    assert np.square(rows - exact).mean() == pytest.approx(np.square(half).mean(), rel=0.4)
    assert np.sqrt(np.square(half).mean()) < 0.15 * exact.std()
    centre_in_place(exact, "columns")
    apart = nested_distances(found.truth.principal.basis[:, :5], exact_svd(exact, 5).basis)
    assert 0.0 < apart[4] < 4.0 * found.truth.error[4]


def test_indicators_are_zero_at_their_quantile_and_a_longer_clock_is_no_other_state(sample):
    environment = room().environment(max_steps=30)
    once = dataclasses.replace(SMALL, horizon=1, rollouts=2, quantile=0.6)
    found = sample(environment, once)
    assert found.estimates.rows.mean(axis=0) == pytest.approx(0.4, abs=0.021)
    assert not found.estimates.half_difference.any()
    clocked = dataclasses.replace(once, counters=(), states=60)
    assert sample(environment, clocked).truth.settings["aliased"] > 30


def test_blocks_and_tiles_do_not_change_the_bits_and_the_error_is_the_noise_floor(
    monkeypatch, sample
):
    environment = room().environment(max_steps=30)
    options = dataclasses.replace(SMALL, rollouts=9, horizon=10)
    found = sample(environment, options)
    monkeypatch.setattr(sampled, "_BLOCK_ROWS", 7)
    monkeypatch.setitem(monte_carlo._CELLS_PER_TILE, "cpu", 4)
    again = sample(environment, options)
    for one, other in zip(found.estimates, again.estimates, strict=True):
        assert one.tobytes() == other.tobytes()
    rows, half = found.estimates
    halves = [part - part.mean(axis=0) for part in (rows + half, rows - half)]
    floor = noise_floor(*(np.linalg.svd(part)[0][:, :5] for part in halves))
    np.testing.assert_allclose(found.truth.error[:5], floor, atol=1e-5)
    assert found.truth.settings["cumulants"]["hidden"] == [64, 64]


def test_a_store_that_lost_blocks_is_completed_with_the_same_bits(monkeypatch, sample, tmp_path):
    monkeypatch.setattr(sampled, "_BLOCK_ROWS", 10)
    options = dataclasses.replace(SMALL, rollouts=9, horizon=10)
    environment = room().environment(max_steps=30)
    expected = sample(environment, options).estimates
    store, computed = sample_to_store(tmp_path, environment, options)
    assert computed == 25
    stores = open_estimates(tmp_path)
    stores.remove_block(1)
    stores.half_difference.remove_block(2)
    store, computed = sample_to_store(tmp_path, environment, options)
    assert computed == 15
    assert store.read().tobytes() == expected.rows.tobytes()
    assert stores.half_difference.read().tobytes() == expected.half_difference.tobytes()
    assert sample_to_store(tmp_path, environment, options)[1] == 0
    with pytest.raises(InputError, match="made under other settings: expected rollouts=9, got 8"):
        sample_to_store(tmp_path, environment, dataclasses.replace(options, rollouts=8))


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"states": 30}, {}, r"30 distinct states among 16384 visits, got 29; ask for fewer"),
        ({"states": 10**9}, {}, "states, cumulants and rollouts in .* of memory"),
        ({"states": 1}, {}, "states"),
        ({"cumulants": Discs()}, {}, "cumulants of any number of inputs, got 'Discs'"),
        ({}, {"policy": lambda key, seen: seen}, "a policy with one integer as action"),
        ({}, {"policy": lambda seen: 0}, r"a policy \(key, observation\)"),
        ({}, {"environment": object()}, "a compiled environment"),
        ({}, {"about": {"centring": "rows"}}, "settings without box, centring, "),
    ],
    ids=["states", "memory", "one", "family", "actions", "arguments", "environment", "settings"],
)
def test_sampling_refuses_what_does_not_fit(tmp_path, changes, options, said):
    given = {"environment": room().environment(30), **options}
    with pytest.raises(InputError, match=said):
        sample_to_store(tmp_path, **given, sampling=dataclasses.replace(SMALL, **changes))


def test_worlds_sample_stores_a_truth_and_refuses_a_game_of_dm_env(tmp_path, capsys, refused):
    file, out = room().save(tmp_path / "room.npz"), str(tmp_path / "store")
    small = "--states 20 --tasks 8 --rollouts 4 --horizon 5 --cumulants random_fourier"
    main(words(f"worlds sample --env world:{file} --out {out} {small}"))
    told = json.loads(capsys.readouterr().out)
    assert (told["states"], told["transitions"]) == (20, 20 * 4 * 4)
    assert told["observation_misses"] is None, "every function of a place is linear in its unit"
    assert rlreps.successor.load(out).settings["game"] == f"world:{file}"
    places = np.stack(np.divmod(np.arange(WIDTH * HEIGHT), WIDTH), axis=1).astype(np.float32)
    file, out = room(observations=places).save(tmp_path / "flat.npz"), str(tmp_path / "flat")
    main(words(f"worlds sample --env world:{file} --out {out} {small}"))
    missed = json.loads(capsys.readouterr().out)["observation_misses"]
    truth = rlreps.successor.load(out)
    inputs = np.column_stack([np.ones(20), truth.observations])
    basis = np.linalg.qr(inputs)[0]
    matrix = np.asarray(truth.matrix)
    leading = np.linalg.svd(matrix - matrix.mean(axis=0))[0][:, :8]
    assert missed == pytest.approx(1.0 - np.square(basis.T @ leading).sum() / 8, abs=1e-3)
    said = refused(*words(f"worlds sample --env world:{file} --out {tmp_path}/two --jobs 2"))
    assert "one job and no executor for a compiled environment, which uses all cores" in said
    named = "dm_env:rlreps.envs:PuddleWorldDmEnv"
    said = refused("worlds", "sample", "--env", named, "--out", str(tmp_path / "other"))
    assert said == f"expected an environment of JAX or Gymnasium, got {named!r}"
    assert not (tmp_path / "other").exists()


@pytest.mark.integration
@pytest.mark.usefixtures("users_promotion")
def test_a_game_of_minatar_and_an_agent_s_policy_are_sampled(tmp_path, capsys):
    pytest.importorskip("gymnax")
    room().save(tmp_path / "room.npz")
    env, run = f"world:{tmp_path}/room.npz", tmp_path / "run"
    few = "--steps 1500 --evaluate-every 500 --evaluation-episodes 2 --max-episode-steps 40"
    main(words(f"agent train --env {env} --out {run} {few}"))
    capsys.readouterr()
    for name, policy, shape in (
        ("gymnax:Breakout-MinAtar", "uniform", (10, 10, 4)),
        (env, run, (30,)),
    ):
        out = tmp_path / f"store-{policy == run}"
        small = "--states 20 --tasks 16 --rollouts 8 --horizon 10"
        main(words(f"worlds sample --env {name} --policy {policy} --out {out} {small}"))
        assert json.loads(capsys.readouterr().out)["states"] == 20
        assert rlreps.successor.load(out).observations.shape == (20, *shape)


@pytest.mark.integration
def test_an_agent_s_states_are_of_the_goal_and_the_observation_of_its_run(tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "store"
    few = "--steps 1500 --evaluate-every 500 --evaluation-episodes 2 --max-episode-steps 40"
    task = "--env puddle-world:sutton --goal 0.3 0.3 0.25 --observation code"
    main(words(f"agent train {task} {few} --out {run}"))
    small = "--states 60 --tasks 8 --rollouts 2 --horizon 3 --cumulants random_fourier"
    env = "--env puddle-world:sutton"
    main(words(f"worlds sample {env} --policy {run} --epsilon 1 {small} --out {out}"))
    capsys.readouterr()
    truth = rlreps.successor.load(out)
    assert truth.observations.shape == (60, 16)
    centres = rlreps.successor.Grid(20).centres()
    codes = jax.vmap(load_arena("sutton", observation=Code()).observe_position)(centres)
    apart = np.square(np.asarray(truth.observations)[:, None] - np.asarray(codes)).sum(axis=2)
    assert apart.min(axis=1).max() < 1e-6
    # An episode ends inside the disc, which holds the whole cells near its centre.
    assert np.linalg.norm(centres[apart.argmin(axis=1)] - 0.3, axis=1).min() > 0.25 - 0.036
    assert truth.settings["max_episode_steps"] == truth.settings["arena"]["max_steps"] == 40
    assert truth.settings["arena"]["goal"] == pytest.approx([0.3, 0.3, 0.25])


@pytest.mark.integration
def test_a_changed_world_or_agent_is_no_longer_the_same(tmp_path, capsys, refused):
    file, run = room().save(tmp_path / "room.npz"), tmp_path / "run"
    env = f"--env world:{file}"
    few = "--steps 1200 --evaluate-every 600 --evaluation-episodes 2 --max-episode-steps 40"
    small = "--states 20 --tasks 8 --rollouts 4 --horizon 5 --cumulants random_fourier"
    train, sample = f"agent train {env} {few} --out {run}", f"worlds sample {env} {small}"
    main(words(train))
    for policy in ("uniform", run):
        main(words(f"{sample} --policy {policy} --out {tmp_path}/{policy == run}"))
    # The same agent by another path.
    elsewhere = shutil.copytree(run, tmp_path / "elsewhere")
    main(words(f"{sample} --policy {elsewhere} --out {tmp_path}/True"))
    shutil.rmtree(run)
    main(words(f"{train} --seed 1"))
    capsys.readouterr()
    said = refused(*words(f"{sample} --policy {run} --out {tmp_path}/True"))
    assert "made under other settings: expected agent=" in said
    # The same states and moves with another reward.
    dataclasses.replace(room(), rewards=room().rewards + 1.0).save(file)
    said = refused(*words(f"{sample} --out {tmp_path}/False"))
    assert "made under other settings: expected world_digest=" in said
    assert "holds another run: expected world_digest=" in refused(*words(f"{train} --seed 1"))
    said = refused(*words(f"agent evaluate {run} {env}"))
    assert f"as the agents of {run} knew it, got 'another world_digest'" in said
