"""How an experiment opens and closes its folder."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlreps.runs.folder import RunFolder
from rlreps.runs.locks import exclusive
from rlreps.runs.provenance import provenance


def complete_run(
    out: Path,
    *,
    kind: str,
    config: Mapping[str, Any],
    compute: Callable[[RunFolder], Mapping[str, Any]],
    origin: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Brings a run to its end in its folder, which nobody else may use meanwhile.

    Args:
        out: The folder; one with the same run in it is resumed.
        kind: What kind of run it is.
        config: Everything that decides the result, as JSON values.
        compute: What is left to be done in the folder; returns the summary. Not called where there
            is one.
        origin: Where its data came from, as JSON values; informative only.

    Returns:
        The summary, as ``summary.json`` holds it.

    Raises:
        InputError: If the folder holds another run, or another process is at work there.
    """
    finished = finished_summary(out, kind, config)
    if finished is not None:
        return finished
    with exclusive(out):
        came = {**(origin or {}), **provenance()}
        folder = RunFolder.create_or_resume(out, kind=kind, config=config, provenance=came)
        folder.write_summary(compute(folder))
        written = folder.read_summary()
    assert written is not None
    return written


def finished_summary(out: Path, kind: str, described: Mapping[str, Any]) -> dict[str, Any] | None:
    """The summary of a run that a folder holds finished; None where there is something to do.

    Raises:
        InputError: If the folder holds something else.
    """
    existing = RunFolder.find(out, kind=kind, config=described)
    return existing.read_summary() if existing is not None else None
