"""The README's Python examples run as printed."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(autouse=True)
def user_promotion():
    # A user's process does not set the strict promotion that the suite runs under.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def run(example: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    return names


def example_with(phrase: str) -> str:
    (example,) = [text for text in EXAMPLES if phrase in text]
    return example


def test_features_are_measured_against_the_released_ground_truth():
    names = run(example_with("rlreps.successor.load"))
    assert 0.1 < names["truth"].distance(names["features"]) < 1.0


def test_an_encoder_learns_the_subspace_of_a_users_own_matrix():
    names = run(example_with("matrix_source"))
    distance = names["rlreps"].subspace.subspace_distance(names["features"], names["truth"].basis)
    assert float(distance) < 0.01


def test_an_encoder_is_trained_without_a_matrix():
    names = run(example_with("puddle_world_source"))
    assert names["result"].history[-1]["step"] == 20
    assert np.isfinite(names["result"].history[-1]["loss"][0])


def test_a_loss_works_inside_a_users_own_training_step():
    names = run(example_with("value_and_grad"))
    assert np.isfinite(float(names["loss"]))
    initial = 0.1 * jax.random.normal(names["key"], (4, 16))
    assert float(np.max(np.abs(names["params"]["torso"] - initial))) > 0.0


def test_puddle_world_can_be_made_through_all_three_interfaces():
    names = run(example_with("make_vec"))
    assert names["timestep"].observation.shape == (2,)
    assert names["environment"].reset(seed=0)[0].shape == (2,)
    assert names["batched"].reset(seed=0)[0].shape == (64, 2)
    assert names["interface"].reset().first()


def test_a_stream_is_analysed_by_the_estimator():
    names = run(example_with("StreamingPCA"))
    centred = names["rows"] - names["rows"].mean(axis=0)
    exact = np.linalg.svd(centred, full_matrices=False)[2][:5]
    captured = np.sum((names["pca"].components_ @ exact.T) ** 2) / 5
    assert captured > 0.8


def test_workers_combine_their_models():
    names = run(example_with("worker_step"))
    assert names["components"].shape == (30, 5)
    # The features' variances fall in order: the first five hold most of the components.
    assert float(np.sum(np.asarray(names["components"])[:5] ** 2)) / 5 > 0.6


def test_agents_learn_a_users_own_auxiliary_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(example_with("AuxiliaryTask("))
    assert names["summary"]["steps"] == 1_000
    stored = json.loads((tmp_path / "runs" / "slowness" / "config.json").read_text())
    assert stored["config"]["own"] == "slowness"
    last = (tmp_path / "runs" / "slowness" / "metrics.jsonl").read_text().splitlines()[-1]
    assert np.all(np.asarray(json.loads(last)["auxiliary_loss"]) > 0.0)


def test_our_auxiliary_tasks_work_in_a_users_own_agent():
    names = run(example_with("make_auxiliary_task("))
    gradient = np.asarray(names["gradients"]["torso"])
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0.0
    assert np.abs(np.asarray(names["state"].moments.mean)).max() > 0.0


def test_agents_act_in_a_users_own_environment():
    names = run(example_with("class Corridor"))
    try:
        returns = np.asarray(names["returns"])
        assert returns.shape == (1, 32)
        assert np.all((returns <= -1.0) & (returns >= -200.0))
    finally:
        names["loop"].close()
        del names["gymnasium"].registry["Corridor-v0"]


def test_the_readme_names_the_commands_it_promises():
    assert "rlreps quickstart --preset laptop --out runs/laptop" in README
    found = re.search(r"-e \"\.\[dev\]\" && (pytest.*)$", README, flags=re.MULTILINE)
    assert found is not None
    # Continuous integration runs the same.
    script = (Path(__file__).parents[1] / ".ci" / "run").read_text(encoding="utf-8")
    assert script.rstrip().splitlines()[-1] == found[1]


def test_no_figure_is_left_to_be_filled_in():
    assert re.findall(r"@[A-Z0-9]+@", README) == []


def test_every_file_that_the_readme_shows_is_in_the_repository():
    root = Path(__file__).parents[1]
    shown = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert shown
    for path in shown:
        assert (root / path).is_file()
