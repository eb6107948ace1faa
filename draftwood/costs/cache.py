"""Measurements in the user's cache directory, one small JSON file each.

A file holds its key. A file that is broken, foreign or of another version is ignored with a warning
and replaced by the next measurement.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from draftwood.costs.busy import Others
from draftwood.errors import DraftwoodError
from draftwood.files import CACHE_VARIABLE, CacheEntry, cache_directory, write_text

logger = logging.getLogger(__name__)

COSTS, LAYOUTS = "costs", "layouts"
KINDS = (COSTS, LAYOUTS)
"""Kinds of measurements; each has a directory of its name."""

_FILES = 24 * "[0-9a-f]" + ".json"
"""Pattern of file names: a :func:`digest`."""

BUSY_LIMIT = 0.1
"""Share of the cores. If other processes used more, a measurement is not cached."""


def disturbed(others: Others | None) -> bool:
    """Whether other processes used too much of the machine for a measurement to be cached."""
    return others is not None and others.share > BUSY_LIMIT


def directory(kind: str) -> Path:
    """The directory of a kind."""
    return cache_directory() / kind


def read(kind: str, key: Mapping[str, object]) -> object | None:
    """The cached JSON value of the key; None if there is none, or it cannot be used."""
    path = _path(kind, key)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("key") != _plain(key):
            raise ValueError("it belongs to something else")
        return found.get("value")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        warn_unused(path, error)
        return None


def warn_unused(path: Path, reason: object) -> None:
    """Log a warning that a cached file is not used."""
    logger.warning("%s is not used: %s", path, reason)


def write(kind: str, key: Mapping[str, object], value: object, about: str) -> Path:
    """Cache a value; returns its file, which is replaced in one step.

    Args:
        kind: ``"costs"`` or ``"layouts"``.
        key: everything that the measurement depends on.
        value: a JSON value.
        about: the model and the machine in one line.

    Raises:
        DraftwoodError: it cannot be written.
    """
    path = _path(kind, key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps({"about": about, "key": _plain(key), "value": value}) + "\n")
    except OSError as error:
        raise DraftwoodError(
            f"cannot cache {kind} in {path}: {error.strerror}; name another directory in "
            f"{CACHE_VARIABLE}"
        ) from error
    return path


def try_write(kind: str, key: Mapping[str, object], value: object, about: str) -> None:
    """As :func:`write`, but log a warning if the directory cannot be written to."""
    try:
        write(kind, key, value, about)
    except DraftwoodError as error:
        logger.warning("%s", error)


def entries() -> Iterator[CacheEntry]:
    """All cached measurements, by kind, newest first; foreign files are left out."""
    for kind in KINDS:
        found = filter(None, (_entry(kind, path) for path in directory(kind).glob(_FILES)))
        yield from sorted(found, key=lambda entry: entry.changed, reverse=True)


def clear(chosen: Iterable[CacheEntry]) -> None:
    """Delete cached measurements.

    Raises:
        DraftwoodError: a file cannot be deleted.
    """
    for entry in chosen:
        try:
            entry.path.unlink(missing_ok=True)
        except OSError as error:
            raise DraftwoodError(f"cannot delete {entry.path}: {error.strerror}") from error


def digest(found: object) -> str:
    """A short hash of a JSON value."""
    text = json.dumps(found, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _path(kind: str, key: Mapping[str, object]) -> Path:
    return directory(kind) / f"{digest(key)}.json"


def _plain(key: Mapping[str, object]) -> object:
    return json.loads(json.dumps(key))


def _entry(kind: str, path: Path) -> CacheEntry | None:
    """The measurement in a file; None if another program wrote the file."""
    about = ""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if not (isinstance(found, dict) and {"about", "key", "value"} <= found.keys()):
            return None
        about = str(found["about"])
    stat = path.stat()
    return CacheEntry(kind, path, about, stat.st_size, stat.st_mtime)
