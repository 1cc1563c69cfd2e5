import csv
import dataclasses
import json

import numpy as np
import pytest

from rlreps.encoders import MLP
from rlreps.errors import InputError
from rlreps.experiments.le_lan_2023.puddle_world.config import PRESETS, PuddleWorldConfig
from rlreps.experiments.le_lan_2023.puddle_world.report import MethodResult, compare_with_paper
from rlreps.experiments.le_lan_2023.puddle_world.run import run_puddle_world
from rlreps.losses import DanskinChunked, DanskinLissa, LargeBatch
from rlreps.runs.checkpoints import Checkpoints
from rlreps.successor.measure import MonteCarlo
from rlreps.training.population import Population

pytestmark = pytest.mark.usefixtures("compilation_cache")

CONFIG = dataclasses.replace(
    PRESETS["smoke"],
    successor=MonteCarlo(bins=8, rollouts=20, horizon=60, discount=0.9, block_rows=32),
    training=dataclasses.replace(
        PRESETS["smoke"].training,
        encoder=MLP(hidden=(16,)),
        steps=40,
        evaluate_every=20,
        checkpoint_every=20,
    ),
    dimensions=(1, 3),
    headline_dimension=3,
)


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("puddle-world") / "run"
    return out, run_puddle_world(CONFIG, out, progress=False)


def test_every_method_and_d_is_in_the_tables_and_the_report(finished):
    out, summary = finished
    expected = {(name, d) for name in ("danskin_lissa", "explicit", "large_batch") for d in (1, 3)}
    assert {(row["method"], row["d"]) for row in summary["distances"]} == expected
    rows = list(
        csv.DictReader((out / "results" / "distance_by_dimension.csv").read_text().splitlines())
    )
    table = json.loads((out / "results" / "distance_by_dimension.json").read_text())
    assert [float(row["mean"]) for row in rows] == [row["mean"] for row in table]
    assert [row["mean"] for row in table] == [row["mean"] for row in summary["distances"]]
    assert all(0.0 < row["mean"] <= 1.0 and row["runs"] == 2 for row in table)
    page = (out / "report.html").read_text()
    assert "2,500,000 times fewer" in page
    for name in ("distance_by_dimension", "curves", "components"):
        assert (out / "figures" / f"{name}.png").stat().st_size > 10_000


def test_an_ordering_after_few_updates_decides_nothing(finished):
    _, summary = finished
    means = {(row["method"], row["d"]): row["mean"] for row in summary["distances"]}
    for d, claim in zip((1, 3), summary["claims"], strict=True):
        assert claim["holds"] is None
        assert f"{means['explicit', d]:.3f}" in claim["found"]


def claims_of(ends, spread):
    """The claims on three runs of each method, about their ends, after the paper's updates."""
    config = dataclasses.replace(CONFIG, training=dataclasses.replace(CONFIG.training, steps=10**8))
    runs = spread * np.array([-1.0, 0.0, 1.0])
    results = {
        name: MethodResult(
            steps=np.array([0, 10**8]),
            distances={d: np.stack([np.full(3, 0.9), end + runs], axis=1) for d in (1, 3)},
            diverged={1: 0, 3: 0},
            aligned=np.zeros((64, 3), np.float32),
            evaluation={},
            seconds=1.0,
        )
        for name, end in ends.items()
    }
    return compare_with_paper(config, results)


@pytest.mark.parametrize(
    ("danskin", "spread", "holds"),
    [
        (0.1, 0.01, True),
        (0.4, 0.01, False),
        (0.25, 0.01, False),
        (0.19, 0.05, None),
        (0.21, 0.05, None),
    ],
)
def test_the_verdict_on_the_papers_ordering_is_that_of_the_intervals(danskin, spread, holds):
    ends = {"danskin_lissa": danskin, "explicit": 0.3, "large_batch": 0.2}
    claims = claims_of(ends, spread)
    assert [claim.holds for claim in claims] == [holds, holds]
    nearest = f"Danskin-LISSA {danskin:.3f}" if danskin < 0.2 else "large batch 0.200"
    assert claims[0].found.startswith(nearest)


@pytest.mark.parametrize("names", [("danskin_lissa",), ("explicit", "large_batch")])
def test_without_danskin_lissa_and_another_method_there_is_no_verdict(names):
    assert [claim.holds for claim in claims_of(dict.fromkeys(names, 0.2), 0.0)] == [None, None]


@pytest.mark.parametrize(
    "objective",
    [
        DanskinChunked(),
        LargeBatch(precondition=0.01),
        DanskinLissa(whitening=True),
    ],
    ids=lambda objective: objective.name,
)
def test_methods_that_masked_features_would_change_are_refused(objective):
    with pytest.raises(InputError, match="expected objectives"):
        dataclasses.replace(CONFIG, objectives=(objective,))


def test_a_run_in_several_programs_finds_what_one_program_does(finished, tmp_path):
    _, summary = finished
    split = run_puddle_world(
        dataclasses.replace(CONFIG, members=3), tmp_path / "run", progress=False
    )
    for one, other in zip(summary["distances"], split["distances"], strict=True):
        assert other["mean"] == pytest.approx(one["mean"], rel=2e-2)


def test_an_interrupted_run_goes_on_and_ends_as_one_that_was_not(finished, tmp_path, monkeypatch):
    out, summary = finished
    save = Checkpoints.save
    saved = []

    def save_then_fail(checkpoints, step, state):
        save(checkpoints, step, state)
        saved.append(step)
        if len(saved) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", save_then_fail)
    with pytest.raises(KeyboardInterrupt):
        run_puddle_world(CONFIG, tmp_path / "run", progress=False)
    monkeypatch.undo()
    resumed = run_puddle_world(CONFIG, tmp_path / "run", progress=False)
    assert resumed["distances"] == summary["distances"]
    curves = (out / "results" / "curves.csv").read_bytes()
    assert (tmp_path / "run" / "results" / "curves.csv").read_bytes() == curves


def test_a_finished_run_is_not_made_again_and_another_is_refused(finished, monkeypatch):
    out, summary = finished

    def fail(*arguments):
        pytest.fail("trained again")

    monkeypatch.setattr(Population, "advance", fail)
    assert run_puddle_world(CONFIG, out, progress=False) == summary
    other = dataclasses.replace(CONFIG, dimensions=(2, 3))
    with pytest.raises(InputError, match=r"expected dimensions=\[1, 3\], got \[2, 3\]"):
        run_puddle_world(other, out, progress=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"headline_dimension": 2}, r"expected headline_dimension to be one of"),
        ({"dimensions": (3, 64)}, r"expected d in \[1, 64\), got 64"),
        ({"objectives": (LargeBatch(), LargeBatch())}, "expected every method once"),
        ({"members": 0}, "expected members >= 1, got 0"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(CONFIG, **changes)


def test_the_paper_preset_is_the_published_protocol():
    training = PRESETS["paper"].training
    assert (training.steps, training.rows, training.tasks) == (10**8, 250, 1)
    assert (training.encoder.name, training.encoder.hidden) == ("mlp", (512, 512))
    assert (training.optimizer.name, training.optimizer.learning_rate) == ("adam", 1e-4)
    assert training.optimizer.schedule == "constant"
    successor = PRESETS["paper"].successor
    assert (successor.discount, successor.bins, successor.rollouts) == (0.99, 100, 1000)
    roles = PRESETS["paper"].objectives[0]
    assert (roles.gradient_rows, roles.weight_rows, roles.covariance_rows) == (50, 50, 50)
    assert isinstance(PRESETS["laptop"], PuddleWorldConfig)
    assert np.isclose(PRESETS["laptop"].training.optimizer.learning_rate, 1e-4)
