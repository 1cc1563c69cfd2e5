import dataclasses
import itertools
import json
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from sklearn.decomposition import PCA

from rlreps.errors import InputError
from rlreps.experiments.pfau_2019 import atari
from rlreps.experiments.pfau_2019.atari import (
    PRESETS,
    Config,
    Frames,
    MethodFeatures,
    compare_spans,
    in_order,
    make_problem,
    random_agent,
    recorded_frames,
    require_game,
    shrunk,
    successor_features,
)
from rlreps.training.population import Population

SMOKE = PRESETS["smoke"]
SHORT = dataclasses.replace(SMOKE, num_frames=60, size=8)


class Killed(BaseException):
    pass


def toy_problem(lengths=(40, 40, 20), size=6):
    """Frames of noise about a drifting picture, in episodes of given lengths."""
    generator = np.random.default_rng(0)
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    drift = np.cumsum(generator.normal(size=(len(episodes), 3)), axis=0)
    pictures = generator.normal(size=(3, size * size))
    pixels = 128 + 6 * drift @ pictures + generator.normal(size=(len(episodes), size * size))
    images = np.clip(np.rint(pixels), 0, 255).astype(np.uint8).reshape(-1, size, size)
    return make_problem(Frames(images, episodes))


def random_features(problem, count, seed=0):
    """Features of which each is a moving average over more frames than the one before."""
    noise = np.random.default_rng(seed).normal(size=(len(problem.frames.episodes) + 50, count))
    sums = np.cumsum(noise, axis=0)
    windows = 2 + 5 * np.arange(count)
    columns = [sums[50:, i] - sums[50 - w : -w, i] for i, w in enumerate(windows)]
    return np.stack(columns, axis=1)


def quotient(values, starts):
    """Mean squared change over the variance at both ends."""
    seen = np.concatenate([values[starts], values[starts + 1]])
    return np.mean((values[starts + 1] - values[starts]) ** 2) / seen.var()


def test_the_agent_plays_the_same_frames_for_a_seed_and_one_episode_after_the_other():
    played = list(itertools.islice(random_agent("MsPacman", 0), 700))
    frames, episodes = (np.stack(part) for part in zip(*played, strict=True))
    again, other = (list(itertools.islice(random_agent("MsPacman", s), 120)) for s in (0, 4))
    np.testing.assert_array_equal(frames[:120], [frame for frame, _ in again])
    assert not np.array_equal(frames[:120], [frame for frame, _ in other])
    (settings,) = (
        each.kwargs for name, each in gymnasium.registry.items() if "MsPacman-v5" in name
    )
    assert (settings["frameskip"], settings["repeat_action_probability"]) == (4, 0.25)
    assert set(np.diff(episodes)) == {0, 1}
    start = int(np.argmax(episodes))
    np.testing.assert_array_equal(frames[start], frames[0])
    assert not np.array_equal(frames[start - 1], frames[0])


@pytest.mark.parametrize("size", [1, 7, 64, 160])
def test_shrinking_averages_over_areas(size):
    frame = np.random.default_rng(size).integers(0, 256, (21, 16), dtype=np.uint8)
    # Each pixel as size x size equal ones: whole numbers of them then make up every target pixel.
    fine = np.kron(frame, np.ones((size, size)))
    means = fine.reshape(size, 21, size, 16).mean(axis=(1, 3))
    assert np.abs(shrunk(frame, size) - means).max() <= 0.5 + 1e-9


def test_frames_are_kept_whole_or_played_again_and_damage_is_named(tmp_path, monkeypatch):
    whole = recorded_frames(tmp_path / "whole", SHORT, progress=False)
    seen = [shrunk(frame, 8) for frame, _ in itertools.islice(random_agent("MsPacman", 0), 60)]
    np.testing.assert_array_equal(whole.images, seen)
    assert sorted(file.name for file in (tmp_path / "whole").iterdir()) == [
        "episodes.npy",
        "images.npy",
    ]

    def dying(game, seed):
        yield from itertools.islice(random_agent(game, seed), 10)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(atari, "random_agent", dying)
        with pytest.raises(Killed):
            recorded_frames(tmp_path, SHORT, progress=False)
    assert not (tmp_path / "images.npy").exists()
    resumed = recorded_frames(tmp_path, SHORT, progress=False)
    np.testing.assert_array_equal(resumed.images, whole.images)
    monkeypatch.setattr(atari, "random_agent", None)
    again = recorded_frames(tmp_path, SHORT, progress=False)
    np.testing.assert_array_equal(again.episodes, whole.episodes)
    for damaged in ((tmp_path / "images.npy").read_bytes()[:100], None):
        if damaged is None:
            np.save(tmp_path / "images.npy", np.zeros((60, 4, 4), np.uint8))
        else:
            (tmp_path / "images.npy").write_bytes(damaged)
        with pytest.raises(InputError, match=r"expected .*frames"):
            recorded_frames(tmp_path, SHORT, progress=False)


def test_frames_are_split_by_time_and_no_pair_crosses_an_episode():
    problem = toy_problem((30, 30, 25, 15))
    assert (problem.cut, problem.later_episodes) == (85, True)
    for starts in (problem.training, problem.held_out):
        episodes = problem.frames.episodes
        np.testing.assert_array_equal(episodes[starts], episodes[starts + 1])
    assert problem.training.max() + 1 < problem.cut <= problem.held_out.min()
    assert (len(problem.training), len(problem.held_out)) == (85 - 3, 15 - 1)
    alone = toy_problem((100,))
    assert (alone.cut, alone.later_episodes) == (80, False)
    assert (len(alone.training), len(alone.held_out)) == (79, 19)
    frames = problem.standardised(jnp.asarray(problem.frames.images[: problem.cut])[..., None])
    np.testing.assert_allclose(frames.mean(axis=0), 0.0, atol=1e-5)
    assert float(jnp.mean(jnp.square(frames))) == pytest.approx(1.0, rel=1e-5)
    still = Frames(np.full((30, 4, 4), 7, np.uint8), np.zeros(30, np.int64))
    with pytest.raises(InputError, match="expected frames that change"):
        make_problem(still)


def test_sampled_rows_are_pairs_of_the_training_frames():
    numbered = np.arange(100, dtype=np.uint8)[:, None, None].repeat(2, 1).repeat(2, 2)
    problem = make_problem(Frames(numbered, toy_problem().frames.episodes))
    source = problem.source()
    batch = jax.jit(lambda key: source.sample(key, 4000, 1))(jax.random.key(0))
    assert batch.inputs.shape == (4000, 2, 2, 1)
    first, second = np.split(np.asarray(batch.inputs)[:, 0, 0, 0], 2)
    np.testing.assert_array_equal(second, first + 1)
    assert set(first) == set(problem.training)
    with pytest.raises(InputError, match="an even number of rows"):
        source.sample(jax.random.key(0), 3, 1)


def test_principal_components_are_those_of_scikit_learn_on_later_frames_too():
    problem = toy_problem()
    rows = problem.frames.images.reshape(100, -1).astype(np.float64)
    exact = PCA(3, svd_solver="full").fit(rows[: problem.cut])
    found, share = atari.principal_pixels(problem, 3)
    expected = exact.transform(rows)
    signs = np.sign(np.sum(found * expected, axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-2)
    assert share == pytest.approx(exact.explained_variance_ratio_.sum(), rel=1e-5)
    values = random_features(problem, 5)
    expected = PCA(2, svd_solver="full").fit(values[: problem.cut]).transform(values)
    found = atari.principal_components(values, problem, 2)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-8)
    flat = values[:, :2] @ np.random.default_rng(3).normal(size=(2, 5))
    with pytest.raises(InputError, match="span at least 3 dimensions, got 2"):
        atari.principal_components(flat, problem, 3)
    parts = atari.outputs(lambda x: x.astype(jnp.float32).mean((1, 2)), problem.frames.images, 7)
    np.testing.assert_allclose(parts[:, 0], rows.mean(axis=1), rtol=1e-6)


@pytest.mark.parametrize("learned", [True, False])
def test_features_solve_gram_schmidt_in_learned_order_or_the_generalised_eigenproblem(learned):
    problem = toy_problem((400, 400, 200))
    mixed = random_features(problem, 4) @ np.random.default_rng(1).normal(size=(4, 4))
    values = np.exp(0.1 * mixed)
    found, starts = in_order("any", values, problem, learned=learned), problem.training
    seen = np.concatenate([values[starts], values[starts + 1]])
    covariance, change = np.cov(seen.T, bias=True), values[starts + 1] - values[starts]
    if learned:
        triangle = np.linalg.cholesky(covariance)
        orthogonal = (values - seen.mean(axis=0)) @ np.linalg.inv(triangle).T
        expected = [quotient(column, starts) for column in orthogonal.T]
        assert np.any(np.diff(expected) < 0.0)
    else:
        expected = scipy.linalg.eigh(change.T @ change / len(starts), covariance)[0]
    np.testing.assert_allclose(found.training, expected, rtol=1e-3)
    own = [quotient(column, starts) for column in found.values.T]
    np.testing.assert_allclose(own, expected, rtol=1e-3)
    rows = np.concatenate([starts, starts + 1])
    np.testing.assert_allclose(np.corrcoef(found.values[rows].T), np.eye(4), atol=1e-3)
    # The first function has nothing before it to be made orthogonal to, there or held out.
    held_out = quotient(found.values[:, 0], problem.held_out)
    assert found.held_out[0] == pytest.approx(held_out, rel=1e-3)
    # Rare values are positive, whatever the sign of what was learned.
    for sign in (1.0, -1.0):
        signed = in_order("any", sign * values, problem, learned=learned).values
        assert np.all(np.mean(signed[: problem.cut] ** 3, axis=0) > 0.0)


def test_spans_are_compared_as_principal_angles():
    problem = toy_problem((400, 400, 200))
    left, other = random_features(problem, 3), random_features(problem, 3, seed=7)
    same = left @ np.random.default_rng(2).normal(size=(3, 3)) + 5.0
    distance, cosines = compare_spans(left, same)
    assert distance < 1e-5
    np.testing.assert_allclose(cosines, 1.0, atol=1e-5)
    bases = [scipy.linalg.orth(x - x.mean(axis=0)) for x in (left, other)]
    expected = np.cos(scipy.linalg.subspace_angles(*bases))[::-1]
    distance, cosines = compare_spans(left, other)
    np.testing.assert_allclose(cosines, expected, atol=1e-4)
    assert distance == pytest.approx(1.0 - np.mean(expected**2), abs=1e-4)


def test_successor_features_of_indicators_are_the_successor_representation():
    walk = np.array([0, 1, 2, 0, 1, 0, 2, 1, 2, 0, 0, 1])
    starts = np.delete(np.arange(11), 5)  # An episode ends at the sixth frame.
    counts = np.zeros((3, 3))
    np.add.at(counts, (walk[starts], walk[starts + 1]), 1.0)
    transition = counts / counts.sum(axis=1, keepdims=True)
    expected = np.linalg.inv(np.eye(3) - 0.9 * transition)
    found = successor_features(np.eye(3)[walk], starts, 0.9)
    np.testing.assert_allclose(found, expected[walk], rtol=1e-8)
    codes = np.random.default_rng(0).normal(size=(50, 4))
    np.testing.assert_allclose(successor_features(codes, np.arange(49), 0.0), codes, atol=1e-10)


def test_the_frames_that_excite_a_feature_are_those_of_its_largest_values():
    problem = toy_problem((400, 400, 200))
    values, images = random_features(problem, 2), problem.frames.images
    found = atari.exciting_averages(values, problem)
    for index, order in enumerate(np.argsort(values, axis=0).T):
        np.testing.assert_allclose(found["most"][index], images[order[-10:]].mean(axis=0))
        np.testing.assert_allclose(found["least"][index], images[order[:10]].mean(axis=0))


def test_the_order_is_judged_on_training_and_held_out_pairs():
    def features(values):
        return MethodFeatures("slow", None, np.array(values)[::-1], np.array(values))

    mixed, rising = features([0.1, 0.3, 0.2]), features([0.2, 0.3, 0.4])
    claims = atari.judge(mixed, later_episodes=True)
    assert [claim.holds for claim in claims] == [False, False]
    assert [claim.found for claim in claims] == ["1 of 2 steps rise"] * 2
    claims = atari.judge(rising, later_episodes=True)
    assert [claim.holds for claim in claims] == [False, True]
    claims = atari.judge(rising, later_episodes=False)
    assert [claim.holds for claim in claims] == [None] * 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_features": 0}, "num_features >= 1, got 0"),
        ({"size": 0}, "size >= 1, got 0"),
        ({"channels": ()}, "at least one convolution"),
        ({"channels": (8, 0)}, "channels >= 1, got 0"),
        ({"pairs": 9}, "pairs > 9, the number of features, got 9"),
        ({"code_size": 8}, "code_size >= 9"),
        ({"num_frames": 100}, "num_frames >= 180"),
        ({"size": 2, "num_features": 5}, "num_features <= 4, the pixels"),
        ({"learning_rate": float("nan")}, r"learning_rate in \(0, inf\), got nan"),
        ({"discount": 1.0}, r"discount in \[0, 1\), got 1.0"),
        ({"seed": -1}, r"seed in \[0, 2\*\*31\), got -1"),
        ({"steps": 7}, r"steps to be a multiple of evaluations \(50\), got 7"),
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
    assert list(summary["methods"]) == ["slow features", "PCA of pixels", "successor features"]
    for figures in summary["methods"].values():
        assert all(0.0 < value < 4.0 for values in figures.values() for value in values)
        assert all(len(values) == 3 for values in figures.values())

    def rows_of(name):
        return json.loads((tmp_path / "results" / f"{name}.json").read_text())

    training = rows_of("training")
    assert [row["step"] for row in training] == [0] * 3 + [20] * 3 + [40] * 3 + [60] * 3
    ends = training[:3], training[-3:]
    sums = [sum(row["training_eigenvalue"] for row in part) for part in ends]
    assert sums[1] < 0.7 * sums[0]
    # There are fewer pairs than a measurement takes: it is of all of them.
    final = summary["methods"]["slow features"]["held_out_eigenvalues"]
    measured = [row["held_out_eigenvalue"] for row in training[-3:]]
    np.testing.assert_allclose(measured, final, rtol=1e-3)
    records = (tmp_path / "runs" / "predictor" / "metrics.jsonl").read_text().splitlines()
    first, *_, last = map(json.loads, records[1:])
    assert last["loss"][0] < first["loss"][0]
    assert summary["predictor"]["predictor"] == pytest.approx(last["held_out_error"][0])
    figures = ["eigenvalues", "frames_pca_of_pixels", "frames_slow_features"]
    figures += ["frames_successor_features", "training"]
    assert sorted(file.stem for file in (tmp_path / "figures").iterdir()) == figures
    assert all(rows_of(name) for name in figures)
    assert rows_of("spans") == summary["comparisons"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == len(figures)
    # One episode is all there is: held-out frames are of the one that was trained on.
    assert page.count("cannot be told from this run") == len(summary["claims"]) == 2
    # Sums are no claims: one network of each method says nothing of how much they vary.
    for figures in summary["methods"].values():
        for values in figures.values():
            assert f"<td>{sum(values):.4g}</td>" in page
    # Without its summary the run goes on from frames and checkpoints, and trains nothing.
    (tmp_path / "summary.json").unlink()
    monkeypatch.setattr(atari, "random_agent", None)
    monkeypatch.setattr(Population, "advance", None)
    again = atari.EXPERIMENT.run(SMOKE, tmp_path, progress=False)
    assert again["methods"] == summary["methods"]
    other = dataclasses.replace(SMOKE, discount=0.5)
    with pytest.raises(InputError, match=r"expected discount=0\.9, got 0\.5"):
        atari.EXPERIMENT.run(other, tmp_path, progress=False)
