import csv
import dataclasses
import json
import math

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020 import pca_runs
from rlreps.experiments.amid_warmuth_2020.distributed_pca import run
from rlreps.experiments.amid_warmuth_2020.distributed_pca.config import DistributedPcaConfig

pytestmark = pytest.mark.usefixtures("compilation_cache")

CONFIG = DistributedPcaConfig(
    rules=("oja", "implicit_krasulina", "incremental_pca"),
    components=(2,),
    workers=3,
    combine_every=40,
    learning_rates=(0.1, 1.0),
    repeats=2,
)
MODELS = {"combined": (2,), "workers": (2, 3), "single": (2,)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    rng = np.random.default_rng(0)
    np.save(path, rng.normal(size=(410, 8)) * np.linspace(3.0, 0.3, 8) + 5.0)
    return path


@pytest.fixture(scope="module")
def finished(compilation_cache, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("distributed") / "run"
    return out, run.run_distributed_pca(CONFIG, out, data=data, progress=False)


def read_table(out, name):
    with (out / "results" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def read_part(out, rule):
    return json.loads((out / "parts" / f"{rule}-2.json").read_text())


def exact_loss(data, k):
    rows = np.load(data).astype(np.float32).astype(np.float64)
    values = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    return np.sum(values[k:] ** 2) / len(rows)


def test_the_table_is_what_the_parts_hold(finished, data):
    out, summary = finished
    rows = read_table(out, "table_2")
    assert [row["rule"] for row in rows] == list(CONFIG.rules)
    for row in rows:
        np.testing.assert_allclose(float(row["exact"]), exact_loss(data, 2), rtol=1e-5)
        for model, shape in MODELS.items():
            losses = np.asarray(read_part(out, row["rule"])[model])
            assert losses.shape == (4, *shape)
            runs = losses[-1].reshape(2, -1).mean(axis=1)
            np.testing.assert_allclose(float(row[f"{model}_mean"]), runs.mean())
            np.testing.assert_allclose(float(row[f"{model}_deviation"]), runs.std(ddof=1))
            found = summary["rules"][row["rule"]]["2"][model]
            np.testing.assert_allclose(found["mean"], runs.mean())


def test_all_models_start_alike_and_see_as_many_rows(finished):
    out, _ = finished
    for rule in CONFIG.rules:
        part = read_part(out, rule)
        assert part["rows_seen"] == [0, 40, 80, 120]
        start = np.asarray(part["combined"][0])
        np.testing.assert_allclose(part["single"][0], start, rtol=1e-6)
        np.testing.assert_allclose(part["workers"][0], np.stack([start] * 3, axis=1), rtol=1e-6)
        # Each worker has rows of its own.
        assert np.all(np.diff(np.sort(part["workers"][-1], axis=1), axis=1) > 0.0)


def test_models_come_near_the_exact_components_and_no_nearer_than_they_are(finished, data):
    out, _ = finished
    exact = exact_loss(data, 2)
    part = read_part(out, "implicit_krasulina")
    for model in MODELS:
        losses = np.asarray(part[model])
        assert np.all(losses[-1] < 1.3 * exact)
        assert np.all(losses > (1.0 - 1e-5) * exact)
        assert losses[-1].mean() < 0.8 * losses[0].mean()


def test_a_rule_without_learning_rate_is_not_tuned(finished):
    out, summary = finished
    part = read_part(out, "incremental_pca")
    assert part["learning_rate"] is None
    assert part["tuning_losses"] == []
    assert summary["rules"]["incremental_pca"]["2"]["learning_rate"] is None
    assert read_part(out, "oja")["learning_rate"] in CONFIG.learning_rates
    assert len(read_part(out, "oja")["tuning_losses"]) == 2


def test_the_curves_are_listed_for_every_run_and_worker(finished, data):
    out, _ = finished
    rows = read_table(out, "workers")
    assert len(rows) == 3 * 4 * 2
    exact = exact_loss(data, 2)
    for row in rows:
        point, seed = int(row["rows_seen_by_worker"]) // 40, int(row["seed"])
        part = read_part(out, row["rule"])
        percent = [100.0 * (loss / exact - 1.0) for loss in part["workers"][point][seed]]
        found = [float(row[f"worker_{index}_excess_percent"]) for index in (1, 2, 3)]
        np.testing.assert_allclose(found, percent, atol=1e-3)
        assert math.isclose(
            float(row["combined_excess_percent"]),
            100.0 * (part["combined"][point][seed] / exact - 1.0),
            abs_tol=1e-3,
        )


def test_figure_and_report_are_there_and_say_what_was_not_at_hand(finished):
    out, summary = finished
    assert (out / "figures" / "workers.png").stat().st_size > 10_000
    assert "Table 2 were not at hand" in (out / "report.html").read_text()
    assert len(summary["claims"]) == 3 + 1
    assert summary["combine_every"] == 40
    assert "goal" not in (out / "report.html").read_text().lower()


def test_a_resumed_run_computes_only_what_is_missing(finished, data, monkeypatch, files_below):
    out, summary = finished
    before, streamed, stream = files_below(out), [], run._stream
    (out / "parts" / "oja-2.json").unlink()
    (out / "summary.json").unlink()

    def counted(config, problem, rule, k, devices):
        streamed.append((rule, k))
        return stream(config, problem, rule, k, devices)

    monkeypatch.setattr(run, "_stream", counted)
    again = run.run_distributed_pca(CONFIG, out, data=data, progress=False)
    assert streamed == [("oja", 2)]
    assert again["rules"] == summary["rules"]
    after = files_below(out)
    assert after.keys() == before.keys()
    assert after["results/table_2.csv"] == before["results/table_2.csv"]


def test_a_finished_run_is_not_run_again_and_another_one_is_refused(finished, data, monkeypatch):
    out, _ = finished
    monkeypatch.setattr(run, "_stream", None)
    monkeypatch.setattr(pca_runs, "make_pca_problem", None)
    again = run.run_distributed_pca(CONFIG, out, data=data, progress=False)
    assert again == json.loads((out / "summary.json").read_text())
    changed = dataclasses.replace(CONFIG, workers=4)
    with pytest.raises(InputError, match="workers"):
        run.run_distributed_pca(changed, out, data=data, progress=False)


def test_workers_with_fewer_rows_are_combined_once_they_have_seen_them_all(data, tmp_path):
    out = tmp_path / "run"
    config = dataclasses.replace(CONFIG, combine_every=1000, rules=("implicit_krasulina", "oja"))
    summary = run.run_distributed_pca(config, out, data=data, progress=False)
    assert summary["combine_every"] == 410 // 3
    part = read_part(out, "oja")
    assert part["rows_seen"] == [0, 136]
    for model, shape in MODELS.items():
        assert np.shape(part[model]) == (2, *shape)
    page = (out / "report.html").read_text()
    assert "136 samples (all that a worker has, fewer than the 1,000 asked for)" in page


def test_fewer_rows_than_workers_are_refused(data, tmp_path):
    out = tmp_path / "run"
    config = dataclasses.replace(CONFIG, workers=411)
    with pytest.raises(InputError, match=r"a row for each of 411 workers .* got '410 rows'"):
        run.run_distributed_pca(config, out, data=data, progress=False)
    assert not out.exists()
