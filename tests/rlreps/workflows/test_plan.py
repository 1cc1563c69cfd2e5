"""Plans of several processes: shares that make up the whole, and nothing written."""

import dataclasses
import json
import shutil

import jax
import pytest

from rlreps.cli import main
from rlreps.errors import InputError
from rlreps.successor.measure import MonteCarlo, Transition
from rlreps.successor.store.estimates import open_estimates
from rlreps.workflows.generate import generate
from rlreps.workflows.plan import plan_generation, plan_training
from rlreps.workflows.train import TrainingConfig

SMALL = MonteCarlo(bins=6, rollouts=4, horizon=20, block_rows=5)


def test_a_plan_of_generation_shares_out_every_missing_block(tmp_path):
    plan = plan_generation(SMALL, tmp_path / "psi", 3)
    each = plan["processes"]
    assert [one["blocks"] for one in each] == [3, 3, 2]
    assert [one["rows"] for one in each] == [15, 11, 10]  # The last of 8 blocks has one row.
    assert sum(one["written_bytes"] for one in each) == plan["stored_bytes"] == 2 * 4 * 36**2
    for one in each:
        assert one["seconds"] == pytest.approx(one["rows"] / plan["rows_per_second_here"], abs=0.1)
    assert not (tmp_path / "psi").exists()
    generate(SMALL, tmp_path / "psi", progress=False)
    store = open_estimates(tmp_path / "psi")
    for index in (2, 6):
        store.remove_block(index)
    assert [one["rows"] for one in plan_generation(SMALL, tmp_path / "psi", 3)["processes"]] == [
        5,
        5,
        0,
    ]
    with pytest.raises(InputError, match="under other settings: expected block_rows=5 as stored"):
        plan_generation(dataclasses.replace(SMALL, block_rows=9), tmp_path / "psi", 3)
    # Without rollouts there is no rate that holds for all sizes.
    timed = plan_generation(Transition(bins=6), tmp_path / "other", 2)["processes"]
    assert [one["seconds"] for one in timed] == [None, None]


@pytest.mark.parametrize(
    ("seeds", "shares"),
    [
        (4, [{"seeds": [7, 8]}, {"seeds": [9, 10]}]),
        (3, [{"rows": 11}, {"rows": 10}]),
    ],
)
def test_a_plan_of_training_shares_out_seeds_or_rows(toy_store, seeds, shares):
    config = TrainingConfig(num_features=2, rows=21, tasks=5, steps=50, seed=7, num_seeds=seeds)
    plan = plan_training(config, toy_store, 2, jax.devices()[:1])
    found = plan["processes"]
    assert [
        {name: one[name] for name in share} for one, share in zip(found, shares, strict=True)
    ] == (shares)
    matrix = 4 * open_estimates(toy_store).matrix.shape[0] ** 2
    assert all(one["memory_bytes"] > matrix and one["seconds"] >= 0 for one in found)


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
    assert [one["rows"] for one in plan["processes"]] == [10, 10]
    assert not out.exists()
    assert files_below(store) == before
