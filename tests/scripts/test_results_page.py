"""The page of results that is made from a run's files."""

import base64
import json

import numpy as np
import pytest
from PIL import Image

CLAIM = {"statement": "it learns", "stated": "at every d", "found": "0.5 | 0.25", "holds": False}
CURVES = """method,d,step,distance,distance_low,distance_high,seed_0
lissa,5,0,0.9,0.8,1.0,0.9
lissa,5,100,0.25,0.2,0.3,0.25
lissa,10,0,0.9,,,0.9
lissa,10,100,0.5,,,0.5
"""
PRINTED = "k,mean,deviation,low,high,printed,within\n" + "".join(
    f"{k},35.1741,0.0212,35.16,35.19,35.17,within\n" for k in range(20)
)
SEEDS = """arm,seed,d,step,return
none,0,2,0,9
none,1,2,0,9
none,0,2,50,1
none,1,2,50,2
"""
FAR = "arm,gain_value,other,gain_low,gain_high\nlate,1,2,0.5,1.5\n"


@pytest.fixture
def script(load):
    return load("results_page")


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    for name in ("results", "figures"):
        (folder / name).mkdir(parents=True)
    versions = {"rlreps": "0.2.0", "jax": "0.10.2", "numpy": "2.0"}
    made = {"created": "2026-01-02T03:04", "device": "2 x cpu", "packages": versions}
    config = {
        "format": 2,
        "kind": "trial",
        "config": {},
        "provenance": {**made, "git_revision": None},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "summary.json").write_text(json.dumps({"claims": [CLAIM], "seconds": 12.3}))
    (folder / "results" / "curves.csv").write_text(CURVES)
    (folder / "results" / "seeds.csv").write_text(SEEDS)
    (folder / "results" / "printed.csv").write_text(PRINTED)
    (folder / "results" / "far.csv").write_text(FAR)
    noise = np.random.default_rng(0).integers(0, 255, (500, 2000, 3), np.uint8)
    noise[:, 600:] = 255
    Image.fromarray(noise).save(folder / "figures" / "curves.png")
    Image.fromarray(noise[:9, :9]).save(folder / "figures" / "zoom.png")
    encoded = base64.b64encode((folder / "figures" / "zoom.png").read_bytes()).decode()
    report = f'<img alt="Figure 1. A &amp; B." src="data:image/png;base64,{encoded}">'
    (folder / "report.html").write_text(report)
    return folder


def test_a_page_holds_the_end_of_curves_the_claims_and_small_figures(script, run, tmp_path):
    page = script.write_page(run, tmp_path / "docs", "rlreps experiment trial")
    text = page.read_text()
    assert page.name == "trial.md"
    assert "| it learns | at every d | 0.5 ¦ 0.25 | does not hold |" in text
    assert "| lissa | 5 | 100 | 0.250 [0.200, 0.300] |\n| lissa | 10 | 100 | 0.500 |\n" in text
    assert "| none | 2 | 2 | 50 | 1.50 |\n" in text  # the mean over two seeds, at the end
    # A paper's table is whole, to its digits.
    assert text.count("| 35.17 [35.16, 35.19] | 0.02120 | 35.17 | within |\n") == 20
    # The page prints an interval after its value.
    assert "| arm | other | gain |\n| --- | --- | --- |\n| late | 2 | 1 [0.500, 1.50] |\n" in text
    # Figures come as in the report, with its captions.
    assert "![A & B.](figures/trial/zoom.png)\n\n![Curves](figures/trial/curves.png)" in text
    figure = tmp_path / "docs" / "figures" / "trial" / "curves.png"
    assert "(figures/trial/curves.png)" in text
    assert figure.stat().st_size <= 120_000
    with Image.open(figure) as picture:
        assert abs(picture.width / picture.height - 4.0) < 0.05


def test_a_page_is_made_again_without_losing_what_was_written_around_it(
    script, run, tmp_path, monkeypatch
):
    monkeypatch.setattr(script, "shrink", lambda source, target: None)
    page = script.write_page(run, tmp_path)
    first = page.read_text()
    page.write_text(first.replace("# trial\n", "# trial\n\nWhy.\n") + "\nWhat it means.\n")
    script.write_page(run, tmp_path)
    assert (
        page.read_text() == first.replace("# trial\n", "# trial\n\nWhy.\n") + "\nWhat it means.\n"
    )
