"""Recorded forwards of this process: how many there were, and whether each size has its own.

To record a forward takes as long as dozens of steps, and is done once for each of its shapes. The
time of a step in which that happened, in another thread too, says nothing of later ones.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_count = 0
_at_once: ContextVar[bool] = ContextVar("at_once", default=False)


def note() -> None:
    """Count a forward that is recorded, or was tried to be."""
    global _count  # noqa: PLW0603 - of the process
    _count += 1


def count() -> int:
    """How many there were so far."""
    return _count


@contextmanager
def at_once() -> Iterator[None]:
    """A context whose forwards are recorded when their size first occurs: they are to be timed."""
    before = _at_once.set(True)
    try:
        yield
    finally:
        _at_once.reset(before)


def are_at_once() -> bool:
    """Whether this is such a context."""
    return _at_once.get()
