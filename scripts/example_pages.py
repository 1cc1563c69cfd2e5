"""Run the worked examples and write their pages and notebooks, with what they print and draw.

    python scripts/example_pages.py [NAME ...]

An example is a script of cells (``# %%``, ``# %% [markdown]``) in scripts/examples; its page is
docs/examples/NAME.md and its notebook NAME.ipynb beside the page. A figure is shown below the cell
that saves it in the working folder.
"""

import base64
import contextlib
import io
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "scripts" / "examples").glob("*.py"))}
PAGES = ROOT / "docs" / "examples"


def cells(script: str) -> list[tuple[bool, str]]:
    """Split a script into cells; return for each whether it is Markdown, and its text."""
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
    """Run an example in a folder, which keeps its figures.

    Returns:
        Its page, with links to figures in ``figures/NAME``, and the names that it defines.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    (_, title), *rest = cells(EXAMPLES[name].read_text(encoding="utf-8"))
    parts = [
        title,
        f"```bash\npython scripts/examples/{name}.py\n```",
        f"The same cells are in a [notebook]({name}.ipynb).",
    ]
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


def notebook(name: str) -> str:
    """Write an example as a notebook: its cells, with the outputs that its page shows."""
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    written: list[dict[str, Any]] = []
    place = 0
    for number, (is_text, text) in enumerate(
        cells(EXAMPLES[name].read_text(encoding="utf-8")), start=1
    ):
        shown = text if is_text else f"```python\n{text}\n```"
        place = page.index(shown, place) + len(shown)
        cell = {"id": str(number), "metadata": {}, "source": text}
        if is_text:
            written.append({"cell_type": "markdown", **cell})
            continue
        after = re.match(r"(\s+(```text\n.*?\n```|!\[.*?\]\(\S+\)))*", page[place:], re.DOTALL)
        assert after is not None
        printed = re.findall(r"```text\n(.*?\n)```", after[0], re.DOTALL)
        outputs = [{"output_type": "stream", "name": "stdout", "text": text} for text in printed]
        figures = [PAGES / path for path in re.findall(r"\((\S+\.png)\)", after[0])]
        if figures:
            shows = "".join(f'\ndisplay(Image("{path.name}"))' for path in figures)
            cell["source"] = f"{text}\n\nfrom IPython.display import Image, display\n{shows}"
        outputs += [
            {
                "output_type": "display_data",
                "data": {"image/png": base64.b64encode(path.read_bytes()).decode()},
                "metadata": {},
            }
            for path in figures
        ]
        written.append({"cell_type": "code", **cell, "execution_count": None, "outputs": outputs})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": written,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _caption(stem: str) -> str:
    return f"{stem[0].upper()}{stem[1:]}".replace("-", " ")


def main() -> None:
    """Write the pages and notebooks of the examples named on the command line, or of all."""
    for name in sys.argv[1:] or EXAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            page, _ = run(name, Path(folder))
            figures = PAGES / "figures" / name
            shutil.rmtree(figures, ignore_errors=True)
            figures.mkdir(parents=True)
            for path in Path(folder).glob("*.png"):
                shutil.copy(path, figures)
        (PAGES / f"{name}.md").write_text(page, encoding="utf-8")
        (PAGES / f"{name}.ipynb").write_text(notebook(name), encoding="utf-8")
        print(PAGES / f"{name}.md")


if __name__ == "__main__":
    main()
