import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.pfau_2019.hydrogen import problem
from rlreps.experiments.pfau_2019.hydrogen.closed_form import energies, level_slices, wavefunctions
from rlreps.experiments.pfau_2019.hydrogen.config import PRESETS, Contender
from rlreps.experiments.pfau_2019.hydrogen.grid_solver import solve_on_grid
from rlreps.operators import act

HALF_WIDTH = 50.0


def exact_features(positions):
    """The closed form in JAX, with the normalisation left to the caller."""
    radius = jnp.sqrt(jnp.sum(jnp.square(positions), axis=1))
    x, y = positions[:, 0], positions[:, 1]
    second, third = jnp.exp(-radius / 3.0), jnp.exp(-radius / 5.0)
    return jnp.stack(
        [
            jnp.exp(-radius),
            (1.0 - 2.0 * radius / 3.0) * second,
            x * second,
            y * second,
            (1.0 - 0.8 * radius + 0.08 * radius**2) * third,
            x * (3.0 - 0.4 * radius) * third,
            y * (3.0 - 0.4 * radius) * third,
            (x**2 - y**2) * third,
            2.0 * x * y * third,
        ],
        axis=1,
    )


def test_the_closed_form_are_eigenfunctions_of_the_hamiltonian_with_its_energies():
    with jax.enable_x64(True):
        positions = jnp.asarray(np.random.default_rng(0).uniform(-8.0, 8.0, (40, 2)))
        action = act(problem.hamiltonian(), exact_features, positions)
        ratios = np.asarray(action.images) / np.asarray(action.values)
        np.testing.assert_allclose(ratios, np.tile(energies(), (40, 1)), rtol=1e-7)
        found = wavefunctions(np.asarray(positions))
        for column, same in zip(found.T, np.asarray(action.values).T, strict=True):
            assert abs(np.corrcoef(column, same)[0, 1]) == pytest.approx(1.0, abs=1e-12)


def test_energies_come_in_levels_of_one_three_and_five():
    assert [energies()[level].tolist() for level in level_slices()] == [
        [-1.0],
        [-1 / 9] * 3,
        [-1 / 25] * 5,
    ]


def test_the_quadrature_integrates_over_the_whole_box():
    with jax.enable_x64(True):
        quadrature = problem.make_quadrature(HALF_WIDTH)
        positions, weights = np.asarray(quadrature.positions), np.asarray(quadrature.weights)
    assert np.abs(positions).max() < HALF_WIDTH
    # The edge has corners that an even spacing in the angle does not see exactly.
    assert weights.sum() == pytest.approx((2 * HALF_WIDTH) ** 2, rel=5e-3)
    functions = wavefunctions(positions)
    gram = functions.T @ (functions * weights[:, None])
    lengths = np.sqrt(np.diagonal(gram))
    np.testing.assert_allclose(gram / np.outer(lengths, lengths), np.eye(9), atol=1e-6)
    # ∫ exp(−2r) over the plane.
    assert gram[0, 0] == pytest.approx(np.pi / 2, rel=1e-9)


@pytest.mark.parametrize("sampling", ["radial", "uniform"])
def test_weighted_points_integrate_the_wavefunctions(sampling):
    contender = Contender(name="any", sampling=sampling)
    source = problem.make_source(contender, HALF_WIDTH)
    count = 2**20
    batch = source.sample(jax.random.key(0), count, 1)
    assert batch.targets.shape == (count, 0)
    weights = np.asarray(source.weights()(batch.inputs), np.float64)
    assert np.all(weights >= 0.0)
    functions = wavefunctions(np.asarray(batch.inputs, np.float64))
    # Ratios of norms: weights are known up to a factor.
    with jax.enable_x64(True):
        quadrature = problem.make_quadrature(HALF_WIDTH)
        exact = (
            np.asarray(quadrature.weights) @ wavefunctions(np.asarray(quadrature.positions)) ** 2
        )
    terms = weights[:, None] * functions**2
    found, error = terms.mean(axis=0), terms.std(axis=0) / np.sqrt(count)
    scale = found[4] / exact[4]
    relative = np.abs(found / exact / scale - 1.0)
    allowed = 5.0 * (error / found + error[4] / found[4])
    assert np.all(relative < allowed)
    if sampling == "radial":
        # Every scale has its share of the points.
        assert np.all(allowed < 0.02)
    else:
        assert allowed[0] > 0.1


def test_features_vanish_at_the_boundary_of_the_box():
    for inputs, networks in itertools.product(problem.INPUTS, problem.NETWORKS):
        contender = Contender(name="any", inputs=inputs, networks=networks, hidden=(4,))
        encoder = problem.make_encoder(contender, HALF_WIDTH)
        params = encoder.init(jax.random.key(0))
        edge = jnp.asarray([[50.0, 3.0], [-7.0, -50.0], [50.0, 50.0], [-50.0, 0.0]])
        np.testing.assert_allclose(encoder.apply(params, edge), 0.0, atol=1e-5)
        assert np.abs(np.asarray(encoder.apply(params, 0.5 * edge))).min() > 0.0


def test_the_gradient_vanishes_at_the_eigenfunctions_on_every_batch_without_averages():
    """The zero variance of exact local energies: what β < 1 gives up."""
    with jax.enable_x64(True):
        contender = Contender(name="any")
        source = problem.make_source(contender, HALF_WIDTH)
        mixing = jnp.asarray(np.tril(np.random.default_rng(1).normal(size=(9, 9))) + 2 * np.eye(9))

        def encode(params, positions):
            return exact_features(positions) @ mixing.T @ params

        def gradient(rate, mixture):
            objective = problem.spectral(
                9,
                problem.hamiltonian(),
                averaging_rate=rate,
                parameters=jnp.eye(9),
                weights=source.weights(),
            )
            state = objective.init(jax.random.key(0))
            norms = []
            for index in range(4):
                batch = source.sample(jax.random.key(index), 64, 1)
                found, (state, _) = jax.grad(objective.loss, has_aux=True)(
                    mixture, encode, batch, state, jax.random.key(0)
                )
                norms.append(float(jnp.abs(found).max()))
            return norms

        solved, unsolved = jnp.eye(9), jnp.eye(9) + 0.1 * jnp.ones((9, 9))
        assert max(gradient(1.0, solved)) < 1e-8 * min(gradient(1.0, unsolved))
        assert max(gradient(0.1, solved)[1:]) > 1e-3 * min(gradient(1.0, unsolved))


def test_measurements_know_the_closed_form():
    with jax.enable_x64(True):
        encoder = problem.FunctionEncoder(
            lambda key: jnp.zeros(()), lambda params, positions: exact_features(positions)
        )
        figures = problem.make_evaluation(encoder, HALF_WIDTH)(jnp.zeros(()))
    found = [float(figures[f"energy_{index + 1}"]) for index in range(9)]
    # In the box they are not exactly eigenfunctions: the highest do not quite vanish at its edge.
    np.testing.assert_allclose(found, energies(), rtol=2e-4)
    assert float(figures["worst_error"]) == pytest.approx(np.abs(found / energies() - 1.0).max())
    assert abs(float(figures["subspace_distance"])) < 1e-8


def test_the_grid_solver_approaches_the_closed_form():
    coarse, fine = solve_on_grid(24, 12.0), solve_on_grid(96, 12.0)
    assert abs(fine.energies[0] + 1.0) < 0.5 * abs(coarse.energies[0] + 1.0)
    np.testing.assert_allclose(fine.functions.T @ fine.functions, np.eye(9), atol=1e-10)
    assert np.all(np.diff(fine.energies) >= 0.0)
    exact = wavefunctions(fine.positions)[:, 0]
    ground = fine.functions[:, 0] * np.sign(fine.functions[:, 0].sum())
    assert ground @ exact / np.linalg.norm(exact) > 0.99
    # x runs along columns and y along rows.
    assert fine.positions[1, 0] > fine.positions[0, 0]
    assert fine.positions[1, 1] == fine.positions[0, 1]
    assert fine.positions[96, 1] > fine.positions[0, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling": "log"}, "sampling to be one of"),
        ({"networks": "dense"}, "networks to be one of"),
        ({"averaging_rate": 0.0}, r"averaging_rate in \(0, 1\]"),
        ({"rows": 0}, "rows >= 1"),
        ({"learning_rate": float("inf")}, "finite learning_rate"),
    ],
)
def test_contenders_are_checked(change, message):
    with pytest.raises(InputError, match=message):
        Contender(name="any", **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid_points": 33}, "even number of grid_points"),
        ({"num_seeds": 0}, "num_seeds >= 1"),
        ({"contenders": ()}, "at least one contender"),
        ({"evaluations": 7}, "multiple of 7 evaluations"),
    ],
)
def test_configurations_are_checked(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(PRESETS["smoke"], **change)
