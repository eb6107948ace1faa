"""Compiles C++ of the package for this machine's processor, once, into the cache directory.

A compiler is optional: without one, callers take their PyTorch path.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from draftwood.costs.progress import working
from draftwood.errors import DraftwoodError
from draftwood.files import CACHE_VARIABLE, CacheEntry, cache_directory, reason

logger = logging.getLogger(__name__)

KIND = "compiled"
VARIABLE = "DRAFTWOOD_COMPILE"
"""Environment variable; ``off`` compiles and loads nothing."""

_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fPIC", "-shared")
_NATIVE = {
    # Some processors are said to be slow at chains of fused products, which GCC then leaves unfused
    # in some loops and not in others: a row would depend on the loop that has it.
    "x86_64": (
        "-march=native",
        "-mprefer-vector-width=512",
        "--param=avoid-fma-max-bits=0",
    ),
    "aarch64": ("-mcpu=native",),
}
"""Flags for the processor at hand, by machine under Linux."""

_SECONDS = 120
"""Seconds after which a compiler is stopped."""


@cache
def library(directory: Path) -> ctypes.CDLL | None:
    """The library of the C++ files in a directory; None if it cannot be compiled or loaded.

    The compiler is ``CXX``, or the first of c++, g++ and clang++. The library is cached by sources,
    compiler, flags and processor.
    """
    command = _command()
    if command is None:
        logger.info("%s: not compiled, as there is no compiler", directory.name)
        return None
    try:
        path = _path(directory, command)
        # Before the lock, so that a cache that only others may write serves.
        if (found := _cached(path)) is not None:
            return found
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            sources = sorted(map(str, directory.glob("*.cpp")))
            return _cached(path) or _compiled([*command, *sources], path)
    except subprocess.CalledProcessError as error:
        why = _first_error(error.stderr.strip() or str(error))
    except (OSError, ValueError, NotImplementedError, subprocess.TimeoutExpired) as error:
        why = str(error)
    logger.warning(
        "%s cannot be compiled or loaded, so that steps take longer: %s (%s=off: do not try; "
        "%s=DIRECTORY: another cache directory; CXX: another compiler)",
        directory.name,
        why,
        VARIABLE,
        CACHE_VARIABLE,
    )
    return None


def functions(
    loaded: ctypes.CDLL, arguments: Mapping[str, Any], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Functions of a library by name; in C++ their names begin with ``draftwood_``.

    Args:
        loaded: the library.
        arguments: a list of the types of each function's arguments.
        results: types of results; functions that are missing return nothing.
    """
    found = {}
    for name, own in arguments.items():
        function = getattr(loaded, f"draftwood_{name}")
        function.argtypes, function.restype = own, results.get(name)
        found[name] = function
    return found


def entries() -> Iterator[CacheEntry]:
    """The cached libraries."""
    for path in sorted((cache_directory() / KIND).glob("*.so")):
        stat = path.stat()
        yield CacheEntry(KIND, path, path.name.partition("-")[0], stat.st_size, stat.st_mtime)


def clear(chosen: Iterable[CacheEntry]) -> None:
    """Delete cached libraries.

    Raises:
        DraftwoodError: a file cannot be deleted.
    """
    for entry in chosen:
        try:
            entry.path.unlink(missing_ok=True)
            entry.path.with_suffix(".lock").unlink(missing_ok=True)
        except OSError as error:
            raise DraftwoodError(f"cannot delete {entry.path}: {reason(error)}") from error


def _first_error(said: str) -> str:
    """The first line of a compiler's that names an error, behind where files are included."""
    lines = said.splitlines()
    return next((line for line in lines if "error:" in line), lines[0])


def _command() -> list[str] | None:
    """The compiler with its flags; None if there is none, or it is not wanted."""
    native = _NATIVE.get(platform.machine())
    if native is None or sys.platform != "linux" or os.environ.get(VARIABLE) == "off":
        return None
    found = next((name for name in _COMPILERS if shutil.which(name)), "")
    compiler = (os.environ.get("CXX") or found).split()
    return [*compiler, *_FLAGS, *native] if compiler else None


def _path(directory: Path, command: Sequence[str]) -> Path:
    version = subprocess.run(
        [command[0], "--version"], capture_output=True, check=True, text=True, timeout=_SECONDS
    )
    sources = sorted([*directory.glob("*.h"), *directory.glob("*.cpp")])
    texts = [path.read_text(encoding="utf-8") for path in sources]
    known = [*texts, version.stdout, *command, _processor()]
    digest = hashlib.sha256("\0".join(known).encode())
    return cache_directory() / KIND / f"{directory.name}-{digest.hexdigest()[:24]}.so"


def _processor() -> str:
    """The processor's name and instruction sets: what ``native`` stands for."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    wanted = ("model name", "flags", "CPU part", "Features")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _cached(path: Path) -> ctypes.CDLL | None:
    """The library at a path; None if there is none that can be loaded.

    Raises:
        OSError: nothing there can be loaded, as code may not be run from there.
    """
    if not path.is_file():
        return None
    try:
        return _loaded(path)
    except OSError:
        # One that was cut off, or compiled on a system with other libraries, is compiled again.
        if os.statvfs(path.parent).f_flag & os.ST_NOEXEC:
            raise
    return None


def _loaded(path: Path) -> ctypes.CDLL:
    """The library at a path, or a copy of it where code may not be run from there."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        first = error
    try:
        with tempfile.TemporaryDirectory(prefix="draftwood-") as directory:
            # Its file may go once it is loaded.
            found = ctypes.CDLL(str(shutil.copy(path, directory)))
    except OSError:
        raise first from None
    logger.info("a copy of %s is used, which cannot be loaded itself: %s", path, first)
    return found


def _compiled(command: Sequence[str], path: Path) -> ctypes.CDLL:
    """Compile into a file that takes its name when it is complete, and load it."""
    with (
        working("compiling for this machine's processor, once"),
        tempfile.TemporaryDirectory(dir=path.parent, prefix=".draftwood-") as directory,
    ):
        made = Path(directory) / path.name
        subprocess.run(
            [*command, "-o", str(made)],
            capture_output=True,
            check=True,
            text=True,
            timeout=_SECONDS,
        )
        made.replace(path)
    return _loaded(path)
