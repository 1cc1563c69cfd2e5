import os

from rlreps.numerics import usable_cores


def test_cores_are_counted_where_the_system_cannot_say_which_may_be_used(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cores() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1


def test_only_the_cores_that_may_be_used_are_counted(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5}, raising=False)
    assert usable_cores() == 2
