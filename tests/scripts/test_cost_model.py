"""The cost model: its fit, what it holds out, and the work that it times."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest

CONDITIONS = {
    **{"date": "2026-01-02", "revision": "abc", "cores": 2, "machine": "x", "jax": "1"},
    "repeats": 1,
}


@pytest.fixture(scope="module")
def script(load):
    return load("cost_model")


def points_of(script, stage, coefficients, cores=2):
    """A stage's points, whose seconds are what the coefficients say."""
    found = []
    for number, (processes, *values) in enumerate(script.STAGES[stage].points):
        sizes = dict(zip(script.STAGES[stage].names, values, strict=True))
        point = script.Point(stage, processes, sizes, number % 3 == 2, 1.0)
        seconds = script.predict(point.terms(cores), coefficients)
        found.append(script.Point(stage, processes, sizes, point.held, seconds))
    return found


def planted(script, stage):
    """Coefficients under which every term takes a second of some point."""
    points = points_of(script, stage, dict.fromkeys(_names(script, stage), 1.0))
    return {
        name: 1.0 / max(point.terms(2)[name] for point in points) for name in _names(script, stage)
    }


def _names(script, stage):
    processes, *values = script.STAGES[stage].points[0]
    sizes = dict(zip(script.STAGES[stage].names, values, strict=True))
    return [*script.STAGES[stage].terms(sizes, script.Machine(processes, 1))]


@pytest.mark.parametrize("stage", ["generation", "decomposition", "training", "streaming"])
def test_points_determine_every_coefficient(script, stage):
    coefficients = planted(script, stage)
    fitted = [each for each in points_of(script, stage, coefficients) if not each.held]
    assert script.fit(fitted, 2) == pytest.approx(coefficients, rel=1e-6)


def test_processes_beyond_the_cores_wait_for_them(script):
    point = points_of(script, "streaming", planted(script, "streaming"))[-4]
    own = "rows times entries of the model"
    assert point.processes == 8
    assert point.terms(2)[own] == 4 * point.terms(8)[own] == 4 * point.terms(16)[own]


def test_processes_with_seeds_of_their_own_exchange_nothing(script):
    sizes = {"rows": 10, "tasks": 10, "features": 3, "updates": 5}
    exchanges = [
        script.training_terms({**sizes, "seeds": seeds}, script.Machine(count, 2))[
            "rounds of exchange"
        ]
        for seeds, count in ((1, 1), (4, 2), (3, 2), (1, 8))
    ]
    assert exchanges == [0, 0, 5 * 2, 5 * 14 * 4]


def test_the_page_tells_the_worst_error_at_points_that_no_fit_has_seen(script, tmp_path):
    coefficients = planted(script, "generation")
    points = points_of(script, "generation", coefficients)
    script.write_page(tmp_path / "good.md", points, CONDITIONS)
    assert "generation 0%. The goal of 25% is met." in (tmp_path / "good.md").read_text()
    *others, last = points
    assert last.held
    wrong = script.Point(last.stage, 8, last.sizes, True, 2.0 * last.seconds)
    script.write_page(tmp_path / "bad.md", [*others, wrong], CONDITIONS)
    page = (tmp_path / "bad.md").read_text()
    assert "generation 50%. The goal of 25% is not met." in page
    assert "-50% | held out |" in page


def test_a_large_case_has_a_range_that_the_points_do_not_settle(script, tmp_path):
    points = points_of(script, "generation", planted(script, "generation"))
    exact = script.without_each([each for each in points if not each.held], 2)
    assert len(exact) == 10
    for model in exact:
        assert model == pytest.approx(planted(script, "generation"), rel=1e-6)
    off = dataclasses.replace(points[0], seconds=3.0 * points[0].seconds)
    script.write_page(tmp_path / "page.md", [off, *points[1:]], CONDITIONS)
    (row,) = re.findall(r"\| generation \| 1,000 .*", (tmp_path / "page.md").read_text())
    said = re.findall(r"([\d,.]+) (\w+) \(([\d,.]+) (\w+) to ([\d,.]+) (\w+)\)", row)
    assert len(said) == 3
    assert any(low != high for _, _, low, _, high, _ in said)


SMALL = {
    "generation": {"bins": 10, "rows": 96, "rollouts": 4},
    "decomposition": {"states": 250, "tasks": 60, "components": 4},
    "training": {"rows": 20, "tasks": 10, "features": 3, "seeds": 2, "updates": 5},
    "streaming": {"features": 12, "components": 3, "rows": 5, "steps": 2},
}


@pytest.mark.parametrize("stage", [*SMALL])
def test_the_work_of_a_stage_is_done_again_each_time(script, stage, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "MATRIX", (50, 60))
    work = script.STAGES[stage].work(SMALL[stage], tmp_path / "store")
    if stage == "training":
        assert min(work() for _ in range(2)) > 0.0
        return
    work()
    if stage == "generation":
        blocks = [*(tmp_path / "store").glob("c/*/0")]
        assert len(blocks) == SMALL[stage]["rows"] // 32
        for block in blocks:
            block.write_bytes(b"")
        work()
        assert all(block.stat().st_size > 0 for block in blocks)
        return
    name = {"decomposition": "panels", "streaming": "states"}[stage]
    (kept,) = (
        cell.cell_contents
        for variable, cell in zip(work.__code__.co_freevars, work.__closure__, strict=True)
        if variable == name
    )
    before = np.array(jax.tree.leaves(kept)[0])
    work()
    assert np.any(np.asarray(jax.tree.leaves(kept)[0]) != before)


def test_points_of_another_kind_are_refused(script, tmp_path):
    (tmp_path / "points.json").write_text('{"kind": {"cores": 2}, "seconds": {}}')
    with pytest.raises(
        ValueError, match=r"expected points of .*'repeats': 3.*, got \{'cores': 2\}"
    ):
        script.measured(tmp_path, ["generation"], 3)


@pytest.mark.integration
def test_processes_time_their_work_once(script, tmp_path, capsys, monkeypatch):
    stage = script.STAGES["generation"]._replace(points=((2, 10, 96, 4),))
    monkeypatch.setitem(script.STAGES, "generation", stage)
    (point,) = script.measured(tmp_path, ["generation"], 1)
    assert point.seconds > 0.0
    (kept,) = json.loads((tmp_path / "points.json").read_text())["seconds"].values()
    assert kept == point.seconds
    assert script.measured(tmp_path, ["generation"], 1) == [point]
    assert capsys.readouterr().out.count(" s\n") == 1
