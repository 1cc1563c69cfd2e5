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

LEVELS = [
    {"errors", "files", "formatting", "config", "numerics", "stats"},
    {"subspace", "encoders", "operators", "cumulants"},
    {"losses", "sources", "successor", "streaming"},
    {"training", "runs", "report", "plotting"},
    {"study"},
    {"workflows", "explore"},
    {"experiments"},
    {"cli", "__main__"},
]
LEVEL = {package: level for level, packages in enumerate(LEVELS) for package in packages}
MATHEMATICS = LEVELS[1] | LEVELS[2]
MACHINERY = {"tyro", "rich", "matplotlib", "orbax", "PIL"}
# Agents stand beside training; environments may be rolled out from sources upwards.
LEVEL |= {"agents": 3, "envs": 2, "data": 2}
# Fits train networks and keep folders: they stand above the measure's mathematics.
LEVEL |= {"successor.fitting": 3}
LEVEL |= {
    f"successor.fitting.{part}": 2 for part in ("data", "columns", "dictionaries", "recording")
}


def is_for_type_checkers(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imported_modules(path):
    tree = ast.parse(path.read_text())
    if path.name == "__init__.py":
        # What a package exports on first use stands there for type checkers alone.
        tree.body = [node for node in tree.body if not is_for_type_checkers(node)]
    for node in ast.walk(tree):
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
            allowed = other == "envs" if package == "envs" else LEVEL[other] <= LEVEL[package]
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
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path} has a relative import"
                within = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= {name if name in paths else node.module for name in within}
        graph[module] = named & paths.keys()
    return graph


def test_no_modules_of_the_measure_import_each_other_in_a_circle():
    graph = imports_within("rlreps.successor")
    try:
        order = [*graphlib.TopologicalSorter(graph).static_order()]
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
    assert len(order) == len(graph) > 10


@pytest.mark.parametrize("package", ["rlreps", "agents", "envs", "rlreps/successor"])
def test_type_checkers_see_what_a_package_loads_on_first_use(package):
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    (seen,) = (node.body for node in tree.body if is_for_type_checkers(node))
    names = {alias.asname or alias.name for node in seen for alias in node.names}
    name = package.replace("/", ".")
    module = importlib.import_module(name if name.startswith("rlreps") else f"rlreps.{name}")
    assert {*module.__all__} - {"__version__", "register"} == names


LOADED = """
import importlib, json, sys
found = {{}}
for module in {modules!r}:
    importlib.import_module(module)
    found[module] = sorted(sys.modules.keys() & set({names!r}))
print(json.dumps(found))
"""


def test_mathematics_does_not_load_machinery():
    modules = ["rlreps.subspace", "rlreps.losses", "rlreps.streaming"]
    names = sorted(MACHINERY | {"tensorstore", "gymnasium", "dm_env", "rlax", "scipy.stats"})
    code = LOADED.format(modules=modules, names=names)
    # Orbax and tensorstore come with flax.nnx, which encoders alone need.
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert json.loads(printed) == {module: [] for module in modules}
