"""The runs of a program shared out to devices."""

import dataclasses
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from rlreps.experiments.le_lan_2023.synthetic.config import PRESETS
from rlreps.experiments.le_lan_2023.synthetic.run import run_synthetic
from rlreps.runs.checkpoints import Checkpoints
from rlreps.training.devices import devices_for_small_runs, largest_even_share

pytestmark = pytest.mark.usefixtures("compilation_cache")

CONFIG = dataclasses.replace(
    PRESETS["smoke"],
    num_states=12,
    dimension=3,
    dimensions=(3,),
    rows_by_total=(5,),
    totals=(15,),
    kappa_dimensions=(3,),
    steps=20,
    num_seeds=2,
    evaluate_every=10,
    checkpoint_every=10,
)
PROGRAM = """
import json, sys
from pathlib import Path
import rlreps.placement as placement
from test_devices import CONFIG, run_synthetic

placement.usable_cores = lambda: 2
devices = placement.devices_for_small_runs()
assert len(devices) == 2
print(json.dumps(run_synthetic(CONFIG, Path(sys.argv[1]), devices=devices, progress=False)))
"""


def on_two_devices(out):
    """Runs or resumes the experiment in a process of its own, and returns its curves."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.path.dirname(__file__)}
    command = [sys.executable, "-c", PROGRAM, str(out)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    return curves(out)


def curves(out):
    """Every number of the curves' table, [rows, numbers]."""
    lines = (out / "results" / "distance_by_dimension.csv").read_text().splitlines()[1:]
    return np.array([[float(cell) for cell in line.split(",")[4:]] for line in lines])


def test_two_devices_find_what_one_does_and_go_on_where_it_stopped(tmp_path, monkeypatch):
    run_synthetic(CONFIG, tmp_path / "one", progress=False)
    expected = curves(tmp_path / "one")
    np.testing.assert_allclose(on_two_devices(tmp_path / "two"), expected, rtol=1e-3)
    save = Checkpoints.save

    def save_then_fail(checkpoints, step, state):
        save(checkpoints, step, state)
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", save_then_fail)
    with pytest.raises(KeyboardInterrupt):
        run_synthetic(CONFIG, tmp_path / "resumed", progress=False)
    np.testing.assert_allclose(on_two_devices(tmp_path / "resumed"), expected, rtol=1e-3)


def test_a_process_in_which_jax_has_started_keeps_its_devices():
    before = jax.devices()
    assert devices_for_small_runs() == before


@pytest.mark.parametrize(("runs", "count"), [(30, 6), (10, 5), (7, 7), (11, 1), (16, 8)])
def test_as_many_devices_are_used_as_share_the_runs_evenly(runs, count):
    devices = list(range(8))
    assert largest_even_share(devices, runs) == devices[:count]
