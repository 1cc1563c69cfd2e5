"""One self-contained HTML page for a run: figures, tables, the configuration and the versions.

The page needs no network: figures are embedded, styles are inline, and a content security policy
allows nothing else. The same arguments give the same bytes.
"""

import base64
import dataclasses
import html
import importlib.resources
import io
import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlreps.files import write_atomically
from rlreps.report.table import Table

if TYPE_CHECKING:
    from rlreps.runs.folder import RunFolder

REPORT = "report.html"

_EXPLORE = """
<p>Rows of the successor measure, its components and values of painted rewards are on
<a href="explore.html">the page to explore</a>, once this command has made it in this folder:</p>
<pre>rlreps explore . --out explore.html</pre>"""
_LONG = 4
"""Least number of sections for which a page has a table of contents."""


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        title: Heading.
        text: Paragraphs, separated by blank lines. Plain text, no markup.
        figures: The path of a PNG file, each with its caption, which is also the alternative text
            of the image.
        tables: Tables, shown below the text and above the figures.
    """

    title: str
    text: str = ""
    figures: Sequence[tuple[Path, str]] = ()
    tables: Sequence[Table] = ()


@dataclasses.dataclass(frozen=True)
class Page:
    """The page of a run.

    Attributes:
        title: Title of the page.
        summary: Paragraphs below the title, separated by blank lines.
        sections: The parts, in order.
        explorable: Whether the folder holds a states-by-states store, for which ``rlreps explore``
            can make a page next to the report. The report then links to this page and shows its
            command.
    """

    title: str
    summary: str
    sections: Sequence[Section]
    explorable: bool = False


def write_report(folder: "RunFolder", report: Page) -> Path:
    """Write one self-contained HTML page of a run, ``report.html``, and return its path.

    The run's page is replaced only by a complete one.
    """
    counts = {"Figure": 0, "Table": 0}
    parts = [
        _section_html(number, part, counts) for number, part in enumerate(report.sections, start=1)
    ]
    page = importlib.resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    described = json.dumps(folder.config, indent=2, ensure_ascii=False)
    text = string.Template(page).substitute(
        title=html.escape(report.title),
        summary=_paragraphs(report.summary) + (_EXPLORE if report.explorable else ""),
        contents=_contents(report.sections),
        sections="\n".join(parts),
        config=html.escape(described),
        versions=_versions(folder.provenance).to_html(),
    )
    # A path in the configuration may contain bytes that are not text; the page is written even
    # then.
    return write_atomically(folder.path / REPORT, text.encode(errors="xmlcharrefreplace"))


def _paragraphs(text: str) -> str:
    parts = [part.strip("\n") for part in text.split("\n\n")]
    return "\n".join(f"<p>{html.escape(part)}</p>" for part in parts if part.strip())


def _contents(sections: Sequence[Section]) -> str:
    if len(sections) < _LONG:
        return ""
    titles = [(f"section-{number}", part.title) for number, part in enumerate(sections, start=1)]
    titles.append(("provenance", "Configuration and versions"))
    entries = "\n".join(
        f'<li><a href="#{name}">{html.escape(text)}</a></li>' for name, text in titles
    )
    return f'<nav aria-label="Contents">\n<ol>\n{entries}\n</ol>\n</nav>'


def _section_html(number: int, section: Section, counts: dict[str, int]) -> str:
    """Return one section; `counts` numbers figures and tables through the page."""
    parts = [_paragraphs(section.text)]
    for table in section.tables:
        counts["Table"] += 1
        parts.append(table.to_html(f"Table {counts['Table']}. {table.caption}"))
    for image, caption in section.figures:
        counts["Figure"] += 1
        parts.append(_figure_html(image, f"Figure {counts['Figure']}. {caption}"))
    body = "\n".join(part for part in parts if part)
    title = html.escape(section.title)
    return f'<section id="section-{number}">\n<h2>{title}</h2>\n{body}\n</section>'


def _figure_html(path: Path, caption: str) -> str:
    from PIL import Image

    data = path.read_bytes()
    with Image.open(io.BytesIO(data), formats=["PNG"]) as file:
        horizontal, vertical = file.info.get("dpi", (96.0, 96.0))
        # CSS pixels, 96 an inch.
        width, height = round(file.width * 96 / horizontal), round(file.height * 96 / vertical)
    text = html.escape(caption)
    return (
        f'<figure>\n<img alt="{text}" width="{width}" height="{height}" '
        f'src="data:image/png;base64,{base64.b64encode(data).decode()}">\n'
        f"<figcaption>{text}</figcaption>\n</figure>"
    )


def _versions(provenance: Mapping[str, Any]) -> Table:
    names = {"python": "Python", "git_revision": "git revision", "device": "device"}
    rows = [(said, provenance[name]) for name, said in names.items() if provenance.get(name)]
    rows += provenance.get("packages", {}).items()
    return Table(("software", "version"), rows, "Versions")
