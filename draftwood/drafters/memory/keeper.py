"""Keeps a memory in its file by a thread beside the engine, so that no step waits for the disk.

One thread of the process reads and writes the files of all memories, in order. So a memory that is
made later reads what those before have written. The process waits for it when it ends.

Engines of one process that name one file share its memory. With a memory each, the one that writes
the file anew would leave out what the others have written.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from weakref import WeakValueDictionary

from filelock import FileLock, Timeout

from draftwood.drafters.memory.journal import LONGEST, Journal
from draftwood.drafters.memory.namespaces import Namespaces
from draftwood.errors import DraftwoodError
from draftwood.files import check_writable, reason

logger = logging.getLogger(__name__)

_PATIENCE = 0.1
"""Seconds to wait for a file that another thread of this process may be giving back."""


class Keeper:
    """A memory and its file, which is read first, and locked as long as this lives.

    Where texts that were forgotten take most of the file, it is written anew.

    Args:
        journal: the file.
        memory: what is kept in it; empty so far.

    Attributes:
        memory: see there.

    Raises:
        DraftwoodError: another process uses the file; or see :meth:`Journal.read`.
    """

    def __init__(self, journal: Journal, memory: Namespaces) -> None:
        check_writable(journal.path)
        self.memory = memory
        self._lock = _locked(journal.path)
        self._journal = journal
        self._turn = threading.Lock()
        self._fails = False  # of the thread that writes
        try:
            self._tokens = _thread(os.getpid()).submit(journal.read, memory).result()
        except BaseException:
            self._lock.release()
            raise

    def share(self, journal: Journal, size: int) -> None:
        """Let another engine use the memory, too, which then has the larger of their sizes.

        Args:
            journal: the same file, by the other engine's vocabulary.
            size: of the other engine's memory, in tokens.

        Raises:
            DraftwoodError: see :meth:`Journal.check`.
        """
        _thread(os.getpid()).submit(journal.check).result()
        self.memory.most_tokens = max(self.memory.most_tokens, size)

    def add(self, tokens: Sequence[int], namespace: str) -> None:
        """Remember a text, and write soon what is new of it."""
        with self._turn:
            texts = self.memory.add(tokens, namespace)
            if not texts:
                return
            self._tokens += sum(map(len, texts))
            kept = self.memory.size_of_own
            if self._tokens > LONGEST * kept:
                # Now, as the memory goes on; these texts are among them.
                work = partial(self._journal.replace, self.memory.pieces())
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


_opening = threading.Lock()
_keepers: WeakValueDictionary[tuple[Path, int], Keeper] = WeakValueDictionary()


def keeper_of(journal: Journal, size: int) -> Keeper:
    """The keeper of a file, which all engines of this process share.

    Args:
        journal: the file.
        size: most tokens of the memory; of several engines the largest.

    Raises:
        DraftwoodError: see :class:`Keeper`.
    """
    key = journal.path, os.getpid()  # a process that was forked has keepers of its own
    with _opening:
        found = _keepers.get(key)
        if found is None:
            found = _keepers[key] = Keeper(journal, Namespaces(size))
        else:
            found.share(journal, size)
        return found


def _locked(path: Path) -> FileLock:
    """A lock that keeps a memory's file for this process until it is dropped.

    Raises:
        DraftwoodError: another process has it, or there can be no lock.
    """
    lock = _lock_beside(path)
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout as error:
        raise DraftwoodError(
            f"another process uses the memory in {path}, and each writes without the texts of "
            "the other: give each a file of its own"
        ) from error
    except OSError as error:
        raise DraftwoodError(
            f"the memory in {path} cannot be locked ({lock.lock_file}): {reason(error)}"
        ) from error
    return lock


def _lock_beside(path: Path) -> FileLock:
    place = path.with_name(f".{path.name}.lock")
    # The thread that drops a keeper last may be another one than the thread that made it.
    return FileLock(place, thread_local=False)


@cache
def _thread(_process: int) -> ThreadPoolExecutor:
    """The thread; a process that was forked has one of its own."""
    return ThreadPoolExecutor(1, "draftwood-memory")
