"""From a configuration to a store: what is written, refused, repaired, and survives a kill."""

import dataclasses
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr

from rlreps.app.generation import generate
from rlreps.envs import arena_from_settings, load_arena
from rlreps.errors import InputError
from rlreps.subspace import ExactSVD
from rlreps.successor.measure.methods import MonteCarlo
from rlreps.successor.truth.ground_truth import load_ground_truth
from rlreps.successor.truth.store import open_store, verify
from rlreps.successor.truth.store.estimates import open_estimates
from rlreps.successor.truth.store.format import MatrixStore
from rlreps.successor.truth.stored_subspace import centring_of
from rlreps.training.on_store import describe_matrix

SMALL = MonteCarlo(arena="empty", bins=4, rollouts=6, horizon=5, discount=0.9, block_rows=3)


@pytest.fixture(scope="module")
def first_figures(tmp_path_factory):
    return generate(SMALL, tmp_path_factory.mktemp("generation") / "psi")


@pytest.fixture(scope="module")
def small_store(first_figures):
    return open_store(Path(first_figures["path"]))


def test_settings_hold_every_choice_and_the_arena_itself(small_store):
    settings = dict(small_store.settings)
    assert verify(small_store, row_sum=sum(0.9**t for t in range(5))) == []
    assert (small_store.shape, small_store.block_rows) == ((16, 16), 3)
    decisive = dataclasses.asdict(SMALL)
    # The arena itself is there, not its name; and nothing of the other method.
    for name in ("arena", "block_rows", "centring"):
        del decisive[name]
    assert {name: settings[name] for name in decisive} == decisive
    # Nothing is taken off the bytes, whatever is on reading.
    for centring in ("columns", "rows", "both"):
        stored = dataclasses.replace(SMALL, centring=centring).store_settings()
        assert (stored["centring"], centring_of(stored)) == ("none", centring)
    assert arena_from_settings(settings["environment"]) == load_arena("empty")
    expected = {"created", "python", "packages", "git_revision", "device"}
    assert expected <= set(small_store.provenance)


def test_figures_count_the_transitions_of_the_call_and_a_second_call_computes_nothing(
    first_figures, small_store, tmp_path
):
    transitions = 16 * 6 * 5
    assert first_figures["transitions"] == first_figures["computed_transitions"] == transitions
    store = open_store(shutil.copytree(small_store.path, tmp_path / "psi"))
    store.block_file(1).unlink()
    store.block_file(5).unlink()  # the last one, of a single row
    resumed = generate(SMALL, tmp_path / "psi")
    assert resumed["computed_transitions"] == (3 + 1) * 6 * 5
    times = [store.block_file(index).stat().st_mtime_ns for index in range(6)]
    assert generate(SMALL, tmp_path / "psi")["computed_transitions"] == 0
    assert [store.block_file(index).stat().st_mtime_ns for index in range(6)] == times


def test_neither_centring_nor_the_size_of_blocks_changes_a_bit_of_what_is_stored(
    small_store, tmp_path
):
    generate(dataclasses.replace(SMALL, centring="rows", block_rows=100), tmp_path / "psi")
    assert open_store(tmp_path / "psi").read().tobytes() == small_store.read().tobytes()
    truths = [load_ground_truth(path, ExactSVD()) for path in (small_store.path, tmp_path / "psi")]
    for truth, axis in zip(truths, (0, 1), strict=True):
        means = np.asarray(truth.matrix, np.float64).mean(axis=axis)
        np.testing.assert_allclose(means, 0.0, atol=1e-6)
    assert describe_matrix(open_store(tmp_path / "psi")) != describe_matrix(small_store)
    with pytest.raises(InputError, match="expected centred_on_reading='rows', got 'both'"):
        generate(dataclasses.replace(SMALL, centring="both"), tmp_path / "psi")


def test_an_executor_computes_the_blocks_that_are_missing_to_the_same_bytes(small_store, tmp_path):
    store = open_store(shutil.copytree(small_store.path, tmp_path / "psi"))
    for index in (0, 1, 5):
        store.block_file(index).unlink()
    with ThreadPoolExecutor(2) as executor:
        assert generate(SMALL, store.path, executor=executor)["computed_rows"] == 3 + 3 + 1
    assert store.content_key() == small_store.content_key()


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
        generate(SMALL, tmp_path / "psi")
    # The traceback, which is kept here, keeps the frames alive, but not the threads.
    assert caught.tb is not None
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]
    monkeypatch.undo()
    store = open_store(tmp_path / "psi")
    assert store.missing_blocks() == [2, 3, 4, 5]
    assert generate(SMALL, tmp_path / "psi")["computed_transitions"] == 10 * 6 * 5
    assert store.content_key() == small_store.content_key()


def test_a_store_of_either_convention_is_the_other_one_shifted_by_a_step(tmp_path, small_store):
    """With the same seed, Σ_{t≥0} = indicator + γ Σ_{t≥1} of one step less."""
    successors = dataclasses.replace(SMALL, count_start=False, horizon=SMALL.horizon - 1)
    generate(successors, tmp_path / "psi")
    shifted = np.eye(16) + SMALL.discount * open_store(tmp_path / "psi").read()
    np.testing.assert_allclose(small_store.read(), shifted, atol=1e-5)


@pytest.mark.parametrize(
    ("part", "damage"), [("matrix", "wrong sum"), ("half_difference", "flipped byte")]
)
def test_repair_computes_only_damaged_blocks_again_and_to_the_same_bytes(
    small_store, tmp_path, part, damage
):
    store = open_estimates(shutil.copytree(small_store.path, tmp_path / "psi"))

    def state():
        """Bytes and time of every block file of both arrays, by part and index."""
        return {
            (each.path.name, index): (file.read_bytes(), file.stat().st_mtime_ns)
            for each in store.stores()
            for index, file in enumerate(map(each.block_file, range(each.num_blocks)))
        }

    before = state()
    damaged = getattr(store, part)
    if damage == "flipped byte":
        content = bytearray(damaged.block_file(2).read_bytes())
        content[5] ^= 1
        damaged.block_file(2).write_bytes(content)
    else:
        zarr.open(damaged.path, mode="r+")[6, 3] += 1.0
    ruined = state()
    with pytest.raises(
        InputError, match=r"expected sound blocks to resume from, got .*: block 2 \("
    ):
        generate(SMALL, store.matrix.path)
    assert state() == ruined
    assert generate(SMALL, store.matrix.path, repair=True)["computed_rows"] == 3
    after = state()
    for (name, index), (content, written) in after.items():
        assert content == before[name, index][0]
        assert (written == before[name, index][1]) == (index != 2)
