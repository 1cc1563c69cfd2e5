import csv
import dataclasses
import json
import re

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020 import pca_runs
from rlreps.experiments.amid_warmuth_2020.online_pca import curves as curves_module
from rlreps.experiments.amid_warmuth_2020.online_pca import run as run_module
from rlreps.experiments.amid_warmuth_2020.online_pca.config import (
    PRESETS,
    Contender,
    OnlinePcaConfig,
)
from rlreps.experiments.amid_warmuth_2020.online_pca.run import run_online_pca
from rlreps.sources.datasets import load_observations
from rlreps.sources.images import TEST_IMAGES, TRAIN_IMAGES, write_idx_images
from rlreps.streaming import RULES

DIGITS = (load_digits().images[:600] * (255 / 16)).astype(np.uint8)
CONFIG = OnlinePcaConfig(
    contenders=(
        Contender(rule="implicit_krasulina", learning_rates=(1.0, 10.0), shown=True),
        Contender(rule="oja", power=0.9, learning_rates=(1.0,), shown=True),
        Contender(rule="incremental_pca", rows_per_update=30, learning_rates=()),
    ),
    components=(3,),
    shown_components=3,
    repeats=2,
    evaluations=12,
)
NAMES = ["implicit_krasulina-1", "oja-1", "incremental_pca-30"]
FIGURES = [
    "batches_by_rows",
    "batches_by_seconds",
    "components",
    "excess_by_rows",
    "excess_by_seconds",
]

pytestmark = pytest.mark.usefixtures("compilation_cache")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "digits"
    write_idx_images(folder / TRAIN_IMAGES, DIGITS[:500])
    write_idx_images(folder / TEST_IMAGES, DIGITS[500:])
    return folder


@pytest.fixture(scope="module")
def finished(compilation_cache, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("online_pca") / "run"
    return out, run_online_pca(CONFIG, out, data=data, progress=False)


def table(out, name):
    with (out / "results" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def part(out, name):
    return json.loads((out / "parts" / f"{name}.json").read_text())


def test_every_rule_learns_and_the_exact_loss_is_scikit_learns(finished):
    out, summary = finished
    rows = DIGITS.reshape(600, 64) / 255
    exact = PCA(3, svd_solver="full").fit(rows)
    residuals = rows - exact.inverse_transform(exact.transform(rows))
    loss = np.mean(np.sum(residuals**2, axis=1))
    assert summary["exact"]["3"] == pytest.approx(loss, rel=1e-5)
    assert f"{loss:.3f}" in (out / "report.html").read_text(encoding="utf-8")
    assert [curve["rule"] for curve in summary["curves"]] == NAMES
    for curve in summary["curves"]:
        start = np.mean([losses[0] for losses in part(out, f"{curve['rule']}-k3")["losses"]])
        assert loss < curve["loss"] < 0.5 * (loss + start), curve["rule"]
        assert curve["diverged"] == 0


def test_the_table_holds_the_excess_that_the_parts_were_measured_at(finished):
    out, summary = finished
    final = table(out, "final_excess")
    assert [row["rule"] for row in final] == NAMES
    for row, curve in zip(final, summary["curves"], strict=True):
        stored = part(out, f"{row['rule']}-k3")
        ends = [losses[-1] for losses in stored["losses"]]
        expected = 100 * (np.mean(ends) / summary["exact"]["3"] - 1)
        assert float(row["excess_percent"]) == pytest.approx(expected, rel=1e-9)
        assert float(row["excess_percent"]) == curve["excess_percent"]
        seconds = np.asarray(stored["seconds"])[:, -1]
        assert float(row["seconds"]) == pytest.approx(seconds.mean())
        per_row = 1e6 * np.median(seconds) / stored["rows_seen"][-1]
        assert float(row["microseconds_per_row"]) == pytest.approx(per_row)
        assert int(row["rows_seen"]) == stored["rows_seen"][-1] == 600


def test_rates_are_chosen_for_rules_that_have_one(finished):
    out, _ = finished
    stored = part(out, "implicit_krasulina-1-k3")
    losses = dict(zip((1.0, 10.0), stored["tuning_losses"], strict=True))
    assert stored["learning_rate"] == min(losses, key=losses.get)
    rows = {row["rule"]: row for row in table(out, "final_excess")}
    assert float(rows["oja-1"]["learning_rate"]) == 1.0
    assert rows["incremental_pca-30"]["learning_rate"] == rows["incremental_pca-30"]["power"] == ""


def test_every_figure_has_its_numbers_beside_it(finished):
    out, _ = finished
    assert sorted(file.stem for file in (out / "figures").iterdir()) == FIGURES
    for name in FIGURES:
        with Image.open(out / "figures" / f"{name}.png") as picture:
            picture.load()
            assert min(picture.size) > 300
    drawn = {name: {row["rule"] for row in table(out, name)} for name in FIGURES}
    for name, rules in drawn.items():
        assert rules == set(NAMES[::2] if name.startswith("batches") else NAMES[:2]), name
    assert len(table(out, "batches_by_rows")) == 12 + 10
    by_rows, by_seconds = (table(out, name) for name in FIGURES[3:])
    assert len(by_rows) == len(by_seconds) == 12 + 12
    for row, same in zip(by_rows, by_seconds, strict=True):
        assert row["excess_percent"] == same["excess_percent"]
    oja = [row for row in by_rows if row["rule"] == "oja-1"]
    assert [int(row["rows_seen"]) for row in oja] == list(range(50, 601, 50))
    means = np.mean(part(out, "oja-1-k3")["losses"], axis=0)
    exact = float(table(out, "final_excess")[0]["exact_loss"])
    found = [float(row["excess_percent"]) for row in oja]
    np.testing.assert_allclose(found, 100 * (means[1:] / exact - 1), rtol=1e-6)
    elapsed = np.mean(part(out, "oja-1-k3")["seconds"], axis=0)[1:]
    seconds = [float(row["seconds"]) for row in by_seconds if row["rule"] == "oja-1"]
    np.testing.assert_allclose(seconds, elapsed)


def test_the_components_shown_are_rotated_onto_the_exact_ones(finished):
    out, _ = finished
    exact = PCA(3, svd_solver="full").fit(DIGITS.reshape(600, 64) / 255).components_.T
    rows = table(out, "components")
    for name in NAMES[:2]:
        span, _ = np.linalg.qr(np.asarray(part(out, f"{name}-k3")["components"]))
        found = [float(row["cosine"]) for row in rows if row["rule"] == name]
        # What the best rotation reaches (von Neumann's trace inequality).
        best = np.linalg.svd(span.T @ exact, compute_uv=False).sum()
        assert sum(found) == pytest.approx(best, rel=1e-5)
        assert len(found) == 3


def test_a_run_without_all_four_rules_leaves_the_order_open(finished):
    out, summary = finished
    excess, seconds = summary["claims"]
    assert excess["holds"] is None
    own = summary["curves"][0]
    assert excess["found"].startswith(f"{own['excess_percent']:.3g} %; Oja ")
    taken = summary["seconds_per_row"]["3"]
    assert taken == {name: min(trials) for name, trials in part(out, "times-k3").items()}
    assert set(taken) == {"qr", "implicit_krasulina", "oja"}
    ratio = taken["qr"] / taken["implicit_krasulina"]
    assert f"with QR {ratio:.2g} times as much" in seconds["found"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "what the paper states" in page
    assert len(re.findall(r'src="data:image/png;base64,', page)) == len(FIGURES)


def test_a_finished_run_does_nothing_when_it_is_started_again(
    finished, data, monkeypatch, files_below
):
    out, summary = finished
    before = files_below(out)
    for name in ("measure", "write_online_pca_report"):
        monkeypatch.setattr(run_module, name, None)
    monkeypatch.setattr(pca_runs, "make_pca_problem", None)
    assert run_online_pca(CONFIG, out, data=data, progress=False) == summary
    assert files_below(out) == before


def test_a_killed_run_goes_on_at_the_curve_that_is_missing(
    compilation_cache, data, tmp_path, monkeypatch
):
    config = dataclasses.replace(CONFIG, contenders=CONFIG.contenders[:2])
    out = tmp_path / "run"
    whole = run_online_pca(config, out, data=data, progress=False)
    lost = part(out, "oja-1-k3")
    kept = (out / "parts" / "implicit_krasulina-1-k3.json").read_bytes()
    (out / "summary.json").unlink()
    (out / "parts" / "oja-1-k3.json").unlink()
    measured = []

    def record(config, contender, k, *others):
        measured.append((contender.name, k))
        return curves_module.measure(config, contender, k, *others)

    monkeypatch.setattr(run_module, "measure", record)
    again = run_online_pca(config, out, data=data, progress=False)
    assert measured == [("oja-1", 3)]
    assert (out / "parts" / "implicit_krasulina-1-k3.json").read_bytes() == kept
    redone = part(out, "oja-1-k3")
    for name in ("losses", "rows_seen", "learning_rate", "tuning_losses", "components"):
        assert redone[name] == lost[name]
    assert again["curves"][1]["excess_percent"] == whole["curves"][1]["excess_percent"]


def test_another_configuration_or_other_rows_are_refused_in_the_same_folder(
    finished, data, tmp_path, files_below
):
    out, _ = finished
    before = files_below(out)
    with pytest.raises(InputError, match="expected repeats=2, got 3"):
        run_online_pca(dataclasses.replace(CONFIG, repeats=3), out, data=data, progress=False)
    np.save(tmp_path / "digits.npy", DIGITS[:599])
    with pytest.raises(InputError, match=r"expected data\.checksum"):
        run_online_pca(CONFIG, out, data=tmp_path / "digits.npy", progress=False)
    assert files_below(out) == before


def test_divergence_is_counted_and_shown_and_never_dropped(data, tmp_path):
    # Far above any rate that the generalised Hebbian algorithm bears.
    config = dataclasses.replace(
        CONFIG,
        contenders=(
            dataclasses.replace(CONFIG.contenders[1], shown=False),
            Contender(rule="sanger", learning_rates=(1e3, 1e4), power=0.0, shown=True),
        ),
    )
    out = tmp_path / "run"
    summary = run_online_pca(config, out, data=data, progress=False)
    lost = summary["curves"][1]
    assert (lost["diverged"], lost["all_rates_diverged"], lost["learning_rate"]) == (2, True, 1e3)
    rows = DIGITS.reshape(600, 64) / 255
    assert lost["loss"] == pytest.approx(rows.var(axis=0).sum(), rel=1e-5)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "2 diverged" in page
    assert "Diverged runs: Sanger (GHA), k = 3: 2." in page
    drawn = [row for row in table(out, "excess_by_rows") if row["rule"] == "sanger-1"]
    assert float(drawn[-1]["excess_percent"]) == pytest.approx(lost["excess_percent"])
    assert summary["claims"] == []


def test_rows_that_are_no_images_have_no_figure_of_components(tmp_path):
    generator = np.random.default_rng(0)
    np.save(tmp_path / "rows.npy", generator.normal(size=(300, 9)) * np.arange(1, 10))
    config = dataclasses.replace(CONFIG, contenders=CONFIG.contenders[:1], repeats=1)
    out = tmp_path / "run"
    summary = run_online_pca(config, out, data=tmp_path / "rows.npy", progress=False)
    assert summary["data"] == load_observations(tmp_path / "rows.npy").fingerprint()
    assert summary["data"]["name"] == "rows (300 rows)"
    assert sorted(file.stem for file in (out / "figures").iterdir()) == FIGURES[3:]
    assert "Lines: one run." in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("contender", "message"),
    [
        (Contender(rule="ojas"), "rule to be one of capped_msg, eigengame"),
        (Contender(rule="oja", learning_rates=()), "learning rates to choose from for oja"),
        (Contender(rule="incremental_pca"), "no learning rate to choose from for incremental_pca"),
        (
            Contender(rule="oja", rows_per_update=61),
            "at least 61 rows, an update of oja, in the 10% that η0 is chosen on, got 60",
        ),
        (
            Contender(rule="incremental_pca", rows_per_update=601, learning_rates=()),
            "at least 601 rows, an update of incremental_pca, in all, got 600",
        ),
    ],
)
def test_contenders_that_cannot_run_leave_nothing_behind(data, tmp_path, contender, message):
    config = dataclasses.replace(CONFIG, contenders=(contender,))
    with pytest.raises(InputError, match=message):
        run_online_pca(config, tmp_path / "run", data=data, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_components_that_exhaust_the_rows_leave_nothing_to_compare(tmp_path):
    rows = np.random.default_rng(0).normal(size=(300, 3))
    np.save(tmp_path / "rows.npy", rows @ np.random.default_rng(1).normal(size=(3, 9)))
    with pytest.raises(InputError, match=r"rows of rows .* vary beyond their top 3 components"):
        run_online_pca(CONFIG, tmp_path / "run", data=tmp_path / "rows.npy", progress=False)
    with pytest.raises(InputError, match=r"k in \[1, 9\]"):
        run_online_pca(
            dataclasses.replace(CONFIG, components=(3, 10)),
            tmp_path / "run",
            data=tmp_path / "rows.npy",
            progress=False,
        )
    assert not (tmp_path / "run").exists()


def test_the_presets_name_rules_that_exist_with_rates_for_those_that_need_them():
    for preset in PRESETS.values():
        for contender in preset.contenders:
            entry = RULES[contender.rule]
            assert entry.needs_learning_rate == bool(contender.learning_rates), contender.name
    names = [{each.rule for each in PRESETS[name].contenders} for name in ("laptop", "paper")]
    assert names == [set(RULES) - {"incremental_msg"}, set(RULES)]


def test_a_report_speaks_of_the_rules_of_its_run_alone(finished):
    out, _ = finished
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "explicit Krasulina depends" not in page.replace("\n", " ")
    assert "Incremental MSG" not in page
    assert "laptop" not in page
