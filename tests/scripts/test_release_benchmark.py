"""The release of a benchmark's run."""

import json

import pytest

from rlreps.config import as_json
from rlreps.errors import InputError
from rlreps.experiments.ours.benchmark import PRESETS


def test_parts_are_released_with_four_digits_and_without_seconds_and_failed_ones_too(
    load, tmp_path
):
    module, parts = load("release_benchmark"), tmp_path / "parts"
    parts.mkdir()
    (tmp_path / "config.json").write_text(json.dumps({"config": as_json(PRESETS["laptop"])}))
    failed, *others = module.CELLS
    measured = {"values": {"r2": [[0.123456]], "seconds": [[1.0]]}, "steps": [0], "features": [[2]]}
    for name in others:
        (parts / f"{name}.json").write_text(json.dumps(measured))
    (parts / f"{failed}.json").write_text(json.dumps({"failed": "no data"}))
    found = module.gathered(tmp_path)
    assert found["cells"][failed] == {"failed": "no data"}
    assert found["cells"][others[-1]] == {"values": {"r2": [[0.1235]]}, "steps": [0]}
    kept = [name for name, part in found["cells"].items() if "features" in part]
    assert all("-sutton-10" in name for name in kept)
    assert len(kept) >= 20
    (tmp_path / "config.json").write_text(json.dumps({"config": as_json(PRESETS["smoke"])}))
    with pytest.raises(InputError, match="expected a run of the laptop preset"):
        module.gathered(tmp_path)
