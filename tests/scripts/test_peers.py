"""The comparison with other packages, on numbers that are known."""

import gzip
import json
import os
import runpy
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "scripts" / "peers"
ROW = """
TITLE = "Nothing at all"
WORK = "Sum {rows} rows in each of {calls} calls."
PACKAGES, SIZES = ("numpy", "none such"), {"rows": 2, "folder": ""}
prepare = lambda rows, **_: [0.0] * rows
SIDES = {
    name: lambda data, **_: lambda: sum(range(9_999)) and 9 * data
    for name in ("rlreps fit", "a peer")
}
quality = lambda data, result, **_: {"rows": len(result)}
"""


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import compare

    return compare


def test_a_row_is_run_in_turns_and_shown_with_its_ratio_and_quality(compare, tmp_path, monkeypatch):
    (tmp_path / "nothing.py").write_text(ROW)
    monkeypatch.syspath_prepend(tmp_path)
    sizes = {"rows": "3", "folder": f"{tmp_path}/images"}
    checkouts = {"rlreps": str(tmp_path), "a": str(tmp_path)}
    compare.run("nothing", sizes=sizes, pairs=2, checkouts=checkouts, out=tmp_path)
    found = json.loads((tmp_path / "nothing.json").read_text())
    assert str(tmp_path) not in json.dumps(found)
    assert found["sizes"] == {"rows": 3, "folder": "FOLDER", "calls": 2}
    assert found["work"] == "Sum 3 rows in each of 2 calls."
    assert [len(runs) for runs in found["runs"].values()] == [2, 2]
    for side in found["runs"].values():
        assert side[0]["quality"] == {"rows": 27.0}
        assert side[0]["versions"]["none such"] is None

    times = {"rlreps fit": (2.0, 3.0), "a peer": (4.0, 12.0)}
    for name, pair in times.items():
        for each, seconds in zip(found["runs"][name], pair, strict=True):
            each["wall"] = each["processor"] = [seconds, seconds]
    ratio = compare.ratio(*found["runs"].values(), "cold")
    assert ratio[0] == pytest.approx(8**-0.5)
    assert ratio[1] < ratio[0] < ratio[2]
    page = tmp_path / "page.md"
    page.write_text(f"Before\n{compare.BEGIN}\nprevious\n{compare.END}\nafter\n")
    compare.page(tmp_path, page)
    text = page.read_text()
    assert text.startswith("Before\n")
    assert text.endswith("\nafter\n")
    assert "previous" not in text
    assert "[Nothing at all](#nothing-at-all)" in text
    assert "\n## Nothing at all\n" in text
    assert "| rows 27.0, 27.0 |" in text


def test_every_row_has_what_the_comparison_needs(compare):
    rows = [path.stem for path in FOLDER.glob("*.py") if path.stem not in ("compare", "side")]
    for row in rows:
        module = __import__(row)
        assert next(iter(module.SIDES)).startswith("rlreps"), row
        assert module.WORK.format(**module.SIZES, calls=2).endswith("."), row
        assert "rlreps" in module.PACKAGES, row
    assert len(rows) == 11
    assert "side" not in sys.modules


def test_the_walk_of_allo_has_its_eigenvectors_and_they_have_cosine_1(compare):
    import allo

    data = allo.prepare(episodes=2_000)
    before, after = (data.eigenvectors[part] for part in (data.states[:, :-1], data.states[:, 1:]))
    found = np.sum(before * after, axis=(0, 1)) / np.sum(before * before, axis=(0, 1))
    np.testing.assert_allclose(found, data.eigenvalues, atol=0.02)
    assert data.eigenvalues[:7].min() > data.eigenvalues[7] + 0.01
    signs = np.array([1.0, -2.0, 3.0])
    assert allo.quality(data, data.eigenvectors[:, :3] * signs)["cosine"] == pytest.approx(1.0)
    assert allo.quality(data, data.eigenvectors[:, [0, 2, 1]])["cosine"] == pytest.approx(1 / 3)


def test_the_matrix_of_lissa_has_its_singular_vectors_at_distance_0(compare):
    import lissa

    data = lissa.prepare(states=20, features=3, seed=0)
    left, values, _ = np.linalg.svd(data.entries)
    np.testing.assert_allclose(np.log10(values), np.linspace(3, 0, 20), atol=1e-4)
    mixed = left[:, :3] @ [[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [3.0, 0.0, 1.0]]
    assert lissa.quality(data, mixed)["distance"] == pytest.approx(0.0, abs=1e-4)
    assert lissa.quality(data, left[:, 2:5])["distance"] == pytest.approx(2 / 3, abs=1e-4)


SMALL = {
    "allo": {"updates": 2, "episodes": 20, "width": 8},
    "dqn_gymnasium": {"steps": 1_004},
    "dqn_gymnax": {"steps": 21_000, "envs": 500},
    "forward_backward": {"rows": 500, "features": 20, "updates": 2},
    "lissa": {"updates": 2},
    "nystroem": {"rows": 500, "features": 20},
    "streaming_pca": {"rows": 200, "k": 2},
    "successor_values": {"rows": 500, "features": 20},
    "svd": {"n": 60, "k": 3, "oversampling": 5, "iterations": 2},
    "update": {"states": 50, "updates": 2},
}
"""Row → small sizes."""

QUICK = ("lissa", "nystroem", "successor_values", "svd")
LACKING = ("allo", "dqn", "forward_backward", "lissa", "nystroem")
"""Rows whose peers the extra dev lacks."""


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=() if row in QUICK else pytest.mark.integration) for row in SMALL],
)
@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")  # Two updates.
def test_a_small_row_runs_and_measures_its_quality(row, compare, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (200, 784), np.uint8)
    (tmp_path / "images.gz").write_bytes(gzip.compress(bytes(16) + images.tobytes()))
    sides = list(__import__(row).SIDES)
    if row.startswith(LACKING):
        sides = [side for side in sides if side.startswith("rlreps")]
    if row == "dqn_gymnax":
        pytest.importorskip("gymnax")
    for side in sides:
        with jax.numpy_dtype_promotion("standard"):  # gymnax needs it.
            found = run_side(row, side, {**SMALL[row], "images": str(tmp_path)}, calls=2)
        assert np.isfinite(list(found["quality"].values())).all()
        assert len(found["wall"]) == 2


def run_side(row, side, sizes, calls):
    """Run a side in this process, on all of its cores."""
    run = runpy.run_path(str(FOLDER / "side.py"))["run"]
    return run(row, side, sizes, calls, os.cpu_count())
