"""Recorded forwards of this process, and forwards whose time says nothing of later ones.

To record a forward takes as long as dozens of steps, and is done once for each of its shapes. Until
then it may run in the larger shapes of another one: that takes a little longer than later ones, but
is what such a step costs now, so it counts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_count = 0
_at_once: ContextVar[bool] = ContextVar("at_once", default=False)


def note() -> None:
    """Count the beginning or end of a recording."""
    global _count  # noqa: PLW0603 - of the process
    _count += 1


def count() -> int:
    """The number of notes so far, those of other threads included: they share the device."""
    return _count


@contextmanager
def at_once() -> Iterator[None]:
    """A context whose forwards are recorded when their shapes first occur: they are to be timed."""
    before = _at_once.set(True)
    try:
        yield
    finally:
        _at_once.reset(before)


def are_at_once() -> bool:
    """Whether this is such a context."""
    return _at_once.get()
