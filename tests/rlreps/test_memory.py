import subprocess
import sys

from rlreps.memory import peak_memory_mib

PROGRAM = """
from rlreps.memory import peak_memory_mib
before = peak_memory_mib()
block = bytearray(200 * 2**20)
print(before, peak_memory_mib())
"""


def test_the_peak_grows_by_what_is_allocated_and_is_in_mib():
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    before, after = map(float, said.split())
    assert 5 < before < 500
    assert 190 < after - before < 230
    assert peak_memory_mib() >= 5
