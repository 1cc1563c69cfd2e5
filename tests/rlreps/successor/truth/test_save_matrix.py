"""A matrix of one's own: stored with its grid and read back as a ground truth."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP, Convolutional, Tabular
from rlreps.errors import InputError
from rlreps.successor import BoxGrid, RowEstimates, load
from rlreps.successor.truth.save_matrix import save_matrix

GRID = BoxGrid((-1.2, -0.07), (0.6, 0.07), (6, 5), ("position (m)", "velocity (m/step)"))


def planted(states, tasks=20, rank=4, seed=0):
    """A matrix without column means, and its left singular vectors [states, rank]."""
    generator = np.random.default_rng(seed)
    left = generator.normal(size=(states, rank))
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    right = np.linalg.qr(generator.normal(size=(tasks, rank)))[0]
    return left * 2.0 ** -np.arange(rank) @ right.T + generator.normal(size=tasks), left


def test_a_matrix_comes_back_with_its_subspace_grid_and_coordinates(tmp_path):
    matrix, left = planted(30)
    store = save_matrix(tmp_path / "own", matrix, GRID)
    np.testing.assert_array_equal(store.read(), matrix.astype(np.float32))
    truth = load(tmp_path / "own")
    assert truth.grid == GRID
    np.testing.assert_array_equal(truth.coordinates, GRID.unit_centres())
    assert truth.distance(left.tolist()) < 1e-9
    signs = np.sign(left).astype(int)
    assert truth.distance(signs) == truth.distance(jnp.asarray(signs, jnp.bfloat16)) < 1.0
    with pytest.raises(InputError, match="expected features of real numbers, got 'object'"):
        truth.distance(np.full((30, 4), None))
    assert repr(truth) == "<GroundTruth of 30 states, 4 components, discount None>"
    with pytest.raises(InputError, match="expected finite features"):
        truth.distance(np.full_like(left, np.nan))
    # Saved again it is as it was; another matrix does not take its place.
    assert save_matrix(tmp_path / "own", matrix, GRID).content_key() == store.content_key()
    with pytest.raises(InputError, match=r"made under other settings: expected sha256="):
        save_matrix(tmp_path / "own", matrix + 1.0, GRID)
    with pytest.raises(InputError, match="features of all 30 states, a row each"):
        truth.distance(left.T)


def test_settings_do_not_replace_what_the_store_records(tmp_path):
    matrix = planted(30)[0] + np.arange(30.0)[:, None]
    recorded = ["box", "centring", "halves", "sha256", "states", "wall_cells"]
    for name in recorded:
        with pytest.raises(InputError, match=f"which the store records.*got \\['{name}'\\]"):
            save_matrix(tmp_path / "own", matrix, GRID, settings={name: "rows"})
    with pytest.raises(InputError, match=r"'centred_on_reading': 'rows'.*got \['centring'\]"):
        save_matrix(tmp_path / "own", matrix, settings={"centring": "rows"})
    with pytest.raises(InputError, match=r"centred_on_reading to be one of .*, got 'row'"):
        save_matrix(tmp_path / "own", matrix, settings={"centred_on_reading": "row"})
    assert not (tmp_path / "own").exists()
    half = RowEstimates(matrix, 0.1 * matrix)
    walled = {"cells": np.arange(30), "observations": np.arange(30.0, dtype=np.float32)[:, None]}
    stores = [save_matrix(tmp_path / "half", half, GRID, **walled)]
    stores += [save_matrix(tmp_path / "some", matrix[1:], GRID, cells=np.arange(1, 30))]
    written = {name for store in stores for name in store.settings}
    assert written == {*recorded, "quantity", "method"}
    settings = {"centred_on_reading": "rows", "note": "x", "noise": np.float32(0.5)}
    assert save_matrix(tmp_path / "own", matrix, settings=settings).settings["noise"] == 0.5
    values = np.linalg.svd(matrix - matrix.mean(axis=1, keepdims=True), compute_uv=False)
    found = load(tmp_path / "own").principal.singular_values
    np.testing.assert_allclose(found[:4], values[:4], rtol=1e-5)


def test_states_may_be_some_of_the_cells_or_have_no_grid(tmp_path):
    cells = np.delete(np.arange(30), [0, 7, 8, 29])
    matrix, left = planted(26)
    save_matrix(tmp_path / "some", matrix, GRID, cells=cells)
    truth = load(str(tmp_path / "some"))
    np.testing.assert_array_equal(truth.cells, cells)
    np.testing.assert_array_equal(truth.coordinates, GRID.unit_centres()[cells])
    save_matrix(tmp_path / "numbered", matrix)
    numbered = load(tmp_path / "numbered")
    np.testing.assert_allclose(numbered.coordinates[:, 0], (np.arange(26) + 0.5) / 26, rtol=1e-6)
    assert numbered.grid.names == ("state",)
    with pytest.raises(InputError, match=r"tabular for states without coordinates .*, got 'mlp'"):
        numbered.inputs(MLP(2))
    assert numbered.inputs(Tabular(2)).tolist() == [*range(26)]
    save_matrix(tmp_path / "placed", matrix, BoxGrid((-1,), (1,), (26,), ("state",)))
    assert load(tmp_path / "placed").inputs(MLP(2)).shape == (26, 1)
    assert max(truth.distance(left), numbered.distance(left)) < 1e-9


def test_what_does_not_fit_is_named_and_nothing_is_written(tmp_path):
    matrix, _ = planted(30)
    broken = np.where(np.arange(30)[:, None] == 7, np.nan, matrix)
    for arguments, options, message in (
        ((broken, GRID), {}, r"finite entries .* in row 7; .* by cells="),
        ((np.where(broken > 0, 1e39, 0.0), GRID), {}, "in the range of float32"),
        ((matrix[:0],), {}, r"a matrix \[states, tasks\], got .*\(0, 20\)"),
        ((matrix + 1e9,), {}, "differences .* that float32 holds, .* of their size; subtract"),
        ((matrix[:9], GRID), {}, "30 rows, one for each of the states, .* got 9"),
        ((RowEstimates(matrix, matrix[:2]), GRID), {}, r"differences \(30, 20\).*shape \(2, 20\)"),
        ((matrix,), {"settings": {"noise": np.nan}}, "settings that JSON can hold, got "),
        ((matrix,), {"settings": {"noise": np.zeros(2)}}, "settings that JSON can hold, got "),
        ((matrix, GRID), {"cells": [1, 0]}, r"cells in \[0, 30\), rising, one for each state"),
    ):
        with pytest.raises(InputError, match=message):
            save_matrix(tmp_path / "own", *arguments, **options)
    assert not (tmp_path / "own").exists()


def test_states_that_an_encoder_sees_as_images_come_back_with_them(tmp_path):
    matrix, left = planted(12)
    seen = np.random.default_rng(1).integers(256, size=(12, 4, 5, 3), dtype=np.uint8)
    cells = np.array([3, 3, 2, 7, 7, 7, 0, 29, 1, 4, 5, 6])
    options = {"cells": cells, "observations": seen, "settings": {"discount": 0.9}}
    store = save_matrix(tmp_path / "seen", matrix, GRID, **options)
    truth = load(tmp_path / "seen")
    np.testing.assert_array_equal(truth.observations, seen)
    np.testing.assert_array_equal(truth.cells, cells)
    np.testing.assert_array_equal(truth.coordinates, GRID.unit_centres()[cells])
    assert truth.settings["discount"] == 0.9
    assert truth.distance(left) < 1e-9
    # A GPU multiplies by the rounded 1/255.
    np.testing.assert_allclose(truth.inputs(Convolutional()), seen / np.float32(255.0), rtol=2e-7)
    np.testing.assert_array_equal(truth.inputs(Tabular()), np.arange(12))
    assert truth.cell_widths is None
    # Saved again it is as it was; other images do not take their place.
    assert save_matrix(store.path, matrix, GRID, **options).content_key() == store.content_key()
    with pytest.raises(InputError, match="made under other settings: expected states="):
        save_matrix(store.path, matrix, GRID, **{**options, "observations": seen // 2})
    for changed, message in (
        ({"observations": seen[:3]}, "an observation of each of 12 states, got 3"),
        ({"observations": seen.astype(int)}, "observations of type uint8 or float32, got 'int64'"),
        ({"observations": np.full((12, 2), np.nan, np.float32)}, "finite observations"),
        ({"cells": cells - 1}, r"cells in \[0, 30\)"),
    ):
        with pytest.raises(InputError, match=message):
            save_matrix(tmp_path / "other", matrix, GRID, **{**options, **changed})
    assert not (tmp_path / "other").exists()
    (store.path / "states.npz").unlink()
    with pytest.raises(InputError, match=r"the observations of the states in .*states\.npz"):
        load(tmp_path / "seen")


@pytest.mark.parametrize(
    "matrix",
    [
        1e-50 * np.arange(12.0).reshape(4, 3),
        1e-170 * np.arange(12.0).reshape(4, 3),
        2**60 + np.arange(12, dtype=np.uint64).reshape(4, 3),
    ],
    ids=["tiny", "tiny squares", "large integers"],
)
def test_differences_that_float32_loses_are_refused(matrix, tmp_path):
    with pytest.raises(InputError, match="differences between states that float32 holds"):
        save_matrix(tmp_path / "lost", matrix)
    assert not (tmp_path / "lost").exists()


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32, np.float64])
def test_differences_of_any_type_and_constant_columns_are_kept(kind, tmp_path):
    matrix = np.tile(np.arange(200, 203).astype(kind), (3_000, 1))
    matrix[5, 0] = 1
    store = save_matrix(tmp_path / "kept", matrix)
    np.testing.assert_array_equal(store.read(), matrix.astype(np.float32))
    third = np.full((3_000, 3), 1.0 / 3.0)
    np.testing.assert_array_equal(save_matrix(tmp_path / "third", third).read(), np.float32(third))


def test_a_matrix_far_from_zero_is_kept_without_its_means_or_refused(tmp_path):
    matrix, left = planted(30)
    save_matrix(tmp_path / "near", matrix + 1e3)
    assert load(tmp_path / "near").distance(left) < 1e-4
    far = matrix + 1e9
    with pytest.raises(InputError, match="subtract the mean of each column"):
        save_matrix(tmp_path / "far", far)
    save_matrix(tmp_path / "far", far - far.mean(axis=0))
    assert load(tmp_path / "far").distance(left) < 1e-4
    for constant in (np.full((30, 20), 0.1), np.zeros((30, 20))):
        save_matrix(tmp_path / f"{constant[0, 0]}", constant)
        with pytest.raises(InputError, match="that is not zero after centring"):
            load(tmp_path / f"{constant[0, 0]}").principal  # noqa: B018
