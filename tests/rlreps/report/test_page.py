"""The report: one page that stands alone, whatever is put into it."""

import base64
import json
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlreps import plotting, report
from rlreps.report.page import Section, write_report
from rlreps.report.table import Table

HOSTILE = "<script>alert('x')</script> & \"quoted\" $title ${config} </pre>"
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Reads a page, checking that every tag is closed in order."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self._open
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open:
            self.texts[self._open[-1]][-1] += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def png(tmp_path_factory):
    figure = plotting.plot_spectrum([2.0, 1.0], 6.0)
    return plotting.save_figure(figure, tmp_path_factory.mktemp("figures") / "spectrum.png")


def write(path, config=None, provenance=None, **parts):
    """Write the report of a run; return the page as it is read back."""
    run = SimpleNamespace(path=path, config=config or {}, provenance=provenance or {})
    return Page(write_report(run, report.page.Page(**{"title": "t", "summary": "", **parts})))


@pytest.fixture(scope="module")
def page(png, tmp_path_factory):
    """A page of four sections, enough for contents."""
    table = Table(("method", "d", "distance"), [("large_batch", 10, 0.00512)], "Distances.")
    parts = [
        Section(f"Part {i}", "First.\n\nSecond.", [(png, "Spectrum.")], [table]) for i in range(4)
    ]
    return write(
        tmp_path_factory.mktemp("run") / "below",
        title="A run",
        summary="What came out.",
        sections=parts,
        config={"preset": "smoke", "seed": 3},
        provenance={"git_revision": "0123abc", "packages": {"numpy": "2"}, "store": "elsewhere"},
    )


CAPTIONS = [f"Figure {number}. Spectrum." for number in range(1, 5)]


def test_a_report_holds_its_text_figures_tables_configuration_and_revision(page, png):
    assert page.texts["h1"] == ["A run"]
    assert page.texts["h2"][0] == "Part 0"
    images = page.attributes("img")
    sources = [base64.b64decode(image["src"].partition(",")[2], validate=True) for image in images]
    assert sources == 4 * [png.read_bytes()]
    assert [image["alt"] for image in images] == CAPTIONS
    assert page.texts["p"] == ["What came out.", *["First.", "Second."] * 4]
    tables = [f"Table {number}. Distances." for number in range(1, 5)]
    assert page.texts["caption"] == [*tables, "Versions"]
    assert page.texts["td"][:3] == ["large_batch", "10", "0.00512"]
    assert json.loads(page.texts["pre"][0]) == {"preset": "smoke", "seed": 3}
    cells = page.texts["td"]
    assert cells[cells.index("git revision") + 1] == "0123abc"
    assert "elsewhere" not in cells


def test_the_page_loads_nothing_from_outside_and_runs_no_script(page):
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for _, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/png;base64,", "#"))
        assert not any(name.startswith("on") for name in attributes)
    style = page.texts["style"][0]
    assert "url(" not in style
    assert "@import" not in style
    [policy] = [meta.get("content") for meta in page.attributes("meta") if "http-equiv" in meta]
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy


def test_hostile_text_comes_out_as_text_everywhere(png, tmp_path):
    table = Table((HOSTILE,), [(HOSTILE,)], HOSTILE)
    page = write(
        tmp_path,
        title=HOSTILE,
        summary=HOSTILE,
        sections=[Section(HOSTILE, HOSTILE, [(png, HOSTILE)], [table])] * 5,
        config={HOSTILE: HOSTILE},
        provenance={"git_revision": HOSTILE},
    )
    assert "script" not in {tag for tag, _ in page.tags}
    for tag in ("title", "h1", "h2", "p", "a", "th", "td"):
        assert HOSTILE in page.texts[tag]
    assert page.attributes("img")[0]["alt"] == f"Figure 1. {HOSTILE}"
    assert json.loads(page.texts["pre"][0]) == {HOSTILE: HOSTILE}
