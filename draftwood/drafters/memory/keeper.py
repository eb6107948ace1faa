"""Keeps a memory in its file by a thread beside the engine, so that no step waits for the disk.

One thread of the process reads and writes the files of all memories, in order. So a memory that is
made later reads what those before have written. The process waits for it when it ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

from draftwood.drafters.memory.journal import LONGEST, Journal
from draftwood.drafters.memory.namespaces import Namespaces
from draftwood.files import reason

logger = logging.getLogger(__name__)


class Keeper:
    """The file of a memory, which is read first.

    Where texts that were forgotten take most of the file, it is written anew.

    Args:
        journal: the file.
        memory: what is kept in it; empty so far.

    Raises:
        DraftwoodError: see :meth:`Journal.read`.
    """

    def __init__(self, journal: Journal, memory: Namespaces) -> None:
        self._journal = journal
        self._memory = memory
        self._fails = False  # of the thread that writes
        self._tokens = _thread(os.getpid()).submit(journal.read, memory).result()

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


@cache
def _thread(_process: int) -> ThreadPoolExecutor:
    """The thread; a process that was forked has one of its own."""
    return ThreadPoolExecutor(1, "draftwood-memory")
