"""What the site has beyond the pages of docs/: generated pages, citations, formulas, checks."""

import ast
import atexit
import functools
import html
import itertools
import logging
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pybtex.database import Entry, parse_file

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOG = logging.getLogger("mkdocs.hooks.rlreps")  # A warning fails a strict build.
FOLDERS = {"envs": "", "agents": "", "experiments": "scripts/"} | dict.fromkeys(
    (
        *("subspace", "successor", "operators", "encoders", "cumulants", "losses", "streaming"),
        *(
            "stats",
            "sources",
            "training",
            "runs",
            "plotting",
            "report",
            "explore",
            "app",
            "study",
            "worlds",
        ),
    ),
    "rlreps/",
)
"""Folder of the API reference → the folder that it is in."""
SHARED = ("batch", "config", "errors", "files", "formatting", "numerics")
"""Modules of the package itself that its users meet."""
ELSEWHERE = {"CHANGELOG.md": "changelog.md", "README.md": "index.md", "data/README.md": "data.md"}
"""Pages outside docs/ → what stands for them on the site."""
RELEASED = "sutton-100"
EXPLORE = f"explore/{RELEASED}.html"


# Generated pages


@event_priority(100)  # Before mkdocstrings reads where to look.
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show mkdocstrings the sources as they are installed; list the pages of the reference."""
    sources = Path(tempfile.mkdtemp(prefix="rlreps-site-")) / "rlreps"
    atexit.register(shutil.rmtree, sources.parent, ignore_errors=True)
    sources.mkdir()
    outside = [ROOT / f"{FOLDERS[name]}{name}" for name in ("envs", "agents", "experiments")]
    for path in [*(ROOT / "rlreps").iterdir(), *outside]:
        (sources / path.name).symlink_to(path)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [str(sources.parent)]
    sections = {name: value for section in config.nav for name, value in section.items()}
    sections["API reference"].append({"rlreps": "reference/rlreps.md"})
    sections["API reference"] += [{f"rlreps.{name}": f"reference/{name}.md"} for name in FOLDERS]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the API reference, the gallery and the pages that lie outside docs/."""
    pages = {f"reference/{name}.md": reference(name) for name in FOLDERS}
    pages["reference/index.md"] = reference_index()
    pages["reference/rlreps.md"] = reference_of_shared()
    pages["gallery.md"] = gallery()
    for source in ("CHANGELOG.md", "data/README.md"):
        pages[ELSEWHERE[source]] = (ROOT / source).read_text(encoding="utf-8")
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, EXPLORE, content=page_to_explore()))
    return files


@functools.cache  # mkdocs serve builds again and again.
def page_to_explore() -> str:
    """Make the page of the released ground truth."""
    # Deferred: it needs JAX, which no other part of the site does.
    from rlreps.explore.build import explore

    with tempfile.TemporaryDirectory() as folder:
        page = explore((Path(RELEASED),), Path(folder) / "page.html")
        return page.read_text(encoding="utf-8")


def reference_index() -> str:
    """List the folders, each with the first sentence of its package."""
    lines = ["# API reference", "One page a folder, from the docstrings.", "| package | contents |"]
    lines[2] += "\n|---|---|\n| [`rlreps`](rlreps.md) | What all folders share: "
    lines[2] += f"{', '.join(SHARED[:-1])} and {SHARED[-1]} |"
    for folder in FOLDERS:
        tree = ast.parse((ROOT / FOLDERS[folder] / folder / "__init__.py").read_text("utf-8"))
        first = (ast.get_docstring(tree) or "").partition("\n")[0]
        lines[2] += f"\n| [`rlreps.{folder}`]({folder}.md) | {first} |"
    return "\n\n".join(lines)


def reference(folder: str) -> str:
    """Write the page of a folder: what its package exports, or all public names, by module."""
    package = ROOT / FOLDERS[folder] / folder
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    stub = package / "__init__.pyi"  # It lists what the package loads on first use.
    exports = ast.parse(stub.read_text(encoding="utf-8")) if stub.exists() else tree
    exported: dict[str, list[str]] = {}
    for node in ast.walk(exports):
        if not isinstance(node, ast.ImportFrom):
            continue
        module = f"rlreps.{folder}.{node.module}" if node.level else node.module or ""
        for alias in node.names:
            # "import X as X" exports X.
            if module.startswith(f"rlreps.{folder}.") or alias.name == alias.asname:
                exported.setdefault(module, []).append(alias.name)
    whole = [
        ".".join(["rlreps", folder, *path.relative_to(package).with_suffix("").parts])
        for path in sorted(package.rglob("*.py"))
        if path.name != "__init__.py"
    ]
    said = f"Import these names from `rlreps.{folder}`." if exported else ""
    parts = [f"# rlreps.{folder}", ast.get_docstring(tree) or "", said]
    parts += [_object(f"rlreps.{folder}.{name}") for name in _documented(tree)]
    for module in exported or whole:
        parts.append(f"## {module.removeprefix(f'rlreps.{folder}.').removeprefix('rlreps.')}")
        parts.append(_module(module, exported.get(module, ())))
    return "\n\n".join(parts)


def reference_of_shared() -> str:
    """Write the page of the modules that lie in no folder."""
    tree = ast.parse((ROOT / "rlreps" / "__init__.py").read_text(encoding="utf-8"))
    parts = ["# rlreps", ast.get_docstring(tree) or ""]
    for name in SHARED:
        parts += [f"## {name}", _module(f"rlreps.{name}")]
    return "\n\n".join(parts)


def _module(name: str, members: Iterable[str] = ()) -> str:
    listed = "".join(f"\n        - {member}" for member in members)
    options = f"\n      members:{listed}" if listed else ""
    return (
        f"::: {name}\n    options:\n      show_root_heading: false\n"
        f"      show_root_toc_entry: false{options}"
    )


def _documented(tree: ast.Module) -> Iterator[str]:
    """Yield the public names that a package itself defines and describes."""
    for node, following in itertools.pairwise([*tree.body, ast.Pass()]):
        name = getattr(node, "name", None)
        described = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if described and isinstance(node, ast.Assign | ast.AnnAssign):
            name = ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
        if name and not name.startswith("_"):
            yield name


def _object(name: str) -> str:
    return f"::: {name}\n    options:\n      heading_level: 3"


def gallery() -> str:
    """Write the page of all figures, each with the command above it on its page.

    A figure of an experiment that another page shows is listed on the experiment's page alone.
    """
    parts = [
        "# Gallery",
        f"The interactive page of the released ground truth `{RELEASED}`: [rows, components, "
        f"values of painted rewards]({EXPLORE}); [what it shows](explore.md).",
        f"```bash\nrlreps explore {RELEASED} --out page.html\n```",
        "Below, every figure of the handbook, with the command that draws it.",
    ]
    for page in sorted(DOCS.rglob("*.md")):
        name, text = page.relative_to(DOCS).as_posix(), page.read_text(encoding="utf-8")
        title = re.search(r"^# (.*)", text, re.M)
        found = [
            (alt, (page.parent / target).resolve().relative_to(DOCS).as_posix(), command)
            for alt, target, command in _figures(text)
        ]
        if not name.startswith("results/"):
            found = [each for each in found if not each[1].startswith("results/")]
        if found:
            parts.append(f"## [{title[1] if title else page.stem}]({name})")
        for command, group in itertools.groupby(found, key=lambda each: each[2]):
            if command:
                parts.append(f"```bash\n{command}\n```")
            parts.append('<div class="gallery" markdown>')
            for alt, path, _ in group:
                if command is None:
                    LOG.warning("%s: no command stands above the figure %s", name, path)
                parts.append(f"[![{alt}]({path})]({path})")
            parts.append("</div>")
    return "\n\n".join(parts)


def _figures(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield the text, path and command of each figure of a page."""
    command = None
    pattern = (
        r"```bash\n(?P<block>.*?)```|```.*?```|`(?P<script>python scripts/[^`]*)`"
        r"|!\[(?P<alt>.*?)\]\((?P<target>[^)]*)\)"
    )
    for match in re.finditer(pattern, text, re.S):
        command = (match["block"] or match["script"] or "").strip() or command
        if match["target"]:
            yield match["alt"], match["target"], command


# What a page's text becomes


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links out of docs/ to what stands for their target; print the bibliography."""
    source = page.file.src_uri
    depth = 0 if source in ELSEWHERE.values() else source.count("/") + 1
    for target, place in ELSEWHERE.items():
        up = "../" * (source.count("/"))
        markdown = markdown.replace(f"]({'../' * depth}{target}", f"]({up}{place}")
    if source in ELSEWHERE.values():
        markdown = re.sub(r"\]\((\.\./)?docs/", "](", markdown)
    if source == "bibliography.md":
        for group in dict.fromkeys(entry.fields["keywords"] for entry in bibliography().values()):
            lines = [
                _item(key, entry)
                for key, entry in bibliography().items()
                if entry.fields["keywords"] == group
            ]
            markdown += "\n\n".join([f"\n\n## {group}", *lines])
    return markdown


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Set formulas as MathML, caption figures, and link citations to the bibliography."""
    content = re.sub(
        r'<p>((?:<a [^>]*>)?<img alt="([^"]+)"[^>]*>(?:</a>)?)</p>',
        r"<figure>\1<figcaption>\2</figcaption></figure>",
        content,
    )
    for display, pattern in {
        "inline": r'<span class="arithmatex">\\\((.*?)\\\)</span>',
        "block": r'<div class="arithmatex">\\\[(.*?)\\\]</div>',
    }.items():
        content = re.sub(
            pattern,
            lambda match, display=display: convert(
                html.unescape(match[1]).strip(), display=display
            ),
            content,
            flags=re.S,
        )
    up = "../" * page.file.src_uri.count("/")
    parts = re.split(r"(<[^>]*>)", content)
    skipped: list[str] = []
    for index, part in enumerate(parts):
        tag = re.match(r"<(/?)(a|strong|code|pre|h\d|autoref|math|svg|script|style)\b", part)
        if tag and tag[1]:
            skipped and skipped.pop()
        elif tag:
            skipped.append(tag[2])
        elif not skipped and not part.startswith("<"):
            parts[index] = _cited(part, f"{up}bibliography.html")
    return "".join(parts)


@functools.cache
def bibliography() -> dict[str, Entry]:
    """Read the entries, by key."""
    return dict(parse_file(DOCS / "references.bib").entries)


def _names(entry: Entry) -> list[str]:
    return [" ".join(each.prelast_names + each.last_names) for each in entry.persons["author"]]


def _short(entry: Entry) -> str:
    names = _names(entry)
    return f"{names[0]} et al." if len(names) > 2 else " & ".join(names)


@functools.cache
def _citations() -> tuple[re.Pattern[str], dict[str, str]]:
    """Return the pattern of all citations and the key of each."""
    keys = {}
    for key, entry in bibliography().items():
        names, year = _names(entry), entry.fields["year"]
        forms = {_short(entry), ", ".join(names[:-1]) + f" & {names[-1]}", ", ".join(names)}
        keys |= {f"{form} {year}": key for form in forms if form.strip(" &")}
    forms = "|".join(
        re.escape(html.escape(form)).replace(r"\ ", r"\s+")[: -len(form.split()[-1])]
        + rf",?\s*\(?{form.split()[-1]}\b"
        for form in sorted(keys, key=len, reverse=True)
    )
    return re.compile(forms), keys


def _cited(text: str, page: str) -> str:
    pattern, keys = _citations()

    def link(match: re.Match[str]) -> str:
        words = re.sub(r"[\s,(]+(\d{4})$", r" \1", html.unescape(match[0]))
        return f'<a href="{page}#{keys[" ".join(words.split())]}">{match[0]}</a>'

    return pattern.sub(link, text) if re.search(r"(19|20)\d\d", text) else text


def _item(key: str, entry: Entry) -> str:
    field, names = entry.fields, _names(entry)
    authors = " & ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    kinds = ("journal", "booktitle", "publisher", "howpublished")
    place = next(field[kind] for kind in kinds if kind in field)
    note = f" {field['annote']}" if "annote" in field else ""
    start = f'<a id="{key}"></a>**{_short(entry)} {field["year"]}**<br>'
    title = re.sub("[{}]", "", field["title"])  # Braces keep the case of letters in BibTeX.
    return f"{start}{authors}: *{title}*. {place}.{note}"


# Checks of what was built


class _Links(HTMLParser):
    """Gathers what a page loads, where it leads, and the places that one can lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.places = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.leads.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given.get("href", ""))
        elif "src" in given:
            self.loads.append(given["src"])


def on_post_build(config: MkDocsConfig) -> None:
    """Warn of whatever pages load from elsewhere, and of every link that leads nowhere."""
    site = Path(config.site_dir)
    pages = {}
    for path in site.rglob("*.html"):
        pages[path] = _Links()
        pages[path].feed(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        if path.name == "404.html":  # Its links start at the root of the site.
            continue
        for address in page.loads + page.leads:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loads and parts.scheme != "data":
                    LOG.warning("%s loads %s", path.relative_to(site), address)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            reached = unquote(parts.fragment)
            if not target.is_file() or (target in pages and reached not in pages[target].places):
                LOG.warning("%s: %s leads nowhere", path.relative_to(site), address)
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        for address in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^)\"' ]+)", text):
            LOG.warning("%s loads %s", path.relative_to(site), address)
