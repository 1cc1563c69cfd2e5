import contextlib
import dataclasses
import json
import re
import shutil

import jax
import numpy as np
import pytest

from rlreps.encoders import MLP, Cosine
from rlreps.errors import InputError
from rlreps.experiments.ours.representation_transfer import run as run_module
from rlreps.experiments.ours.representation_transfer.config import PRESETS
from rlreps.experiments.ours.representation_transfer.run import run_representation_transfer
from rlreps.runs.folder import RunFolder
from rlreps.workflows.agents import load_agents
from rlreps.workflows.evaluate import load_encoder
from rlreps.workflows.ground_truths import STORE
from rlreps.workflows.train import ground_truth_for

SMOKE = PRESETS["smoke"]
TINY = dataclasses.replace(
    SMOKE,
    base=dataclasses.replace(SMOKE.base, steps=1_000, checkpoint_every=500, evaluation_episodes=2),
)
ARMS = ["learning from scratch", "pre-trained, fine-tuned", "pre-trained, frozen", "random, frozen"]
FOLDERS = ["learning-from-scratch", "pre-trained-fine-tuned", "pre-trained-frozen", "random-frozen"]
SHOWN = FOLDERS[:3]
FIGURES = sorted(
    ["improvement", "returns", "dormant_share", "effective_rank", "probe_error"]
    + ["subspace_distance"]
    + [f"{kind}_{name}" for kind in ("components", "policy") for name in SHOWN]
)


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("representation_transfer") / "run"
    return out, run_representation_transfer(TINY, out, progress=False)


def distances(out):
    """Arm → subspace distances of its torsos at every evaluation, [points, seeds]."""
    return {
        name: np.asarray(
            [
                record["subspace_distance"]
                for record in RunFolder(out / "runs" / name).read_metrics()
            ]
        )
        for name in FOLDERS
    }


def test_the_summary_tells_the_pre_training_and_every_arm(finished):
    out, summary = finished
    assert json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail) == summary
    (comparison,) = summary["comparisons"]
    assert [arm["arm"] for arm in comparison["arms"]] == ARMS
    assert len(summary["pretraining"]["per_seed"]) == 2
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 4


def test_pre_trained_torsos_start_closer_to_the_successor_measure_than_fresh_ones(finished):
    out, _ = finished
    start = {name: found[0] for name, found in distances(out).items()}
    np.testing.assert_array_equal(start["pre-trained-fine-tuned"], start["pre-trained-frozen"])
    # Whitening leaves the span as it is.
    np.testing.assert_allclose(start["learning-from-scratch"], start["random-frozen"], atol=1e-3)
    assert np.all(start["pre-trained-frozen"] < 0.8 * start["random-frozen"])


def test_frozen_torsos_stay_as_they_are_and_others_do_not(finished):
    out, _ = finished
    found = distances(out)
    for name in ("pre-trained-frozen", "random-frozen"):
        np.testing.assert_allclose(found[name], np.tile(found[name][0], (3, 1)), atol=1e-6)
    for name in ("pre-trained-fine-tuned", "learning-from-scratch"):
        assert np.all(found[name][-1] != found[name][0])
    truth = ground_truth_for(out / STORE, TINY.base.num_features)
    encoders = load_encoder(RunFolder(out / "pretraining"), truth).params
    folder = RunFolder(out / "runs" / "pre-trained-frozen")
    loop, state, _ = load_agents(folder, TINY.arms()["pre-trained, frozen"])
    with contextlib.closing(loop):
        torsos = state.memory.learner.params["torso"]
        assert np.array_equal(torsos[0]["kernel"], encoders[0]["kernel"])
        features = jax.vmap(loop.agent.network.features, in_axes=(0, None))
        for table in np.asarray(features(torsos, truth.coordinates), np.float64):
            covariance = table.T @ table / len(table)
            np.testing.assert_allclose(np.linalg.eigvalsh(covariance)[-4:], 1.0, atol=1e-2)


def test_every_figure_has_its_numbers_beside_it(finished):
    out, _ = finished
    assert sorted(file.stem for file in (out / "figures").iterdir()) == FIGURES
    for name in FIGURES:
        assert json.loads((out / "results" / f"{name}.json").read_text())
    page = (out / "report.html").read_text(encoding="utf-8")
    assert len(re.findall(r'src="data:image/png;base64,', page)) == len(FIGURES)
    assert not re.search(r'(href|src)="(https?:|//|\./|/)', page)


def test_a_finished_run_does_nothing_when_it_is_started_again(finished, monkeypatch, files_below):
    out, summary = finished
    before = files_below(out)
    for name in ("own_ground_truth", "run_training", "run_arms", "write_transfer_report"):
        monkeypatch.setattr(run_module, name, None)
    assert run_representation_transfer(TINY, out, progress=False) == summary
    assert files_below(out) == before


def test_an_interrupted_run_goes_on_where_it_was(finished, tmp_path, files_below):
    out, _ = finished
    again = tmp_path / "again"
    shutil.copytree(out, again)
    for part in ("results", "figures", "runs/random-frozen"):
        shutil.rmtree(again / part)
    for name in ("summary.json", "report.html"):
        (again / name).unlink()
    before = {**files_below(again / "runs"), **files_below(again / "pretraining")}
    run_representation_transfer(TINY, again, progress=False)
    after = {**files_below(again / "runs"), **files_below(again / "pretraining")}
    assert before.items() <= after.items()
    for name in ("returns", "subspace_distance"):
        ours, theirs = (folder / "results" / f"{name}.csv" for folder in (again, out))
        assert ours.read_bytes() == theirs.read_bytes()


def test_another_configuration_is_refused_in_the_same_folder(finished, files_below):
    out, _ = finished
    before = files_below(out)
    with pytest.raises(InputError, match=r"expected threshold=-40\.0, got -1\.0"):
        run_representation_transfer(dataclasses.replace(TINY, threshold=-1.0), out, progress=False)
    assert files_below(out) == before


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("base", {"environment": "CartPole-v1"}, "environment puddle-world"),
        ("base", {"environment": "puddle-world:empty"}, "successor measure of puddle-world:empty"),
        ("base", {"num_seeds": 3}, "pretraining.num_seeds = 3"),
        ("base", {"num_features": 5}, "pretraining.num_features = 5"),
        ("base", {"encoder": Cosine()}, "one of the encoders fourier_mlp, mlp"),
        ("pretraining", {"encoder": MLP()}, "pretraining.encoder"),
        (
            "base",
            {"dqn": dataclasses.replace(SMOKE.base.dqn, freeze_torso=True)},
            "agents that learn their torso",
        ),
        (
            "base",
            {"auxiliary": dataclasses.replace(SMOKE.base.auxiliary, weight=1.0)},
            "agents without an auxiliary task",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(part, change, message):
    changed = dataclasses.replace(getattr(SMOKE, part), **change)
    with pytest.raises(InputError, match=re.escape(message)):
        dataclasses.replace(SMOKE, **{part: changed})
