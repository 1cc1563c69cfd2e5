"""Training on a mesh: forced host devices in a process of their own, in float64."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from rlreps.errors import InputError
from rlreps.training.devices import choose_devices, make_placement

PROGRAM = Path(__file__).with_name("data_parallel_program.py")
ROUNDING = 1e-10
"""Of float64, with room to grow over six updates."""

OBJECTIVES_AND_VARIANTS = ["danskin_lissa_exchanged", "spin_averaged", "explicit"]
"""Those left out sample and reduce rows as one of these does."""


@pytest.fixture(scope="module")
def on_eight_devices():
    """What the program prints for every case, and what it writes on standard error."""
    cases = [*OBJECTIVES_AND_VARIANTS, "seeds", "resume", "sources"]
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1",
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8",
    }
    finished = subprocess.run(
        [sys.executable, PROGRAM, *cases],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout), finished.stderr


@pytest.mark.integration
def test_objectives_mean_the_same_on_several_devices(on_eight_devices):
    found, _ = on_eight_devices
    for name in OBJECTIVES_AND_VARIANTS:
        assert found[name]["moved"] > 1e-4, name
        assert found[name]["off"] < ROUNDING, name


@pytest.mark.integration
def test_rows_seeds_and_sources_are_shared_out_and_a_run_goes_on_elsewhere(on_eight_devices):
    found, said = on_eight_devices
    assert found["seeds"]["2"] == {"off": 0.0, "collectives": 0}
    # Four seeds on eight devices: there the rows are spread.
    assert found["seeds"]["8"]["collectives"] > 0
    assert found["seeds"]["8"]["off"] < ROUNDING
    assert found["resume"]["same"]  # The same bits, on the same devices.
    resumed = [found["resume"][name] for name in ("8-8", "None-2")]
    for figures in resumed:
        assert figures["steps"] == [0, 3, 6]
        assert figures["off"] < ROUNDING
    # Sources fed by the host or a simulation are spread without a word from the compiler.
    assert "SPMD" not in said
    for name, figures in found["sources"].items():
        assert figures["moved"] > 0.1, name
        assert figures["off"] < 1e-4, name


def test_the_same_device_twice_is_refused():
    with pytest.raises(InputError, match="expected at least one device, each once"):
        make_placement(2 * jax.devices()[:1], 1)


def test_a_command_trains_on_all_accelerators_or_one_cpu_device_unless_told_otherwise():
    most = len(jax.local_devices())
    on_cpu = jax.default_backend() == "cpu"
    assert choose_devices(None) == jax.local_devices()[: 1 if on_cpu else most]
    assert choose_devices(most) == jax.local_devices()
    for count in (0, most + 1):
        with pytest.raises(InputError, match=rf"expected devices in \[1, {most}\].*got {count}"):
            choose_devices(count)
