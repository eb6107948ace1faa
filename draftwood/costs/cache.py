"""Measurements kept in the user's cache directory: one small JSON file for each.

A file says what it belongs to (its key); one that is broken, foreign or of another version is not
used, with a warning, and replaced by the next measurement. Knows nothing of what was measured.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from draftwood.costs.busy import Others
from draftwood.errors import DraftwoodError
from draftwood.files import write_text

logger = logging.getLogger(__name__)

VARIABLE = "DRAFTWOOD_CACHE"
"""Environment variable that names another cache directory."""

COSTS, LAYOUTS = "costs", "layouts"
KINDS = (COSTS, LAYOUTS)
"""What is kept, each kind in a directory of its name; others are not this package's."""

_NAME = re.compile(r"[0-9a-f]{24}\.json")
"""Names of kept files: a :func:`digest` each."""

BUSY = 0.1
"""Share of the cores; what was measured while other processes used more is not kept."""


@dataclass(frozen=True)
class Kept:
    """One kept measurement.

    Attributes:
        kind: what was measured, e.g. ``"costs"``.
        path: its file.
        about: what it was measured of and on; empty if the file cannot be read.
        size: bytes.
        changed: when it was written, seconds since the epoch.
    """

    kind: str
    path: Path
    about: str
    size: int
    changed: float


def disturbed(others: Others | None) -> bool:
    """Whether other processes used too much meanwhile for a measurement to be kept."""
    return others is not None and others.share > BUSY


def directory(kind: str = "") -> Path:
    """Where a kind is kept: below ``$DRAFTWOOD_CACHE``, or the user's own cache directory."""
    named = os.environ.get(VARIABLE)
    return (Path(named) if named else user_cache_path("draftwood", appauthor=False)) / kind


def read(kind: str, key: Mapping[str, object]) -> object | None:
    """What is kept for the key, as JSON; None if nothing is, or nothing that can be used."""
    path = _path(kind, key)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("key") != _plain(key):
            raise ValueError("it belongs to something else")
        return found.get("value")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        unused(path, error)
        return None


def unused(path: Path, reason: object) -> None:
    """Warn that a kept file is not used."""
    logger.warning("%s is not used: %s", path, reason)


def write(kind: str, key: Mapping[str, object], value: object, about: str) -> Path:
    """Keep a value; returns the file, which is replaced in one step.

    Args:
        kind: what was measured.
        key: what the measurement depends on.
        value: that JSON can hold.
        about: one line for people.

    Raises:
        DraftwoodError: it cannot be written.
    """
    path = _path(kind, key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps({"about": about, "key": _plain(key), "value": value}) + "\n")
    except OSError as error:
        raise DraftwoodError(
            f"cannot keep {kind} in {path}: {error.strerror}; name another directory in {VARIABLE}"
        ) from error
    return path


def try_write(kind: str, key: Mapping[str, object], value: object, about: str) -> None:
    """The same, but a directory that cannot be written to is only warned about."""
    try:
        write(kind, key, value, about)
    except DraftwoodError as error:
        logger.warning("%s", error)


def entries() -> Iterator[Kept]:
    """Everything that is kept, by kind, newest first; files of others are left out."""
    for kind in KINDS:
        named = [p for p in directory(kind).glob("*.json") if _NAME.fullmatch(p.name)]
        found = [Kept(kind, p, _about(p), *_facts(p)) for p in named if _ours(p)]
        yield from sorted(found, key=lambda kept: kept.changed, reverse=True)


def clear(kinds: frozenset[str] | None = None) -> int:
    """Delete what is kept of these kinds, or everything; returns how many files.

    Raises:
        DraftwoodError: a file cannot be deleted.
    """
    chosen = [kept for kept in entries() if kinds is None or kept.kind in kinds]
    for kept in chosen:
        try:
            kept.path.unlink(missing_ok=True)
        except OSError as error:
            raise DraftwoodError(f"cannot delete {kept.path}: {error.strerror}") from error
    return len(chosen)


def digest(found: object) -> str:
    """A short name for anything that JSON can hold."""
    text = json.dumps(found, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _path(kind: str, key: Mapping[str, object]) -> Path:
    return directory(kind) / f"{digest(key)}.json"


def _plain(key: Mapping[str, object]) -> object:
    return json.loads(json.dumps(key))


def _ours(path: Path) -> bool:
    """Whether :func:`write` made it; a file of such a name that cannot be read counts as broken."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    return isinstance(found, dict) and {"key", "value"} <= found.keys()


def _about(path: Path) -> str:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return str(found["about"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _facts(path: Path) -> tuple[int, float]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime
