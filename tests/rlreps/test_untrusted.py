"""Files that somebody else made or something has damaged: what they may not do.

They run no code, reach no file outside their folder, change no result without a word, and take no
more than a second to be refused.
"""

import functools
import gzip
import io
import json
import os
import shutil
import sys
import time
import zipfile
from contextlib import contextmanager

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import AgentConfig
from rlreps.config import as_json
from rlreps.envs import ArenaError, load_arena
from rlreps.errors import InputError, require_memory, usable_memory
from rlreps.files import parse_json, read_arrays
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.sources.datasets import read_idx
from rlreps.subspace.svd import RandomizedSVD
from rlreps.successor import store as stores
from rlreps.successor.data import Transitions
from rlreps.successor.ground_truth import principal_subspace, save_matrix
from rlreps.successor.store.cache import write_archive
from rlreps.workflows.explore import explore
from rlreps.workflows.fit import Collection, read_data
from rlreps.workflows.sweep import SweepConfig, parse_grid
from rlreps.workflows.train import TrainingConfig

words = str.split


@pytest.fixture
def at_once():
    """The body takes less than a second of this process, and does not wait for anything either."""

    @contextmanager
    def watch():
        start, began = time.process_time(), time.monotonic()
        yield
        assert time.process_time() - start < 1.0
        assert time.monotonic() - began < 5.0  # Others may be at work beside it.

    return watch


# Code.


@pytest.mark.parametrize("command", ["evaluate", "render"])
@pytest.mark.parametrize("environment", ["dm_env:planted:make", "planted:Task-v0"])
def test_a_run_decides_no_module_to_import(refused, tmp_path, monkeypatch, command, environment):
    (tmp_path / "planted.py").write_text("raise SystemExit('this ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = as_json(AgentConfig(environment=environment))
    beside = dict.fromkeys(("arena", "ground_truth", "start", "own"))
    RunFolder.create_or_resume(
        tmp_path / "run", kind="agent", config={**config, **beside}, provenance={}
    )
    (tmp_path / "run" / "checkpoints").mkdir()
    message = refused("agent", command, tmp_path / "run")
    assert f"--env {environment}" in message
    assert "planted" not in sys.modules
    other = refused("agent", command, tmp_path / "run", "--env", "CartPole-v1")
    assert f"expected --env {environment}" in other


# Links.


def a_run(path, **config):
    return RunFolder.create_or_resume(path, kind="train", config=config, provenance={})


def save(path, *steps, run="ours"):
    for step in steps:
        Checkpoints(path, run=run).save(step, {"x": jnp.full(3, step)})


def restore(path, step, run="ours"):
    return Checkpoints(path, run=run).restore(step, {"x": jnp.zeros(3, int)})


@pytest.mark.parametrize("place", ["checkpoints", "metrics.jsonl", "figures", "parts"])
def test_a_link_that_leaves_a_run_is_refused_and_what_it_leads_to_stays(
    tmp_path, files_below, place
):
    a_run(tmp_path / "run")
    for name in ("1", "2", "3"):
        (tmp_path / "foreign" / name).mkdir(parents=True)
    before = files_below(tmp_path / "foreign")
    (tmp_path / "run" / place).symlink_to(tmp_path / "foreign")
    with pytest.raises(InputError, match=f"files of its own in .*, got the link {place} to "):
        a_run(tmp_path / "run")
    if place == "checkpoints":
        with pytest.raises(InputError, match="expected a folder of checkpoints, got the link"):
            save(tmp_path / "run" / place, 4)
    assert files_below(tmp_path / "foreign") == before


def test_a_lock_empties_no_file_that_it_is_a_link_to(tmp_path):
    from rlreps.runs.locks import exclusive

    (tmp_path / "letter").write_text("dear")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "letter")
    with pytest.raises(InputError, match="expected a folder that can be written"):
        exclusive(tmp_path / "run").__enter__()
    assert (tmp_path / "letter").read_text() == "dear"


def test_blocks_behind_a_link_are_neither_read_nor_deleted(store, tmp_path):
    foreign = shutil.copytree(store.path / "c", tmp_path / "foreign")
    shutil.rmtree(store.path / "c" / "1")
    (store.path / "c" / "1").symlink_to(foreign / "1")
    for act in (store.missing_blocks, lambda: store.remove_block(1)):
        with pytest.raises(InputError, match="link"):
            act()
    with pytest.raises(InputError, match="link"):
        store.write_block(1, np.zeros((4, 6), np.float32))
    assert (foreign / "1" / "0").exists()
    shutil.rmtree(store.path / "c")
    (store.path / "c").symlink_to(foreign)
    with pytest.raises(InputError, match=r"files of its own in .*, got the link c to "):
        stores.open_store(store.path)


# Results that would change without a word.


@pytest.fixture
def store(tmp_path):
    """Twelve states and six tasks in three blocks of four rows."""
    values = np.random.default_rng(0).random((12, 6)).astype(np.float32)
    made = stores.create_or_resume(
        tmp_path / "psi", shape=(12, 6), block_rows=4, settings={"of": "a test"}, provenance={}
    )
    for index in range(3):
        made.write_block(index, values[4 * index : 4 * index + 4])
    return made


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.update(shape=[8, 6]),
        lambda found: found["attributes"]["rlreps"]["settings"].update(of="another"),
        lambda found: found["attributes"]["rlreps"].update(checksum="0"),
    ],
    ids=["shape", "settings", "checksum"],
)
def test_metadata_of_a_store_that_changed_are_refused(store, change):
    edit(store.path / "zarr.json", change)
    with pytest.raises(InputError, match="with a shape or settings changed since"):
        stores.open_store(store.path)


def test_blocks_beyond_the_last_are_those_of_another_shape(store):
    """In stores of format 1 nothing else says that the shape was changed."""

    def shorten(found):
        found["shape"] = [8, 6]
        own = found["attributes"]["rlreps"]
        del own["checksum"]
        own["format"] = 1

    edit(store.path / "zarr.json", shorten)
    found = stores.open_store(store.path)
    for use in (found.missing_blocks, found.read, lambda: stores.verify(found)):
        with pytest.raises(InputError, match=r"expected 2 blocks in .*, got block 2; move it else"):
            use()


def test_an_empty_folder_beyond_the_last_block_is_none(store):
    (store.path / "c" / "9").mkdir()
    assert stores.verify(store).ok


def test_a_path_that_leads_round_in_a_circle_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match=r"expected a matrix store at .*loop"):
        stores.open_store(tmp_path / "loop")


def test_a_block_that_is_no_file_or_of_another_size_is_not_read(store, tmp_path, at_once):
    block = store.block_file(0)
    sound = block.read_bytes()
    shutil.copy(block, tmp_path / "elsewhere")

    def refuse(message):
        for read in (lambda: store.read_block(0), store.read, store.content_key):
            with at_once(), pytest.raises(InputError, match=message):
                read()

    with block.open("ab") as file:
        file.truncate(3 * 2**30)
    refuse(f"a file of 3,221,225,472 bytes instead of {len(sound):,}")
    for make in (os.mkfifo, functools.partial(os.symlink, tmp_path / "elsewhere")):
        block.unlink()
        make(block)
        refuse("no regular file|1 missing: 0")
    block.unlink()
    block.write_bytes(sound)
    assert len(store.read_block(0))


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_of_an_earlier_format_is_read_and_gone_on_with(store, version):
    values = store.read()

    def earlier(found):
        own = found["attributes"]["rlreps"]
        own.update(format=version)
        if version == 1:
            del own["checksum"]

    edit(store.path / "zarr.json", earlier)
    if version == 2:
        for index in range(3):  # A hash of what binds the block to its place.
            store.block_file(index).with_name("seal").write_text("0123\n")
    found = stores.open_store(store.path)
    assert found.read().tobytes() == values.tobytes()
    assert stores.verify(found).ok
    found.remove_block(2)
    assert found.missing_blocks() == [2]
    found.write_block(2, values[8:])
    assert stores.open_store(store.path).read().tobytes() == values.tobytes()


def test_a_checkpoint_of_another_step_or_run_is_refused(tmp_path):
    save(tmp_path, 5)
    with pytest.raises(InputError, match="got the checkpoint of another run"):
        restore(tmp_path, 5, run="another")
    shutil.copytree(tmp_path / "5", tmp_path / "9")
    with pytest.raises(InputError, match="got the checkpoint of step 5"):
        restore(tmp_path, 9)
    # As earlier versions wrote them.
    edit(tmp_path / "5" / "seal.json", lambda seal: [seal.pop(name) for name in [*seal][2:]])
    np.testing.assert_array_equal(restore(tmp_path, 5)["x"], [5, 5, 5])


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    save(tmp_path, 5)
    check, seen = Checkpoints._check, []

    def replace(self, step, layout):
        seen.append(step)
        if len(seen) == 1:
            save(tmp_path, 6, 7)
        check(self, step, layout)

    monkeypatch.setattr(Checkpoints, "_check", replace)
    checkpoints = Checkpoints(tmp_path, run="ours")
    step, state = checkpoints.restore_latest({"x": jnp.zeros(3, int)})
    assert (step, seen) == (7, [5, 7])
    np.testing.assert_array_equal(state["x"], [7, 7, 7])
    with pytest.raises(InputError, match="to stay while it was read, got it replaced by"):
        checkpoints.restore(5, {"x": jnp.zeros(3, int)})


def test_a_value_of_a_runs_files_that_changed_is_refused(tmp_path):
    folder = a_run(tmp_path, seed=1)
    folder.write_summary({"mean": 11.04})
    edit(tmp_path / "summary.json", lambda found: found.update(mean=11.25))
    with pytest.raises(InputError, match=r"expected .*summary\.json as it was written"):
        folder.read_summary()
    edit(tmp_path / "config.json", lambda found: found["config"].update(seed=2))
    with pytest.raises(InputError, match=r"expected .*config\.json as it was written"):
        RunFolder(tmp_path)
    edit(tmp_path / "config.json", lambda found: found.pop("checksum"))
    assert RunFolder(tmp_path).config == {"seed": 2}


def test_a_configuration_of_ones_own_is_told_from_what_its_checkpoints_are_of(tmp_path):
    save(tmp_path / "run" / "checkpoints", 5, run=a_run(tmp_path / "run", seed=1).identity)
    config = tmp_path / "run" / "config.json"
    edit(config, lambda found: found["config"].update(seed=2))
    with pytest.raises(InputError, match="its provenance yourself; with another kind or config"):
        RunFolder(tmp_path / "run")
    edit(config, lambda found: found.pop("checksum"))
    with pytest.raises(InputError, match=r"another run; restore config\.json") as refusal:
        restore(tmp_path / "run" / "checkpoints", 5, run=RunFolder(tmp_path / "run").identity)
    assert "delete" not in str(refusal.value)
    # What is only told of a run, such as where its store was, may be changed so.
    edit(config, lambda found: found["config"].update(seed=1))
    edit(config, lambda found: found["provenance"].update(store="elsewhere"))
    moved = RunFolder(tmp_path / "run")
    assert moved.provenance == {"store": "elsewhere"}
    restore(tmp_path / "run" / "checkpoints", 5, run=moved.identity)


@pytest.mark.parametrize(
    "puddle",
    [
        "shape = 'polygon'\nvertices = [[0.4, 0.4], [1e30, 0.4], [1e30, 0.6], [0.4, 0.6]]",
        "shape = 'disc'\ncentre = [0.5, 0.5]\nradius = 1e-40",
        "shape = 'disc'\ncentre = [0.5, 1e39]\nradius = 0.1",
        f"shape = 'disc'\ncentre = [0.5, 1{'0' * 400}]\nradius = 0.1",
        "shape = 'polygon'\nvertices = [[0.4, 0.4], [0.4000000001, 0.4], [0.6, 0.6], [0.4, 0.6]]",
    ],
)
def test_numbers_that_single_precision_has_not_make_no_arena(tmp_path, puddle):
    (tmp_path / "arena.toml").write_text(f"[[puddles]]\nmultiplier = 0.0\n{puddle}\n")
    with pytest.raises(ArenaError, match=r"expected .*(number|distinct)") as refusal:
        load_arena(tmp_path / "arena.toml")
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    "values", [[np.nan, 1.0], [2.0, -1.0], [2.0 + 1.0j, 1.0], [np.inf, 1.0]], ids=str
)
def test_singular_values_that_cannot_be_are_not_taken_from_beside_a_matrix(tmp_path, values):
    rng = np.random.default_rng(0)
    store = save_matrix(tmp_path / "psi", rng.random((12, 6)))
    principal_subspace(store, RandomizedSVD(rank=2))
    (file,) = (store.path / "subspace").iterdir()
    arrays = read_arrays(file)
    with zipfile.ZipFile(file) as archive:
        record = json.loads(archive.read("rlreps.json"))
    del record["arrays"]
    write_archive(file, {**arrays, "singular_values": np.asarray(values)}, record)
    with pytest.raises(InputError, match=r"got expected finite singular values >= 0"):
        principal_subspace(store, RandomizedSVD(rank=2))
    for crafted in ([], {"arrays": 5}, {"arrays": [1, 2, 3]}, {}):
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("rlreps.json", json.dumps(crafted))
        with pytest.raises(InputError, match="expected readable arrays, got the corrupt"):
            principal_subspace(store, RandomizedSVD(rank=2))
    del arrays["basis"]
    write_archive(file, arrays, record)
    with pytest.raises(InputError, match="to be deleted and computed again, got 'basis'"):
        principal_subspace(store, RandomizedSVD(rank=2))


def test_rows_whose_variance_is_zero_in_double_precision_are_not_learned_from():
    pytest.importorskip("sklearn")
    from rlreps.streaming.estimator import StreamingPCA

    rows = np.random.default_rng(0).normal(size=(20, 3))
    for learn in (StreamingPCA(2).fit, StreamingPCA(2).partial_fit):
        with pytest.raises(ValueError, match="constant or differ by 1e-150 at least"):
            learn(1e-300 * rows)
        with pytest.raises(ValueError, match="entries of at most 1e\\+150"):
            learn(1e300 * rows)


BOX = {"low": [0, 0], "high": [1, 1], "bins": [8, 8], "names": ["a", "b"]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"environment": {"puddles": 5}}, "expected puddles to be an array of tables"),
        ({"environment": {"puddles": [5]}}, "expected a table with shape and multiplier"),
        ({"environment": {"puddles": [{"multiplier": "a"}]}}, "expected shape to be one of"),
        ({"wall_cells": 5}, "expected rising ranges of 64 cells"),
        ({"wall_cells": "0-99"}, "expected rising ranges of 64 cells"),
        ({"box": {}}, "expected the fields of BoxGrid"),
        ({"box": {**BOX, "extra": 1}}, "expected the fields of BoxGrid"),
        ({"box": {**BOX, "low": 5}}, "expected low of BoxGrid"),
        ({"box": {**BOX, "low": ["a", 0]}}, "expected low of BoxGrid"),
        ({"box": {**BOX, "names": [1, 2]}}, "expected names of BoxGrid"),
    ],
    ids=str,
)
def test_settings_of_a_store_that_describe_no_place_are_refused_by_every_command(
    refused, toy_store, with_settings, tmp_path, settings, message
):
    store = shutil.copytree(toy_store, tmp_path / "psi")
    with_settings(store, **settings)
    assert message in refused("plot", "components", store, "--d", 2, "--out", tmp_path / "a.png")
    assert message in refused("explore", store, "--out", tmp_path / "a.html")
    assert message in refused("train", store, "--steps", "5", "--out", tmp_path / "run")


@pytest.mark.parametrize("environment", [5, "CartPole-v1", []])
def test_a_store_of_another_environment_has_components_to_draw(
    rlreps, toy_store, with_settings, tmp_path, environment
):
    store = shutil.copytree(toy_store, tmp_path / "psi")
    with_settings(store, environment=environment)
    rlreps("plot", "components", store, "--d", 2, "--out", tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.parametrize("setting", [{"discount": "a"}, {"horizon": None}, {"discount": 1.0}])
def test_a_page_of_a_sum_that_is_none_is_refused(toy_store, with_settings, tmp_path, setting):
    store = shutil.copytree(toy_store, tmp_path / "psi")
    with_settings(store, **setting)
    with pytest.raises(InputError, match=f"expected {next(iter(setting))}"):
        explore([store], tmp_path / "a.html", progress=False)
    assert not (tmp_path / "a.html").exists()


# Sizes, and files without end.


@pytest.mark.parametrize(
    ("shape", "block_rows"),
    [([10**9, 144], 4), ([2**62, 6], 4), ([10**9, 144], 10**9), ([12, 6], 10**12), ([2**70, 6], 4)],
)
def test_a_store_that_no_disk_or_memory_holds_is_refused_at_once(store, at_once, shape, block_rows):
    def claim(found):
        found["shape"] = shape
        found["chunk_grid"]["configuration"]["chunk_shape"] = [block_rows, shape[1]]

    edit(store.path / "zarr.json", claim)
    with at_once(), pytest.raises(InputError, match=r"^expected .*, got "):
        stores.open_store(store.path)


def zipped(path, **entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return path


def npy(shape, content=b""):
    header = io.BytesIO()
    described = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    return header.getvalue() + content


def test_archives_hold_what_they_claim_or_are_refused(tmp_path, at_once, refused):
    bomb, claims = tmp_path / "bomb.npz", tmp_path / "claims.npz"
    content = zipped(bomb, observations=npy((2**22,), bytes(2**25))).read_bytes()
    # The directory claims more than it is worth to expand for a test.
    claimed = content.replace((2**25 + 128).to_bytes(4, "little"), b"\xff\xff\xff\xef")
    assert claimed != content
    bomb.write_bytes(claimed)
    zipped(claims, observations=npy((10**12,)), actions=npy((3,), bytes(24)))
    for file in (bomb, claims):
        with at_once():
            assert "expected a file of arrays" in refused("fit", file, "--out", tmp_path / "run")
    sound = zipped(tmp_path / "sound.npz", x=npy((3,), bytes(24)))
    np.testing.assert_array_equal(read_arrays(sound)["x"], np.zeros(3))
    content = bytearray(sound.read_bytes())
    for place in content.find(b"PK\x03\x04"), content.find(b"PK\x01\x02") + 2:
        content[place + 6] |= 1  # Encrypted.
    sound.write_bytes(content)
    assert "expected a file of arrays" in refused("fit", sound, "--out", tmp_path / "run")


def test_a_gzip_file_is_expanded_no_further_than_its_header_says(tmp_path, at_once):
    header = bytes([0, 0, 8, 3]) + np.asarray([2**31, 2, 2], ">u4").tobytes()
    (tmp_path / "images.gz").write_bytes(gzip.compress(header + bytes(1000)))
    with at_once(), pytest.raises(InputError, match="claim to expand to 8,589,934,608"):
        read_idx(tmp_path / "images.gz")
    small = bytes([0, 0, 8, 3]) + np.asarray([1, 1, 1], ">u4").tobytes()
    (tmp_path / "images.gz").write_bytes(gzip.compress(small + bytes(2**28)))
    with at_once(), pytest.raises(InputError, match="with more behind them"):
        read_idx(tmp_path / "images.gz")


def test_what_is_no_file_is_not_waited_for(tmp_path, at_once, refused):
    run = tmp_path / "run"
    run.mkdir()
    os.mkfifo(run / "config.json")
    os.mkfifo(tmp_path / "arena.toml")
    os.mkfifo(tmp_path / "data.npz")
    with at_once(), pytest.raises(InputError, match="got no regular file"):
        RunFolder(run)
    with (
        at_once(),
        pytest.raises(ArenaError, match=r"expected a readable arena file, got .*no regular"),
    ):
        load_arena(tmp_path / "arena.toml")
    with pytest.raises(InputError, match="no regular file"):
        read_data(str(tmp_path / "data.npz"), Collection())


def test_arenas_of_more_edges_than_compile_in_time_are_refused(tmp_path, at_once):
    def polygon(corners):
        angles = np.linspace(0, 2 * np.pi, corners, endpoint=False)
        circle = (0.5 + 0.3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)).tolist()
        return f"[[puddles]]\nmultiplier = 0.5\nshape = 'polygon'\nvertices = {circle}\n"

    disc = "[[puddles]]\nmultiplier = 0.5\nshape = 'disc'\ncentre = [0.5, 0.5]\nradius = 0.1\n"
    edges = "at most 200 edges of all puddles"
    for text, message in (
        *((polygon(201), edges), (201 * disc, edges), (polygon(900), edges), (490 * disc, edges)),
        *((polygon(1000), "at most 2,000 dots"), (3000 * disc, "at most 65536 bytes")),
    ):
        (tmp_path / "arena.toml").write_text(text)
        with at_once(), pytest.raises(ArenaError, match=message):
            load_arena(tmp_path / "arena.toml")


SIZES = [
    "successor generate --rollouts 1000000000000",
    "successor generate --method transition --points 1099511627776",
    "successor generate --bins 1000000",
    "successor generate --rollouts 99999999999999999999999999",
    "train {store} --num-seeds 1000000000",
    "train {store} --rows 1000000000000",
    "train {store} --steps 10000000000",
    "train {store} --method danskin_lissa --permutations 1000000000",
    "train {store} --encoder fourier_mlp --frequencies 4611686018427387904",
    "train {store} --learning-rate 1e300",
    "train {store} --num-processes 1000000000 --plan",
    "train {store} --coordinator nonsense --num-processes 2 --process-id 0",
    "train {store} --coordinator 127.0.0.1:99999 --num-processes 2 --process-id 0",
    "train {store} --coordinator a:1 --num-processes 2 --process-id 0 --timeout 1000000000000",
    "sweep {store} --grid steps=3000000000,4",
    "train-live --rollouts 1000000000000",
    "agent train --num-seeds 1000000000",
    "agent train --steps 1000000000000000",
    "agent train --capacity 1000000000000",
    "agent train --batch-size 200000000000",
    "agent train --batch-size 100000000 --hidden 100000",
    "agent train --hidden 100000000000",
    "agent train --num-features 99999999999999999999",
    "agent train --env CartPole-v1 --batch-size 200000000000",
    "agent train --env CartPole-v1 --hidden 100000000000",
    "agent train --auxiliary-weight 0.1 --sequences 200000000000",
    "svd {store} --power-iterations 1000000000",
    "plot env --bins 1000000000",
]


@pytest.mark.parametrize("command", SIZES)
def test_sizes_that_cannot_fit_are_refused_before_work_starts(
    refused, at_once, toy_store, tmp_path, command
):
    arguments = words(command.format(store=toy_store))
    if arguments[0] != "svd":
        arguments += ["--out", str(tmp_path / "out.png")]
    message = refused(*arguments)
    assert message.startswith("expected ")
    with at_once():  # What is imported and compiled first is not counted.
        assert refused(*arguments) == message


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/", {"memory.max": "max\n"}, None),
        ("0::/a/b", {"memory.max": "max", "a/memory.max": "4096\n", "a/b/memory.max": "max"}, 4096),
        ("0::/a/b", {"a/b/memory.max": "9999999999999999999\n"}, None),
        ("1:cpu:/\n0::/a", {"unified/a/memory.max": "8192\n"}, 8192),
        # A container of version 1, whose group has its name outside alone.
        ("5:cpu,cpuacct:/x\n4:memory:/docker/x", {"memory/memory.limit_in_bytes": "512\n"}, 512),
        ("4:memory:/a\n0::/", {"memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("0::/../../a", {"memory.max": "4096"}, 4096),
        (None, {"memory.max": "4096"}, None),
        ("nonsense", {"a": ""}, None),
    ],
)
def test_memory_is_that_of_the_control_group_and_those_around_it(tmp_path, groups, files, limit):
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    if groups is not None:
        files["proc/self/cgroup"] = groups
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert usable_memory(tmp_path) == (machine if limit is None else limit)


def test_what_fits_the_machine_but_not_the_control_group_is_refused(monkeypatch):
    require_memory("a matrix", 10**6)
    monkeypatch.setattr("rlreps.errors.usable_memory", lambda: 10**6 // 2)
    with pytest.raises(InputError, match=r"expected a matrix in 0\.0005 GB of memory, got 0\.001"):
        require_memory("a matrix", 10**6)


def test_a_grid_of_a_million_points_is_refused_at_once(at_once):
    values = ",".join(map(str, range(1, 1001)))
    grid = parse_grid([f"num-features={values}", f"seed={values}"])
    with (
        at_once(),
        pytest.raises(InputError, match="at most 10,000 points of a grid, got 1000000"),
    ):
        SweepConfig(base=TrainingConfig(), grid=grid)


# Texts.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested deeper"),
        ('{"a":' * 5000, "nested deeper"),
        (f'{{"a": [{"[], " * 2**22}]}}', "16,777,225 bytes, more than the 16,777,216 of any"),
        (f'{{"a": {"9" * 400}}}', "a number beyond 64 bits"),
        ('{"a": 99999999999999999999}', "a number beyond 64 bits"),
    ],
)
def test_json_that_python_would_choke_on_is_refused(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        parse_json(text)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=f"expected JSON in .*, got .*{message}"):
        RunFolder(tmp_path)


def test_toml_that_is_nested_without_end_is_refused(tmp_path):
    (tmp_path / "arena.toml").write_text(f"a = {'[' * 5000}{']' * 5000}")
    with pytest.raises(ArenaError, match="nested so deeply"):
        load_arena(tmp_path / "arena.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a" + ".a" * 30_000 + " = 1", "at most 2,000 dots in .*, got 30,000"),
        ('"="' + '."]"' * 16_000 + " = 1", "at most 2,000 dots in .*, got 16,000"),
        ("puddles" + ".a" * 2000 + " = 1", r"an array of tables .*, got .{1,100}$"),
        ("# " + "-" * 2**16, "an arena file of at most 65536 bytes"),
    ],
)
def test_toml_that_takes_a_parser_long_is_refused_at_once(tmp_path, at_once, text, message):
    (tmp_path / "arena.toml").write_text(text)
    with at_once(), pytest.raises(ArenaError, match=message):
        load_arena(tmp_path / "arena.toml")


def test_an_arena_of_the_most_edges_is_read_from_a_file(tmp_path):
    capsule = "shape = 'capsule'\nstart = [0.123456, 0.5]\nend = [0.123456, 0.75]\nradius = 0.01\n"
    (tmp_path / "arena.toml").write_text(200 * f"[[puddles]]\nmultiplier = 0.5\n{capsule}")
    assert len(load_arena(tmp_path / "arena.toml").puddles) == 200


@pytest.mark.parametrize("name", ["default/_METADATA", "seal.json"])
def test_a_checkpoint_with_a_file_without_end_or_of_another_size_is_not_read(
    tmp_path, at_once, name
):
    save(tmp_path, 5)
    file = tmp_path / "5" / name
    os.truncate(file, 2**33)
    with at_once(), pytest.raises(InputError, match=r"expected .*(bytes|undamaged)"):
        restore(tmp_path, 5)
    file.unlink()
    for make in (os.mkfifo, functools.partial(os.symlink, "/dev/zero")):
        make(file)
        with at_once(), pytest.raises(InputError, match="expected an undamaged checkpoint"):
            restore(tmp_path, 5)
        file.unlink()


def test_a_log_that_is_longer_than_other_files_does_not_keep_a_run_from_its_end(tmp_path):
    folder = a_run(tmp_path)
    folder.append_metrics({"step": 0})
    os.truncate(tmp_path / "metrics.jsonl", 2**28 + 1)
    folder.write_summary({"mean": 1.0})
    assert folder.read_summary() == {"mean": 1.0}
    assert len(folder.read_file("metrics.jsonl")) == 2**28 + 1


@pytest.mark.parametrize(
    ("name", "most"),
    [("config.json", 2**28), ("metrics.jsonl", 2**32), ("summary.json", 2**28)],
)
def test_a_file_of_a_run_that_is_larger_than_any_is_not_read(tmp_path, at_once, name, most):
    folder = a_run(tmp_path)
    folder.append_metrics({"step": 0})
    folder.write_summary({"mean": 1.0})
    os.truncate(tmp_path / name, 2**33)

    def read():
        found = RunFolder(tmp_path)
        found.read_metrics()
        found.read_summary()

    with at_once(), pytest.raises(InputError, match=f"got more than {most:,} bytes"):
        read()


@pytest.mark.parametrize(
    ("observations", "message"),
    [(np.array(3), r"observations of shape \[rows"), (np.full(6, 1e300), "single precision holds")],
)
def test_transitions_that_are_none_are_refused(observations, message):
    arrays = {"observations": observations, "actions": np.arange(6) % 2, "terminals": np.zeros(6)}
    with pytest.raises(InputError, match=message):
        Transitions.from_dictionary(arrays)


def test_a_row_sum_of_another_type_is_refused(refused, tmp_path):
    store = stores.create_or_resume(
        tmp_path / "psi",
        shape=(2, 2),
        block_rows=2,
        settings={"row_sum": "ten", "quantity": "a matrix"},
        provenance={},
    )
    store.write_block(0, np.ones((2, 2), np.float32))
    assert "expected a number as row_sum" in refused("successor", "verify", store.path)
