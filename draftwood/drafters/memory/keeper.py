"""Keeps a memory in its file by a thread beside the engine, so that no step waits for the disk.

One thread of the process reads and writes the files of all memories, in order. So a memory that is
made later reads what those before have written. The process waits for it when it ends.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

from filelock import FileLock, Timeout

from draftwood.drafters.memory.journal import LONGEST, Journal
from draftwood.drafters.memory.namespaces import Namespaces
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable, reason

logger = logging.getLogger(__name__)


class Keeper:
    """The file of a memory, which is read first.

    Where texts that were forgotten take most of the file, it is written anew.

    Args:
        journal: the file.
        memory: what is kept in it; empty so far.

    Raises:
        DraftwoodError: another process uses the file; or see :meth:`Journal.read`.
    """

    def __init__(self, journal: Journal, memory: Namespaces) -> None:
        check_writable(journal.path)
        path = journal.path.resolve()
        new = _own(path)
        self._journal = journal
        self._memory = memory
        self._fails = False  # of the thread that writes
        try:
            self._tokens = _thread(os.getpid()).submit(journal.read, memory).result()
        except BaseException:
            if new:
                _give_back(path)
            raise

    def add(self, texts: Sequence[Sequence[int]], namespace: str) -> None:
        """Write soon what was added to the memory."""
        if not texts:
            return
        self._tokens += sum(map(len, texts))
        kept = self._memory.size_of_own
        if self._tokens > LONGEST * kept:
            # Now, as the memory goes on; these texts are among them.
            work = partial(self._journal.replace, self._memory.pieces())
            self._tokens = kept
        else:
            work = partial(self._journal.write, texts, namespace)
        _thread(os.getpid()).submit(self._try, work)

    def _try(self, work: Callable[[], None]) -> None:
        """Write, unless it has failed before: requests go on without the file."""
        if self._fails:
            return
        try:
            work()
        except OSError as error:
            self._fails = True
            logger.warning("the memory is not kept in its file any more: %s", reason(error))


_owning = threading.Lock()
_owned: dict[tuple[Path, int], FileLock] = {}


def _own(path: Path) -> bool:
    """Keep a memory's file for this process, as long as it runs; whether it had not been kept.

    Raises:
        DraftwoodError: another process has it, or there can be no lock.
    """
    key = path, os.getpid()
    with _owning:
        if key in _owned:
            return False
        lock = FileLock(path.with_name(f".{path.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise DraftwoodError(
                f"another process uses the memory in {path}, and each writes without the texts of "
                "the other: give each a file of its own"
            ) from error
        except OSError as error:
            raise DraftwoodError(
                f"the memory in {path} cannot be locked ({lock.lock_file}): {reason(error)}"
            ) from error
        _owned[key] = lock
        return True


def _give_back(path: Path) -> None:
    with _owning:
        _owned.pop((path, os.getpid())).release()


@cache
def _thread(_process: int) -> ThreadPoolExecutor:
    """The thread; a process that was forked has one of its own."""
    return ThreadPoolExecutor(1, "draftwood-memory")
