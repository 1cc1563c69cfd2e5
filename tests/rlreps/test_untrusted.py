"""Files that somebody else made or something has damaged: what they may not do.

They run no code, reach no file outside their folder and change no result without a word.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import AgentConfig
from rlreps.app.commands import COMMANDS
from rlreps.config import as_json
from rlreps.errors import InputError, usable_memory
from rlreps.experiments.datasets import read_idx
from rlreps.explore import runs
from rlreps.files import (
    parse_json,
    read_archive,
    read_array,
    write_archive,
)
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.folder import RunFolder
from rlreps.successor.truth import store as stores

words = str.split


# Code.


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        ("evaluate", "dm_env:planted:make"),
        ("render", "planted:Task-v0"),
        ("evaluate", "world:/elsewhere/planted.npz"),
        ("render", "puddle-world:/elsewhere/planted.toml"),
    ],
)
def test_a_run_decides_no_module_to_import_and_no_file_to_read(
    refused, tmp_path, monkeypatch, command, environment
):
    (tmp_path / "planted.py").write_text("raise SystemExit('this ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = as_json(AgentConfig(environment=environment))
    beside = dict.fromkeys(("arena", "ground_truth", "own"))
    RunFolder.create_or_resume(
        tmp_path / "run", kind="agent", config={**config, **beside}, provenance={}
    )
    (tmp_path / "run" / "checkpoints").mkdir()
    assert f"--env {environment}" in refused("agent", command, tmp_path / "run")
    assert "planted" not in sys.modules


# Links.


def a_run(path, **config):
    return RunFolder.create_or_resume(path, kind="train", config=config, provenance={})


def save(path, *steps, run="ours"):
    for step in steps:
        Checkpoints(path, run=run).save(step, {"x": jnp.full(3, step)})


def restore(path, step, run="ours"):
    return Checkpoints(path, run=run).restore(step, {"x": jnp.zeros(3, int)})


def test_a_run_and_its_checkpoints_may_lie_behind_links(tmp_path):
    for name in ("run", "states"):
        (tmp_path / "scratch" / name).mkdir(parents=True)
    (tmp_path / "out").symlink_to(tmp_path / "scratch" / "run")
    a_run(tmp_path / "out")
    (tmp_path / "out" / "checkpoints").symlink_to(tmp_path / "scratch" / "states")
    save(tmp_path / "out" / "checkpoints", 1, 2, 3)
    assert a_run(tmp_path / "out").config == {}
    np.testing.assert_array_equal(restore(tmp_path / "out" / "checkpoints", 3)["x"], [3, 3, 3])
    assert sorted(path.name for path in (tmp_path / "scratch" / "states").iterdir()) == [
        "2.npz",
        "3.npz",
    ]


EVERY_COMMAND = {
    "quickstart": "--preset smoke --out {out}",
    "successor generate": "--bins 8 --rollouts 10 --horizon 20 --out {made}",
    "successor info": "{store} --figure {figure}",
    "successor verify": "{store}",
    "successor compare": "{store} {store} --figure {figure}",
    "svd": "{store} --rank 3",
    "worlds list": "",
    "worlds build": "cliffwalking --out {world}",
    "worlds info": "cliffwalking",
    "worlds truth": "cliffwalking --out {made}",
    "worlds sample": "--env world:cliffwalking --states 20 --rollouts 4 --out {made}",
    "train": "{store} --out {out}",
    "train-live": "--store {store} --horizon 60 --discount 0.9 --out {out}",
    "sweep": "{store} --grid steps=2,3 --out {out}",
    "fit": "data.npz --out {out}",
    "audit": "features.npy --truth {store} --out {out}",
    "benchmark": "--preset smoke --out {out}",
    "evaluate": "{run}",
    "export": "{run} --out {folder}",
    "compare": "{run} {run} --out {folder}",
    "agent train": "--store {store} --out {out}",
    "agent evaluate": "{run}",
    "agent render": "{run} --out {folder}",
    "plot env": "--out {figure}",
    "plot components": "{store} --runs {run} --d 2 --out {figure}",
    "plot coverage": "{run} --out {figure}",
    "plot spectrum": "{store} --rank 3 --out {figure}",
    "plot curves": "{run} --out {figure}",
    "explore": "{store} {run} --out {page}",
    "experiment mnist": "--preset smoke --out {out}",
}
"""Command → arguments; every experiment is run as ``mnist`` is, which would download its data."""

PLACES = {
    "out": "new",
    "made": "new",
    "folder": "new",
    "figure": "new.png",
    "page": "new.html",
    "world": "new.npz",
}


def given(command, toy_store, **changed):
    """Return the arguments of a command, where ``changed`` says what the places in them are."""
    places = {**PLACES, "store": toy_store, "run": "none", **changed}
    return [*words(command), *(word.format(**places) for word in words(EVERY_COMMAND[command]))]


def with_places(*names):
    """List the commands with each of these places; tier 0 tries the first of each."""
    parameters = []
    for name in names:
        commands = [each for each, words in EVERY_COMMAND.items() if f"{{{name}}}" in words]
        marks = [(), *[pytest.mark.integration] * (len(commands) - 1)]
        parameters += [
            pytest.param(each, name, marks=mark) for each, mark in zip(commands, marks, strict=True)
        ]
    return parameters


def test_every_command_has_its_arguments_here():
    assert set(EVERY_COMMAND) - {"experiment mnist"} == set(COMMANDS)


@pytest.mark.parametrize(
    ("command", "place"), with_places("out", "made", "folder", "figure", "page", "world")
)
def test_no_command_begins_work_before_it_has_a_place_to_write(
    refused, toy_store, tmp_path, monkeypatch, command, place
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("precious")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").write_text("years of work")
    occupied = [("notes", "a new or empty"), ("file", "")] if place in ("out", "made") else []
    for name, said in (
        ("s\\t", "a path in UTF-8 without"),
        ("file/below", "a folder to write in"),
        *occupied,
    ):
        bad = name + Path(PLACES[place]).suffix
        assert f"expected {said}" in refused(*given(command, toy_store, **{place: bad}))


@pytest.mark.parametrize("name", ["x\\", "x.__lock/y", "a\udcff"])
def test_a_name_that_libraries_read_as_another_is_refused(tmp_path, name):
    for act in (a_run, lambda path: save(path, 1)):
        with pytest.raises(InputError, match="expected a path in UTF-8 without"):
            act(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_no_empty_name_stands_for_the_working_folder(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (["--out", ""], ["--out="]):
        assert refused("export", "run", *arguments) == "argument --out: expected a path, got ''"
    with pytest.raises(InputError, match="expected a path, got ''"):
        stores.create_or_resume("", shape=(2, 2), block_rows=1, settings={}, provenance={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["export", "compare", "agent render"])
def test_pictures_tables_and_exports_are_not_written_into_other_folders(
    refused, toy_store, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(toy_store, "store")
    a_run(tmp_path / "run")
    for folder in ("store", "run"):
        said = refused(*given(command, toy_store, folder=folder))
        assert re.search(f"expected a new or empty folder for .*, got {folder} with other", said)


# Files of every kind.


DEEP = b'{"a": ' * 100_000 + b"\n"


@pytest.fixture(scope="module")
def files(toy_store, tmp_path_factory):
    """One file of every kind that rlreps reads."""
    folder = tmp_path_factory.mktemp("files")
    shutil.copytree(toy_store, folder / "store")
    run = a_run(folder / "run")
    run.append_metrics({"step": 0})
    run.write_summary({})
    run.part("one", dict)
    save(run.path / "checkpoints", 2)
    numbers = np.random.default_rng(0).random((4, 3))
    write_archive(folder / "kept.npz", {"basis": numbers}, {"settings": {}})
    np.save(folder / "numbers.npy", numbers)
    np.savez(folder / "data.npz", observations=numbers)
    (folder / "arena.toml").write_text("noise = 0.02")
    (folder / "train-images-idx3-ubyte").write_bytes(b"")
    return folder


READ = {
    "store/zarr.json": "successor info {}/store",
    "store/half_difference/zarr.json": "successor verify {}/store",
    "run/config.json": "evaluate {}/run",
    "run/summary.json": "compare {}/run {}/run",
    "run/metrics.jsonl": lambda folder: RunFolder(folder / "run").read_metrics(),
    "run/parts/one.json": lambda folder: RunFolder(folder / "run").part("one", dict),
    "run/checkpoints/2.npz": lambda folder: restore(folder / "run" / "checkpoints", 2),
    "kept.npz": lambda folder: read_archive(folder / "kept.npz", "file"),
    "numbers.npy": lambda folder: runs._read_recorded(folder / "numbers.npy", 4),
    "train-images-idx3-ubyte": lambda folder: read_idx(folder / "train-images-idx3-ubyte"),
    "data.npz": "fit {}/data.npz --out {}/new",
    "arena.toml": "plot env --arena {}/arena.toml --out {}/arena.png",
}
"""File → the command, or the function of its folder, that reads it."""


@pytest.mark.parametrize("file", READ)
def test_a_file_that_nests_too_deep_is_refused(refused, files, tmp_path, file):
    folder = shutil.copytree(files, tmp_path / "all")
    path, read = folder / file, READ[file]
    path.write_bytes(b"a = " + b"[" * 100_000 if file.endswith(".toml") else DEEP)
    if isinstance(read, str):
        said = refused(*words(read.replace("{}", str(folder))))
    else:
        with pytest.raises(InputError) as caught:
            read(folder)
        said = str(caught.value)
    assert re.match("expected .*, got ", said)


def test_what_is_no_json_is_refused():
    for content, message in (
        (b"[" * 100_000, "recursion"),
        (b"\xff", "decode"),
        (b"1" * 5000, "digits"),
        (b"{", "Expecting"),
    ):
        with pytest.raises(InputError, match=f"expected JSON in here, got .*{message}"):
            parse_json(content, "here")


def test_a_file_of_no_array_is_not_recommended_as_a_pickle(tmp_path):
    (tmp_path / "notes.npy").write_text("some words")
    with pytest.raises(InputError, match=r"an \.npy file, got .*: a file of another kind$"):
        read_array(tmp_path / "notes.npy")


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


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    save(tmp_path, 5)
    read, seen = Checkpoints._read, []

    def replace(self, step, layout):
        seen.append(step)
        if len(seen) == 1:
            save(tmp_path, 6, 7)
        return read(self, step, layout)

    monkeypatch.setattr(Checkpoints, "_read", replace)
    checkpoints = Checkpoints(tmp_path, run="ours")
    step, state = checkpoints.restore_latest({"x": jnp.zeros(3, int)})
    assert (step, seen) == (7, [5, 7])
    np.testing.assert_array_equal(state["x"], [7, 7, 7])


def test_a_configuration_of_ones_own_is_told_from_what_its_checkpoints_are_of(tmp_path):
    save(tmp_path / "run" / "checkpoints", 5, run=a_run(tmp_path / "run", seed=1).identity)
    config = tmp_path / "run" / "config.json"
    edit(config, lambda found: found["config"].update(seed=2))
    with pytest.raises(InputError, match=r"another run; restore config\.json"):
        restore(tmp_path / "run" / "checkpoints", 5, run=RunFolder(tmp_path / "run").identity)
    # What is only told of a run, such as where its store was, may be changed.
    edit(config, lambda found: found["config"].update(seed=1))
    edit(config, lambda found: found["provenance"].update(store="elsewhere"))
    restore(tmp_path / "run" / "checkpoints", 5, run=RunFolder(tmp_path / "run").identity)


# Sizes, and files without end.


SIZES = [
    "successor generate --rollouts 99999999999999999999999999",
    "successor generate --method transition --points 1099511627776",
    "successor generate --bins 1000000",
    "train {store} --rows 1000000000000",
    "train {store} --encoder fourier_mlp --frequencies 4611686018427387904",
    "train {store} --learning-rate 1e300",
    "sweep {store} --grid steps=3000000000,4",
    "train-live --rollouts 1000000000000",
    "train-live --cumulants random_network --cumulant-hidden 2000000000",
    "agent train --env CartPole-v1 --batch-size 200000000000",
    "agent train --batch-size 2000000000",
    "agent train --evaluation-episodes 2000000000",
    "agent train --features fitted --feature-basis-size 10000000",
    "agent train --features fitted --feature-basis counted --feature-basis-size 2000000000",
    "agent train --auxiliary-weight 1 --sequences 2000000000",
    "agent train --auxiliary-weight 1 --num-tasks 10000000",
    "plot env --bins 1000000000",
]


@pytest.mark.parametrize("command", SIZES)
def test_sizes_that_cannot_fit_are_refused_before_work_starts(
    refused, toy_store, tmp_path, command
):
    arguments = words(command.format(store=toy_store))
    assert refused(*arguments, "--out", tmp_path / "out.png").startswith("expected ")


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/a/b", {"memory.max": "max", "a/memory.max": "4096\n", "a/b/memory.max": "max"}, 4096),
        (None, {"memory.max": "4096"}, None),
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
