import csv
import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.pfau_2019.bouncing_balls.config import PRESETS, BouncingBallsConfig
from rlreps.experiments.pfau_2019.bouncing_balls.run import run_bouncing_balls
from rlreps.runs.checkpoints import Checkpoints

pytestmark = pytest.mark.usefixtures("compilation_cache")

CONFIG = dataclasses.replace(
    PRESETS["smoke"],
    num_features=3,
    steps=100,
    evaluations=10,
    num_seeds=2,
    pooling=8,
    components=30,
    degree=2,
)
FIGURES = ("eigenvalues", "exciting_frames", "maps", "training")


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("balls") / "run"
    return out, run_bouncing_balls(CONFIG, out, progress=False)


def rows_of(out, name):
    return list(csv.DictReader((out / "results" / f"{name}.csv").read_text().splitlines()))


def test_training_makes_features_slower_on_frames_it_never_saw(finished):
    out, summary = finished
    curves = rows_of(out, "training")
    for seed in ("0", "1"):
        sums = [
            sum(float(row[f"feature_{k}"]) for k in (1, 2, 3))
            for row in curves
            if row["seed"] == seed
        ]
        assert len(sums) == 11
        assert sums[-1] < 0.5 * sums[0]
    learned = np.asarray(summary["eigenvalues"]["deep"])
    assert learned.shape == (2, 3)
    # Functions that see the positions do best.
    assert np.all(learned.sum(axis=1) > np.sum(summary["eigenvalues"]["functions of positions"]))


def test_a_folder_holds_figures_their_numbers_and_the_report(finished):
    out, summary = finished
    for name in FIGURES:
        assert (out / "figures" / f"{name}.png").stat().st_size > 1000
        assert json.loads((out / "results" / f"{name}.json").read_text())
    page = (out / "report.html").read_text()
    assert "what the paper states" in page
    assert all(claim["found"] in page for claim in summary["claims"])
    rows = rows_of(out, "eigenvalues")
    assert len(rows) == (2 + 2) * 3
    for row in rows:
        correlation = 1.0 - float(row["eigenvalue"]) / 2.0
        assert float(row["correlation_at_lag_1"]) == pytest.approx(correlation)


def test_a_finished_run_does_nothing_new_and_another_is_refused(finished, files_below):
    out, summary = finished
    before = files_below(out)
    assert run_bouncing_balls(CONFIG, out, progress=False) == summary
    with pytest.raises(InputError, match="hidden"):
        run_bouncing_balls(dataclasses.replace(CONFIG, hidden=8), out, progress=False)
    assert files_below(out) == before


def test_a_run_killed_while_training_ends_as_one_that_was_not(finished, tmp_path, monkeypatch):
    class KilledError(Exception):
        pass

    whole, _ = finished
    save, saved = Checkpoints.save, []

    def save_then_die(checkpoints, step, state):
        save(checkpoints, step, state)
        saved.append(step)
        if len(saved) == 3:  # Halfway through the second seed.
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save_then_die)
        with pytest.raises(KilledError):
            run_bouncing_balls(CONFIG, tmp_path, progress=False)
    assert saved == [50, 100, 50]
    run_bouncing_balls(CONFIG, tmp_path, progress=False)
    for name in ("eigenvalues", "exciting_frames", "maps"):
        expected = (whole / "results" / f"{name}.csv").read_bytes()
        assert (tmp_path / "results" / f"{name}.csv").read_bytes() == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 65}, "an even number of rows >= 2, got 65"),
        ({"num_features": 0}, "num_features >= 1, got 0"),
        ({"channels": ()}, "at least one convolution"),
        ({"averaging_rate": 0.0}, r"averaging_rate in \(0, 1\], got 0.0"),
        ({"evaluations": 7}, r"steps to be a multiple of evaluations \(7\)"),
        ({"rows": 2, "frame_batches": 1}, "shown <= 2, the frames to choose from, got 3"),
        ({"seed": -1}, "seed in"),
    ],
)
def test_settings_without_meaning_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(CONFIG, **change)


def test_presets_differ_in_numbers_alone_and_the_papers_has_what_is_known_of_it():
    assert set(PRESETS) == {"smoke", "laptop", "paper"}
    paper = PRESETS["paper"]
    assert (paper.num_features, len(paper.channels)) == (12, 3)
    assert (paper.averaging_rate, paper.optimizer.name) == (0.01, "rmsprop")
    assert all(isinstance(preset, BouncingBallsConfig) for preset in PRESETS.values())


def test_the_configuration_does_not_import_jax():
    code = (
        "import sys; import rlreps.experiments.pfau_2019.bouncing_balls.config; "
        "sys.exit('jax' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
