import subprocess
import sys

from rlreps.runs.machine import peak_memory_mib

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
