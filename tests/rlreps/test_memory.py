import subprocess
import sys

from rlreps.runs.machine import peak_memory_mib

PROGRAM = """
from rlreps.memory import peak_memory_mib
before = peak_memory_mib()
# More than the peak so far, which a process inherits from the one that started it.
block = bytearray(int(before + 200) * 2**20)
print(before, peak_memory_mib())
"""


def test_the_peak_grows_by_what_is_allocated_and_is_in_mib():
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    before, after = map(float, said.split())
    assert 200 <= after - before < 350
    assert peak_memory_mib() >= 5
