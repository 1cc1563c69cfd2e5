"""Imports point one way, and mathematics never loads the machinery around it."""

import ast
import graphlib
import importlib
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]

GROUND = {"batch", "config", "errors", "files", "formatting", "numerics", "typing"}
LEVELS = [
    GROUND | {"stats"},
    {"subspace", "encoders", "operators", "cumulants"},
    {"losses", "sources", "successor", "streaming"},
    {"training", "runs", "report", "plotting", "worlds"},
    {"app", "auditing"},
    {"study", "explore"},
    {"experiments"},
    {"__main__"},
]
LEVEL = {package: level for level, packages in enumerate(LEVELS) for package in packages}
MATHEMATICS = LEVELS[1] | LEVELS[2]
MACHINERY = {"rich", "matplotlib", "PIL"}
# Agents act in worlds; environments may be rolled out from sources upwards.
LEVEL |= {"agents": 4, "envs": 2, "data": 2}
# The command line lists experiments.
LEVEL |= dict.fromkeys(("app.main", "app.commands", "app.experiments"), LEVEL["__main__"])
# Fits train networks and keep folders: they stand above the measure's mathematics.
LEVEL |= {"successor.fitting": 3}
LEVEL |= {"successor.fitting.recording": 2}


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "rlreps":
                yield from (f"rlreps.{alias.name}" for alias in node.names)


def modules():
    for folder in ("rlreps", "agents", "envs", "scripts/experiments"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            inner = parts[1:] if parts[0] in ("rlreps", "scripts") else parts
            if inner[0] != "__init__":
                yield level_name(".".join(inner)), path


def level_name(module):
    """Return the longest part of a module's name that has a level."""
    while module not in LEVEL and "." in module:
        module = module.rpartition(".")[0]
    return module


def test_imports_point_one_way():
    wrong = []
    for package, path in modules():
        for module in imported_modules(path):
            top, _, rest = module.partition(".")
            place = f"{path.relative_to(ROOT)} imports {module}"
            if top != "rlreps":
                if package in MATHEMATICS and top in MACHINERY:
                    wrong.append(place)
                continue
            other = level_name(rest)
            if not other or other == "__version__":
                continue
            outside = package == "envs" and other not in GROUND | {"envs"}
            allowed = LEVEL[other] <= LEVEL[package] and not outside
            if not allowed:
                wrong.append(place)
    assert wrong == []


def imports_within(package):
    """Return module → modules of the same package that it names in an import, wherever it stands.

    Imports inside functions and for type checkers count too: of two modules that need each other,
    one often defers its import. A package's own ``__init__``, which every import of a submodule
    runs, counts where it is imported for its names.
    """
    folder = ROOT / package.replace(".", "/")
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in folder.rglob("*.py")
    }
    graph = {}
    for module, path in paths.items():
        named = set()
        # The stub of a package lists what the package loads on first use, relative to itself.
        stub = path.with_suffix(".pyi")
        text = path.read_text() + (stub.read_text() if stub.exists() else "")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                home = f"{module}.{node.module}" if node.level else node.module
                within = {f"{home}.{alias.name}" for alias in node.names}
                named |= {name if name in paths else home for name in within}
        graph[module] = named & paths.keys()
    return graph


def test_no_modules_of_the_measure_import_each_other_in_a_circle():
    graph = imports_within("rlreps.successor")
    try:
        order = [*graphlib.TopologicalSorter(graph).static_order()]
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
    assert len(order) == len(graph) > 10


def public_names(module):
    """Return what a package exports; all that a module on the ground defines."""
    loaded = importlib.import_module(module)
    on_the_ground = module.removeprefix("rlreps.") in GROUND
    return {*vars(loaded)} if on_the_ground else {*getattr(loaded, "__all__", ())}


def test_experiments_import_public_names_alone():
    private = []
    for path in sorted((ROOT / "scripts/experiments").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", None) or ""
            if module.startswith("rlreps") and not module.startswith("rlreps.experiments"):
                names = {alias.name for alias in node.names} - public_names(module)
                if module == "rlreps":
                    names -= GROUND
                private += [f"{path.stem} imports {module}.{name}" for name in sorted(names)]
    assert private == []


LOADED = """
import importlib, json, sys
found = {{}}
for module in {modules!r}:
    importlib.import_module(module)
    found[module] = sorted(sys.modules.keys() & set({names!r}))
print(json.dumps(found))
"""


def test_mathematics_does_not_load_machinery():
    modules = ["rlreps.subspace", "rlreps.losses", "rlreps.streaming.rules.base"]
    names = sorted(MACHINERY | {"tensorstore", "gymnasium", "dm_env", "rlax", "scipy.stats"})
    code = LOADED.format(modules=modules, names=names)
    # Orbax and tensorstore come with flax.nnx, which encoders alone need.
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert json.loads(printed) == {module: [] for module in modules}
