import os
import subprocess
import sys
import types

from rlreps.app.main import main
from rlreps.runs.machine import peak_memory_mib, quieten_libraries

PROGRAM = """
from rlreps.runs.machine import peak_memory_mib
before = peak_memory_mib()
block = bytearray(int(before + 200) * 2**20)
print(before, peak_memory_mib())
"""


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


def test_closed_event_loops_are_reported_by_no_thread_and_other_errors_once(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    main(["--version"])
    assert sys.unraisablehook == reported.append
    assert os.environ["PYTHONWARNINGS"] == "error"
    quieten_libraries()
    quieten_libraries()
    found = [types.SimpleNamespace(exc_value=RuntimeError(text)) for text in ("other", "")]
    for each in (types.SimpleNamespace(exc_value=RuntimeError("Event loop is closed")), *found):
        sys.unraisablehook(each)
    assert reported == found
