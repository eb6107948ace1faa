"""Memory in small pages, of which only what is written is taken.

The kernel clears a page when it is written for the first time, and of a page of 2 MB all of it. A
cache has a row in each layer for every request, and a row is mostly shorter than that. When the
rows become longer all of them are copied, and in large pages the kernel would clear many times what
is copied.
"""

import mmap
import sys
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray


def zeros(size: int) -> NDArray[np.uint8]:
    """Bytes that begin at a page."""
    given = max(1, size)
    if sys.platform == "win32":
        return np.frombuffer(mmap.mmap(-1, given), dtype=np.uint8)[:size]
    memory = mmap.mmap(-1, given, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):  # a kernel without large pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)[:size]
