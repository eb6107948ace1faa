"""A run that is told to end: SIGTERM unwinds it like Ctrl-C does.

Knows nothing of what is run.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CODE = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM ended, as shells have it."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise ``SystemExit`` with code 143 where SIGTERM arrives; afterwards it is as before.

    In the main thread only, where Python lets signals be handled.
    """
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise SystemExit(CODE)
