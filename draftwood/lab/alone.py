"""A lock on a directory, so that one process at a time works in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from draftwood.errors import DraftwoodError


@contextmanager
def alone(directory: Path, option: str) -> Iterator[None]:
    """Let no other process work in an existing directory, within the block.

    Args:
        directory: which gets the file ``lock``.
        option: that names the directory, for the message.

    Raises:
        DraftwoodError: another process works in it.
    """
    lock = FileLock(directory / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise DraftwoodError(
            f"another process works in {directory}: wait for it, or name another directory with "
            f"{option}"
        ) from error
    try:
        yield
    finally:
        lock.release()
