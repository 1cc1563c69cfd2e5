import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP, FunctionEncoder
from rlreps.experiments.pfau_2019 import hydrogen
from rlreps.experiments.pfau_2019.atom import (
    ENERGIES,
    LEVELS,
    BoxSource,
    box_quadrature,
    hamiltonian,
    rotate_in_levels,
    solve_on_grid,
    wavefunctions,
)
from rlreps.experiments.pfau_2019.hydrogen import PRESETS, Contender
from rlreps.operators import act

HALF_WIDTH = 50.0


def exact_features(positions):
    """The closed form written out, with the normalisation left to the caller."""
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
    assert [ENERGIES[level].tolist() for level in LEVELS] == [[-1.0], [-1 / 9] * 3, [-1 / 25] * 5]
    with jax.enable_x64(True):
        positions = jnp.asarray(np.random.default_rng(0).uniform(-8.0, 8.0, (40, 2)))
        action = jax.jit(lambda at: act(hamiltonian(), exact_features, at))(positions)
        ratios = np.asarray(action.images) / np.asarray(action.values)
        np.testing.assert_allclose(ratios, np.tile(ENERGIES, (40, 1)), rtol=1e-7)
        found = wavefunctions(np.asarray(positions))
        for column, same in zip(found.T, np.asarray(action.values).T, strict=True):
            assert abs(np.corrcoef(column, same)[0, 1]) == pytest.approx(1.0, abs=1e-12)


def test_quadrature_and_weighted_points_integrate_over_the_whole_box():
    with jax.enable_x64(True):
        positions, weights = map(np.asarray, box_quadrature(HALF_WIDTH))
    # The edge has corners that an even spacing in the angle does not see exactly.
    assert weights.sum() == pytest.approx((2 * HALF_WIDTH) ** 2, rel=5e-3)
    exact = weights @ wavefunctions(positions) ** 2
    # ∫ exp(−2r) over the plane.
    assert exact[0] == pytest.approx(np.pi / 2, rel=1e-9)
    count = 2**18
    for radial in (True, False):
        source = BoxSource(jnp.float32(HALF_WIDTH), radial)
        batch = source.sample(jax.random.key(0), count, 1)
        shares = np.asarray(source.weights()(batch.inputs), np.float64)
        terms = shares[:, None] * wavefunctions(np.asarray(batch.inputs, np.float64)) ** 2
        # Ratios of norms: weights are known up to a factor.
        found, error = terms.mean(axis=0), terms.std(axis=0) / np.sqrt(count)
        relative = np.abs(found / exact * exact[4] / found[4] - 1.0)
        allowed = 5.0 * (error / found + error[4] / found[4])
        assert np.all(relative < allowed)


def test_the_paper_preset_is_the_papers_protocol(check_protocol):
    def contender(index, **changes):
        protocol = {
            # From the authors' code.
            "steps": 1_000_000,
            "sampling": "uniform",
            "inputs": "cartesian",
            "boundary": "root",
            "encoder.name": "block_sparse",
            "encoder.encoder.name": "mlp",
            "encoder.encoder.hidden": [128, 128, 128, 128],
            "encoder.encoder.activation": "softplus",
            "laplacian.name": "finite_difference_laplacian",
            "laplacian.step": 0.1,
            "objective.name": "spin",
            "objective.averaging_rate": 0.01,
            "objective.masked": True,
            "objective.through_operator": True,
            "objective.shifted": False,
            "objective.starts_at_identity": True,
            "rows": 128,
            "optimizer.name": "rmsprop",
            "optimizer.learning_rate": 1e-5,
            "optimizer.schedule": "constant",
            "optimizer.decay": 0.999,
            # TensorFlow's of the time.
            "optimizer.initial_scale": 1.0,
            "optimizer.epsilon": 1e-10,
        }
        return {f"contenders.{index}.{path}": each for path, each in (protocol | changes).items()}

    # Options of averages have no effect where there are none.
    unaveraged = {
        "objective.averaging_rate": 1.0,
        "objective.shifted": True,
        "objective.starts_at_identity": False,
    }
    check_protocol(
        "hydrogen",
        {
            **contender(1, **unaveraged),
            **contender(2),
            **contender(3, **{"optimizer.decay": 0.9}),
            "half_width": 50.0,
            "grid_points": 128,
        },
    )


def radial(x):
    radius = np.hypot(*x.T)[:, None]
    return np.concatenate([x / (1.0 + radius), np.log1p(radius) / 2.0 - 1.0, radius / 50.0], axis=1)


INPUTS = {"cartesian": lambda x: x, "scaled": lambda x: x / 50.0, "radial": radial}
BOUNDARIES = {
    "quadratic": lambda x: np.prod(1.0 - (x / 50.0) ** 2, axis=1),
    "root": lambda x: np.prod(np.sqrt(2.0 * 50.0**2 - x**2) - 50.0, axis=1),
}


@pytest.mark.parametrize(
    ("inputs", "boundary"), [("cartesian", "root"), ("scaled", "quadratic"), ("radial", "root")]
)
def test_features_are_the_networks_times_what_vanishes_at_the_boundary(inputs, boundary):
    network = MLP(9, num_inputs=4 if inputs == "radial" else 2, hidden=(4,), activation="softplus")
    contender = Contender(name="any", inputs=inputs, boundary=boundary, encoder=network)
    encoder = hydrogen.make_encoder(contender, HALF_WIDTH)
    edge = np.float32([[50.0, 3.0], [-7.0, -50.0], [50.0, 50.0], [-50.0, 0.0]])
    positions = np.concatenate([edge, 0.5 * edge])
    params = network.init(jax.random.key(0))
    found = np.asarray(encoder.apply(params, positions))
    np.testing.assert_allclose(found[:4], 0.0, atol=2e-3 if boundary == "root" else 1e-5)
    values = np.asarray(network.apply(params, np.float32(INPUTS[inputs](positions))))
    expected = values * BOUNDARIES[boundary](positions.astype(float))[:, None]
    np.testing.assert_allclose(found[4:], expected[4:], rtol=1e-4)
    assert np.abs(found[4:]).min() > 0.0


def test_measurements_know_the_closed_form():
    with jax.enable_x64(True):
        encoder = FunctionEncoder(lambda key: (), lambda params, x: exact_features(x))
        figures = jax.jit(hydrogen.make_evaluation(encoder, HALF_WIDTH))(())
    found = [float(figures[f"energy_{index + 1}"]) for index in range(9)]
    # In the box they are not exactly eigenfunctions: the highest do not quite vanish at its edge.
    np.testing.assert_allclose(found, ENERGIES, rtol=2e-4)
    assert float(figures["worst_error"]) == pytest.approx(np.abs(found / ENERGIES - 1.0).max())
    assert abs(float(figures["subspace_distance"])) < 1e-8


def test_the_grid_solver_approaches_the_closed_form():
    coarse, fine = solve_on_grid(24, 12.0), solve_on_grid(96, 12.0)
    assert abs(fine.energies[0] + 1.0) < 0.5 * abs(coarse.energies[0] + 1.0)
    exact = wavefunctions(fine.positions)[:, 0]
    ground = fine.functions[:, 0] * np.sign(fine.functions[:, 0].sum())
    assert ground @ exact / np.linalg.norm(exact) > 0.99


def test_alignment_undoes_rotations_inside_levels_and_no_others():
    exact, _ = np.linalg.qr(wavefunctions(np.random.default_rng(0).uniform(-9.0, 9.0, (400, 2))))
    random, turned = np.random.default_rng(0), exact.copy()
    for level in LEVELS:
        size = level.stop - level.start
        turned[:, level] = exact[:, level] @ np.linalg.qr(random.normal(size=(size, size)))[0]
    np.testing.assert_allclose(rotate_in_levels(turned, exact), exact, atol=1e-10)
    across = exact[:, [1, 0, *range(2, 9)]]
    assert np.abs(rotate_in_levels(across, exact) - exact).max() > 0.1


GOOD, HALF, BAD, LOST = [0.01, 0.05] * 3, [0.01, 0.06] * 3, [0.3, 0.06] * 3, [0.6, 9.0] * 3


@pytest.mark.parametrize(
    ("ours", "averaged", "unaveraged", "hasty", "verdicts"),
    [
        (GOOD, GOOD, LOST, LOST, [True, True, True, True]),
        # Some seeds do and some do not; no seed does; energies that are wrong but not far off.
        (HALF, HALF, HALF, BAD, [None, None, None, None]),
        (GOOD, BAD, BAD, GOOD, [True, False, None, False]),
        (GOOD, BAD, LOST, BAD, [True, False, True, None]),
    ],
)
def test_claims_are_judged_under_the_papers_protocol_alone(
    judge, ours, averaged, unaveraged, hasty, verdicts
):
    paper = dataclasses.replace(PRESETS["paper"], num_seeds=6)

    def holds(config):
        rows = [
            {"contender": way.name, "seed": seed, "step": 1, "worst_error": error}
            for way, errors in zip(
                config.contenders, (ours, unaveraged, averaged, hasty), strict=True
            )
            for seed, error in enumerate(errors)
        ]
        return [found.holds for found in judge(hydrogen.EXPERIMENT, config, rows)]

    assert holds(paper) == verdicts
    assert holds(dataclasses.replace(paper, half_width=25.0))[1:] == [None, None, None]
