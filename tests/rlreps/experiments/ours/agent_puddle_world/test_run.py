import csv
import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from rlreps.errors import InputError
from rlreps.experiments.ours import agent_arms
from rlreps.experiments.ours.agent_puddle_world import run as run_module
from rlreps.experiments.ours.agent_puddle_world.config import PRESETS
from rlreps.experiments.ours.agent_puddle_world.run import run_agent_puddle_world
from rlreps.runs.folder import RunFolder

SMOKE = PRESETS["smoke"]
TINY = dataclasses.replace(
    SMOKE,
    base=dataclasses.replace(SMOKE.base, steps=1_000, evaluation_episodes=2),
    tasks=SMOKE.tasks[:1],
)
ARMS = ["no auxiliary task", "large batch"]
MEASURES = ["dormant_share", "effective_rank", "probe_error", "subspace_distance"]
FIGURES = sorted(
    [
        "components_large-batch",
        "components_no-auxiliary-task",
        "improvement",
        "policy_large-batch",
        "policy_no-auxiliary-task",
        "returns",
        *MEASURES,
    ]
)


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("agent_puddle_world") / "run"
    return out, run_agent_puddle_world(TINY, out, progress=False)


def test_the_summary_tells_every_arm_and_is_valid_json(finished):
    out, summary = finished
    assert json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail) == summary
    (comparison,) = summary["comparisons"]
    assert [arm["arm"] for arm in comparison["arms"]] == ARMS
    for arm in comparison["arms"]:
        records = RunFolder(out / "runs" / arm["arm"].replace(" ", "-")).read_metrics()
        assert [record["step"] for record in records] == [0, 500, 1000]
        assert arm["final_returns"] == records[-1]["returns"]
        # Updates begin after the evaluation at 500.
        mean = np.mean(records[2]["returns"])
        assert arm["mean_return"]["mean"] == pytest.approx(mean)
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 3


def test_arms_start_alike_and_differ_by_what_is_learned_on_the_side(finished):
    out, _ = finished
    none, large = (RunFolder(out / "runs" / arm.replace(" ", "-")).read_metrics() for arm in ARMS)
    # Updates begin after the first evaluation.
    for record in range(2):
        assert none[record]["returns"] == large[record]["returns"]
    assert none[2]["subspace_distance"] != large[2]["subspace_distance"]


def test_every_figure_has_its_numbers_beside_it(finished):
    out, _ = finished
    assert sorted(file.stem for file in (out / "figures").iterdir()) == FIGURES
    for name in [*FIGURES, "agents", "differences"]:
        rows = json.loads((out / "results" / f"{name}.json").read_text())
        with (out / "results" / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows) > 0
    for name in FIGURES:
        with Image.open(out / "figures" / f"{name}.png") as picture:
            picture.load()
            assert min(picture.size) > 250
    returns = json.loads((out / "results" / "returns.json").read_text())
    assert len(returns) == 2 * 3
    for row in returns:
        assert row["return"] == pytest.approx((row["seed_0"] + row["seed_1"]) / 2)
        assert row["low"] <= row["return"] <= row["high"]
    agents = json.loads((out / "results" / "agents.json").read_text())
    assert [(row["arm"], row["seed"]) for row in agents] == [
        (arm, seed) for arm in ARMS for seed in (0, 1)
    ]


def test_components_are_those_of_the_torso_orthonormal_over_the_states(finished):
    out, _ = finished
    rows = json.loads((out / "results" / "components_large-batch.json").read_text())
    for name in ("torso", "successor_measure"):
        columns = np.array([[row[f"{name}_{index}"] for index in (1, 2, 3)] for row in rows])
        np.testing.assert_allclose(columns.T @ columns, np.eye(3), atol=1e-4)
        np.testing.assert_allclose(columns.sum(axis=0), 0.0, atol=0.05)


def test_the_report_holds_the_goals_and_needs_nothing_but_itself(finished):
    out, _ = finished
    page = (out / "report.html").read_text(encoding="utf-8")
    assert len(re.findall(r'src="data:image/png;base64,', page)) == len(FIGURES)
    assert not re.search(r'(href|src)="(https?:|//|\./|/)', page)
    assert page.count("cannot be told from this run") == 3
    assert "our goal" in page.lower()


def test_a_finished_run_does_nothing_when_it_is_started_again(finished, monkeypatch, files_below):
    out, summary = finished
    before = files_below(out)
    for name in ("run_arms", "write_puddle_world_report"):
        monkeypatch.setattr(run_module, name, None)
    assert run_agent_puddle_world(TINY, out, progress=False) == summary
    assert files_below(out) == before


def test_another_configuration_is_refused_in_the_same_folder(finished, files_below):
    out, _ = finished
    before = files_below(out)
    with pytest.raises(InputError, match=r"expected threshold=-40\.0, got -1\.0"):
        run_agent_puddle_world(dataclasses.replace(TINY, threshold=-1.0), out, progress=False)
    assert files_below(out) == before


def test_an_interrupted_run_goes_on_with_the_arm_that_was_not_finished(
    finished, tmp_path, monkeypatch, files_below
):
    out, _ = finished
    again = tmp_path / "again"
    shutil.copytree(out, again)
    for part in ("results", "figures", "runs/large-batch"):
        shutil.rmtree(again / part)
    for name in ("summary.json", "report.html"):
        (again / name).unlink()
    first = files_below(again / "runs")
    trained, run_agents = [], agent_arms.run_agents

    def watched(config, folder, **options):
        trained.append(folder.name)
        if len(trained) == 2:
            raise KeyboardInterrupt
        return run_agents(config, folder, **options)

    monkeypatch.setattr(agent_arms, "run_agents", watched)
    with pytest.raises(KeyboardInterrupt):
        run_agent_puddle_world(TINY, again, progress=False)
    assert files_below(again / "runs") == first
    run_agent_puddle_world(TINY, again, progress=False)
    assert trained == ["no-auxiliary-task", "large-batch"] * 2
    for name in ("returns", "differences", *MEASURES):
        ours, theirs = (folder / "results" / f"{name}.csv" for folder in (again, out))
        assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": dataclasses.replace(SMOKE.base, environment="CartPole-v1")}, "puddle-world"),
        ({"components": 0}, "components >= 1"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SMOKE, **change)


def test_laptop_and_paper_compare_every_objective_with_none():
    for name in ("laptop", "paper"):
        arms = PRESETS[name].arms()
        assert list(arms) == [
            "no auxiliary task",
            "large batch",
            "Danskin-LISSA",
            "explicit",
            "spin",
        ]
        assert PRESETS[name].base.num_seeds >= 10
