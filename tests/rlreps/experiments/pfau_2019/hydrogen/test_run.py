import csv
import dataclasses
import json

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.pfau_2019.hydrogen.closed_form import wavefunctions
from rlreps.experiments.pfau_2019.hydrogen.config import Contender, HydrogenConfig
from rlreps.experiments.pfau_2019.hydrogen.grid_solver import solve_on_grid
from rlreps.experiments.pfau_2019.hydrogen.report import aligned
from rlreps.experiments.pfau_2019.hydrogen.run import run_hydrogen
from rlreps.training.population import Population

pytestmark = pytest.mark.usefixtures("compilation_cache")

CONFIG = HydrogenConfig(
    contenders=(
        Contender(name="ours", hidden=(8, 8), steps=120, rows=96),
        Contender(name="averaged", hidden=(4,), steps=20, averaging_rate=0.1, rows=32),
        Contender(name="shared", networks="shared", hidden=(12,), steps=20, rows=32),
    ),
    num_seeds=2,
    grid_points=24,
    evaluations=5,
)


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("hydrogen") / "run"
    return out, run_hydrogen(CONFIG, out, progress=False)


def test_every_energy_of_every_seed_is_in_the_table(finished):
    out, summary = finished
    with (out / "results" / "energies.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * 9 + 9
    for contender in summary["contenders"]:
        found = [float(row["energy"]) for row in rows if row["contender"] == contender["name"]]
        np.testing.assert_allclose(found, np.ravel(contender["energies"]))
    solver = [row for row in rows if row["contender"] == "grid solver"]
    np.testing.assert_allclose(
        [float(row["energy"]) for row in solver], summary["grid_solver"]["energies"]
    )


def test_training_lowers_the_error_and_the_distance(finished):
    out, _ = finished
    records = [
        json.loads(line)
        for line in (out / "runs" / "00" / "metrics.jsonl").read_text().splitlines()
    ]
    first, last = records[0], records[-1]
    assert np.all(
        np.asarray(last["subspace_distance"]) < 0.9 * np.asarray(first["subspace_distance"])
    )
    assert np.all(np.asarray(last["energy_1"]) < -0.5)


def test_the_goal_is_judged_by_the_worst_seed(finished):
    _, summary = finished
    goal = summary["claims"][0]
    errors = summary["contenders"][0]["worst_error"]
    assert goal["holds"] is (max(errors) <= CONFIG.tolerance)
    assert f"{max(errors):.2%}" in goal["found"]
    assert all(claim["holds"] is None for claim in summary["claims"][1:])


def test_figures_and_report_are_there(finished):
    out, _ = finished
    for name in ("wavefunctions", "energies", "worst_error"):
        assert (out / "figures" / f"{name}.png").stat().st_size > 10_000
    assert "closed form" in (out / "report.html").read_text()


def test_a_finished_run_is_not_run_again_and_another_configuration_is_refused(
    finished, monkeypatch
):
    out, summary = finished
    monkeypatch.setattr(Population, "advance", None)
    assert run_hydrogen(CONFIG, out, progress=False) == summary
    with pytest.raises(InputError, match="num_seeds"):
        run_hydrogen(dataclasses.replace(CONFIG, num_seeds=3), out, progress=False)


def test_alignment_undoes_rotations_inside_levels_and_no_others():
    solution = solve_on_grid(24, 20.0)
    exact = wavefunctions(solution.positions)
    exact = exact / np.linalg.norm(exact, axis=0)
    orthonormal, _ = np.linalg.qr(exact)
    signs = np.sign(np.sum(orthonormal * exact, axis=0))
    orthonormal = orthonormal * signs
    rng = np.random.default_rng(0)
    turned = orthonormal.copy()
    for level in (slice(0, 1), slice(1, 4), slice(4, 9)):
        size = level.stop - level.start
        turned[:, level] = orthonormal[:, level] @ np.linalg.qr(rng.normal(size=(size, size)))[0]
    np.testing.assert_allclose(aligned(turned, orthonormal), orthonormal, atol=1e-10)
    across = orthonormal[:, [1, 0, *range(2, 9)]]
    assert np.abs(aligned(across, orthonormal) - orthonormal).max() > 0.1
