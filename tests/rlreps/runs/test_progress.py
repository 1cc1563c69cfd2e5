"""Progress where standard error is no terminal, and of short work."""

import time

from rlreps.runs import progress


def test_progress_bar_without_a_terminal_prints_lines_with_the_time_left(
    capsys, progress_bars, monkeypatch
):
    monkeypatch.setattr(progress, "_MINUTE", 0.05)
    with progress.progress_bar("adding", total=1_000, unit="rows") as advance:
        time.sleep(0.3)
        advance(500)
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "adding: 0 of 1,000 rows"
    assert "adding: 500 of 1,000 rows, about 0 minutes left" in lines
    assert any("500/1000" in line for line in lines)


def test_progress_bar_of_short_work_shows_nothing(capsys, progress_bars):
    with progress.progress_bar("adding", total=2, unit="rows", after=60.0) as advance:
        advance(2)
    advance(1)
    assert capsys.readouterr().err == ""
