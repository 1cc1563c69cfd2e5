"""Stores of a successor measure: create or resume one, open one, check one.

A store is a folder with a Zarr v3 array (``zarr.open`` reads it) whose attributes hold, under the
key ``rlreps``, the *settings* that determine the matrix and the *provenance* that only informs.
See ``matrix_store`` for the format, ``subspace_cache`` for what is kept beside the matrix and
``verification`` for the check; their public names are all here.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tensorstore as ts

from rlreps.errors import InputError
from rlreps.runs.locks import LOCK
from rlreps.successor.matrix_store import MatrixStore, first_part, plain_json
from rlreps.successor.subspace_cache import load_subspace, save_subspace
from rlreps.successor.verification import BlockProblem, VerifyReport, verify

__all__ = [
    "BlockProblem",
    "MatrixStore",
    "VerifyReport",
    "create_or_resume",
    "find_store",
    "load_subspace",
    "open_store",
    "require_place",
    "save_subspace",
    "verify",
]

_FORMAT = 1
_METADATA_FILE = "zarr.json"
_LEFT_BY_A_CREATION = {f"{_METADATA_FILE}.__lock", LOCK}
_ABSENT = object()


def create_or_resume(
    path: str | Path,
    *,
    shape: tuple[int, int],
    block_rows: int,
    settings: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> MatrixStore:
    """Makes a store, or opens the one that is there if it was made under the same settings.

    Args:
        path: A folder that does not exist, is empty, or holds a store.
        shape: (num_states, num_tasks).
        block_rows: Rows in a block; the last block may have fewer.
        settings: What determines the matrix, as plain JSON values; mappings may be nested.
        provenance: Versions, date, device and the like, as plain JSON values. Not compared, and
            an existing store keeps its own.

    Returns:
        The store; ``missing_blocks`` says what is left to compute.

    Raises:
        InputError: The store has other settings, shape or block_rows (each is named with both
            values); the path is something else; the shape is not positive; the disk refused it.
        TypeError: Settings or provenance hold what JSON cannot.
        ValueError: Settings or provenance hold NaN or infinity.
    """
    if min(*shape, block_rows) < 1:
        raise InputError(
            f"expected positive shape and block_rows, got shape={shape}, block_rows={block_rows}"
        )
    folder = Path(path).absolute()
    plain = plain_json(settings)
    if (folder / _METADATA_FILE).exists():
        store = open_store(folder)
        _require_same(store, shape, block_rows, plain)
        return store
    require_place(folder)
    entry = {"format": _FORMAT, "settings": plain, "provenance": plain_json(provenance)}
    try:
        # What a killed creation left may be longer than the metadata written over it here.
        (folder / f"{_METADATA_FILE}.__lock").unlink(missing_ok=True)
        metadata = _metadata(shape, block_rows, {"rlreps": entry})
        ts.open({**_spec(folder), "metadata": metadata}, create=True).result()
    except (OSError, ValueError) as error:
        raise InputError(
            f"expected a place for a store at {folder}, got {first_part(error)}"
        ) from error
    return open_store(folder)


def require_place(path: str | Path) -> None:
    """Raises InputError unless the path holds a store, is free or is an empty folder."""
    folder = Path(path).absolute()
    if not folder.exists() or (folder / _METADATA_FILE).exists():
        return
    if not folder.is_dir():
        raise InputError(f"expected a new or empty folder or a matrix store, got the file {folder}")
    # A creation that was killed leaves lock files and nothing else.
    others = sorted(
        entry.name for entry in folder.iterdir() if entry.name not in _LEFT_BY_A_CREATION
    )
    if others:
        raise InputError(
            f"expected a new or empty folder or a matrix store, got {folder} with no "
            f"{_METADATA_FILE} but {len(others)} other entries ({others[0]} ...)"
        )


def find_store(path: str | Path) -> MatrixStore | None:
    """The store at a path, or None if there is none.

    Raises:
        InputError: There is one, but it cannot be read.
    """
    return open_store(path) if (Path(path) / _METADATA_FILE).exists() else None


def open_store(path: str | Path) -> MatrixStore:
    """Opens a store that exists, complete or not.

    Raises:
        InputError: There is no store at the path, or its metadata are truncated, corrupt or not
            those of a store.
    """
    folder = Path(path).absolute()
    if not (folder / _METADATA_FILE).is_file():
        found = "no such path" if not folder.exists() else f"no {_METADATA_FILE} in it"
        raise InputError(f"expected a matrix store at {folder}, got {found}")
    try:
        array = ts.open(_spec(folder), open=True, dtype=ts.float32, rank=2).result()
        metadata = array.spec().to_json()["metadata"]
        block_rows = int(metadata["chunk_grid"]["configuration"]["chunk_shape"][0])
        shape = (int(metadata["shape"][0]), int(metadata["shape"][1]))
        entry = metadata["attributes"]["rlreps"]
        expected = _metadata(shape, block_rows, metadata["attributes"])
        if different := [name for name in expected if metadata.get(name) != expected[name]]:
            raise ValueError(f"another layout ({', '.join(different)})")
        if entry["format"] != _FORMAT:
            raise ValueError(f"format {entry['format']} instead of {_FORMAT}")
        settings, provenance = dict(entry["settings"]), dict(entry["provenance"])
    except KeyError as error:
        raise InputError(
            f"expected a matrix store at {folder}, got {_METADATA_FILE} without {error}"
        ) from error
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"expected a matrix store at {folder}, got {first_part(error)}") from error
    return MatrixStore(
        path=folder,
        shape=shape,
        block_rows=block_rows,
        settings=MappingProxyType(settings),
        provenance=MappingProxyType(provenance),
        _array=array,
    )


def _spec(folder: Path) -> dict[str, Any]:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/"}}


def _metadata(
    shape: tuple[int, int], block_rows: int, attributes: Mapping[str, Any]
) -> dict[str, Any]:
    """Zarr v3 array metadata of a store, in the form in which tensorstore reports them."""
    return {
        "shape": [*shape],
        "data_type": "float32",
        "fill_value": "NaN",  # a block that was never written must not look like zeros
        "dimension_names": ["state", "task"],
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": [block_rows, shape[1]]},
        },
        "chunk_key_encoding": {"name": "default"},
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "crc32c"},
        ],
        "attributes": dict(attributes),
    }


def _require_same(
    store: MatrixStore, shape: tuple[int, int], block_rows: int, settings: Mapping[str, Any]
) -> None:
    """Raises InputError that names every setting whose stored and given values differ."""
    stored = {"shape": store.shape, "block_rows": store.block_rows, **_flat(store.settings)}
    given = {"shape": tuple(shape), "block_rows": block_rows, **_flat(settings)}
    different = [
        name
        for name in sorted({*stored, *given})
        if stored.get(name, _ABSENT) != given.get(name, _ABSENT)
    ]
    if different:
        differences = "; ".join(
            f"expected {_shown(name, stored)} as stored, got {_shown(name, given)}"
            for name in different
        )
        raise InputError(f"{store.path} was made under other settings: {differences}")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings with the names of nested ones joined by dots."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, dict) and value
        flat.update(_flat(value, f"{prefix}{name}.") if nested else {prefix + name: value})
    return flat


def _shown(name: str, settings: Mapping[str, Any]) -> str:
    return f"{name}={settings[name]!r}" if name in settings else f"no {name}"
