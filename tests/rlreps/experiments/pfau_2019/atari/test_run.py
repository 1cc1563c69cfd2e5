import csv
import dataclasses
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from rlreps.errors import InputError
from rlreps.experiments.pfau_2019.atari import frames as frames_module
from rlreps.experiments.pfau_2019.atari import run as run_module
from rlreps.experiments.pfau_2019.atari.config import PRESETS, AtariConfig
from rlreps.experiments.pfau_2019.atari.run import run_atari
from rlreps.runs.folder import RunFolder

SMOKE = PRESETS["smoke"]
METHODS = ["slow features", "PCA of pixels", "successor features"]
FIGURES = [
    "eigenvalues",
    "frames_pca_of_pixels",
    "frames_slow_features",
    "frames_successor_features",
    "training",
]

pytestmark = pytest.mark.usefixtures("compilation_cache")


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("atari") / "run"
    return out, run_atari(SMOKE, out, progress=False)


def test_the_smoke_preset_learns_and_says_so_as_valid_json(finished):
    out, summary = finished
    stored = json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail)
    assert stored == summary
    assert list(summary["methods"]) == METHODS
    for figures in summary["methods"].values():
        for eigenvalues in figures.values():
            assert len(eigenvalues) == 3
            assert all(0.0 < value < 4.0 for value in eigenvalues)
    records = RunFolder(out / "runs" / "slow-features").read_metrics()
    assert [record["step"] for record in records] == [0, 20, 40, 60]
    totals = [
        sum(record[f"training_eigenvalue_{number}"][0] for number in (1, 2, 3))
        for record in (records[0], records[-1])
    ]
    assert totals[1] < 0.7 * totals[0]
    # There are fewer pairs than a measurement takes: it is of all of them.
    final = summary["methods"]["slow features"]["held_out_eigenvalues"]
    measured = [records[-1][f"held_out_eigenvalue_{number}"][0] for number in (1, 2, 3)]
    np.testing.assert_allclose(measured, final, rtol=1e-3)


def test_the_predictor_learns(finished):
    out, summary = finished
    records = RunFolder(out / "runs" / "predictor").read_metrics()
    assert records[-1]["loss"][0] < records[1]["loss"][0]
    assert summary["predictor"]["predictor"] == pytest.approx(records[-1]["held_out_error"][0])


def test_every_figure_has_its_numbers_beside_it(finished):
    out, summary = finished
    assert sorted(file.stem for file in (out / "figures").iterdir()) == FIGURES
    for name in [*FIGURES, "spans"]:
        rows = json.loads((out / "results" / f"{name}.json").read_text())
        with (out / "results" / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows) > 0
        if name in FIGURES:
            with Image.open(out / "figures" / f"{name}.png") as picture:
                picture.load()
                assert min(picture.size) > 300
    eigenvalues = json.loads((out / "results" / "eigenvalues.json").read_text())
    for method in METHODS:
        own = [row["held_out_eigenvalue"] for row in eigenvalues if row["method"] == method]
        assert own == summary["methods"][method]["held_out_eigenvalues"]
    spans = json.loads((out / "results" / "spans.json").read_text())
    assert spans == summary["comparisons"]
    for row in spans:
        correlations = [row[f"canonical_correlation_{number}"] for number in (1, 2, 3)]
        assert row["subspace_distance"] == pytest.approx(
            1.0 - np.mean(np.square(correlations)), abs=1e-4
        )


def test_the_report_holds_the_claims_and_needs_nothing_but_itself(finished):
    out, summary = finished
    page = (out / "report.html").read_text(encoding="utf-8")
    assert len(re.findall(r'src="data:image/png;base64,', page)) == len(FIGURES)
    assert not re.search(r'(href|src)="(https?:|//|\./|/)', page)
    for claim in summary["claims"]:
        assert claim["found"] in page
    # One episode is all there is: held-out frames are of the one that was trained on.
    assert page.count("cannot be told from this run") == len(summary["claims"]) == 5


def test_a_finished_run_does_nothing_when_it_is_started_again(finished, monkeypatch, files_below):
    out, summary = finished
    before = files_below(out)
    for name in ("require_game", "recorded_frames", "train", "write_atari_report"):
        monkeypatch.setattr(run_module, name, None)
    assert run_atari(SMOKE, out, progress=False) == summary
    assert files_below(out) == before


class Killed(BaseException):
    pass


def test_an_experiment_killed_in_each_of_its_networks_ends_as_one_that_was_not(
    finished, tmp_path, monkeypatch
):
    whole, summary = finished
    append, killed = RunFolder.append_metrics, tmp_path / "killed"
    for name in ("slow-features", "predictor"):

        def die(self, record, name=name):
            append(self, record)
            if self.path.name == name and record["step"] == 40:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "append_metrics", die)
            with pytest.raises(Killed):
                run_atari(SMOKE, killed, progress=False)
        assert not (killed / "summary.json").exists()
    monkeypatch.setattr(frames_module, "random_agent", None)
    resumed = run_atari(SMOKE, killed, progress=False)
    for name in ("methods", "comparisons", "predictor"):
        assert resumed[name] == summary[name]
    for name in ("eigenvalues", "frames_slow_features", "spans"):
        files = [folder / "results" / f"{name}.csv" for folder in (whole, killed)]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_another_configuration_is_refused_in_the_same_folder(finished, files_below):
    out, _ = finished
    before = files_below(out)
    with pytest.raises(InputError, match=r"expected discount=0\.9, got 0\.5"):
        run_atari(dataclasses.replace(SMOKE, discount=0.5), out, progress=False)
    assert files_below(out) == before


def test_an_unknown_game_leaves_nothing_behind(tmp_path):
    with pytest.raises(InputError, match=r"one of .*Seaquest.*, got 'Seequest'"):
        run_atari(dataclasses.replace(SMOKE, game="Seequest"), tmp_path / "run", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)  # The import system's own "not there".
    with pytest.raises(InputError, match=r'pip install "rlreps\[atari\]"'):
        run_atari(SMOKE, tmp_path / "run", progress=False)
    assert list(tmp_path.iterdir()) == []


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
        ({"learning_rate": float("nan")}, "finite learning_rate > 0, got nan"),
        ({"discount": 1.0}, r"discount in \[0, 1\), got 1.0"),
        ({"seed": -1}, r"seed in \[0, 2\*\*31\), got -1"),
        ({"steps": 7}, r"steps to be a multiple of evaluations \(50\), got 7"),
    ],
)
def test_settings_without_meaning_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        AtariConfig(**settings)


def test_the_configuration_does_not_import_jax():
    program = (
        "import sys, rlreps.experiments.pfau_2019.atari.config as config; "
        "assert set(config.PRESETS) == {'smoke', 'laptop', 'paper'}; "
        "assert 'jax' not in sys.modules and 'ale_py' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
