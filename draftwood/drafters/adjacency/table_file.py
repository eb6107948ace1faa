"""Table files: safetensors, with JSON in the header; docs/harvest.md describes the format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from draftwood.drafters.adjacency.table import Facts, PreparedTable
from draftwood.errors import DraftwoodError
from draftwood.files import decode, encode

VERSION = 1
"""Version of the format; other versions are refused."""

_KEY = "draftwood_adjacency"
_ARRAYS = ("keys", "lengths", "tokens", "codes")


@dataclass(frozen=True)
class _Header:
    version: int
    facts: Facts


def to_bytes(table: PreparedTable) -> bytes:
    """The content of the table's file; equal tables give equal bytes."""
    from safetensors.numpy import save

    header = json.dumps(encode(_Header(VERSION, table.facts)), sort_keys=True, ensure_ascii=False)
    return save({name: getattr(table, name) for name in _ARRAYS}, metadata={_KEY: header})


def load(path: Path) -> PreparedTable:
    """The table in a file. All drafters of a process share it, until the file is changed.

    Raises:
        DraftwoodError: the file cannot be read, is damaged or is no table of this version.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise DraftwoodError(
            f"cannot read the adjacency table {path}: {error.strerror}; 'draftwood harvest' makes "
            "one"
        ) from error
    return _load(path.resolve(), found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=8)
def _load(path: Path, changed: int, size: int) -> PreparedTable:  # noqa: ARG001
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(_KEY)
            if text is None:
                raise DraftwoodError("it is no adjacency table, but some other safetensors file")
            plain = json.loads(text)
            if isinstance(plain, dict) and plain.get("version") not in (None, VERSION):
                raise DraftwoodError(
                    f"it has version {plain['version']} of the format, and this Draftwood reads "
                    f"version {VERSION}"
                )
            header = decode(_Header, plain)
            arrays: dict[str, NDArray[Any]] = {name: file.get_tensor(name) for name in _ARRAYS}
        return PreparedTable(header.facts, **arrays)
    except (OSError, ValueError, SafetensorError) as error:
        raise DraftwoodError(
            f"{path} cannot be used as an adjacency table: {error}; make it again with "
            "'draftwood harvest'"
        ) from error
