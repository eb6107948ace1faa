"""Files that a command writes: refused before any work is done, written whole or not at all.

Knows nothing of what is in them.
"""

import os
import tempfile
from pathlib import Path

from draftwood.errors import DraftwoodError


def check_writable(path: Path) -> None:
    """Refuse a place that cannot be written to, before any work is done.

    Raises:
        DraftwoodError: the directory is missing or read-only, or the path is a directory or a
            read-only file.
    """
    if path.is_dir():
        raise DraftwoodError(f"{path} is a directory: name a file in it")
    if not path.parent.is_dir():
        raise DraftwoodError(f"cannot write to {path.parent}: there is no such directory")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".draftwood-"):
            pass
    except OSError as error:
        raise DraftwoodError(
            f"cannot write to {path.parent}: no file can be made there ({error.strerror}); name "
            "another directory"
        ) from error
    if path.exists() and not os.access(path, os.W_OK):
        raise DraftwoodError(f"{path} is read-only: name another file")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 beside ``path``, then put it in its place in one step."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside ``path``, then put it in its place in one step.

    Raises:
        OSError: it cannot be written; its ``filename`` is ``path``.
    """
    try:
        _replace(path, content)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_result(path: Path, content: bytes) -> None:
    """Write the result of a long run; if that fails, keep it in the temporary directory.

    Raises:
        OSError: ``path`` cannot be written; the message says where the content is instead.
    """
    try:
        write_bytes(path, content)
    except OSError as error:
        raise OSError(f"{reason(error)}; {rescued(path.name, content)}") from error


def rescued(name: str, content: bytes) -> str:
    """Write content that has lost its place to the temporary directory.

    Returns:
        A clause that says where it is, or that it is lost.
    """
    try:
        place = Path(tempfile.gettempdir()) / f"draftwood-{os.getpid()}-{name}"
        write_bytes(place, content)
    except OSError as error:
        return f"the result could not be kept elsewhere ({reason(error)}) and is lost"
    return f"the result is in {place}: move it to a safe place"


def reason(error: OSError) -> str:
    """What went wrong, and with which file."""
    what = error.strerror or str(error)
    return f"{what}: {error.filename}" if error.filename else what


def _replace(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".draftwood-", suffix=path.suffix)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
