import csv
import dataclasses
import json

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020 import pca_runs
from rlreps.experiments.amid_warmuth_2020.learning_rate_sensitivity import run
from rlreps.experiments.amid_warmuth_2020.learning_rate_sensitivity.config import (
    LearningRateSensitivityConfig,
)

pytestmark = pytest.mark.usefixtures("compilation_cache")

CONFIG = LearningRateSensitivityConfig(
    rules=("oja", "implicit_krasulina"),
    powers=(0.9, 0.8),
    components=(2, 3),
    learning_rates=(0.1, 1.0),
    repeats=2,
    evaluations=4,
)
PARTS = ["implicit_krasulina-2", "implicit_krasulina-3", "oja-2", "oja-3"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    rng = np.random.default_rng(0)
    np.save(path, rng.normal(size=(400, 8)) * np.linspace(3.0, 0.3, 8) + 5.0)
    return path


@pytest.fixture(scope="module")
def finished(compilation_cache, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("sensitivity") / "run"
    return out, run.run_learning_rate_sensitivity(CONFIG, out, data=data, progress=False)


def read_table(out, name):
    with (out / "results" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def read_part(out, name):
    return json.loads((out / "parts" / f"{name}.json").read_text())


def exact_loss(data, k):
    rows = np.load(data).astype(np.float32).astype(np.float64)
    values = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    return np.sum(values[k:] ** 2) / len(rows)


def test_the_table_is_what_the_parts_hold(finished, data):
    out, summary = finished
    rows = read_table(out, "table_1")
    assert [(row["k"], row["scale"]) for row in rows] == [
        (k, scale) for k in ("2", "3") for scale in ("0.1", "1.0", "10.0")
    ]
    for index, row in enumerate(rows):
        k, scale = int(row["k"]), index % 3
        np.testing.assert_allclose(float(row["exact"]), exact_loss(data, k), rtol=1e-5)
        for rule in CONFIG.rules:
            losses = read_part(out, f"{rule}-{k}")["losses"][-1][scale]
            mean, deviation = np.mean(losses), np.std(losses, ddof=1)
            np.testing.assert_allclose(float(row[f"{rule}_mean"]), mean)
            np.testing.assert_allclose(float(row[f"{rule}_deviation"]), deviation)
            np.testing.assert_allclose(summary["rules"][rule][str(k)]["mean"][scale], mean)


def test_every_final_loss_is_listed_with_its_excess(finished, data):
    out, _ = finished
    rows = read_table(out, "scales")
    assert len(rows) == 2 * 2 * 3 * 2
    for row in rows:
        exact = exact_loss(data, int(row["k"]))
        percent = 100.0 * (float(row["loss"]) / exact - 1.0)
        np.testing.assert_allclose(float(row["excess_percent"]), percent, atol=1e-3)
        chosen = read_part(out, f"{row['rule']}-{row['k']}")["learning_rate"]
        assert float(row["learning_rate"]) == pytest.approx(chosen * float(row["scale"]))


def test_scales_share_their_starts_and_nothing_else(finished):
    out, _ = finished
    for name in PARTS:
        losses = np.asarray(read_part(out, name)["losses"])
        assert losses.shape == (5, 3, 2)
        np.testing.assert_array_equal(losses[0], losses[0, :1].repeat(3, axis=0))
        assert np.all(np.diff(np.sort(losses[-1], axis=0), axis=0) > 0.0)
        assert np.all(np.diff(losses[0]) != 0.0)


def test_one_pass_comes_near_the_exact_components(finished, data):
    out, _ = finished
    losses = read_part(out, "implicit_krasulina-2")["losses"][-1]
    assert np.all(np.asarray(losses) < 1.15 * exact_loss(data, 2))
    assert np.all(np.asarray(losses) > (1.0 - 1e-5) * exact_loss(data, 2))


def test_the_chosen_rate_has_the_least_loss_of_those_tried(finished):
    out, _ = finished
    rows = read_table(out, "tuning")
    for rule in CONFIG.rules:
        for k in CONFIG.components:
            tried = [row for row in rows if (row["rule"], row["k"]) == (rule, str(k))]
            assert len(tried) == 2
            best = min(tried, key=lambda row: float(row["loss"]))
            assert best["chosen"] == "True"
            assert float(best["learning_rate"]) == read_part(out, f"{rule}-{k}")["learning_rate"]


def test_figures_and_report_are_there_and_say_what_was_not_at_hand(finished):
    out, summary = finished
    for name in ("curves", "scales"):
        assert (out / "figures" / f"{name}.png").stat().st_size > 10_000
    page = (out / "report.html").read_text()
    assert "were not, so that nothing here is judged by them" in page
    assert "35.17" in page
    assert "or our expectation" in page
    assert "goal" not in page.lower()
    assert "explicit Krasulina depends" not in page
    assert all("MNIST" not in claim["statement"] for claim in summary["claims"])


def test_a_resumed_run_computes_only_what_is_missing(finished, data, monkeypatch, files_below):
    out, summary = finished
    before, streamed, stream = files_below(out), [], run._stream
    (out / "parts" / "oja-3.json").unlink()
    (out / "summary.json").unlink()

    def counted(config, problem, rule, power, k, devices):
        streamed.append((rule, k))
        return stream(config, problem, rule, power, k, devices)

    monkeypatch.setattr(run, "_stream", counted)
    again = run.run_learning_rate_sensitivity(CONFIG, out, data=data, progress=False)
    assert streamed == [("oja", 3)]
    assert again["rules"] == summary["rules"]
    after = files_below(out)
    assert after.keys() == before.keys()
    assert after["results/table_1.csv"] == before["results/table_1.csv"]


def test_a_finished_run_is_not_run_again_and_another_one_is_refused(
    finished, data, monkeypatch, tmp_path
):
    out, _ = finished
    monkeypatch.setattr(run, "_stream", None)
    monkeypatch.setattr(pca_runs, "make_pca_problem", None)
    again = run.run_learning_rate_sensitivity(CONFIG, out, data=data, progress=False)
    assert again == json.loads((out / "summary.json").read_text())
    changed = dataclasses.replace(CONFIG, repeats=3)
    with pytest.raises(InputError, match="repeats"):
        run.run_learning_rate_sensitivity(changed, out, data=data, progress=False)
    other = tmp_path / "rows.npy"
    np.save(other, np.load(data) * 2.0)
    with pytest.raises(InputError, match="checksum"):
        run.run_learning_rate_sensitivity(CONFIG, out, data=other, progress=False)


def test_too_few_rows_and_too_many_components_are_refused(data, tmp_path):
    out = tmp_path / "run"
    few = tmp_path / "few.npy"
    np.save(few, np.load(data)[:9])
    with pytest.raises(InputError, match="9 rows"):
        run.run_learning_rate_sensitivity(CONFIG, out, data=few, progress=False)
    for k, message in ((9, "k in"), (8, "beyond their top 8")):
        wide = dataclasses.replace(CONFIG, components=(k,))
        with pytest.raises(InputError, match=message):
            run.run_learning_rate_sensitivity(wide, out, data=data, progress=False)
    assert not out.exists()
