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
