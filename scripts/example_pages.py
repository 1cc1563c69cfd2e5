"""Run the worked examples and write their pages, with what they print and draw.

    python scripts/example_pages.py [NAME ...]

An example is a script of cells (``# %%``, ``# %% [markdown]``) in scripts/examples; its page is
docs/examples/NAME.md. A figure is shown below the cell that saves it in the working folder.
"""

import argparse
import contextlib
import io
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "scripts" / "examples").glob("*.py"))}
PAGES = ROOT / "docs" / "examples"


def cells(script: str) -> list[tuple[bool, str]]:
    """Split a script into its cells: whether each is Markdown, and its text."""
    found = re.split(r"^# %%( \[markdown\])?\n", script, flags=re.MULTILINE)
    parts = zip(found[1::2], found[2::2], strict=True)
    return [
        (
            bool(mark),
            re.sub(r"^# ?", "", text, flags=re.MULTILINE).strip() if mark else text.strip(),
        )
        for mark, text in parts
    ]


def run(name: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """Run an example in a folder, where its figures are left.

    Returns:
        Its page, with links to figures in ``figures/NAME``, and the names that it defines.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    (_, title), *rest = cells(EXAMPLES[name].read_text(encoding="utf-8"))
    parts = [title, f"```bash\npython scripts/examples/{name}.py\n```"]
    shown: set[Path] = set()
    for is_text, text in rest:
        if is_text:
            parts.append(text)
            continue
        printed = io.StringIO()
        with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
            exec(compile(text, f"{name}.py", "exec"), names)
        parts.append(f"```python\n{text}\n```")
        if printed.getvalue():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
        figures = {*folder.glob("*.png")} - shown
        parts += [
            f"![{_caption(path.stem)}](figures/{name}/{path.name})" for path in sorted(figures)
        ]
        shown |= figures
    return "\n\n".join(parts) + "\n", names


def _caption(stem: str) -> str:
    return f"{stem[0].upper()}{stem[1:]}".replace("-", " ")


def main() -> None:
    """Write the pages of the examples named, or of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(EXAMPLES)}; all by default")
    for name in parser.parse_args().names or EXAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            page, _ = run(name, Path(folder))
            figures = PAGES / "figures" / name
            shutil.rmtree(figures, ignore_errors=True)
            figures.mkdir(parents=True)
            for path in Path(folder).glob("*.png"):
                shutil.copy(path, figures)
        (PAGES / f"{name}.md").write_text(page, encoding="utf-8")
        print(PAGES / f"{name}.md")


if __name__ == "__main__":
    main()
