"""Scripts, imported as running them from their folder would."""

import importlib
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def load():
    """Imports a script by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "scripts")
        yield importlib.import_module
