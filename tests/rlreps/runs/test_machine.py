import os
import sys
import types

from rlreps.app.main import main
from rlreps.runs.machine import quieten_libraries


def test_closed_event_loops_are_reported_by_no_thread_and_other_errors_once(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    main(["--version"])
    assert sys.unraisablehook == reported.append
    assert os.environ["PYTHONWARNINGS"] == "error"
    quieten_libraries()
    quieten_libraries()
    found = [types.SimpleNamespace(exc_value=RuntimeError(text)) for text in ("other", "")]
    for each in (types.SimpleNamespace(exc_value=RuntimeError("Event loop is closed")), *found):
        sys.unraisablehook(each)
    assert reported == found
