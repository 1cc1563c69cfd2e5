"""The distributions hold every folder of code."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.integration
def test_both_distributions_hold_code_data_types_and_licence(tmp_path):
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,), (source,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        inside = opened.namelist()
    code = {
        path.relative_to(ROOT).as_posix()
        for folder in ("rlreps", "envs", "agents")
        for end in ("py", "pyi")
        for path in (ROOT / folder).rglob(f"*.{end}")
    }
    installed = {name if name.startswith("rlreps/") else f"rlreps/{name}" for name in code}
    files = [path for end in ("html", "css", "js") for path in ROOT.glob(f"rlreps/**/*.{end}")]
    data = {path.relative_to(ROOT).as_posix() for path in files}
    data |= {"rlreps/py.typed", "rlreps/report/page.html", "rlreps/data/sutton-100.npz"}
    assert installed | data <= {*inside}
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    with tarfile.open(source) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
    assert code | {"LICENSE", "README.md", "pyproject.toml", "data/sutton-100.npz"} <= packed
