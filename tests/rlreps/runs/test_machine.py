import os
import pathlib
import subprocess
import sys

from rlreps.runs.machine import keep_compiled_programs, keep_lapack_to_one_thread, peak_memory_mib

PROGRAM = """
from rlreps.runs.machine import peak_memory_mib
before = peak_memory_mib()
block = bytearray(int(before + 200) * 2**20)
print(before, peak_memory_mib())
"""


def test_lapack_is_kept_to_one_thread_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    keep_lapack_to_one_thread()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    keep_lapack_to_one_thread()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "4"


def test_a_user_without_a_home_keeps_no_compiled_programs_unless_told_where(monkeypatch, tmp_path):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    for name in (
        "JAX_COMPILATION_CACHE_DIR",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES",
        "XDG_CACHE_HOME",
        "RLREPS_CACHE_DIR",
    ):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(pathlib.Path, "home", no_home)
    keep_compiled_programs()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    monkeypatch.setenv("RLREPS_CACHE_DIR", str(tmp_path))
    keep_compiled_programs()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "compiled")


def test_the_peak_grows_by_what_is_allocated_and_is_in_mib():
    # A process inherits the peak of the one that started it: here of a shell, not of these tests.
    said = subprocess.run(
        ["sh", "-c", '"$0" -c "$1"; exit', sys.executable, PROGRAM],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    before, after = map(float, said.split())
    assert 200 <= after - before < 350
    assert peak_memory_mib() >= 5
