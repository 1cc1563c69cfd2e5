"""Trains on meshes of forced host devices, and prints as JSON what came of it.

A program of its own: the number of host devices is fixed when JAX starts. The names of its cases
are its arguments.
"""

import contextlib
import functools
import json
import re
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rlreps import losses, training
from rlreps.config import with_sizes
from rlreps.cumulants import RandomFourier
from rlreps.encoders import MLP
from rlreps.envs import load_arena
from rlreps.losses import DanskinLissa, Spin
from rlreps.runs.folder import RunFolder
from rlreps.sources.live import puddle_world_source
from rlreps.sources.matrix import matrix_source
from rlreps.sources.store import streamed_source
from rlreps.training.population import Members

OBJECTIVES = {
    **{name: objective() for name, objective in losses.OBJECTIVES.items()},
    "danskin_lissa_exchanged": DanskinLissa(permutations=2, whitening=True, feature_norm="running"),
    "spin_averaged": Spin(averaging_rate=0.2),
}
STATES, TASKS, FEATURES = 60, 40, 3
POSITIONS = np.random.default_rng(0).random((STATES, 2))
MATRIX = np.cos(3.0 * POSITIONS @ np.random.default_rng(1).standard_normal((2, TASKS)))
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")

programs = []


def remember_programs():
    prepare = Members.prepare

    def remembered(self, state, count):
        prepare(self, state, count)
        programs.append(self.compiled[count].as_text())

    Members.prepare = remembered


def in_memory():
    return matrix_source(MATRIX, POSITIONS, with_population=True)


class Reader:
    shape = MATRIX.shape

    def entries(self, rows, columns):
        return MATRIX[np.ix_(rows, columns)].astype(np.float32)


def run(devices, objective="large_batch", seeds=(3,), source=None, **changes):
    """Flat parameters [seeds, p] after six updates on so many devices (None: wherever JAX does)."""
    arguments = {
        "optimizer": optax.sgd(0.05),
        "steps": 6,
        "rows": 21,
        "tasks": 5,
        "evaluate_every": 3,
        "checkpoint_every": 3,
    }
    encoder = MLP(FEATURES, num_inputs=2, hidden=(17,))
    sizes = {"num_features": FEATURES, "num_tasks": TASKS, "encoder": encoder}
    result = training.train(
        encoder,
        with_sizes(OBJECTIVES[objective], encoder_learning_rate=1e-2, **sizes),
        in_memory() if source is None else source,
        seeds=seeds,
        devices=None if devices is None else jax.devices()[:devices],
        **(arguments | changes),
    )
    leaves = jax.tree.leaves(result.state.params)
    assert all(len(leaf.devices()) == 1 for leaf in leaves)
    return np.concatenate([np.asarray(leaf).reshape(len(seeds), -1) for leaf in leaves], axis=1)


def collectives():
    """Collective operations in the newest program."""
    return sum(len(re.findall(rf" {name}(?:-start)?\(", programs[-1])) for name in COLLECTIVES)


@functools.cache
def start():
    """Parameters before training, the same for every objective."""
    return run(None, optimizer=optax.sgd(0.0))


def objective_case(name):
    """Largest difference of uneven shares on three devices from one device, and of no training."""
    step = {"optimizer": optax.sgd(0.05), "rows": 20}
    whole = run(None, name, **step)
    return {
        "moved": float(np.abs(whole - start()).max()),
        "off": float(np.abs(run(3, name, **step) - whole).max()),
    }


def seeds_case():
    """Seeds on devices of their own, and seeds that do not share out evenly."""
    seeds = (1, 2, 3, 4)
    together = run(None, seeds=seeds)
    apart = {}
    for devices in (2, 8):
        off = float(np.abs(run(devices, seeds=seeds) - together).max())
        apart[str(devices)] = {"off": off, "collectives": collectives()}
    return apart


class Killed(BaseException):
    pass


class Dying(RunFolder):
    def append_metrics(self, record):
        if record["step"] == 6:
            raise Killed
        super().append_metrics(record)


def resume_case():
    """A run that dies after its first checkpoint and goes on with other devices."""
    whole = {name: run(n, "explicit", seeds=(1, 2)) for name, n in (("one", None), ("eight", 8))}
    figures = {}
    for first, then in ((8, 8), (None, 2)):
        with tempfile.TemporaryDirectory() as path:
            for devices, kind in ((first, Dying), (then, RunFolder)):
                folder = kind.create_or_resume(
                    Path(path) / "run", kind="test", config={}, provenance={}
                )
                with contextlib.suppress(Killed):
                    params = run(devices, "explicit", seeds=(1, 2), folder=folder)
            steps = [record["step"] for record in folder.read_metrics()]
            if (first, then) == (8, 8):
                figures["same"] = bool(np.array_equal(params, whole["eight"]))
            off = float(np.abs(params - whole["one"]).max())
            figures[f"{first}-{then}"] = {"off": off, "steps": steps}
    return figures


def sources_case():
    """Sources that the host or a simulation feeds, spread by rows and by seeds (float32)."""
    figures = {}
    with jax.enable_x64(False):
        positions = POSITIONS.astype(np.float32)
        live = puddle_world_source(load_arena("empty"), RandomFourier(), horizon=5, discount=0.9)
        for name, source in ("streamed", streamed_source(Reader(), positions)), ("live", live):
            whole, rows, seeds = (
                run(devices, source=source, rows=24, seeds=(1, 2)) for devices in (None, 8, 2)
            )
            off = max(float(np.abs(each - whole).max()) for each in (rows, seeds))
            figures[name] = {"moved": float(np.abs(whole).max()), "off": off}
    return figures


def main():
    remember_programs()
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    assert jax.device_count() == 8
    assert jnp.zeros(()).dtype == jnp.float64
    cases = {"seeds": seeds_case, "resume": resume_case, "sources": sources_case}
    found = {}
    for name in sys.argv[1:]:
        found[name] = cases[name]() if name in cases else objective_case(name)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
