"""One self-contained HTML page a run: figures, tables, the whole configuration and the versions.

The page needs no script and no network: figures are embedded, styles are inline, and a content
security policy forbids everything else. The same arguments give the same bytes.
"""

import base64
import dataclasses
import html
import importlib.metadata
import io
import json
import math
import numbers
import os
import platform
import string
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image, UnidentifiedImageError

from rlreps.errors import InputError
from rlreps.plotting import figure_bytes, write_atomically

_PACKAGES = ("rlreps", "jax", "jaxlib", "flax", "optax", "numpy", "scipy", "matplotlib")
_LONG = 4
"""Sections from which on a page gets a table of contents."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_PAGE = string.Template(
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { color-scheme: light dark; --text: #1b1b1b; --muted: #5a5a5a; --line: #d8d8d8;
  --page: #ffffff; --panel: #f5f6f7; --link: #00558a; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8e8e8; --muted: #a9a9a9; --line: #3c3f43; --page: #17191c; --panel: #212428;
    --link: #7cc0ee; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1.25rem 4rem; background: var(--page);
  color: var(--text); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 2.5rem 0 0.75rem; padding-top: 1rem;
  border-top: 1px solid var(--line); }
h1, h2, p, figcaption, caption { overflow-wrap: anywhere; }
p { max-width: 44rem; margin: 0 0 0.9rem; white-space: pre-line; }
a { color: var(--link); }
nav { background: var(--panel); border-radius: 0.5rem; padding: 0.75rem 1.25rem; margin: 1.5rem 0; }
nav ol { margin: 0; padding-left: 1.3rem; }
figure { margin: 1.5rem 0; }
figure img { display: block; max-width: 100%; height: auto; background: #ffffff; padding: 0.5rem;
  border: 1px solid var(--line); border-radius: 0.4rem; }
figcaption, caption { color: var(--muted); font-size: 0.92rem; text-align: left; }
figcaption { margin-top: 0.5rem; max-width: 44rem; }
caption { caption-side: top; padding-bottom: 0.5rem; }
.wide { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-size: 0.95rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 0.9rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: baseline; }
thead th { border-bottom: 2px solid var(--muted); }
.number { text-align: right; white-space: nowrap; }
details { margin: 1rem 0; }
summary { cursor: pointer; }
pre { background: var(--panel); border-radius: 0.4rem; padding: 0.9rem 1rem; overflow-x: auto;
  font: 0.85rem/1.45 ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; }
@media print {
  :root { --text: #000000; --muted: #444444; --line: #bbbbbb; --page: #ffffff; --panel: #ffffff; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  figure, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  details::details-content { content-visibility: visible; block-size: auto; } }
</style>
</head>
<body>
<main>
<h1>$title</h1>
$summary
$contents
$sections
<section id="provenance">
<h2>Configuration and versions</h2>
<details>
<summary>Full configuration</summary>
<pre>$config</pre>
</details>
$versions
</section>
</main>
</body>
</html>
"""
)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; numbers are shortened by `format_number` and set flush right.

    Attributes:
        header: Column titles [columns].
        rows: Cells [rows][columns]: text, numbers, booleans or None.
        caption: What the table shows.

    Raises:
        InputError: A row that is not as long as the header.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise InputError(f"expected table rows of {len(self.header)} cells, got {len(row)}")


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        title: Heading.
        text: Paragraphs, separated by blank lines. Plain text, no markup.
        figures: A matplotlib figure or the path of a PNG file, each with its caption, which is also
            the text that stands for the image where it cannot be seen.
        tables: Tables, shown below the text and above the figures.
    """

    title: str
    text: str = ""
    figures: Sequence[tuple[Figure | str | os.PathLike[str], str]] = ()
    tables: Sequence[Table] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """A page to be.

    Attributes:
        title: Title of the page.
        summary: Paragraphs below the title, separated by blank lines.
        sections: The parts, in order.
        config: The run's full configuration: mappings, sequences, dataclasses and what JSON knows.
        git_revision: Revision of the code that made the run, where it is known.
    """

    title: str
    summary: str
    sections: Sequence[Section]
    config: object
    git_revision: str | None = None

    def to_html(self) -> str:
        """The page as HTML.

        Raises:
            InputError: A figure's path that is not a readable PNG file.
        """
        counts = {"Figure": 0, "Table": 0}
        sections = [
            _section_html(number, section, counts)
            for number, section in enumerate(self.sections, start=1)
        ]
        config = json.dumps(self.config, indent=2, ensure_ascii=False, default=_to_json)
        return _PAGE.substitute(
            title=html.escape(self.title),
            summary=_paragraphs(self.summary),
            contents=_contents(self.sections),
            sections="\n".join(sections),
            config=html.escape(config),
            versions=_table_html(_versions(self.git_revision), "Versions"),
        )


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    summary: str,
    sections: Sequence[Section],
    config: object,
    git_revision: str | None = None,
) -> Path:
    """Writes one self-contained HTML page and returns its path; see `Report` for the arguments.

    Not even a kill halfway leaves part of a page at `path`.

    Raises:
        InputError: A figure's path that is not a readable PNG file.
    """
    report = Report(
        title=title,
        summary=summary,
        sections=sections,
        config=config,
        git_revision=git_revision,
    )
    return write_atomically(path, report.to_html().encode())


def format_number(value: object, *, digits: int = 3) -> str:
    """A number as a reader wants it: three significant digits, thousands separated.

    Integers are exact. Other numbers of 1,000 and more lose their fraction; those below 0.001, and
    from ten million on, are given as a power of ten. Booleans are yes and no, None is a dash, and
    what is no number is its own text.

    Args:
        value: What to write; NumPy scalars and arrays of one number count as numbers.
        digits: Significant digits.
    """
    if isinstance(value, str):
        return value
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        value = value.item()
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}".replace("-", "−")
    if isinstance(value, numbers.Real):
        return _format_real(float(value), digits)
    return str(value)


def _format_real(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    # Round first: 999.96 has to be treated as the 1,000 that it becomes.
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if float(mantissa) == 0:
        return "0"
    if -3 <= power < 7:
        text = f"{value:,.{max(digits - 1 - power, 0)}f}"
    else:
        text = f"{mantissa}·10{str(power).translate(_SUPERSCRIPTS)}"
    return text.replace("-", "−")


def _to_json(value: object) -> object:
    """What `json` does not know, as something it does."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): entry for key, entry in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


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
    """One section; `counts` numbers figures and tables through the page."""
    parts = [_paragraphs(section.text)]
    for table in section.tables:
        counts["Table"] += 1
        parts.append(_table_html(table, f"Table {counts['Table']}. {table.caption}"))
    for image, caption in section.figures:
        counts["Figure"] += 1
        parts.append(_figure_html(image, f"Figure {counts['Figure']}. {caption}"))
    body = "\n".join(part for part in parts if part)
    title = html.escape(section.title)
    return f'<section id="section-{number}">\n<h2>{title}</h2>\n{body}\n</section>'


def _figure_html(image: Figure | str | os.PathLike[str], caption: str) -> str:
    data = figure_bytes(image) if isinstance(image, Figure) else _read_png(Path(image))
    width, height = _displayed_size(data)
    text = html.escape(caption)
    return (
        f'<figure>\n<img alt="{text}" width="{width}" height="{height}" '
        f'src="data:image/png;base64,{base64.b64encode(data).decode()}">\n'
        f"<figcaption>{text}</figcaption>\n</figure>"
    )


def _read_png(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            image.verify()
    except (OSError, SyntaxError) as error:
        raise InputError(f"expected a readable PNG file, got {str(path)!r}: {error}") from error
    return data


def _displayed_size(data: bytes) -> tuple[int, int]:
    """Width and height in CSS pixels, 96 an inch, from the resolution the PNG states."""
    with Image.open(io.BytesIO(data)) as image:
        horizontal, vertical = image.info.get("dpi", (96.0, 96.0))
        return round(image.width * 96 / horizontal), round(image.height * 96 / vertical)


def _table_html(table: Table, caption: str) -> str:
    flush_right = [_is_numeric([row[i] for row in table.rows]) for i in range(len(table.header))]
    marks = [' class="number"' if flush else "" for flush in flush_right]
    head = "".join(
        f'<th scope="col"{mark}>{html.escape(str(title))}</th>'
        for mark, title in zip(marks, table.header, strict=True)
    )
    rows = "\n".join(
        "<tr>"
        + "".join(
            f"<td{mark}>{html.escape(format_number(cell))}</td>"
            for mark, cell in zip(marks, row, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    return (
        f'<div class="wide">\n<table>\n<caption>{html.escape(caption)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
    )


def _is_numeric(cells: Sequence[object]) -> bool:
    given = [cell for cell in cells if cell is not None]
    return bool(given) and not any(isinstance(cell, str | bool) for cell in given)


def _versions(git_revision: str | None) -> Table:
    rows = [("Python", platform.python_version())]
    for package in _PACKAGES:
        try:
            rows.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            # A package that is used from its source tree has no metadata.
            continue
    if git_revision is not None:
        rows.append(("git revision", git_revision))
    return Table(("software", "version"), rows, "Versions")
