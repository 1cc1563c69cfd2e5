"""Run folders of tests, among them some whose process is killed."""

import pytest

from rlreps.runs.folder import RunFolder


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.fixture
def run_folder(tmp_path):
    """Opens the folder of a run, by default the test's own."""

    def open_folder(path=tmp_path, kind=RunFolder):
        return kind.create_or_resume(path, kind="test", config={}, provenance={})

    return open_folder


@pytest.fixture
def die_at(run_folder):
    """Calls a function with a run's folder whose process is killed when it logs a step."""

    def die(step, function, *path):
        class Dying(RunFolder):
            def append_metrics(self, record):
                if record["step"] == step:
                    raise Killed
                super().append_metrics(record)

        with pytest.raises(Killed):
            function(run_folder(*path, kind=Dying))

    return die
