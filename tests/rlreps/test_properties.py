"""Arbitrary input, by the thousand: everything works or is refused in one line.

Each suite damages what is sound, or makes up what may be none, in ways that Hypothesis chooses, the
same ones in every run: 2,900 cases, about 20 seconds of a core. One that takes longer than five
seconds fails.
"""

import contextlib
import dataclasses
import gzip
import io
import json
import math
import os
from pathlib import Path

import jax
import numpy as np
import pytest

from rlreps.agents import AgentConfig
from rlreps.cli import COMMANDS, parse_command
from rlreps.config import as_json, from_json
from rlreps.envs import ArenaError, PuddleWorld, arena_settings, load_arena
from rlreps.envs.arenas import ARENAS
from rlreps.errors import InputError, TrainingDivergedError
from rlreps.runs.folder import RunFolder
from rlreps.sources.datasets import read_idx
from rlreps.subspace.svd import RandomizedSVD
from rlreps.successor import store as stores
from rlreps.successor.ground_truth import load_ground_truth, save_matrix
from rlreps.successor.methods import CLASSES, FitConfig
from rlreps.workflows import agents, evaluate, train
from rlreps.workflows.fit import Collection, read_data
from rlreps.workflows.train import TrainingConfig

hypothesis = pytest.importorskip("hypothesis")
HealthCheck, given, st = hypothesis.HealthCheck, hypothesis.given, hypothesis.strategies

pytestmark = pytest.mark.integration

REFUSED = (InputError, ArenaError)


def cases(count):
    return hypothesis.settings(
        max_examples=count,
        deadline=5000,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def one_line(error):
    assert "\n" not in str(error).strip()
    assert str(error)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 1, 2**31, 2**32, 2**53, 2**63, 10**400]),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(), st.floats(), st.text(max_size=3)), max_size=4),
    st.dictionaries(st.sampled_from(["name", "x", ""]), st.integers() | st.text(max_size=4)),
)
"""JSON values, the likes of which somebody may have written by mistake or malice."""


def places(tree, path=()):
    """Paths of all values in JSON values."""
    yield path
    if isinstance(tree, dict | list):
        inner = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, value in inner:
            yield from places(value, (*path, key))


def changed(tree, draw):
    """Copy JSON values with one or two of them replaced or deleted."""
    copy = json.loads(json.dumps(tree))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([*places(copy)][1:]))
        home = copy
        for key in path[:-1]:
            home = home[key]
        if draw(st.booleans()) and isinstance(home, dict):
            del home[path[-1]]
            if not copy:
                break
        else:
            home[path[-1]] = draw(ODD)
    return copy


def damaged(content, draw):
    """Flip bits of some bytes, cut them short or leave some out."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(found) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "cut", "drop", "zero"]))
        if kind == "flip" and found:
            found[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del found[place:]
        elif kind == "drop":
            del found[place : place + draw(st.integers(1, 9))]
        else:
            found[place : place + 4] = bytes(4)
    return bytes(found)


# Configurations.


@pytest.mark.parametrize(
    ("config", "classes"),
    [
        (TrainingConfig(), train.METHODS),
        (AgentConfig(), agents.METHODS),
        (FitConfig(), CLASSES),
    ],
    ids=["training", "agents", "fit"],
)
@cases(200)
@given(data=st.data())
def test_a_configuration_is_one_or_refused(config, classes, data):
    stored = changed(as_json(config), data.draw)
    try:
        found = from_json(type(config), stored, classes)
    except REFUSED as error:
        one_line(error)
    else:
        assert dataclasses.is_dataclass(found)
        json.dumps(as_json(found))


@cases(200)
@given(data=st.data())
def test_a_runs_configuration_is_read_or_refused(tmp_path, data):
    path = tmp_path / "run"
    if not path.exists():
        matrix = {"checksum": "0", "states": 4, "tasks": 4}
        RunFolder.create_or_resume(
            path,
            kind="train",
            config={"matrix": matrix, **as_json(TrainingConfig())},
            provenance={"store": "psi"},
        )
        (tmp_path / "sound").write_bytes((path / "config.json").read_bytes())
    sound = (tmp_path / "sound").read_bytes()
    if data.draw(st.booleans()):
        content = damaged(sound, data.draw)
    else:
        tree = {name: value for name, value in json.loads(sound).items() if name != "checksum"}
        content = json.dumps(changed(tree, data.draw)).encode()
    (path / "config.json").write_bytes(content)
    try:
        folder = RunFolder(path)
        evaluate.load_config(folder)
        evaluate.trained_store(folder)
    except REFUSED as error:
        one_line(error)


# Arenas.

NUMBERS = st.one_of(
    st.floats(0.0, 1.0), st.sampled_from([0, 0.5, -1.0, 1e30, 1e-40, 10**20, 1e308, "x", True])
)
POINTS = st.lists(NUMBERS, min_size=2, max_size=2) | st.lists(NUMBERS, max_size=3)
PUDDLES = st.fixed_dictionaries(
    {},
    optional={
        "shape": st.sampled_from(["disc", "capsule", "polygon", "blob"]),
        "multiplier": NUMBERS,
        "centre": POINTS,
        "radius": NUMBERS,
        "start": POINTS,
        "end": POINTS,
        "vertices": st.lists(POINTS, max_size=5),
    },
)
WORLDS = st.fixed_dictionaries(
    {"puddles": st.lists(PUDDLES, max_size=3)},
    optional={
        "goal": st.booleans() | POINTS | st.lists(NUMBERS, min_size=3, max_size=3),
        "step_size": NUMBERS,
        "noise": NUMBERS,
        "max_steps": st.integers(-1, 2**70),
        "step_penalty": ODD.filter(lambda value: value is not None and not unwritable(value)),
        "observation": st.sampled_from(["position", "code", "image", "nothing"]),
    },
)


def unwritable(value):
    """Tell what TOML has no place for."""
    return isinstance(value, dict | list) or (isinstance(value, float) and not math.isfinite(value))


def toml(value):
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {toml(each)}" for key, each in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value)


def sound_arenas():
    return [arena_settings(arena) for arena in ARENAS.values()]


@cases(400)
@given(data=st.data())
def test_an_arena_is_one_or_refused(tmp_path, data):
    if data.draw(st.booleans()):
        settings = data.draw(WORLDS)
    else:
        settings = changed(data.draw(st.sampled_from(sound_arenas())), data.draw)
    lines = [f"{name} = {toml(value)}" for name, value in settings.items() if value is not None]
    content = "\n".join(lines).encode()
    if data.draw(st.integers(0, 3)) == 0:
        content = damaged(content, data.draw)
    (tmp_path / "arena.toml").write_bytes(content)
    try:
        arena = load_arena(tmp_path / "arena.toml")
    except REFUSED as error:
        one_line(error)
    else:
        assert isinstance(arena, PuddleWorld)
        numbers = [leaf for leaf in jax.tree.leaves(arena) if isinstance(leaf, float)]
        assert np.isfinite(np.asarray(numbers, np.float32)).all()


# Stores.


@pytest.fixture(scope="module")
def a_store(tmp_path_factory):
    rows = np.random.default_rng(0).random((12, 6)).astype(np.float32)
    store = save_matrix(tmp_path_factory.mktemp("stores") / "psi", rows)
    load_ground_truth(store.path, RandomizedSVD(rank=3))
    contents = {
        file.relative_to(store.path): file.read_bytes()
        for file in store.path.rglob("*")
        if file.is_file() and file.name != "README.txt"
    }
    return store.path, rows, contents


@contextlib.contextmanager
def replaced(path, content):
    kept = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(kept)


@cases(300)
@given(data=st.data())
def test_the_metadata_of_a_store_are_the_same_or_refused(a_store, data):
    path, rows, contents = a_store
    name = Path("zarr.json")
    if data.draw(st.booleans()):
        content = damaged(contents[name], data.draw)
    else:
        content = json.dumps(changed(json.loads(contents[name]), data.draw)).encode()
    with replaced(path / name, content):
        try:
            store = stores.open_store(path)
            found, report = store.read(), stores.verify(store)
        except InputError as error:
            one_line(error)
        else:
            assert report.ok
            np.testing.assert_array_equal(found, rows)


@cases(300)
@given(data=st.data())
def test_no_damaged_file_of_a_store_changes_what_it_holds(a_store, data):
    path, _, contents = a_store
    truth = load_ground_truth(path, RandomizedSVD(rank=3))
    name = data.draw(st.sampled_from(sorted(contents)))
    with replaced(path / name, damaged(contents[name], data.draw)):
        try:
            found = load_ground_truth(path, RandomizedSVD(rank=3))
            stores.open_store(path).read()
        except InputError as error:
            one_line(error)
        else:
            np.testing.assert_array_equal(found.principal.basis, truth.principal.basis)
            np.testing.assert_array_equal(found.matrix, truth.matrix)


# Data.


@cases(300)
@given(data=st.data())
def test_a_file_of_transitions_is_one_or_refused(tmp_path, data):
    rng = np.random.default_rng(0)
    arrays = {
        "observations": rng.random((6, 2)).astype(np.float32),
        "actions": np.arange(6) % 2,
        "terminals": np.zeros(6, bool),
        "timeouts": np.arange(6) == 5,
    }
    for name in data.draw(st.sets(st.sampled_from(sorted(arrays)), max_size=2)):
        odd = data.draw(
            st.sampled_from(
                [
                    np.zeros(0),
                    np.full((6, 2), np.nan),
                    np.full(6, 1e300),
                    np.array(["x"] * 6),
                    np.zeros((6, 2), np.complex64),
                    np.array(3),
                    np.arange(-3, 3),
                ]
            )
        )
        arrays[name] = odd
    content = io.BytesIO()
    save = data.draw(st.sampled_from([np.savez, np.savez_compressed]))
    save(content, **arrays)
    written = content.getvalue()
    if data.draw(st.booleans()):
        written = damaged(written, data.draw)
    (tmp_path / "data.npz").write_bytes(written)
    try:
        found = read_data(str(tmp_path / "data.npz"), Collection())
    except REFUSED as error:
        one_line(error)
    else:
        assert len(found.observation) == len(found.action)
        assert np.isfinite(np.asarray(found.observation, np.float32)).all()


@cases(200)
@given(
    kind=st.sampled_from([8, 13, 14, 9]),
    axes=st.sampled_from([3, 1]),
    shape=st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 4), min_size=3, max_size=3),
    content=st.binary(max_size=64),
    packed=st.booleans(),
    data=st.data(),
)
def test_a_file_of_images_is_one_or_refused(tmp_path, kind, axes, shape, content, packed, data):
    written = bytes([0, 0, kind, axes]) + np.asarray(shape, ">u4").tobytes() + content
    written = gzip.compress(written) if packed else written
    if data.draw(st.booleans()):
        written = damaged(written, data.draw)
    (tmp_path / "images").write_bytes(written)
    try:
        found = read_idx(tmp_path / "images")
    except REFUSED as error:
        one_line(error)
    else:
        assert found.ndim == 3


@cases(100)
@given(
    rows=st.lists(
        st.lists(st.floats() | st.integers(-(10**6), 10**6).map(float), min_size=3, max_size=3),
        min_size=4,
        max_size=4,
    ),
    scale=st.sampled_from([1.0, 1e-300, 1e-150, 1e150, 1e300]),
)
def test_rows_of_a_stream_are_learned_from_or_refused(rows, scale):
    pytest.importorskip("sklearn")
    from rlreps.streaming.estimator import StreamingPCA

    with np.errstate(all="ignore"):
        matrix = np.asarray(rows) * scale
    model = StreamingPCA(2, random_state=0)
    try:
        model.partial_fit(matrix)
    except (ValueError, TrainingDivergedError):
        assert not hasattr(model, "components_")
    else:
        assert np.isfinite(model.components_).all()
        np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-5)


# Command lines.

VALUES = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "1", "3", "1e400", "nan", "inf", "9" * 30, "x", "none", "true", "a=b", "--"]
    ),
    st.integers().map(str),
    st.floats().map(str),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6),
)
words = str.split
FLAGS = tuple(
    f"--{name}"
    for name in words(
        "out store env config quiet seed num-seeds steps rows tasks method encoder optimizer "
        "learning-rate bins rollouts horizon discount block-rows rank power-iterations hidden grid "
        "num-features episodes best seed-index d runs arena goal evaluate-every checkpoint-every "
        "auxiliary-weight observation collect preset components points centring count-start "
        "no-count-start data"
    )
)
KNOWN = {
    "--method": ["explicit", "large_batch", "transition", "monte-carlo", "exact"],
    "--encoder": ["mlp", "tabular", "fourier-mlp"],
    "--arena": ["sutton", "nowhere.toml"],
    "--grid": ["seed=1,2", "num-features=", "hidden=64 64,512", "=", "learning-rate=nan"],
    "--preset": ["smoke", "paper"],
}


@cases(500)
@given(data=st.data())
def test_a_command_line_is_a_command_or_refused(tmp_path, monkeypatch, data, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = data.draw(st.sampled_from(sorted(COMMANDS))).split()
    for _ in range(data.draw(st.integers(0, 4))):
        flag = data.draw(st.sampled_from(["", *FLAGS]))
        value = data.draw(st.sampled_from(KNOWN[flag]) if flag in KNOWN else VALUES)
        arguments += [part for part in (flag, value) if part or not flag]
    try:
        parse_command(arguments)
    except REFUSED as error:
        one_line(error)
    except SystemExit as ending:
        one_line("help" if ending.code in (0, None) else "")
    capsys.readouterr()
    assert not os.listdir(tmp_path)
