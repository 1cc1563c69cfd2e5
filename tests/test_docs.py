"""The handbook: examples run as printed, commands parse, links lead somewhere."""

import pydoc
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import jax
import pytest

import rlreps
from rlreps.app.main import parse_command
from rlreps.errors import InputError
from rlreps.experiments import EXPERIMENTS

ROOT = Path(__file__).parents[1]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", ROOT / "data/README.md", *sorted(ROOT.glob("docs/**/*.md"))]
}
# A block of Python, after a mark if it is expensive, and before the expressions that have to hold.
PYTHON = re.compile(
    r"(<!-- integration -->\n)?```python\n(.*?)```((?:\n<!-- check: .*? -->)*)", re.S
)
CHECK = re.compile(r"<!-- check: (.*?) -->")


def run_examples(page: str, *, expensive: bool) -> None:
    # A user's process does not set the strict promotion that the suite runs under.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        names: dict[str, Any] = {"__name__": "example"}
        for mark, block, checks in PYTHON.findall(PAGES[page]):
            if mark and not expensive:
                continue
            exec(compile(block, page, "exec"), names)
            for check in CHECK.findall(checks):
                assert eval(check, names), check


def pages_with(*, expensive: bool) -> list[Any]:
    """List the pages with such examples; of the cheap ones tier 0 runs README's."""
    # Those of worked examples run as scripts.
    own = [page for page in PAGES if not page.startswith("docs/examples/")]
    blocks = [(page, bool(mark)) for page in own for mark, *_ in PYTHON.findall(PAGES[page])]
    pages = sorted({page for page, marked in blocks if marked == expensive})
    return [
        pytest.param(page, marks=[] if page == "README.md" else pytest.mark.integration)
        for page in pages
    ]


@pytest.mark.parametrize("page", pages_with(expensive=False))
def test_examples_run_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(page, expensive=False)


@pytest.mark.integration
@pytest.mark.parametrize("page", pages_with(expensive=True))
def test_expensive_examples_run_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(page, expensive=True)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("right", "wrong", "noticed"),
    [
        (
            "    replay.add(",
            "    following = env.reset()[0] if terminated or truncated else following\n"
            "    replay.add(",
            "next_observation is not what the step returned",
        ),
        ("terminated, truncated)\n", "terminated or truncated, truncated)\n", "other ends than"),
        ('"terminated", "truncated")\n', '"terminated")\n', "every step to begin where"),
        (
            '~batch["terminated"][:, 0] *',
            '~(batch["terminated"] | batch["truncated"])[:, 0] *',
            "targets end elsewhere",
        ),
    ],
    ids=["next start stored", "truncated as terminated", "flag left out", "no value at a limit"],
)
def test_the_page_on_an_agent_of_your_own_notices_a_wrong_replay(
    right, wrong, noticed, monkeypatch
):
    page = "docs/how-to/own-agent.md"
    text = PAGES[page].replace(", 3_000\n", ", 520\n").replace("_steps=100", "_steps=20")
    assert text.count(right) == 1
    monkeypatch.setitem(PAGES, page, text.replace(right, wrong))
    with pytest.raises((AssertionError, InputError), match=noticed):
        run_examples(page, expensive=False)


def commands(text: str) -> list[tuple[str, bool]]:
    """List every ``rlreps`` command of a page, and whether it has to be complete."""
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.S)).replace("\\\n", "")
    lines = [part for line in blocks.splitlines() for part in line.split("&&")]
    inline = re.findall(
        r"`((?:PYTHONPATH=\. )?rlreps [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S)
    )
    found = [(line, True) for line in lines] + [(" ".join(line.split()), False) for line in inline]
    return [
        (line[line.index("rlreps ") :], complete)
        for line, complete in found
        if re.search(r"(^| )rlreps [a-z]", line) and not re.search(r"[|]|NAME", line)
    ]


def complaint(line: str) -> str:
    try:
        # Every command takes --quiet.
        parse_command([word for word in shlex.split(line)[1:] if word != "--quiet"])
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if commands(text)])
def test_commands_can_be_parsed(page):
    found = [(line, complete, complaint(line)) for line, complete in commands(PAGES[page])]
    # A mention in the text may leave out what the command requires.
    missing = re.compile("required|subcommand", re.I)
    assert [each for each in found if each[2] and (each[1] or not missing.search(each[2]))] == []


@pytest.mark.parametrize("page", PAGES)
def test_names_that_a_page_mentions_exist(page):
    for name in re.findall(r"`(rlreps(?:\.(?!json)\w+)+)(?:\(.*?\))?`", PAGES[page]):
        assert pydoc.locate(name) is not None, name


def test_signatures_in_help_have_no_expanded_unions():
    packages = [rlreps, rlreps.auditing, rlreps.plotting, rlreps.stats, rlreps.study]
    packages += [rlreps.subspace, rlreps.successor, rlreps.streaming]
    public = {
        f"{package.__name__}.{name}": getattr(package, name)
        for package in packages
        for name in getattr(package, "__all__", dir(package))
        if not name.startswith("_")
    }
    shown = {name: pydoc.render_doc(each) for name, each in public.items() if callable(each)}
    assert "ArrayLike" in shown["rlreps.audit"]
    assert [name for name, text in shown.items() if "_NestedSequence" in text] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    text = re.sub(r"```.*?```|`[^`]*`", "", PAGES[page], flags=re.S)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("https:"):
            continue
        name, _, heading = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.is_file(), f"{page}: {target}"
        titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M) if heading else []
        slugs = [
            re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles
        ]
        assert not heading or heading in slugs, f"{page}: {target}"


def test_the_table_of_experiments_has_the_times_of_the_command_line():
    time, row = (
        re.compile(r"\d+ (?:s|min)\b|\bseconds\b"),
        r"^\| \[`([\w-]+)`\].*\|(.*)\|(.*)\|(.*)\|$",
    )
    table = re.findall(row, PAGES["docs/experiments.md"], re.M)
    shown = {name: [cell.strip() for cell in cells] for name, *cells in table}
    assert shown == {
        name: [
            "".join(time.findall(entry.presets[preset])) for preset in ("smoke", "laptop", "paper")
        ]
        for name, entry in EXPERIMENTS.items()
    }


def test_readme_installs_the_package_alone_first_and_ci_runs_the_tests_of_its_second_command():
    first, second = re.findall(r"^pip install .*$", PAGES["README.md"], re.M)
    assert "[" not in first
    assert (
        second.partition(" && ")[2] in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    )


def test_every_page_and_figure_is_linked():
    text = "".join(PAGES.values())
    unlinked = [
        path.name
        for path in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/**/*.png")]
        if path.name not in text
    ]
    assert unlinked == []


def test_the_changelog_the_package_and_its_metadata_name_one_version():
    newest = re.search(r"^## ([\d.]+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    assert newest is not None
    assert cited is not None
    assert newest[1] == project["version"] == cited[1] == rlreps.__version__
