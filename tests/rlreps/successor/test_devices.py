"""One matrix on any number of devices: the same bytes of it and of its half differences."""

import hashlib
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from rlreps.config import as_json
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
from rlreps.successor.generation import generate
assert jax.device_count() == int(sys.argv[3]), jax.devices()
generate(MonteCarlo(**json.loads(sys.argv[1])), Path(sys.argv[2]), progress=False)
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Number of devices → the store made on them, each by a process of its own."""
    folder = tmp_path_factory.mktemp("devices")
    for count in (1, 2, 8):
        flag = f"--xla_force_host_platform_device_count={count}"
        environment = {**os.environ, "XLA_FLAGS": flag, "JAX_PLATFORMS": "cpu"}
        arguments = [json.dumps(as_json(CONFIG)), str(folder / str(count)), str(count)]
        subprocess.run([sys.executable, "-c", RUN, *arguments], env=environment, check=True)
    return {count: open_estimates(folder / str(count)) for count in (1, 2, 8)}


def digests(store):
    """SHA-256 of every block file of both arrays."""
    return {
        str(file.relative_to(store.matrix.path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for part in store.stores()
        for file in map(part.block_file, range(part.num_blocks))
    }


@pytest.mark.parametrize("count", [2, 8])
def test_any_number_of_devices_writes_the_same_bytes(stores, count):
    assert len(digests(stores[1])) == 2 * 10
    assert digests(stores[count]) == digests(stores[1])


def test_stores_of_any_number_of_devices_are_sound(stores):
    for store in stores.values():
        assert all(report.ok for report in store.verify(CONFIG.row_sum))
        assert np.any(store.half_difference.read())


def test_settings_hold_nothing_of_the_devices_so_that_others_may_finish_a_store(stores):
    assert dict(stores[1].matrix.settings) == dict(stores[8].matrix.settings)
    for count, store in stores.items():
        assert store.matrix.provenance["device"] == f"{count} x cpu"


def test_a_sampler_told_to_use_one_device_gives_the_rows_of_the_store(stores):
    chain = puddle_world_chain(load_arena(CONFIG.arena), Grid(CONFIG.bins))
    devices = [jax.local_devices()[0]]
    sampler = RowSampler(chain, CONFIG, devices=devices)
    cells = np.random.default_rng(0).permutation(CONFIG.num_cells)[:20]
    found = sampler.estimates(cells)
    for part, store in (
        (found.rows, stores[8].matrix),
        (found.half_difference, stores[8].half_difference),
    ):
        assert part.tobytes() == np.ascontiguousarray(store.read()[cells]).tobytes()
