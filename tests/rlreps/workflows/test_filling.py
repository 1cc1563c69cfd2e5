"""Filling a store with rows: what is computed, what is repaired, and what is left alone."""

import dataclasses
import shutil

import numpy as np
import pytest
import zarr

from rlreps import cli
from rlreps.errors import InputError
from rlreps.runs.locks import LOCK, exclusive
from rlreps.successor.measure import MonteCarlo, RowEstimates
from rlreps.successor.store.estimates import HALF_DIFFERENCE, open_estimates
from rlreps.workflows.generate import MatrixPlan, fill_store, generate

CONFIG = MonteCarlo(arena="empty", bins=4, rollouts=6, horizon=5, discount=0.9, block_rows=3)
SHAPE, ROW_SUM = (10, 4), 8.0


def estimate(states):
    """Rows that sum to ROW_SUM, and half differences that sum to nothing, of given states."""
    states = np.asarray(states, np.float32)[:, None]
    signs = np.float32([[1, -1, 1, -1]])
    return RowEstimates(np.float32(2) + signs * states / 16, signs * states / 32)


class Recorder:
    """An estimator that notes what was asked of it."""

    def __init__(self):
        self.asked = []
        self.closed = False

    def row_blocks(self, blocks):
        try:
            for block in blocks:
                self.asked.append(list(block))
                yield estimate(block)
        finally:
            self.closed = True


def plan(estimator, **changes):
    defaults = {
        "shape": SHAPE,
        "block_rows": 4,
        "settings": {"quantity": "test", "row_sum": ROW_SUM},
        "provenance": {},
        "sampled": True,
        "make_estimator": lambda: estimator,
    }
    return MatrixPlan(**{**defaults, **changes})


def fill(path, **changes):
    estimator = Recorder()
    rows, seconds = fill_store(plan(estimator, **changes), path, progress=False)
    assert seconds >= 0.0
    return rows, estimator


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("filling") / "psi"
    generate(CONFIG, path, progress=False)
    return path


@pytest.fixture
def store(whole, tmp_path):
    return open_estimates(shutil.copytree(whole, tmp_path / "psi"))


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


def test_only_missing_blocks_are_asked_for_and_an_estimator_only_if_there_are_any(tmp_path):
    rows, estimator = fill(tmp_path / "psi")
    assert (rows, estimator.asked) == (10, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
    assert estimator.closed
    store = open_estimates(tmp_path / "psi")
    np.testing.assert_array_equal(store.matrix.read(), estimate(range(10)).rows)
    np.testing.assert_array_equal(store.half_difference.read(), estimate(range(10)).half_difference)
    store.matrix.block_file(2).unlink()
    store.half_difference.block_file(0).unlink()
    rows, estimator = fill(tmp_path / "psi")
    assert (rows, estimator.asked) == (6, [[0, 1, 2, 3], [8, 9]])

    def none():
        pytest.fail("made an estimator for nothing")

    assert fill(tmp_path / "psi", make_estimator=none)[0] == 0


def test_the_estimator_is_stopped_when_the_disk_refuses(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise InputError("no room")

    monkeypatch.setattr("rlreps.successor.store.estimates.EstimateStore.write_block", refuse)
    estimator = Recorder()
    with pytest.raises(InputError, match="no room"):
        fill_store(plan(estimator), tmp_path / "psi", progress=False)
    assert estimator.closed
    assert not (tmp_path / "psi" / LOCK).exists()


def test_a_store_in_use_is_refused_and_nothing_is_computed(tmp_path):
    with exclusive(tmp_path / "psi"), pytest.raises(InputError, match="to be free, got it in use"):
        fill(tmp_path / "psi")
    assert fill(tmp_path / "psi")[0] == 10  # the folder that the lock made is a place for a store
    with exclusive(tmp_path / "psi"):
        assert fill(tmp_path / "psi")[0] == 0  # a complete store is only read


@pytest.mark.parametrize("part", ["matrix", "half_difference"])
@pytest.mark.parametrize("damage", ["flipped byte", "no length", "not a number", "wrong sum"])
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
        generate(CONFIG, store.matrix.path, progress=False)
    assert state_of(store) == ruined
    assert generate(CONFIG, store.matrix.path, repair=True, progress=False)["computed_rows"] == 3
    after = state_of(store)
    assert after.keys() == before.keys()
    for (name, index), (content, time) in after.items():
        assert content == before[name, index][0]
        assert (time == before[name, index][1]) == (index != 2)
    assert not any(report.problems() for report in store.verify(CONFIG.row_sum))


def test_repair_also_computes_what_is_missing_and_several_at_once(store):
    before = state_of(store)
    flip(store.matrix.block_file(0))
    flip(store.half_difference.block_file(4))
    store.matrix.block_file(5).unlink()
    figures = generate(CONFIG, store.matrix.path, repair=True, progress=False)
    assert figures["computed_rows"] == 3 + 3 + 1
    after = state_of(store)
    assert {key: content for key, (content, _) in after.items()} == {
        key: content for key, (content, _) in before.items()
    }
    same = {key for key in after if after[key] == before[key]}
    assert same == {key for key in before if key[1] in (1, 2, 3)}


def test_repair_of_a_sound_store_changes_nothing(store):
    before = state_of(store)
    assert generate(CONFIG, store.matrix.path, repair=True, progress=False)["computed_rows"] == 0
    assert state_of(store) == before


def test_repair_does_not_touch_a_store_of_other_settings(store):
    flip(store.matrix.block_file(1))
    before = state_of(store)
    other = dataclasses.replace(CONFIG, seed=1)
    with pytest.raises(InputError, match="expected seed=0 as stored, got seed=1"):
        generate(other, store.matrix.path, repair=True, progress=False)
    assert state_of(store) == before


@pytest.mark.parametrize("part", ["matrix", "half_difference"])
def test_the_commands_name_the_damaged_block_and_repair_it(store, part, capsys):
    damaged = getattr(store, part)
    flip(damaged.block_file(3))
    with pytest.raises(SystemExit) as ending:
        cli.main(["successor", "verify", str(store.matrix.path)])
    said = capsys.readouterr().err
    assert ending.value.code == 2
    assert said.count("\n") == 1
    assert f"{damaged.path}: block 3 (rows 9-11, file c/3/0): corrupt" in said
    assert "generate --repair" in said
    options = "--arena empty --bins 4 --rollouts 6 --horizon 5 --discount 0.9 --block-rows 3"
    again = ["successor", "generate", "--out", str(store.matrix.path), *options.split(), "--quiet"]
    with pytest.raises(SystemExit):
        cli.main(again)
    assert "block 3 (" in capsys.readouterr().err
    cli.main([*again, "--repair"])
    assert '"computed_rows": 3' in capsys.readouterr().out
    cli.main(["successor", "verify", str(store.matrix.path)])
    assert "6 blocks are whole" in capsys.readouterr().out


def test_half_differences_that_were_deleted_are_computed_again_with_the_same_matrix(store):
    before = state_of(store)
    shutil.rmtree(store.matrix.path / HALF_DIFFERENCE)
    assert generate(CONFIG, store.matrix.path, progress=False)["computed_rows"] == 16
    assert {key: content for key, (content, _) in state_of(store).items()} == {
        key: content for key, (content, _) in before.items()
    }


def test_what_killed_processes_leave_stands_in_nobodys_way(store):
    before = state_of(store)
    for part in store.stores():
        file = part.block_file(1)
        file.rename(file.with_name("0.__lock"))
    for name in (LOCK, ".process-0.lock", ".process-1.lock"):
        (store.matrix.path / name).write_text("process 1 on elsewhere\n")
    assert generate(CONFIG, store.matrix.path, progress=False)["computed_rows"] == 3
    after = state_of(store)
    assert {key: content for key, (content, _) in after.items()} == {
        key: content for key, (content, _) in before.items()
    }
    assert not list(store.matrix.path.rglob("*.__lock"))
