"""The built package holds every folder of code."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_package_is_built():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    setup = project["tool"]["setuptools"]
    folders = {path.parent.relative_to(ROOT) for path in ROOT.glob("rlreps/**/__init__.py")}
    found = {".".join(folder.parts) for folder in folders} | set(setup["package-dir"])
    assert set(setup["packages"]) == found


def test_every_page_and_script_is_built():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    built = project["tool"]["setuptools"]["package-data"]
    files = [path for end in ("html", "css", "js") for path in ROOT.glob(f"rlreps/**/*.{end}")]
    assert files
    for path in files:
        package = ".".join(path.parent.relative_to(ROOT).parts)
        assert path.name in built[package]
