"""SIGTERM handling: the signal ends a run like Ctrl-C does."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CODE = 128 + signal.SIGTERM
"""Exit code of a process ended by SIGTERM, as in shells."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise ``SystemExit`` with code 143 on SIGTERM, within the block; main thread only."""
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise SystemExit(CODE)
