import dataclasses
import itertools
import json
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from sklearn.decomposition import PCA

from rlreps.encoders import Convolutional
from rlreps.errors import InputError
from rlreps.experiments.pfau_2019 import atari
from rlreps.experiments.pfau_2019.atari import (
    PRESETS,
    Config,
    Frames,
    Problem,
    SuccessorDifferences,
    SuccessorNetwork,
    random_agent,
    recorded_frames,
    require_game,
    shrunk,
)
from rlreps.losses import Batch, Clip, Spin
from rlreps.training import RMSProp, train
from rlreps.training.population import Population

SMOKE = PRESETS["smoke"]
SHORT = dataclasses.replace(SMOKE, num_frames=60, extremes=5)


class Killed(BaseException):
    pass


def toy_frames(lengths=(40, 40, 20), size=20, seed=0):
    """Frames of which each shows its own number, in episodes of given lengths."""
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    numbered = np.arange(len(episodes), dtype=np.uint8)[:, None, None]
    actions = np.random.default_rng(seed).integers(0, 3, len(episodes))
    return Frames(np.tile(numbered, (1, size, size)), episodes, actions)


def toy_problem(config=SMOKE, **options):
    frames = toy_frames(**options)
    mean = frames.images.mean(axis=0).astype(np.float32)
    return Problem(config, frames, frames, mean)


def test_the_agent_plays_the_same_frames_for_a_seed_and_one_episode_after_the_other():
    played = list(itertools.islice(random_agent("MsPacman", 0), 700))
    frames, episodes, actions = (np.stack(part) for part in zip(*played, strict=True))
    again, other = (list(itertools.islice(random_agent("MsPacman", s), 120)) for s in (0, 4))
    np.testing.assert_array_equal(frames[:120], [frame for frame, *_ in again])
    assert not np.array_equal(frames[:120], [frame for frame, *_ in other])
    (settings,) = (
        each.kwargs for name, each in gymnasium.registry.items() if "MsPacman-v5" in name
    )
    assert (settings["frameskip"], settings["repeat_action_probability"]) == (4, 0.25)
    assert set(np.diff(episodes)) == {0, 1}
    start = int(np.argmax(episodes))
    np.testing.assert_array_equal(frames[start], frames[0])
    assert not np.array_equal(frames[start - 1], frames[0])
    # Each of the nine actions is as likely as the others, but where nothing is to be done.
    counts = np.bincount(actions[np.diff(episodes, append=0) == 0], minlength=9)
    assert len(counts) == 9
    assert np.abs(counts / counts.sum() - 1 / 9).max() < 5 * np.sqrt(8 / 81 / counts.sum())
    assert actions[start - 1] == 0


@pytest.mark.parametrize("size", [1, 7, 64, 160])
def test_shrinking_averages_over_areas(size):
    frame = np.random.default_rng(size).integers(0, 256, (21, 16), dtype=np.uint8)
    # Each pixel as size x size equal ones: whole numbers of them then make up every target pixel.
    fine = np.kron(frame, np.ones((size, size)))
    means = fine.reshape(size, 21, size, 16).mean(axis=(1, 3))
    assert np.abs(shrunk(frame, size) - means).max() <= 0.5 + 1e-9


def test_frames_are_kept_whole_or_played_again_and_damage_is_named(tmp_path, monkeypatch):
    def record(folder):
        return recorded_frames(folder, SHORT, 60, 0, progress=False)

    whole = record(tmp_path / "whole")
    played = list(itertools.islice(random_agent("MsPacman", 0), 60))
    np.testing.assert_array_equal(whole.images, [shrunk(frame, 20) for frame, *_ in played])
    for part, index in ((whole.episodes, 1), (whole.actions, 2)):
        np.testing.assert_array_equal(part, [step[index] for step in played])
    assert sorted(file.name for file in (tmp_path / "whole").iterdir()) == [
        "images.npy",
        "steps.npy",
    ]

    def dying(game, seed):
        yield from itertools.islice(random_agent(game, seed), 10)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(atari, "random_agent", dying)
        with pytest.raises(Killed):
            record(tmp_path)
    assert not (tmp_path / "images.npy").exists()
    np.testing.assert_array_equal(record(tmp_path).images, whole.images)
    monkeypatch.setattr(atari, "random_agent", None)
    np.testing.assert_array_equal(record(tmp_path).actions, whole.actions)
    for damaged in ((tmp_path / "images.npy").read_bytes()[:100], None):
        if damaged is None:
            np.save(tmp_path / "images.npy", np.zeros((60, 4, 4), np.uint8))
        else:
            (tmp_path / "images.npy").write_bytes(damaged)
        with pytest.raises(InputError, match=r"expected .*frames"):
            record(tmp_path)


def test_training_and_test_frames_are_played_by_agents_of_their_own(tmp_path, monkeypatch):
    seeds = []

    def agent(game, seed):
        seeds.append((game, seed))
        yield from ((np.full((21, 16), step, np.uint8), 0, 0) for step in itertools.count(seed))

    monkeypatch.setattr(atari, "random_agent", agent)
    config = dataclasses.replace(SHORT, held_out_frames=30, seed=3)
    problem = atari.make_problem(config, tmp_path, progress=False)
    assert seeds == [("MsPacman", 6), ("MsPacman", 7)]
    np.testing.assert_array_equal(problem.training.images[:, 0, 0], 6 + np.arange(60))
    np.testing.assert_array_equal(problem.held_out.images[:, 0, 0], 7 + np.arange(30))
    np.testing.assert_allclose(problem.mean, 6 + 29.5)


@pytest.mark.parametrize("length", [1, 2, 7, 20])
def test_windows_lie_within_an_episode(length):
    frames = toy_frames((40, 6, 25))
    found = frames.windows(length)
    inside = [i for i in range(71) if len(set(frames.episodes[i : i + length])) == 1]
    np.testing.assert_array_equal(found, [i for i in inside if i + length <= 71])
    assert len(found) == sum(max(n - length + 1, 0) for n in (40, 6, 25))
    with pytest.raises(InputError, match="an episode of at least 41 frames, got 'none'"):
        frames.windows(41)


def test_sampled_rows_are_clips_of_stacks_and_what_was_done_after_them():
    problem = toy_problem(lengths=(40, 40, 20))
    source = problem.source(problem.training, 7)
    batch = jax.jit(lambda key: source.sample(key, 600, 1))(jax.random.key(0))
    assert [stacks.shape for stacks in batch.inputs] == 7 * [(600, 20, 20, 4)]
    shown = np.asarray(batch.inputs.joined())[:, 0, 0] * 255.0 + problem.mean[0, 0]
    clips = np.rint(shown).astype(int).reshape(7, 600, 4)
    np.testing.assert_allclose(clips.reshape(-1, 4), shown, atol=1e-3)
    first = clips[0, :, 0]
    expected = first[None, :, None] + np.arange(7)[:, None, None] + np.arange(4)[None, None, :]
    np.testing.assert_array_equal(clips, expected)
    assert set(first) == set(problem.training.windows(10))
    np.testing.assert_array_equal(
        batch.targets, np.eye(3)[problem.training.actions[clips[0, :, 3]]]
    )


def test_test_frames_are_the_newest_of_their_stacks_and_encoded_in_any_number_of_blocks(
    monkeypatch,
):
    problem = toy_problem(lengths=(40, 2, 30))
    newest = np.r_[3:40, 45:72]
    np.testing.assert_array_equal(problem.tested()[:, 0, 0], newest)
    monkeypatch.setattr(atari, "_BLOCK", 13)
    found = problem.encoded(lambda stacks: 255.0 * stacks[:, 0, 0, ::3] + problem.mean[0, 0])
    np.testing.assert_allclose(found, np.stack([newest - 3, newest], axis=1), atol=1e-3)


@pytest.mark.parametrize(("side", "crop"), [(5, 0), (4, 2)])
def test_layers_of_the_predictor_are_transposed_convolutions(side, crop):
    rng = np.random.default_rng(0)
    kernel, bias = rng.normal(size=(6, 6, 2, 3)), rng.normal(size=2)
    maps = jnp.asarray(rng.normal(size=(2, side, side, 3)), jnp.float32)
    large = 2 * side + 4 - 2 * crop

    def convolve(images):
        return lax.conv_general_dilated(
            images,
            jnp.asarray(kernel, jnp.float32),
            (2, 2),
            [(crop, crop)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    image = jax.ShapeDtypeStruct((2, large, large, 2), jnp.float32)
    (expected,) = jax.linear_transpose(convolve, image)(maps)
    # Of each 2 x 2 block of the kernel: input of the transpose first, pixels of the block next.
    blocks = kernel.reshape(3, 2, 3, 2, 2, 3).transpose(0, 2, 5, 1, 3, 4).reshape(3, 3, 3, 8)
    layer = {"kernel": jnp.asarray(blocks, jnp.float32), "bias": jnp.asarray(bias, jnp.float32)}
    found = atari.enlarged(layer, maps, crop=crop)
    np.testing.assert_allclose(found, np.asarray(expected) + bias, atol=1e-4)


def test_the_papers_network_has_the_published_shapes():
    config = PRESETS["paper"]
    network = SuccessorNetwork(
        atari.network(config, config.code_size, config.code_hidden), num_actions=9
    )
    params = jax.eval_shape(network.init, jax.random.key(0))
    shapes = jax.tree.map(lambda leaf: leaf.shape, params)
    assert [layer["kernel"] for layer in shapes["code"]] == [
        *((6, 6, 4, 64), (6, 6, 64, 64), (6, 6, 64, 64)),
        *((6400, 1024), (1024, 2048)),
    ]
    assert [layer["kernel"] for layer in shapes["decoder"]] == [
        *((9, 2048), (2048, 1024), (1024, 6400)),
        *((3, 3, 64, 256), (3, 3, 64, 256), (3, 3, 64, 4)),
    ]
    assert [layer["bias"] for layer in shapes["decoder"][3:]] == [(64,), (64,), (1,)]
    assert [layer["kernel"] for layer in shapes["successor"]] == [(2048, 1024), (1024, 2048)]
    code, actions = (jax.ShapeDtypeStruct((2, n), jnp.float32) for n in (2048, 9))
    assert jax.eval_shape(network.predict, params, code, actions).shape == (2, 84, 84)
    slow = jax.eval_shape(
        atari.network(config, config.num_features, config.hidden).init, jax.random.key(0)
    )
    assert [layer["kernel"].shape for layer in slow[3:]] == [(6400, 128), (128, 5)]


SMALL = SuccessorNetwork(
    Convolutional(3, frame_shape=(12, 12, 2), channels=(4,), hidden=8, kernel_size=6, unpadded=1),
    num_actions=2,
)


@pytest.mark.integration
def test_differences_aim_at_a_copy_that_is_renewed_and_never_move_the_code():
    objective = SuccessorDifferences(3, network=SMALL, discount=0.9, target_every=2)
    params, old = (SMALL.init(jax.random.key(seed)) for seed in (0, 1))
    inputs = jax.random.normal(jax.random.key(2), (8, 12, 12, 2))
    batch = Batch(Clip(tuple(jnp.split(inputs, 2))), jnp.tile(jnp.eye(2), (2, 1)))

    def gradient(params, state):
        return jax.grad(objective.loss, has_aux=True)(params, SMALL.apply, batch, state, None)

    def expected(params, target):
        now, after = jnp.split(inputs, 2)
        code = SMALL.apply(params, now)
        predicted = SMALL.predict(params, code, batch.targets)
        psi = SMALL.successor(params, code)
        next_psi = SMALL.successor(target, SMALL.apply(target, after))
        aim = SMALL.apply(target, now) + 0.9 * next_psi
        prediction = jnp.mean((predicted - after[..., -1]) ** 2)
        return prediction, jnp.mean((aim - psi) ** 2)

    start = objective.init(jax.random.key(0))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(start.params))
    found, (state, _) = jax.jit(gradient)(params, start)
    # The first update aims at the parameters themselves.
    kept = {name: params[name] for name in ("code", "successor")}
    jax.tree.map(np.testing.assert_array_equal, state.params, kept)
    fixed = jax.lax.stop_gradient(params)
    prediction = jax.grad(lambda p: expected(p, fixed)[0])(params)
    difference = jax.grad(lambda p: expected(p, fixed)[1])(params)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(difference["code"]))
    for name in ("code", "decoder"):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found[name], prediction[name]
        )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        found["successor"],
        difference["successor"],
    )
    # The second aims at the same copy, whatever the parameters; the third at a new one.
    found, (state, _) = jax.jit(gradient)(old, state)
    jax.tree.map(np.testing.assert_array_equal, state.params, kept)
    difference = jax.grad(lambda p: expected(p, fixed)[1])(old)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        found["successor"],
        difference["successor"],
    )
    _, (state, _) = jax.jit(gradient)(old, state)
    jax.tree.map(np.testing.assert_array_equal, state.params["code"], old["code"])


@pytest.mark.integration
def test_successor_features_of_a_cycle_are_its_discounted_sums():
    pictures = np.random.default_rng(0).integers(0, 256, (4, 12, 12), dtype=np.uint8)
    cycle = np.arange(401) % 4
    frames = Frames(pictures[cycle], np.zeros(401, np.int64), cycle % 2)
    config = dataclasses.replace(SMOKE, stack=2, discount=0.5)
    problem = Problem(config, frames, frames, pictures.mean(axis=0).astype(np.float32))
    # Wide enough that the positive parts of all four pictures' codes are far apart, of which alone
    # ψ is a function, and that the predictor's 4 x 4 maps can make any 12 x 12 pixels.
    code = dataclasses.replace(SMALL.code, num_features=16, hidden=32, channels=(16,))
    network = SuccessorNetwork(code, num_actions=2)
    objective = SuccessorDifferences(16, network=network, discount=0.5, target_every=20)
    params = train(
        network,
        objective,
        problem.source(frames, 2),
        optimizer=RMSProp(learning_rate=1e-3, schedule="linear"),
        steps=4000,
        rows=32,
        evaluate_every=500,
        progress=False,
    ).params()
    code, successor = (
        problem.encoded(lambda x: network.apply(params, x)),
        problem.encoded(lambda x: network.successor(params, network.apply(params, x))),
    )
    ahead = np.stack([np.roll(np.eye(4), steps, axis=1) for steps in range(40)])
    resolvent = np.einsum("t,tij->ij", 0.5 ** np.arange(40), ahead)
    expected = resolvent @ code[:4]
    assert np.abs(successor[:4] - expected).max() < 0.05 * np.abs(expected).max()
    # Every frame follows from the one before it: the predictor knows.
    predicted = network.predict(params, jnp.asarray(code[:4]), jnp.eye(2)[cycle[1:5] % 2])
    wanted = (pictures[cycle[2:6]] - problem.mean[None]) / 255.0
    assert np.mean((predicted - wanted) ** 2) < 0.02 * np.mean(wanted**2)


def test_principal_components_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(200, 30)) * 0.8 ** np.arange(30) + 5.0).astype(np.float32)
    expected = PCA(3, svd_solver="full").fit_transform(rows.astype(np.float64))
    found = atari.principal_components(rows.copy(), 3)
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-5)
    cosines = np.abs(np.sum(found * expected, axis=0)) / np.linalg.norm(expected, axis=0)
    np.testing.assert_allclose(cosines, 1.0, atol=1e-6)
    flat = np.zeros((200, 30), np.float32)
    flat[:, :2] = rows[:, :2]
    with pytest.raises(InputError):
        atari.principal_components(flat, 3)


def test_extreme_frames_are_those_of_the_largest_and_smallest_values():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (90, 5, 5), dtype=np.uint8)
    values = rng.normal(size=(90, 3)).astype(np.float32)
    rows = atari.extremes(values, 7)
    assert rows.shape == (2, 3, 7)
    pictures = atari.averages(images, rows)
    for index, order in enumerate(np.argsort(values, axis=0).T):
        for end, chosen in enumerate((order[-7:], order[:7])):
            assert set(rows[end, index]) == set(chosen)
            np.testing.assert_allclose(pictures[end, index], images[chosen].mean(axis=0))
    squares = (pictures[0] - pictures[1]).reshape(3, -1) ** 2
    np.testing.assert_allclose(atari.apart(pictures) ** 2, squares.mean(axis=1))


def test_features_of_what_frames_show_are_told_from_features_of_their_time():
    rng = np.random.default_rng(0)
    # Pictures drift as slowly as features do: many frames in a row are extreme.
    noise = rng.normal(size=(4, 3050))
    slow = np.stack([np.convolve(each, np.ones(51), "valid") for each in noise], axis=1)
    pictures = rng.normal(size=(2, 6, 6))
    levels = 128 + np.einsum("nk,kij->nij", slow[:, :2], pictures)
    images = np.clip(levels, 0, 255).astype(np.uint8)
    rows = atari.extremes(slow, 60)
    distances = atari.apart(atari.averages(images, rows))
    chances = atari.apart_by_chance(images, rows)
    assert chances.shape == (99, 4)
    np.testing.assert_array_equal(distances > chances.max(axis=0), [True, True, False, False])


def test_features_of_a_network_that_died_are_told_from_small_ones():
    varying = np.random.default_rng(0).normal(size=(40, 1)).astype(np.float32)
    dead = np.full((40, 1), 0.3, np.float32)
    rounded = np.nextafter(dead, 1.0) * (varying > 0) + dead * (varying <= 0)
    features = np.concatenate([varying, 1e-9 * varying, dead, 0.0 * dead, rounded], axis=1)
    np.testing.assert_array_equal(atari.collapsed(features), [False, False, True, True, True])


def test_the_verdict_is_of_the_papers_protocol_and_of_what_it_says():
    paper = PRESETS["paper"]

    def verdict(config, spin, successor):
        told = {atari.SPIN: spin, atari.SUCCESSOR: successor, atari.PIXELS: 5}
        return atari.judge(config, told).holds

    counts = {(5, 0): True, (4, 2): True, (5, 3): None, (4, 5): None, (3, 0): False, (0, 5): False}
    assert {each: verdict(paper, *each) for each in counts} == counts
    other = dataclasses.replace(paper, game="Seaquest", seed=2, evaluations=10)
    assert verdict(other, 5, 1) is True
    for changes in ({"num_frames": 250_000}, {"steps": 500_000}, {"successor_steps": 100_000}):
        assert verdict(dataclasses.replace(paper, **changes), 5, 1) is None
    assert verdict(SMOKE, 2, 0) is None


def test_the_paper_preset_is_the_papers(check_protocol):
    published = {
        "num_frames": 500_000,
        "held_out_frames": 64_000,
        # Machado et al. (2018), to whom the paper refers.
        "channels": [64, 64, 64],
        "code_hidden": 1024,
        "code_size": 2048,
        "hidden": 128,
        "num_features": 5,
        "extremes": 100,
        # As in C.2.
        "clips": 24,
        "clip_frames": 10,
        "steps": 1_000_000,
        "optimizer.name": "rmsprop",
        "optimizer.learning_rate": 1e-6,
        "optimizer.decay": 0.999,
        "objective.name": "spin",
        "objective.averaging_rate": 0.01,
        # Algorithm 1 and Eq. 14.
        "objective.masked": True,
        "objective.starts_at_identity": True,
        "objective.shifted": False,
        "transitions": 32,
        "successor_steps": 300_000,
        "target_every": 10_000,
        "successor_optimizer.name": "rmsprop",
        "successor_optimizer.learning_rate": 1e-4,
    }
    optimizers = ("schedule", "initial_scale", "epsilon")
    silent = {
        # Shown are seven games.
        "game",
        # Of the authors' code.
        *("size", "stack", "optimizer.epsilon", "optimizer.initial_scale", "optimizer.schedule"),
        *(f"successor_optimizer.{name}" for name in (*optimizers, "decay")),
        # Of slowness both ways to differentiate are the same.
        *("objective.through_operator", "objective.jacobian_rows_at_once"),
        *("discount", "evaluations", "seed"),
    }
    check_protocol("atari", published, silent)
    # What the paper leaves open and no code of the authors settles, or settles otherwise.
    assert {
        *("initial weights", "scale of inputs", "frames", "held-out frames", "stacks of a clip"),
        *("γ of the successor features", "decay of the successor network's RMSProp"),
        "activation of an eigenpurpose",
    } == set(atari.EXPERIMENT.deviations)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_features": 0}, "num_features >= 1, got 0"),
        ({"stack": 0}, "stack >= 1, got 0"),
        ({"size": 4}, r"size = 4 \+ a multiple of 8.*, got 4"),
        ({"size": 80}, r"size = 4 \+ a multiple of 8.*, got 80"),
        ({"channels": ()}, "at least one convolution"),
        ({"channels": (8, 0)}, "channels >= 1, got 0"),
        ({"clip_frames": 4}, r"clip_frames > stack \(4\), got 4"),
        ({"code_size": 4}, "num_features <= 4, the size of the code, got 5"),
        ({"num_frames": 100}, "num_frames >= 200, got 100"),
        ({"held_out_frames": 199}, "held_out_frames >= 200, got 199"),
        ({"discount": 1.0}, r"discount in \[0, 1\), got 1.0"),
        ({"seed": -1}, r"seed in \[0, 2\*\*30\), got -1"),
        ({"steps": 7}, r"steps to be a multiple of evaluations \(50\), got 7"),
        ({"objective": Spin()}, r"averaging_rate in \(0, 1\), got 1.0"),
    ],
)
def test_settings_without_meaning_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Config(**settings)


def test_a_game_that_cannot_be_played_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    for game, near in (("ms_pacman", "MsPacman"), ("montezuma", "MontezumaRevenge")):
        with pytest.raises(InputError, match=rf"game to be one of .*{near}.*, got '{game}'"):
            require_game(game)
    with pytest.raises(InputError, match=r"Adventure, .*Seaquest.*, got 'xyzzyq'"):
        require_game("xyzzyq")
    unknown = dataclasses.replace(SMOKE, game="Seequest")
    with pytest.raises(InputError, match=r"one of .*Seaquest.*, got 'Seequest'"):
        atari.EXPERIMENT.run(unknown, tmp_path / "run", progress=False)
    monkeypatch.setitem(sys.modules, "ale_py", None)  # The import system's own "not there".
    with pytest.raises(InputError, match=r'ale-py, got none: pip install "rlreps\[atari\]"'):
        atari.EXPERIMENT.run(SMOKE, tmp_path / "run", progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.experiments
def test_the_smoke_preset_learns_and_is_not_run_twice(tmp_path, monkeypatch):
    summary = atari.EXPERIMENT.run(SMOKE, tmp_path, progress=False)
    assert list(summary["told"]) == [atari.SPIN, atari.SUCCESSOR, atari.PIXELS]
    assert set(summary["episodes"].values()) == {1}

    def rows_of(name):
        return json.loads((tmp_path / "results" / f"{name}.json").read_text())

    rows = rows_of("extremes")
    assert [(row["method"], row["feature"]) for row in rows] == [
        (method, k) for method in summary["told"] for k in (1, 2)
    ]
    for row in rows:
        assert row["told"] == (row["apart"] > row["most_by_chance"] > 0.0)
    counts = {m: sum(row["told"] for row in rows if row["method"] == m) for m in summary["told"]}
    assert counts == summary["told"]
    curves = {}
    for row in rows_of("training"):
        curves.setdefault(row["curve"], []).append((row["step"], row["held_out"]))
    assert [step for step, _ in curves["eigenvalue_1"]] == [0, 20, 40, 60]
    assert sorted(curves) == ["eigenvalue_1", "eigenvalue_2", "next_frame", "temporal_difference"]
    # Measured: 0.63 times the eigenvalues, 0.55 times the differences. Sixty updates hardly predict
    # frames (0.999); that they do with more is another test.
    slow = [sum(curves[f"eigenvalue_{k}"][end][1] for k in (1, 2)) for end in (0, -1)]
    assert slow[1] < 0.7 * slow[0]
    differences, predicted = (
        [curves[name][end][1] for end in (0, -1)] for name in ("temporal_difference", "next_frame")
    )
    assert differences[1] < 0.7 * differences[0]
    assert predicted[1] < predicted[0]
    assert sorted(file.stem for file in (tmp_path / "figures").iterdir()) == [
        *("differences", "frames", "training")
    ]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 3
    (claim,) = summary["claims"]
    assert claim["holds"] is None
    assert page.count("cannot be told from this run") == 1
    assert "initial weights" in page
    # Without its summary the run goes on from frames and checkpoints, and trains nothing.
    (tmp_path / "summary.json").unlink()
    monkeypatch.setattr(atari, "random_agent", None)
    monkeypatch.setattr(Population, "advance", None)
    again = atari.EXPERIMENT.run(SMOKE, tmp_path, progress=False)
    assert again["told"] == summary["told"]
    assert rows_of("extremes") == rows
    other = dataclasses.replace(SMOKE, discount=0.5)
    with pytest.raises(InputError, match=r"expected discount=0\.99, got 0\.5"):
        atari.EXPERIMENT.run(other, tmp_path, progress=False)
