"""Runs whose process is killed."""

import pytest


@pytest.fixture
def die_at(run_folder, killed_when_logging):
    """Calls a function with a run's folder; it ends as if killed when it logs a step."""

    def die(step, function):
        killed_when_logging(step, lambda: function(run_folder()))

    return die
