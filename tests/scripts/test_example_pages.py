"""The worked examples run, and pages and notebooks show them as they are."""

import json
import re

import jax
import numpy as np
import pytest

EXAMPLES = {
    "train_and_measure": lambda found: found("subspace distance of each seed").min() < 0.02,
    "own_training_step": lambda found: found("subspace distance").max() < 0.02,
    "auxiliary_task": lambda found: (
        found("auxiliary task distance").mean() < 0.7 * found("values alone distance").mean()
    ),
    "zero_shot": lambda found: (
        found("policy: the pole stands for") > 10 * found("random actions: the pole stands for")
    ),
    "streaming_pca": lambda found: (
        1.0 <= found("incremental_pca:").min() < 1.1 and found("implicit_krasulina:").max() < 1.3
    ),
}
"""Example → what has to hold of the numbers of its lines of output, by how they begin."""

AS_NOTEBOOK = "streaming_pca"
"""The example that runs as a notebook, others as scripts."""

NUMBER = r"(?<![\w.])[-+]?\d+\.?\d*(?:e[-+]?\d+)?"


def numbers(text):
    return np.array(re.findall(NUMBER, text), float)


@pytest.fixture(scope="module")
def pages(load):
    return load("example_pages")


def test_every_example_has_a_test_and_at_most_sixty_lines(pages):
    assert {*pages.EXAMPLES} == {*EXAMPLES}
    for path in pages.EXAMPLES.values():
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60, path.name


def outputs(notebook, kind):
    return [
        output
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
        if output["output_type"] == kind
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_notebook_holds_the_cells_and_outputs_of_its_page(pages, name):
    written = (pages.PAGES / f"{name}.ipynb").read_text(encoding="utf-8")
    assert written == pages.notebook(name), f"run python scripts/example_pages.py {name}"
    notebook = json.loads(written)
    script = pages.cells(pages.EXAMPLES[name].read_text(encoding="utf-8"))
    for cell, (is_text, text) in zip(notebook["cells"], script, strict=True):
        assert (cell["cell_type"] == "markdown") == is_text
        assert cell["source"].startswith(text)
    assert len(outputs(notebook, "display_data")) > 0


def assert_shown(name, found, shown):
    """Assert that an example printed its page's output up to rounding, and that its claims hold."""
    # Without spaces: NumPy pads numbers to one width, and how wide they are is rounding too.
    words = ["".join(re.sub(NUMBER, "#", text).split()) for text in (found, shown)]
    assert words[0] == words[1]
    # Other processors round differently, and training carries that on.
    np.testing.assert_allclose(numbers(found), numbers(shown), rtol=0.5, atol=0.01)

    def in_line(start):
        (line,) = (line for line in found.splitlines() if line.startswith(start))
        return numbers(line.removeprefix(start))

    assert EXAMPLES[name](in_line), found


@pytest.mark.integration
def test_a_notebook_prints_and_draws_what_it_shows(pages, tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(pages.PAGES / f"{AS_NOTEBOOK}.ipynb", 4)
    nbformat.validate(notebook)
    figures = len(outputs(notebook, "display_data"))
    shown = "".join(output["text"] for output in outputs(notebook, "stream"))
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, kernel_name="python3", resources=where).execute()
    assert len(outputs(notebook, "display_data")) == len([*tmp_path.glob("*.png")]) == figures
    assert_shown(AS_NOTEBOOK, "".join(each["text"] for each in outputs(notebook, "stream")), shown)


@pytest.mark.integration
@pytest.mark.parametrize("name", sorted({*EXAMPLES} - {AS_NOTEBOOK}))
def test_an_example_prints_and_draws_what_its_page_shows(pages, name, tmp_path):
    # A user's process does not set the strict promotion that the suite runs under.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        page, _ = pages.run(name, tmp_path)
    assert_shown(name, page, (pages.PAGES / f"{name}.md").read_text(encoding="utf-8"))
