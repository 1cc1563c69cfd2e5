"""One matrix on any number of devices: the same bytes of it and of its half differences."""

import dataclasses
import json
import os

import pytest

from rlreps.app.generation import generate
from rlreps.successor.measure.methods import MonteCarlo
from rlreps.successor.truth.store.estimates import open_estimates

# 49 cells fill neither one tile of 32 nor two; 501 rollouts are blocks of 250, 1 and 250.
CONFIG = MonteCarlo(bins=7, rollouts=501, horizon=40, discount=0.9, block_rows=5)

RUN = """
import json, sys
from pathlib import Path
import jax
from rlreps.successor.measure.methods import MonteCarlo
from rlreps.app.generation import generate
assert jax.device_count() == int(sys.argv[3]), jax.devices()
generate(MonteCarlo(**json.loads(sys.argv[1])), Path(sys.argv[2]))
sys.exit()
"""


@pytest.mark.integration
def test_any_number_of_devices_writes_the_same_bytes(start_rlreps, tmp_path, block_bytes):
    generate(CONFIG, tmp_path / "1")
    for count in (3,):
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
        arguments = [json.dumps(dataclasses.asdict(CONFIG)), tmp_path / str(count), count]
        process = start_rlreps(*arguments, first=RUN, XLA_FLAGS=flags)
        _, said = process.communicate()
        assert process.returncode == 0, said
        store = open_estimates(tmp_path / str(count))
        assert store.matrix.provenance["device"] == f"{count} x cpu"
        assert store.verify(CONFIG.row_sum) == []
        assert block_bytes(tmp_path / str(count)) == block_bytes(tmp_path / "1")
