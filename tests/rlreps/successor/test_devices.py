"""One matrix on any number of devices: the same bytes of it and of its half differences."""

import dataclasses
import json
import os

import jax
import numpy as np
import pytest

from rlreps.envs import load_arena
from rlreps.successor.chains import puddle_world_chain
from rlreps.successor.grids import Grid
from rlreps.successor.measure import MonteCarlo
from rlreps.successor.monte_carlo import RowSampler
from rlreps.successor.store.estimates import open_estimates

# 49 cells fill neither one tile of 32 nor two; 501 rollouts are blocks of 250, 1 and 250.
CONFIG = MonteCarlo(bins=7, rollouts=501, horizon=40, discount=0.9, block_rows=5)

RUN = """
import json, sys
from pathlib import Path
import jax
from rlreps.successor.measure import MonteCarlo
from rlreps.workflows.generate import generate
assert jax.device_count() == int(sys.argv[3]), jax.devices()
generate(MonteCarlo(**json.loads(sys.argv[1])), Path(sys.argv[2]))
sys.exit()
"""


@pytest.mark.integration
def test_any_number_of_devices_writes_the_same_bytes(start_rlreps, tmp_path, block_bytes):
    stores = {}
    for count in (1, 3):
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
        arguments = [json.dumps(dataclasses.asdict(CONFIG)), tmp_path / str(count), count]
        process = start_rlreps(*arguments, first=RUN, XLA_FLAGS=flags)
        _, said = process.communicate()
        assert process.returncode == 0, said
        stores[count] = open_estimates(tmp_path / str(count))
        assert stores[count].matrix.provenance["device"] == f"{count} x cpu"
        assert stores[count].verify(CONFIG.row_sum) == []
        assert dict(stores[count].matrix.settings) == dict(stores[1].matrix.settings)
        assert block_bytes(tmp_path / str(count)) == block_bytes(tmp_path / "1")
    chain = puddle_world_chain(load_arena(CONFIG.arena), Grid(CONFIG.bins))
    sampler = RowSampler(chain, CONFIG, devices=[jax.local_devices()[0]])
    cells = np.random.default_rng(0).permutation(CONFIG.num_states)[:20]
    found = sampler.estimates(cells)
    assert found.rows.tobytes() == stores[3].matrix.read()[cells].tobytes()
    half_difference = stores[3].half_difference.read()[cells]
    assert found.half_difference.tobytes() == half_difference.tobytes()
