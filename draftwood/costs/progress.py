"""Progress messages on standard error, for work that keeps a user waiting."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds after which the message is shown."""


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show ``text`` on a terminal or in a notebook once the block has lasted a second.

    The text and the block's seconds are always logged.
    """
    begin = time.perf_counter()
    timer = Timer(PATIENCE, _say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        logger.info("%s: %.1f s", text, time.perf_counter() - begin)


def _say(text: str) -> None:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False)
    if console.is_terminal or console.is_jupyter:
        console.print(f"draftwood: {text} ...", style="dim")
