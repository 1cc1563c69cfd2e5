import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from sklearn.decomposition import PCA

from rlreps.errors import InputError
from rlreps.experiments.pfau_2019.atari.features import (
    MethodFeatures,
    compare,
    exciting_averages,
    in_order,
    principal_components,
    successor_features,
)
from rlreps.experiments.pfau_2019.atari.frames import Frames
from rlreps.experiments.pfau_2019.atari.problem import make_problem, outputs, principal_pixels
from rlreps.experiments.pfau_2019.atari.report import compare_slowness


def toy_problem(lengths=(40, 40, 20), size=6, seed=0):
    """Frames of noise about a drifting picture, in episodes of given lengths."""
    generator = np.random.default_rng(seed)
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


def test_held_out_frames_begin_with_an_episode_and_no_pair_crosses_anything():
    problem = toy_problem((30, 30, 25, 15))
    assert problem.cut == 85
    assert problem.later_episodes
    episodes = problem.frames.episodes
    for starts in (problem.training, problem.held_out):
        np.testing.assert_array_equal(episodes[starts], episodes[starts + 1])
    assert problem.training.max() + 1 < problem.cut <= problem.held_out.min()
    assert len(problem.training) == 85 - 3
    assert len(problem.held_out) == 15 - 1


def test_one_long_episode_is_cut_at_four_fifths():
    problem = toy_problem((100,))
    assert problem.cut == 80
    assert not problem.later_episodes
    assert (len(problem.training), len(problem.held_out)) == (79, 19)


def test_frames_that_never_change_are_refused():
    frames = Frames(np.full((30, 4, 4), 7, np.uint8), np.zeros(30, np.int64))
    with pytest.raises(InputError, match="expected frames that change"):
        make_problem(frames)


def test_sampled_rows_are_pairs_of_the_training_frames():
    problem = toy_problem()
    numbered = np.arange(100, dtype=np.uint8)[:, None, None].repeat(2, 1).repeat(2, 2)
    problem = make_problem(Frames(numbered, problem.frames.episodes))
    source = problem.source()
    batch = source.sample(jax.random.key(0), 4000, 1)
    assert batch.inputs.shape == (4000, 2, 2, 1)
    first, second = np.split(np.asarray(batch.inputs)[:, 0, 0, 0], 2)
    np.testing.assert_array_equal(second, first + 1)
    assert set(first) == set(problem.training)
    with pytest.raises(InputError, match="an even number of rows"):
        source.sample(jax.random.key(0), 3, 1)


def test_standardised_frames_have_mean_zero_and_unit_mean_square():
    problem = toy_problem()
    frames = problem.standardised(jnp.asarray(problem.frames.images[: problem.cut])[..., None])
    np.testing.assert_allclose(frames.mean(axis=0), 0.0, atol=1e-5)
    assert float(jnp.mean(jnp.square(frames))) == pytest.approx(1.0, rel=1e-5)


def test_outputs_do_not_depend_on_the_block():
    images = toy_problem().frames.images
    whole = outputs(lambda x: x.astype(jnp.float32).mean(axis=(1, 2)), images, 100)
    np.testing.assert_allclose(whole[:, 0], images.mean(axis=(1, 2)), rtol=1e-6)
    parts = outputs(lambda x: x.astype(jnp.float32).mean(axis=(1, 2)), images, 7)
    np.testing.assert_array_equal(whole, parts)


def test_principal_pixels_are_those_of_scikit_learn_on_later_frames_too():
    problem = toy_problem()
    rows = problem.frames.images.reshape(100, -1).astype(np.float64)
    exact = PCA(3, svd_solver="full").fit(rows[: problem.cut])
    found, share = principal_pixels(problem, 3)
    expected = exact.transform(rows)
    signs = np.sign(np.sum(found * expected, axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-2)
    assert share == pytest.approx(exact.explained_variance_ratio_.sum(), rel=1e-5)


def test_learned_features_keep_their_order_and_have_the_quotients_of_gram_schmidt():
    problem = toy_problem((400, 400, 200))
    values = random_features(problem, 4) @ np.random.default_rng(1).normal(size=(4, 4))
    found = in_order("learned", values, problem, learned=True)
    starts = problem.training
    seen = np.concatenate([values[starts], values[starts + 1]])
    triangle = np.linalg.cholesky(np.cov(seen.T, bias=True))
    orthogonal = (values - seen.mean(axis=0)) @ np.linalg.inv(triangle).T
    expected = [quotient(column, starts) for column in orthogonal.T]
    np.testing.assert_allclose(found.training_eigenvalues, expected, rtol=1e-4)
    assert np.any(np.diff(found.training_eigenvalues) < 0.0)
    rows = np.concatenate([starts, starts + 1])
    correlations = np.corrcoef(orthogonal[rows].T, found.values[rows].T)[:4, 4:]
    np.testing.assert_allclose(np.abs(correlations), np.eye(4), atol=1e-3)


def test_the_slowest_in_a_span_solve_the_generalised_eigenproblem():
    problem = toy_problem((400, 400, 200))
    values = random_features(problem, 4) @ np.random.default_rng(1).normal(size=(4, 4))
    found = in_order("span", values, problem, learned=False)
    starts = problem.training
    seen = np.concatenate([values[starts], values[starts + 1]])
    change = values[starts + 1] - values[starts]
    expected = scipy.linalg.eigh(
        change.T @ change / len(starts), np.cov(seen.T, bias=True), eigvals_only=True
    )
    np.testing.assert_allclose(found.training_eigenvalues, expected, rtol=1e-4)
    own = [quotient(column, starts) for column in found.values.T]
    np.testing.assert_allclose(own, expected, rtol=1e-4)
    # The first function has nothing before it to be made orthogonal to, there or held out.
    held_out = quotient(found.values[:, 0], problem.held_out)
    assert found.held_out_eigenvalues[0] == pytest.approx(held_out, rel=1e-4)


def test_signs_make_rare_values_positive():
    problem = toy_problem((400, 400, 200))
    values = np.exp(random_features(problem, 2))
    for sign in (1.0, -1.0):
        found = in_order("skewed", sign * values, problem, learned=True).values
        assert np.all(np.mean(found[: problem.cut] ** 3, axis=0) > 0.0)


def test_spans_are_compared_on_held_out_frames_as_principal_angles():
    problem = toy_problem((400, 400, 200))
    shared = random_features(problem, 3)
    other = random_features(problem, 3, seed=7)
    left = in_order("left", shared, problem, learned=True)
    same = in_order(
        "same", shared @ np.random.default_rng(2).normal(size=(3, 3)), problem, learned=False
    )
    assert compare(left, same, problem).distance < 1e-5
    np.testing.assert_allclose(compare(left, same, problem).correlations, 1.0, atol=1e-5)
    apart = compare(left, in_order("other", other, problem, learned=True), problem)
    bases = [
        scipy.linalg.orth(x - x.mean(axis=0)) for x in (shared[problem.cut :], other[problem.cut :])
    ]
    cosines = np.cos(scipy.linalg.subspace_angles(*bases))[::-1]
    np.testing.assert_allclose(apart.correlations, cosines, atol=1e-4)
    assert apart.distance == pytest.approx(1.0 - np.mean(cosines**2), abs=1e-4)


def test_successor_features_of_indicators_are_the_successor_representation():
    walk = np.array([0, 1, 2, 0, 1, 0, 2, 1, 2, 0, 0, 1])
    starts = np.delete(np.arange(11), 5)  # An episode ends at the sixth frame.
    counts = np.zeros((3, 3))
    np.add.at(counts, (walk[starts], walk[starts + 1]), 1.0)
    transition = counts / counts.sum(axis=1, keepdims=True)
    expected = np.linalg.inv(np.eye(3) - 0.9 * transition)
    found = successor_features(np.eye(3)[walk], starts, 0.9)
    np.testing.assert_allclose(found, expected[walk], rtol=1e-8)


def test_without_discount_successor_features_are_the_code_itself():
    codes = np.random.default_rng(0).normal(size=(50, 4))
    found = successor_features(codes, np.arange(49), 0.0)
    np.testing.assert_allclose(found, codes, atol=1e-10)


def test_principal_components_of_features_are_by_variance_on_training_frames():
    problem = toy_problem()
    values = random_features(problem, 5)
    exact = PCA(2, svd_solver="full").fit(values[: problem.cut])
    found = principal_components(values, problem, 2)
    np.testing.assert_allclose(np.abs(found), np.abs(exact.transform(values)), atol=1e-8)


def test_the_frames_that_excite_a_feature_are_those_of_its_largest_values():
    problem = toy_problem((400, 400, 200))
    values = random_features(problem, 2)
    found = exciting_averages(values, problem)
    for index in range(2):
        most = np.argsort(values[:, index])[-10:]
        least = np.argsort(values[:, index])[:10]
        images = problem.frames.images
        np.testing.assert_allclose(found["most"][index], images[most].mean(axis=0))
        np.testing.assert_allclose(found["least"][index], images[least].mean(axis=0))


def test_goals_are_judged_by_held_out_eigenvalues():
    def method(label, eigenvalues):
        none = np.zeros((0, len(eigenvalues)))
        return MethodFeatures(label, none, np.array(eigenvalues)[::-1], np.array(eigenvalues))

    slow, pixels = method("slow", [0.1, 0.3, 0.2]), method("PCA", [0.2, 0.3, 0.4])
    claims = compare_slowness([slow, pixels, method("SF", [0.1, 0.1, 0.1])], later_episodes=True)
    assert [claim.holds for claim in claims] == [None, None, False, False, None]
    assert [claim.found for claim in claims[2:4]] == ["1 of 2 steps rise"] * 2
    claims = compare_slowness([pixels, slow], later_episodes=True)
    assert [claim.holds for claim in claims] == [None, False, True, None]
    claims = compare_slowness([pixels, slow], later_episodes=False)
    assert [claim.holds for claim in claims] == [None] * 4


def test_a_collapsed_code_is_refused_and_not_filled_up_with_rounding():
    problem = toy_problem()
    flat = random_features(problem, 2) @ np.random.default_rng(3).normal(size=(2, 5))
    assert principal_components(flat, problem, 2).shape == (100, 2)
    with pytest.raises(InputError, match="span at least 3 dimensions, got 2"):
        principal_components(flat, problem, 3)
