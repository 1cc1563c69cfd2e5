"""The comparison with other packages, on numbers that are known."""

import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "scripts" / "peers"
ROW = """
TITLE = "Nothing at all"
WORK, PACKAGES, SIZES = "Nothing.", ("numpy", "none such"), {"rows": 2, "folder": ""}
prepare = lambda rows, **_: [0.0] * rows
SIDES = {
    name: lambda data, **_: lambda: sum(range(9_999)) and 9 * data
    for name in ("rlreps fit", "a peer")
}
quality = lambda data, result, **_: {"rows": len(result)}
"""


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import compare

    return compare


def test_a_row_is_run_in_turns_and_shown_with_its_ratio_and_quality(compare, tmp_path, monkeypatch):
    (tmp_path / "nothing.py").write_text(ROW)
    monkeypatch.syspath_prepend(tmp_path)
    sizes = {"rows": "3", "folder": f"{tmp_path}/images"}
    checkouts = {"rlreps": str(tmp_path), "a": str(tmp_path)}
    compare.run("nothing", sizes=sizes, pairs=2, checkouts=checkouts, out=tmp_path)
    found = json.loads((tmp_path / "nothing.json").read_text())
    assert str(tmp_path) not in json.dumps(found)
    assert found["sizes"] == {"rows": 3, "folder": "FOLDER"}
    assert [len(runs) for runs in found["runs"].values()] == [2, 2]
    for side in found["runs"].values():
        assert side[0]["quality"] == {"rows": 27.0}
        assert side[0]["versions"]["none such"] is None

    times = {"rlreps fit": (2.0, 3.0), "a peer": (4.0, 12.0)}
    for name, pair in times.items():
        for each, seconds in zip(found["runs"][name], pair, strict=True):
            each["wall"] = each["processor"] = [seconds, seconds]
    ratio = compare.ratio(*found["runs"].values(), "cold")
    assert ratio[0] == pytest.approx(8**-0.5)
    assert ratio[1] < ratio[0] < ratio[2]
    page = tmp_path / "page.md"
    page.write_text(f"Before\n{compare.BEGIN}\nprevious\n{compare.END}\nafter\n")
    compare.page(tmp_path, page)
    text = page.read_text()
    assert text.startswith("Before\n")
    assert text.endswith("\nafter\n")
    assert "previous" not in text
    assert "[Nothing at all](#nothing-at-all)" in text
    assert "\n## Nothing at all\n" in text
    assert "| rows 27.0, 27.0 |" in text


def test_every_row_has_what_the_comparison_needs(compare):
    rows = [path.stem for path in FOLDER.glob("*.py") if path.stem not in ("compare", "side")]
    for row in rows:
        module = __import__(row)
        assert next(iter(module.SIDES)).startswith("rlreps"), row
        assert module.WORK.endswith("."), row
        assert "rlreps" in module.PACKAGES, row
    assert len(rows) == 7
    assert "side" not in sys.modules
