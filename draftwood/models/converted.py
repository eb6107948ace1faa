"""Converted checkpoints in the user's cache directory: each is whole, or made again."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from draftwood.errors import DraftwoodError
from draftwood.files import CACHE_VARIABLE, CacheEntry, cache_directory, reason

KIND = "models"
"""Kind of these entries of the cache, and the name of their directory."""

_RECORD = "converted.json"
"""A checkpoint's file with its description and, once it is complete, its files' sizes."""

_PART = ".part"


def place_of(name: str) -> Path:
    """The directory of a converted checkpoint."""
    return cache_directory() / KIND / name


def complete(place: Path) -> bool:
    """Whether all files of a checkpoint have their sizes; their content is not read."""
    try:
        sizes = json.loads((place / _RECORD).read_text(encoding="utf-8"))["files"]
        return all((place / file).stat().st_size == size for file, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def make(place: Path, about: str, convert: Callable[[Path], None]) -> None:
    """Convert into a directory beside ``place``, which takes its name when it is complete.

    One process converts, others wait for it. An incomplete checkpoint is replaced. A line on
    standard error says what is converted.

    Args:
        place: a path from :func:`place_of`.
        about: the model in one line.
        convert: writes the checkpoint's files into the directory that it is given.

    Raises:
        DraftwoodError: the cache directory cannot be written to.
    """
    part = place.with_name(place.name + _PART)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _alone(place):
            if complete(place):  # now, thanks to another process
                return
            sys.stderr.write(f"converting once, into {place}: {about}\n")
            try:
                _fill(part, about, convert)
                if place.exists():
                    shutil.rmtree(place)
                part.rename(place)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise DraftwoodError(
            f"cannot write a converted model to {place}: {reason(error)}; name another directory "
            f"in {CACHE_VARIABLE}"
        ) from error


def entries() -> Iterator[CacheEntry]:
    """The converted checkpoints, those that a killed process left incomplete included."""
    for record in sorted((cache_directory() / KIND).glob(f"*/{_RECORD}")):
        path, about = record.parent, ""
        with suppress(OSError, ValueError, KeyError, TypeError):
            about = str(json.loads(record.read_text(encoding="utf-8"))["about"])
        about = about if complete(path) else f"not complete: {about}"
        size = sum(file.stat().st_size for file in path.iterdir())
        yield CacheEntry(KIND, path, about, size, record.stat().st_mtime)


def clear(chosen: Iterable[CacheEntry]) -> None:
    """Delete converted checkpoints.

    Raises:
        DraftwoodError: a file cannot be deleted.
    """
    for entry in chosen:
        try:
            with _alone(entry.path.with_name(entry.path.name.removesuffix(_PART))):
                if entry.path.exists():
                    shutil.rmtree(entry.path)
        except OSError as error:
            raise DraftwoodError(f"cannot delete {entry.path}: {reason(error)}") from error


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Let one process at a time change ``place``."""
    lock = FileLock(place.with_name(f".{place.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        sys.stderr.write(f"waiting for another process that works on {place}\n")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _fill(part: Path, about: str, convert: Callable[[Path], None]) -> None:
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    record = part / _RECORD
    # The description comes first, so that an abandoned directory is known for what it is.
    record.write_text(json.dumps({"about": about}) + "\n", encoding="utf-8")
    convert(part)
    files = [path for path in sorted(part.iterdir()) if path != record]
    for path in files:
        # safetensors makes its files readable by their owner only.
        shutil.copymode(record, path)
    found = {"about": about, "files": {path.name: path.stat().st_size for path in files}}
    record.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
