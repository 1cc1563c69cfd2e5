"""The folder of a run: configuration, metrics, figures, summary, and the run's identity.

``app.job`` says what decides that a run resumes.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, cast

from rlreps.errors import InputError, describe_differences
from rlreps.files import (
    parse_json,
    read_json,
    require_free,
    write_atomically,
)
from rlreps.formatting import finite_or_none
from rlreps.report.table import Table
from rlreps.runs.processes import first_does, process_index

FORMAT = 2
"""Version of a run folder's files; rlreps 0.1 wrote no version."""

_CONFIG = "config.json"
_METRICS = "metrics.jsonl"
_SUMMARY = "summary.json"

_MOST_DIFFERENCES = 8
"""Largest number of differences in a message; configurations may differ in hundreds."""


def without_nan(value: Any) -> Any:
    """Replace the NaN and infinities that JSON cannot hold by None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return value


class RunFolder:
    """One run's folder; opening it again with the same configuration resumes the run.

    Attributes:
        path: The folder.
        kind: The kind of run, such as ``train``.
        config: The run's full configuration.
        provenance: Versions, revision and device of the process that started the run.
    """

    def __init__(self, path: Path) -> None:
        """Open an existing run; nothing is changed.

        Raises:
            InputError: If it is not the folder of a run, or its configuration cannot be read.
        """
        self.path = path
        if (path / "zarr.json").is_file():
            raise InputError(f"expected a run's {_CONFIG}: {path} holds a matrix store, not a run")
        stored = _read_object(path / _CONFIG)
        kinds = {"kind": str, "config": dict, "provenance": dict}
        if not all(isinstance(stored.get(name), kind) for name, kind in kinds.items()):
            raise InputError(f"expected a run's configuration in {path}/{_CONFIG}, got another")
        if stored.get("format") != FORMAT:
            raise InputError(
                f"expected a run folder of format {FORMAT}, got {path} of an older version; choose "
                "a new folder"
            )
        self.kind: str = stored["kind"]
        self.config: dict[str, Any] = stored["config"]
        self.provenance: dict[str, Any] = stored["provenance"]

    @classmethod
    def find(
        cls,
        path: Path,
        *,
        kind: str,
        config: Mapping[str, Any] | None = None,
    ) -> Optional["RunFolder"]:
        """Find this run in a folder; nothing is changed.

        Args:
            path: The folder.
            kind: The kind of run, such as ``train``.
            config: Everything that decides the result, as JSON values; None accepts any.

        Returns:
            The run, or None if the folder is empty or does not exist, so that a new run may start
            there.

        Raises:
            InputError: If the folder holds another run (with the differences) or other files, or
                cannot be written.
        """
        if not (path / _CONFIG).exists():
            require_free(path, "the run")
            return None
        folder = cls(path)
        folder.require_kind(kind)
        if config is not None and (found := folder.describe_differences(config)):
            more = len(found) - _MOST_DIFFERENCES
            rest = f"; and {more} more differences" if more > 0 else ""
            listed = "; ".join(found[:_MOST_DIFFERENCES])
            raise InputError(f"{path} holds another run: {listed}{rest}")
        return folder

    @classmethod
    def create_or_resume(
        cls,
        path: Path,
        *,
        kind: str,
        config: Mapping[str, Any],
        provenance: Mapping[str, Any],
    ) -> "RunFolder":
        """Start a run in a new or empty folder, or resume the same run in its own.

        Args:
            path: The folder.
            kind: As for ``find``.
            config: As for ``find``.
            provenance: For information only; the folder keeps the provenance of the run's first
                start.

        Raises:
            InputError: If the folder holds another run or other files; nothing is changed.
        """

        def write() -> None:
            existing = cls.find(path, kind=kind, config=config)
            if existing is None:
                described = {"kind": kind, "config": config, "provenance": provenance}
                _write_json(path / _CONFIG, {"format": FORMAT, **described})
                return
            lines = existing._metrics_lines()
            if lines and not lines[-1].endswith(b"\n"):
                # A kill cut the last line short: the next record would be appended to it.
                write_atomically(path / _METRICS, b"".join(lines[:-1]))

        first_does(write)
        return cls(path)

    def require_kind(self, kind: str) -> None:
        """Raise an ``InputError`` unless the folder holds this kind of run."""
        if self.kind != kind:
            raise InputError(
                f"expected a run of {kind}, got {self.path}, which holds a run of {self.kind}"
            )

    def describe_differences(self, config: Mapping[str, Any]) -> list[str]:
        """List the differences of this run's configuration from another, as text."""
        return describe_differences(self.config, _plain(config))

    @property
    def identity(self) -> str:
        """Hash of everything that decides the result, which identifies its checkpoints."""
        canonical = json.dumps([self.kind, self.config], sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def figures(self) -> Path:
        """Folder of figures, created on first use."""
        folder = self.path / "figures"
        folder.mkdir(exist_ok=True)
        return folder

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add a line to the metrics, on disk when this returns; NaN and infinity become null."""
        if process_index() > 0:
            return
        with (self.path / _METRICS).open("ab") as file:
            file.write(_line(record))
            file.flush()
            # A power failure must not lose this line but keep a later checkpoint.
            os.fsync(file.fileno())

    def _metrics_lines(self) -> list[bytes]:
        path = self.path / _METRICS
        return path.read_bytes().splitlines(keepends=True) if path.exists() else []

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read all metrics, oldest first, null as NaN; skip a last line that a kill cut short.

        Raises:
            InputError: If a line is not a JSON object.
        """
        path = self.path / _METRICS
        return [
            _checked(parse_json(line, place := f"line {number} of {path}"), place, nan=True)
            for number, line in enumerate(self._metrics_lines(), start=1)
            if line.endswith(b"\n")
        ]

    def keep_metrics_until(self, step: int) -> list[dict[str, Any]]:
        """Drop metrics after ``step``, which a resumed run writes again; return the rest.

        Raises:
            InputError: If a line is not a JSON object with a ``step``.
        """
        path = self.path / _METRICS
        records = self.read_metrics()
        if not all(isinstance(record.get("step"), int) for record in records):
            raise InputError(f"expected a step in every line of {path}, got a line without")
        kept = [record for record in records if record["step"] <= step]
        write_atomically(path, b"".join(map(_line, kept)))
        return kept

    def write_summary(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Write the run's summary, and return it as the file holds it: NaN and infinity as null."""
        _write_json(self.path / _SUMMARY, summary)
        return _read_object(self.path / _SUMMARY)

    def read_summary(self) -> dict[str, Any] | None:
        """Read the run's summary as it was given; None if the run has not ended."""
        path = self.path / _SUMMARY
        return _read_object(path) if path.exists() else None

    def part(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Compute a part of the run's results once; a resumed run reads ``parts/<name>.json``.

        Args:
            name: Name of the file.
            compute: Computes the part, as JSON values; NaN and infinity become null.

        Returns:
            The part as the file holds it, null as NaN.

        Raises:
            InputError: If the file is not a JSON object.
        """
        path = self._part_file(name)
        if not path.exists():
            _write_json(path, compute())
        return _read_object(path, nan=True)

    def has_part(self, name: str) -> bool:
        """Return whether ``part`` has been computed."""
        return self._part_file(name).exists()

    def _part_file(self, name: str) -> Path:
        return self.path / "parts" / f"{name}.json"

    def write_rows(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Write ``results/<name>.csv`` and ``.json``.

        None, NaN and infinity are empty in the CSV and null in the JSON file.

        Args:
            name: Name of both files.
            rows: Column → text, number, boolean or None; NumPy scalars are converted.
        """
        table = Table.of_rows(rows, name)
        cells = [[finite_or_none(cell) for cell in row] for row in table.rows]
        # One row per line: small, and readable as text.
        lines = ",\n".join(
            f"  {json.dumps(dict(zip(table.header, row, strict=True)), allow_nan=False)}"
            for row in cells
        )
        results = self.path / "results"
        write_atomically(results / f"{name}.csv", table.to_csv().encode())
        write_atomically(results / f"{name}.json", f"[\n{lines}\n]\n".encode())


def _plain(config: Mapping[str, Any]) -> Any:
    """Return JSON values as they are read back: tuples become lists, and NaN becomes None."""
    return json.loads(json.dumps(without_nan(config)))


def _line(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(without_nan(record), allow_nan=False) + "\n").encode()


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(without_nan(content), indent=2, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def _read_object(path: Path, *, nan: bool = False) -> dict[str, Any]:
    try:
        found = read_json(path)
    except OSError as error:
        raise InputError(f"expected a run's {path.name}, got {error.strerror}: {path}") from error
    return _checked(found, str(path), nan=nan)


def _checked(found: Any, place: str, *, nan: bool) -> dict[str, Any]:
    """Refuse all but a JSON object; ``nan`` restores NaN where a number was not finite."""
    if not isinstance(found, dict):
        raise InputError(f"expected a JSON object in {place}, got {type(found).__name__}")
    return cast(dict[str, Any], _with_nan(found)) if nan else found


def _with_nan(value: Any) -> Any:
    """Undo ``without_nan``."""
    if value is None:
        return math.nan
    if isinstance(value, dict):
        return {key: _with_nan(item) for key, item in value.items()}
    return [_with_nan(item) for item in value] if isinstance(value, list) else value
