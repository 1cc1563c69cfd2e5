"""The distributions hold every folder of code."""

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_is_built():
    setup = PROJECT["tool"]["setuptools"]
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


def test_no_nightly_build_is_installed_without_an_extra():
    """Follow the requirements of the core, as far as they are installed."""
    waiting, seen = list(PROJECT["project"]["dependencies"]), set()
    while waiting:
        required = waiting.pop()
        name = re.match(r"[\w.-]+", required)[0].lower().replace("_", "-")
        if "extra ==" in required or name in seen:
            continue
        seen.add(name)
        try:
            waiting += importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # For another system or an older Python.
    assert {"jax", "jaxlib", "etils"} <= seen
    assert [name for name in seen if "nightly" in name or name in ("rlax", "distrax")] == []


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.integration
def test_both_distributions_hold_code_data_types_and_licence(distributions):
    (wheel,), (source,) = distributions.glob("*.whl"), distributions.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        inside = opened.namelist()
    code = {
        path.relative_to(ROOT).as_posix()
        for folder in ("rlreps", "envs", "agents")
        for path in (ROOT / folder).rglob("*.py")
    }
    installed = {name if name.startswith("rlreps/") else f"rlreps/{name}" for name in code}
    data = {"rlreps/py.typed", "rlreps/report/page.html", "rlreps/data/sutton-100.npz"}
    assert installed | data <= {*inside}
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    with tarfile.open(source) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
    assert code | {"LICENSE", "README.md", "pyproject.toml", "data/sutton-100.npz"} <= packed
