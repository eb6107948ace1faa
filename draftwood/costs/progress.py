"""Says on standard error what is being done, where somebody waits for it.

Knows nothing of what is done.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds after which whoever waits is told why."""


@contextmanager
def working(text: str) -> Iterator[None]:
    """Say ``text`` once the block has lasted a second, on a terminal or in a notebook; log it, with
    its seconds, in any case."""
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
