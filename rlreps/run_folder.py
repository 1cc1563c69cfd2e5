"""The folder of a run: configuration, metrics, figures, summary, and whose run it is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlreps.errors import InputError
from rlreps.files import write_atomically

_CONFIG = "config.json"
_METRICS = "metrics.jsonl"
_SUMMARY = "summary.json"


def differences(expected: Any, got: Any, name: str = "") -> list[str]:
    """What differs between two JSON values, as "expected name=a, got b" with dotted names."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        found = []
        for key in sorted({*expected, *got}):
            inner = f"{name}.{key}" if name else str(key)
            found += differences(expected.get(key), got.get(key), inner)
        return found
    return [] if expected == got else [f"expected {name}={expected!r}, got {got!r}"]


class RunFolder:
    """One run's folder; opening it again with the same configuration resumes the run.

    Attributes:
        path: The folder.
        config: The run's full configuration.
        provenance: Versions, revision and device of the process that started the run.
    """

    def __init__(self, path: Path) -> None:
        """Opens an existing run.

        Args:
            path: A folder made by ``create_or_resume``.

        Raises:
            InputError: If it is not the folder of a run, or its configuration cannot be read.
        """
        self.path = path
        stored = _read_json(path / _CONFIG)
        if not isinstance(stored, dict) or not {"kind", "config"} <= stored.keys():
            raise InputError(f"expected a run's {_CONFIG}, got something else in {path}")
        self.kind: str = stored["kind"]
        self.config: dict[str, Any] = stored["config"]
        self.provenance: dict[str, Any] = stored.get("provenance", {})

    @classmethod
    def create_or_resume(
        cls, path: Path, *, kind: str, config: Mapping[str, Any], provenance: Mapping[str, Any]
    ) -> "RunFolder":
        """Starts a run in a new or empty folder, or resumes the same run in its own.

        Args:
            path: The folder.
            kind: What kind of run it is, such as ``train``.
            config: Everything that decides the result, as JSON values.
            provenance: Informative only; kept from the run's first start.

        Returns:
            The folder.

        Raises:
            InputError: If the folder holds another run or other files; nothing is changed.
        """
        if path.exists() and not path.is_dir():
            raise InputError(f"expected a folder for the run, got the file {path}")
        if (path / _CONFIG).exists():
            folder = cls(path)
            found = differences(
                {"kind": folder.kind, **folder.config},
                {"kind": kind, **json.loads(json.dumps(config))},
            )
            if found:
                raise InputError(f"{path} holds another run: {'; '.join(found)}")
            return folder
        if path.exists() and any(path.iterdir()):
            raise InputError(
                f"expected a new or empty folder for the run, got other files in {path}"
            )
        path.mkdir(parents=True, exist_ok=True)
        content = {"kind": kind, "config": dict(config), "provenance": dict(provenance)}
        _write_json(path / _CONFIG, content)
        return cls(path)

    @property
    def figures(self) -> Path:
        """The folder of figures, created on first use."""
        folder = self.path / "figures"
        folder.mkdir(exist_ok=True)
        return folder

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Adds one line to the metrics and flushes it to disk."""
        with (self.path / _METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()

    def read_metrics(self) -> list[dict[str, Any]]:
        """All metrics, oldest first; a last line cut short by a kill is left out."""
        path = self.path / _METRICS
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def keep_metrics_until(self, step: int) -> None:
        """Drops metrics after ``step``, which a resumed run will write again."""
        kept = [record for record in self.read_metrics() if record["step"] <= step]
        lines = "".join(json.dumps(record) + "\n" for record in kept)
        write_atomically(self.path / _METRICS, lines.encode())

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Writes the run's summary."""
        _write_json(self.path / _SUMMARY, dict(summary))

    def read_summary(self) -> dict[str, Any] | None:
        """The run's summary, or None before it has ended."""
        path = self.path / _SUMMARY
        if not path.exists():
            return None
        summary = _read_json(path)
        if not isinstance(summary, dict):
            raise InputError(f"expected a JSON object in {path}, got {type(summary).__name__}")
        return summary


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"expected a run's {path.name}, got {error.strerror}: {path}") from error
    except ValueError as error:
        raise InputError(f"expected JSON in {path}, got {error}") from error
