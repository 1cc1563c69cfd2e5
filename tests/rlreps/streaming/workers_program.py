"""Program that ``test_passes`` runs as one of several processes: prints the combined factor."""

import json
import sys

import jax
import numpy as np

from rlreps.errors import InputError
from rlreps.streaming import (
    ImplicitKrasulina,
    Runs,
    run_passes,
    share_rows,
    start_workers,
    worker_mesh,
    worker_step,
)

FEATURES, K, WORKERS, ROWS = 6, 2, 4, 40


def main() -> None:
    address, count, index = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    jax.distributed.initialize(address, count, index)
    rule = ImplicitKrasulina(FEATURES, K, learning_rate=1.0, initial_scale=0.1)
    mesh = worker_mesh()
    rows = np.random.default_rng(0).normal(size=(WORKERS, ROWS, FEATURES)).astype(np.float32)
    own = np.array_split(rows, count)[index]
    try:
        start_workers(rule, jax.random.key(0), 3, mesh=mesh)
        refused = ""
    except InputError as error:
        refused = str(error)
    states = start_workers(rule, jax.random.key(0), WORKERS, mesh=mesh)
    step = jax.jit(worker_step(rule, mesh=mesh))
    for half in (slice(0, ROWS // 2), slice(ROWS // 2, ROWS)):
        weights = np.arange(1.0, WORKERS + 1.0, dtype=np.float32)
        _, states = step(states, share_rows(own[:, half], mesh), weights)
    here = states.rows.addressable_shards[0].data
    runs, options = Runs([0, 1], [1.0, 1.0]), {"evaluate": np.sum, "evaluate_every": ROWS}
    apart, alone = (
        run_passes(lambda rate: rule, rows[0], runs, devices=devices, **options).components.tolist()
        for devices in (jax.local_devices(), None)
    )
    found = {"devices": mesh.size, "refused": refused, "rows": np.asarray(here)[0].tolist()}
    print(json.dumps({**found, "apart": apart, "alone": alone}))


if __name__ == "__main__":
    main()
