"""Write the results page of a run: ``docs/results/EXPERIMENT.md`` and its figures.

    python scripts/results_page.py RUN --command "rlreps experiment atari --preset laptop --out RUN"

RUN is the folder of a finished experiment or quickstart. The page holds the command, the date and
the versions, every claim with its finding, the main rows of each table, and the figures, each
reduced to at most 120 kB. If the page exists, only its generated part is replaced; text before and
after this part is kept. The claims of all pages on the papers' experiments are gathered in
``papers.md``.
"""

import base64
import csv
import html
import io
import itertools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro
from PIL import Image

from rlreps.experiments import EXPERIMENTS, PAPERS
from rlreps.files import read_json
from rlreps.formatting import format_number
from rlreps.runs import RunFolder
from rlreps.stats import VERDICTS
from rlreps.study import NOT_RUN

BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
DOCS = Path(__file__).parents[1] / "docs" / "results"
LARGEST_FIGURE = 120_000
LONGEST_TABLE = 30
"""Largest number of rows of a table; for a longer table, the page has its beginning or its
figure."""
# Columns of a curve's coordinates, and columns whose numbers name a row; all other numbers are
# measurements.
CURVES = {"step", "rows_seen", "rows_seen_by_worker", "entries", "samples_seen"}
IDENTIFIERS = {
    *("d", "k", "num_features", "rows", "total_rows", "rows_per_update", "kappa0", "batch_size"),
    *("feature", "component", "eigenfunction", "index", "task"),
}

UNJUDGED: dict[str, list[list[str]]] = tomllib.loads(
    Path(__file__).with_name("unjudged.toml").read_text(encoding="utf-8")
)
"""Paper → figures and statements that no claim judges: place, content, counterpart here."""


def write_page(
    run: tyro.conf.Positional[Path],
    docs: Path = DOCS,
    command: str | None = None,
    name: str | None = None,
) -> Path:
    """Write the page and the figures of a run.

    Args:
        run: Folder of a finished run.
        docs: Folder of the results pages; figures go to ``figures/EXPERIMENT`` below it.
        command: The command that made the run.
        name: Of the page; the experiment's by default.

    Returns:
        The page.
    """
    folder = RunFolder(run)
    page = docs / f"{name or folder.kind}.md"
    summary = read_json(run / "summary.json")
    parts = [_origin(folder, command, summary), _claims(summary.get("claims", []))]
    # A curve against time or entries has the same final values as the curve against updates.
    ending = ("_by_time", "_by_seconds", "_by_entries")
    paths = sorted((run / "results").glob("*.csv"))
    parts += [_table(path) for path in paths if not path.stem.endswith(ending)]
    parts += _figures(run, page)
    generated = "\n\n".join([BEGIN, *filter(None, parts), END])
    text = page.read_text(encoding="utf-8") if page.exists() else f"# {page.stem}\n\n{BEGIN}{END}\n"
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}{END}\n"
    before, rest = text.split(BEGIN)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(before + generated + rest.split(END)[1], encoding="utf-8")
    return page


def write_papers(docs: Path) -> Path:
    """Write ``papers.md``: the claims of every page on a paper's experiment, paper by paper."""
    parts = [
        "# The papers' statements",
        "The tables list every statement of a paper that an experiment of rlreps examines, with "
        "the result of the run, the verdict on the statement, and the command of the run. The "
        "pages of the experiments also have goals of our own.",
    ]
    for folder, title in PAPERS.items():
        if folder == "ours":
            continue
        rows, runs = [], []
        for page in _pages_of(folder, docs):
            link, text = f"[{page.stem}]({page.name})", page.read_text(encoding="utf-8")
            command, said = _claims_of(text)
            claims = [
                cells
                for cells in said
                if not re.search(r"\bgoal\b", " ".join(cells[:2])) and cells[2] != NOT_RUN
            ]
            if said and not claims:
                continue
            rows += [[link, *_shortened(cells, page.name)] for cells in claims]
            # A statement that can be read in two ways is judged, and counted, under each reading.
            readings: dict[str, list[str]] = {}
            for cells in claims:
                read = re.search(r", (κ over [^:]*):", cells[0])
                readings.setdefault(f", {read[1]}" if read else "", []).append(cells[-1])
            for reading, verdicts in readings.items():
                counts = [str(verdicts.count(verdict)) for verdict in VERDICTS.values()]
                why = _reason(command, text) if VERDICTS[None] in verdicts else ""
                runs.append([f"{link}{reading}", command, *counts, why])
            if not claims:
                runs.append([link, "no run of this version", *[""] * 4])
        header = ["page", "command", *VERDICTS.values(), "why it cannot be told"]
        parts += [f"## {title}", _markdown(header, runs)]
        if rows:
            parts.append(_markdown(["page", "claim", "stated", "found", "verdict"], rows))
        parts += [
            "Not judged:",
            _markdown(["where", "statement", "what is here"], UNJUDGED[folder]),
        ]
    path = docs / "papers.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def _pages_of(folder: str, docs: Path) -> list[Path]:
    """List the pages of a paper's experiments: an experiment's own, then those of other data."""
    names = [name for name, entry in EXPERIMENTS.items() if entry.module.startswith(folder)]
    others = {docs / f"{name}.md" for name in EXPERIMENTS}
    listed = [
        page
        for name in names
        for page in (docs / f"{name}.md", *sorted({*docs.glob(f"{name}-*.md")} - others))
    ]
    return [page for page in listed if page.exists()]


def _shortened(cells: Sequence[str], page: str) -> list[str]:
    """Cut cells that are too long to read in a table; the page has their full text."""
    more = f" … ([all]({page}))"
    shown = []
    for cell in cells:
        if len(cell) > 160:
            head = cell[: 160 - len(more)]
            end = max(head.rfind("; "), head.rfind(", "), head.rfind(" ("), 80)
            cell = head[:end].rstrip() + more
        shown.append(cell)
    return shown


def _reason(command: str, page: str) -> str:
    """Say why a run's verdicts can be open, if the page gives a reason."""
    if said := re.search(r"^Verdicts are open because (.*)\.$", page, re.MULTILINE):
        return said[1]
    if "--preset paper" not in command:
        return "not the paper's protocol"
    if "subset" in command:
        return "not the paper's data"
    return "runs differ by too little, or too few"


def _claims_of(page: str) -> tuple[str, list[list[str]]]:
    """Return the command of a page's run and the cells of its claims."""
    generated = page.partition(BEGIN)[2]
    found = re.search("```bash\n(.*)\n```", generated)
    lines = generated.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("| claim | stated")), None)
    rows = [] if first is None else itertools.takewhile(bool, lines[first + 2 :])
    cells = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows]
    return f"`{found[1]}`" if found else "", cells


def _origin(folder: RunFolder, command: str | None, summary: dict[str, Any]) -> str:
    made = folder.provenance
    versions = ", ".join(f"{name} {made['packages'][name]}" for name in ("rlreps", "jax", "numpy"))
    revision = (made["git_revision"] or "unknown")[:10]
    seconds = summary.get("seconds", {})
    times = seconds if isinstance(seconds, dict) else {"": seconds}
    parts = [f"{name}: {format_number(each)} s".lstrip(": ") for name, each in times.items()]
    took = ", ".join(parts)
    took = f" {took}." if took else ""
    lines = f"{made['created'][:10]}, {made['device']}, {versions}, revision {revision}.{took}"
    shown = f"```bash\n{command}\n```\n\n" if command else ""
    return f"## Latest run\n\n{shown}{lines}"


def _claims(claims: list[dict[str, Any]]) -> str | None:
    rows = [
        [claim["statement"], claim.get("stated", ""), claim["found"], VERDICTS[claim["holds"]]]
        for claim in claims
    ]
    return _markdown(["claim", "stated", "found", "verdict"], rows) if rows else None


def _table(path: Path) -> str | None:
    """Show a CSV or its beginning: ends of curves, means over seeds, intervals in one column."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    drawn = (path.parents[1] / "figures" / f"{path.stem}.png").exists()
    if not rows:
        return None
    # Lists are for programs.
    rows = [{name: text for name, text in row.items() if text[:1] != "["} for row in rows]
    keys = [
        name for name in rows[0] if name in IDENTIFIERS or any(_is_text(row[name]) for row in rows)
    ]
    replicate = "run" if "run" in rows[0] else "seed"
    if CURVES & {*rows[0]}:
        ends = {(*(row[name] for name in keys), row.get(replicate)): row for row in rows}
        rows = list(ends.values())
    if replicate in rows[0]:
        groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for row in rows:
            groups.setdefault(tuple(row[name] for name in keys), []).append(row)
        rows = [_mean(group, keys, replicate) for group in groups.values()]
    # A paper's table is shown in full, with the digits that the paper prints.
    is_printed = "within" in rows[0]
    rows = [_with_intervals(row, 4 if is_printed else 3) for row in rows]
    header = [name for name in rows[0] if any(row[name] for row in rows)]
    bare = not {*header} - {*keys, *CURVES, f"{replicate}s"}
    if bare or (drawn and len(rows) > LONGEST_TABLE and not is_printed):
        return None
    shown = rows if is_printed else rows[:LONGEST_TABLE]
    left = len(rows) - len(shown)
    more = f"\n\n{left} more rows in the run's `results/{path.name}`." if left > 0 else ""
    # Values that are the same in all rows of a table are stated once.
    alike = [name for name in header if len(shown) > 3 and len({row[name] for row in rows}) == 1]
    alike = [] if is_printed else [name for name in alike if rows[0][name]]
    same = ", ".join(f"{name.replace('_', ' ')} = {rows[0][name]}" for name in alike)
    header = [name for name in header if name not in alike]
    title = path.stem.replace("_", " ").capitalize() + (f"\n\nIn all rows: {same}." if same else "")
    cells = [[row[name] for name in header] for row in shown]
    return f"### {title}\n\n{_markdown(header, cells)}{more}"


def _is_text(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return True
    return False


def _mean(rows: list[dict[str, str]], keys: list[str], replicate: str) -> dict[str, str]:
    """Average rows that differ only in seed or run; the number of rows replaces the seed or run."""
    number = f"{replicate}s"
    mean = {number if name == replicate else name: rows[0][name] for name in rows[0]}
    mean[number] = str(len(rows))
    for name in {*mean} - {*keys, number}:
        given = [float(row[name]) for row in rows if row[name]]
        whole = all(value.is_integer() for value in given) and len({*given}) == 1
        mean[name] = str(int(given[0]) if whole else sum(given) / len(given)) if given else ""
    return mean


def _with_intervals(record: dict[str, str], digits: int) -> dict[str, str]:
    """Fold ``X_low`` and ``X_high`` into X, or one column; leave out single seeds and pairs."""
    folded: dict[str, str] = {}
    for name, text in record.items():
        if name.endswith("low") and folded:
            high = record[f"{name.removesuffix('low')}high"]
            # Plain "low" and "high" belong to the mean.
            of = name.removesuffix("low").rstrip("_") or "mean"
            column = [*folded][-1] if of == "mean" and of not in folded else of
            if f"{of}_value" in folded:
                folded[of] = folded.pop(f"{of}_value")
            interval = f"[{_number(text, digits)}, {_number(high, digits)}]" if text else ""
            folded[column] = f"{folded.get(column, '')} {interval}".strip()
        elif not name.endswith("high") and not re.fullmatch(r"(seed|pair)_\d+", name):
            folded[name] = _number(text, digits)
    return folded


def _number(text: str, digits: int = 3) -> str:
    if _is_text(text) or not text:
        return {"True": "yes", "False": "no"}.get(text, text)
    value = float(text)
    return format_number(int(value) if re.fullmatch(r"-?\d+", text) else value, digits=digits)


def _markdown(header: list[str], rows: Sequence[Sequence[str]]) -> str:
    titles = [name.replace("_", " ") for name in header]
    lines = [titles, ["---"] * len(header), *rows]
    return "\n".join(
        f"| {' | '.join(str(cell).replace('|', '¦') for cell in line)} |" for line in lines
    )


def _figures(run: Path, page: Path) -> list[str]:
    """Link the figures in the order of the run's report, with the report's captions."""
    report = run / "report.html"
    shown = re.findall(
        r'<img alt="(?:Figure \d+\. )?([^"]*)"[^>]*base64,([^"]*)"',
        report.read_text(encoding="utf-8") if report.exists() else "",
    )
    captions = {base64.b64decode(data): html.unescape(caption) for caption, data in shown}
    paths = {path: path.read_bytes() for path in sorted((run / "figures").glob("*.png"))}
    order = {data: place for place, data in enumerate(captions)}
    links = []
    for path, data in sorted(paths.items(), key=lambda item: order.get(item[1], len(order))):
        target = page.parent / "figures" / page.stem / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shrink(path, target)
        title = captions.get(data, path.stem.replace("_", " ").capitalize())
        links.append(f"![{title}]({target.relative_to(page.parent).as_posix()})")
    return links


def shrink(source: Path, target: Path) -> None:
    """Save a picture with a palette, at the largest width that keeps it below 120 kB."""
    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    for width in (1400, 1200, 1000, 800, 600):
        size = (min(width, picture.width), round(picture.height * min(1, width / picture.width)))
        resized = picture.resize(size, Image.Resampling.LANCZOS)
        encoded = io.BytesIO()
        resized.quantize(128, dither=Image.Dither.NONE).save(encoded, "png", optimize=True)
        if len(encoded.getvalue()) <= LARGEST_FIGURE:
            break
    target.write_bytes(encoded.getvalue())


if __name__ == "__main__":
    page = tyro.cli(write_page)
    print(page)
    print(write_papers(page.parent))
