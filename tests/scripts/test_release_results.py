"""The release of a run's results."""

import json

import pytest

from rlreps.config import as_json
from rlreps.errors import InputError
from rlreps.experiments import EXPERIMENTS
from rlreps.experiments.ours.benchmark import PRESETS
from rlreps.runs import RunFolder


def create(path, preset, kind="benchmark"):
    """Create the folder of a run, without parts."""
    config = as_json(EXPERIMENTS[kind].load().presets[preset])
    RunFolder.create_or_resume(path, kind=kind, config=config, provenance={})
    (path / "parts").mkdir(exist_ok=True)


@pytest.mark.parametrize(
    ("kind", "preset", "said"),
    [
        ("benchmark", "smoke", "a run of the laptop preset"),
        ("games", "smoke", "a run of the laptop preset"),
        ("agents", "laptop", "a run of benchmark or games"),
    ],
)
def test_only_a_run_of_the_laptop_preset_is_released(kind, preset, said, load, tmp_path):
    create(tmp_path, preset, kind)
    with pytest.raises(InputError, match=f"expected {said}"):
        load("release_results").gathered(tmp_path)


def test_parts_are_released_with_four_digits_and_without_seconds_and_failed_ones_too(
    load, tmp_path
):
    module, parts = load("release_results"), tmp_path / "parts"
    create(tmp_path, "laptop")
    failed, *others = module.CELLS
    measured = {"values": {"r2": [[0.123456]], "seconds": [[1.0]]}, "steps": [0], "features": [[2]]}
    for name in others:
        (parts / f"{name}.json").write_text(json.dumps(measured))
    (parts / f"{failed}.json").write_text(json.dumps({"failed": "no data"}))
    found = module.gathered(tmp_path)
    assert found["config"] == as_json(PRESETS["laptop"])
    assert found["cells"][failed] == {"failed": "no data"}
    assert found["cells"][others[-1]] == {"values": {"r2": [[0.1235]]}, "steps": [0]}
    kept = [name for name, part in found["cells"].items() if "features" in part]
    assert all("-sutton-10" in name for name in kept)
    assert len(kept) >= 20
