"""From a configuration to a store: what is written, refused, repaired, and survives a kill."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import zarr

from rlreps.envs import arena_from_settings, load_arena
from rlreps.errors import InputError
from rlreps.successor.measure import MonteCarlo, Transition
from rlreps.successor.store import open_store, verify
from rlreps.successor.store.estimates import open_estimates
from rlreps.successor.store.format import MatrixStore
from rlreps.workflows.generate import generate

SMALL = MonteCarlo(arena="empty", bins=4, rollouts=6, horizon=5, discount=0.9, block_rows=3)


RUN = """
import json, sys
from pathlib import Path
from rlreps.successor.measure import MonteCarlo
from rlreps.workflows.generate import generate
generate(MonteCarlo(**json.loads(sys.argv[1])), Path(sys.argv[2]), progress=False)
"""


def run(config, path):
    return generate(config, path, progress=False)


@pytest.fixture(scope="module")
def small_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("generation") / "psi"
    run(SMALL, path)
    return open_store(path)


def test_a_generated_store_is_complete_and_verifies(small_store):
    report = verify(small_store, row_sum=SMALL.row_sum, relative_tolerance=1e-6)
    assert report.problems() == []
    assert small_store.shape == (16, 16)
    assert small_store.block_rows == 3
    assert small_store.settings["row_sum"] == pytest.approx(sum(0.9**t for t in range(5)))


def test_settings_hold_every_choice_and_the_arena_itself(small_store):
    settings = dict(small_store.settings)
    assert settings == json.loads(json.dumps(SMALL.store_settings()))
    decisive = dataclasses.asdict(SMALL)
    # The arena itself is there, not its name; and nothing of the other method.
    for name in ("arena", "block_rows"):
        del decisive[name]
    assert {name: settings[name] for name in decisive} == decisive
    assert arena_from_settings(settings["environment"]) == load_arena("empty")
    provenance = small_store.provenance
    assert provenance["arena"] == "empty"
    assert {"created", "python", "packages", "git_revision", "device"} <= set(provenance)


def test_figures_count_the_transitions_of_the_call_and_a_second_call_computes_nothing(tmp_path):
    transitions = 16 * 6 * 5
    first = run(SMALL, tmp_path / "psi")
    assert first["path"] == str(tmp_path / "psi")
    assert first["transitions"] == first["computed_transitions"] == transitions
    assert first["transitions_per_second"] == pytest.approx(
        transitions / first["seconds"], rel=0.2, abs=2
    )
    store = open_store(tmp_path / "psi")
    store.block_file(1).unlink()
    store.block_file(5).unlink()  # the last one, of a single row
    resumed = run(SMALL, tmp_path / "psi")
    assert resumed["computed_transitions"] == (3 + 1) * 6 * 5
    times = [store.block_file(index).stat().st_mtime_ns for index in range(6)]
    again = run(SMALL, tmp_path / "psi")
    assert again["transitions"] == transitions
    assert again["computed_transitions"] == 0
    assert again["transitions_per_second"] is None
    assert [store.block_file(index).stat().st_mtime_ns for index in range(6)] == times


@pytest.mark.parametrize("block_rows", [1, 100])
def test_block_rows_change_no_bit(small_store, tmp_path, block_rows):
    run(dataclasses.replace(SMALL, block_rows=block_rows), tmp_path / "psi")
    assert open_store(tmp_path / "psi").digest() == small_store.digest()


def test_an_error_while_writing_stops_the_work_and_a_resume_ends_bit_identical(
    small_store, tmp_path, monkeypatch
):
    write_block = MatrixStore.write_block

    def fail_at_the_third(store, index, rows):
        if index == 2:
            raise InputError("disk full")
        write_block(store, index, rows)

    monkeypatch.setattr(MatrixStore, "write_block", fail_at_the_third)
    with pytest.raises(InputError, match="disk full") as caught:
        run(SMALL, tmp_path / "psi")
    # The traceback keeps the frames alive: the threads must not live as long as they do.
    assert caught.tb is not None
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]
    monkeypatch.undo()
    store = open_store(tmp_path / "psi")
    assert store.missing_blocks() == [2, 3, 4, 5]
    assert run(SMALL, tmp_path / "psi")["computed_transitions"] == 10 * 6 * 5
    assert store.digest() == small_store.digest()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "seed=0 as stored, got seed=1"),
        ({"discount": 0.8}, "discount=0.9 as stored, got discount=0.8"),
        ({"rollouts": 7}, "rollouts=6 as stored, got rollouts=7"),
        ({"horizon": 6}, "horizon=5 as stored, got horizon=6"),
        ({"bins": 5}, "bins=4 as stored, got bins=5"),
        ({"count_start": False}, "count_start=True as stored, got count_start=False"),
        ({"arena": "sutton"}, "environment.puddles="),
        ({"block_rows": 4}, "block_rows=3 as stored, got block_rows=4"),
    ],
)
def test_a_store_made_under_other_settings_is_refused_and_left_alone(small_store, change, named):
    digest = small_store.digest()
    with pytest.raises(InputError, match="made under other settings") as caught:
        run(dataclasses.replace(SMALL, **change), small_store.path)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
    assert small_store.digest() == digest


@pytest.mark.parametrize("measure", [MonteCarlo(bins=10**6), Transition(bins=10**6)])
def test_a_matrix_that_fits_no_disk_is_refused_before_anything_is_made(measure, tmp_path):
    with pytest.raises(InputError, match=r"got 1,000,000,000,000 x 1,000,000,000,000 entries"):
        run(measure, tmp_path / "data" / "psi")
    assert not (tmp_path / "data").exists()


@pytest.mark.integration
def test_a_killed_generation_continues_to_the_bytes_of_an_uninterrupted_one(tmp_path):
    config = MonteCarlo(arena="hydrogen", bins=20, rollouts=600, horizon=200, block_rows=7)
    path = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, json.dumps(dataclasses.asdict(config)), str(path)]
    )
    try:
        deadline = time.monotonic() + 120
        while len(list(path.glob("c/*/0"))) < 3:
            assert process.poll() is None, "finished before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    killed = open_store(path)
    missing = killed.missing_blocks()
    assert 0 < len(missing) < killed.num_blocks
    resumed = run(config, path)
    rows = sum(stop - start for start, stop in map(killed.block_range, missing))
    assert resumed["computed_transitions"] == rows * config.rollouts * config.horizon
    run(config, tmp_path / "whole")
    whole = open_store(tmp_path / "whole")
    assert killed.digest() == whole.digest()
    for index in range(whole.num_blocks):
        assert killed.block_file(index).read_bytes() == whole.block_file(index).read_bytes()
    assert verify(killed, row_sum=config.row_sum, relative_tolerance=1e-6).problems() == []


def test_a_store_of_either_convention_is_the_other_one_shifted_by_a_step(tmp_path, small_store):
    """With the same seed, Σ_{t≥0} = indicator + γ Σ_{t≥1} of one step less."""
    successors = dataclasses.replace(SMALL, count_start=False, horizon=SMALL.horizon - 1)
    run(successors, tmp_path / "psi")
    shifted = np.eye(16) + SMALL.discount * open_store(tmp_path / "psi").read()
    np.testing.assert_allclose(small_store.read(), shifted, atol=1e-5)


SHAPE, ROW_SUM = (10, 4), 8.0


@pytest.fixture
def store(small_store, tmp_path):
    return open_estimates(shutil.copytree(small_store.path, tmp_path / "psi"))


def state_of(store):
    """Bytes and time of every block file of both arrays, by part and index."""
    return {
        (part.path.name, index): (
            part.block_file(index).read_bytes(),
            part.block_file(index).stat().st_mtime_ns,
        )
        for part in store.stores()
        for index in range(part.num_blocks)
        if part.block_file(index).exists()
    }


def flip(file):
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("part", ["matrix", "half_difference"])
@pytest.mark.parametrize("damage", ["flipped byte", "wrong sum"])
def test_repair_computes_only_damaged_blocks_again_and_to_the_same_bytes(store, part, damage):
    before = state_of(store)
    damaged = getattr(store, part)
    file = damaged.block_file(2)
    if damage == "flipped byte":
        flip(file)
    elif damage == "no length":
        file.write_bytes(b"")
    else:
        change = np.nan if damage == "not a number" else 1.0
        zarr.open(damaged.path, mode="r+")[6, 3] += change
    assert file.read_bytes() != before[damaged.path.name, 2][0]
    ruined = state_of(store)
    with pytest.raises(InputError, match=r"expected sound blocks to resume from, got block 2 \("):
        generate(SMALL, store.matrix.path, progress=False)
    assert state_of(store) == ruined
    assert generate(SMALL, store.matrix.path, repair=True, progress=False)["computed_rows"] == 3
    after = state_of(store)
    assert after.keys() == before.keys()
    for (name, index), (content, written) in after.items():
        assert content == before[name, index][0]
        assert (written == before[name, index][1]) == (index != 2)
    assert not any(report.problems() for report in store.verify(SMALL.row_sum))
