"""Arenas by name, and custom ones from files."""

import json

import pytest

from rlreps.envs import (
    ARENAS,
    Capsule,
    Code,
    ConvexPolygon,
    Disc,
    arena_from_settings,
    arena_settings,
    load_arena,
)
from rlreps.errors import InputError

DISC = 'shape = "disc"\ncentre = [0.5, 0.5]\nradius = 0.1\nmultiplier = 0.5\n'


def inline(value):
    """Write a value; tables of TOML have = where JSON has a colon."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {inline(item)}" for name, item in value.items()) + "}"
    return json.dumps(value)


def to_toml(world):
    """Write a world as an arena file; numbers, lists, words and truth values are as in JSON."""
    settings = arena_settings(world)
    tables = [settings, *settings.pop("puddles")]
    texts = [
        "\n".join(f"{name} = {inline(value)}" for name, value in table.items() if value is not None)
        for table in tables
    ]
    return "\n[[puddles]]\n".join(texts)


def test_the_arenas_are_the_published_ones():
    for name in ("empty", "sutton", "hydrogen", "two_room", "two_room_slow"):
        world = load_arena(name)
        assert (world.step_size, world.noise) == (0.05, 0.01)
        assert [world.goal, world.step_penalty, world.puddle_penalty] == [False] * 3
        assert all(p.multiplier == (0.0 if name == "two_room" else 0.5) for p in world.puddles)
    shapes = {name: [p.shape for p in load_arena(name).puddles] for name in ARENAS}
    assert shapes["empty"] == []
    assert shapes["sutton"] == [
        Capsule((0.1, 0.75), (0.45, 0.75), 0.1),
        Capsule((0.45, 0.4), (0.45, 0.8), 0.1),
    ]
    assert shapes["hydrogen"] == [Disc((0.5, 0.5), 0.3), Disc((0.5, 0.5), 0.15)]
    assert shapes["two_room"] == [
        ConvexPolygon(((0.4, 0.6), (0.6, 0.6), (0.6, 1.0), (0.4, 1.0))),
        ConvexPolygon(((0.4, 0.0), (0.6, 0.0), (0.6, 0.4), (0.4, 0.4))),
    ]
    assert shapes["two_room_slow"] == shapes["two_room"]


@pytest.mark.parametrize("name", ARENAS)
def test_an_arena_comes_back_from_a_file_and_from_its_settings(name, tmp_path):
    path = tmp_path / "arena.toml"
    for world in (
        load_arena(name, noise=0.03, max_steps=7).with_task(),
        load_arena(name, goal=(0.1, 0.9, 0.05), observation=Code(bins=7)),
    ):
        path.write_text(to_toml(world))
        assert load_arena(path) == load_arena(str(path)) == world
        assert arena_from_settings(json.loads(json.dumps(arena_settings(world)))) == world


def test_overrides_replace_fields_of_named_arenas_and_files(tmp_path):
    path = tmp_path / "arena.toml"
    path.write_text("noise = 0.5\n[[puddles]]\n" + DISC)
    assert load_arena(path, noise=0.25).noise == 0.25
    assert load_arena("sutton", step_size=0.1, goal=True).goal
    with pytest.raises(InputError, match=r"only .*step_size.* of override, got \['speed'\]"):
        load_arena("sutton", speed=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step_size =", "expected an arena in TOML, got"),
        ('observation = {name = "code", colour = 3}', "fields size, bins, seed of Code, got 'col"),
        ('[[puddles]]\nshape = "ring"', "one of capsule, disc, polygon, got 'ring'"),
        (201 * f"[[puddles]]\n{DISC}", "at most 200 edges of all puddles"),
        ("[[puddles]]\n" + DISC.replace("0.1", "true"), "expected radius to be a number, got True"),
    ],
)
def test_files_that_cannot_be_used_say_so_on_one_line_with_their_path(text, message, tmp_path):
    path = tmp_path / "arena.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        load_arena(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_unknown_names_and_unreadable_files_say_what_was_expected(tmp_path):
    with pytest.raises(InputError, match=r"sutton.*\.toml.*, got 'suton'"):
        load_arena("suton")
    with pytest.raises(InputError, match=r"expected an arena in TOML, got .*No such file"):
        load_arena(tmp_path / "none.toml")
