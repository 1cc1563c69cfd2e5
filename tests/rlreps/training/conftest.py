"""Run folders of tests, among them some whose process is killed."""

import pytest

from rlreps.runs.folder import RunFolder


@pytest.fixture
def run_folder(tmp_path):
    """Opens the folder of a run, by default the test's own."""

    def open_folder(path=tmp_path):
        return RunFolder.create_or_resume(path, kind="test", config={}, provenance={})

    return open_folder


@pytest.fixture
def die_at(run_folder, killed_when_logging):
    """Calls a function with a run's folder; it ends as if killed when it logs a step."""

    def die(step, function):
        killed_when_logging(step, lambda: function(run_folder()))

    return die
