"""Plans: sizes, memory and a rough time, and nothing written."""

import json
import shutil

import jax
import pytest

from rlreps.cli import main
from rlreps.successor.measure import MonteCarlo, Transition
from rlreps.workflows.plan import plan_generation, plan_training
from rlreps.workflows.train import TrainingConfig

SMALL = MonteCarlo(bins=6, rollouts=4, horizon=20, block_rows=5)


def test_a_plan_of_generation_states_sizes_and_a_time_where_it_rolls_out():
    plan = plan_generation(SMALL, 3)
    assert plan["stored_bytes"] == 2 * 4 * 36**2
    assert plan["transitions"] == 36 * 4 * 20
    assert plan["seconds"] >= 0.0
    assert plan_generation(Transition(bins=6), 2)["seconds"] is None


@pytest.mark.parametrize(("seeds", "shared_out"), [(4, "seeds"), (3, "rows of every batch")])
def test_a_plan_of_training_shares_out_seeds_or_rows(toy_store, seeds, shared_out):
    config = TrainingConfig(num_features=2, rows=21, tasks=5, steps=50, seed=7, num_seeds=seeds)
    plan = plan_training(config, toy_store, 2, jax.devices()[:1])
    assert plan["shared_out"] == shared_out
    assert plan["memory_bytes"] > 4 * plan["states"] * plan["tasks"]
    assert plan["seconds"] >= 0.0


@pytest.mark.parametrize(
    "place",
    [["--num-processes", "2"], ["--coordinator", "nowhere:1", "--num-processes", "2"]],
    ids=["number", "place"],
)
def test_a_plan_is_printed_and_nothing_is_written_or_waited_for(
    toy_store, tmp_path, capsys, files_below, place
):
    store = shutil.copytree(toy_store, tmp_path / "psi")
    shutil.rmtree(store / "subspace", ignore_errors=True)  # Another test may have made it.
    out, before = tmp_path / "run", files_below(store)
    place = place if len(place) == 2 else [*place, "--process-id", "1"]
    small = ["--num-features", "2", "--rows", "20", "--tasks", "5", "--steps", "20"]
    main(["train", str(store), "--out", str(out), *small, "--plan", *place])
    plan = json.loads(capsys.readouterr().out)
    assert (plan["processes"], plan["shared_out"]) == (2, "rows of every batch")
    assert not out.exists()
    assert files_below(store) == before
