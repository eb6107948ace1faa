"""The heap of a process that decodes for long."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Exclude existing objects from garbage collection during the block.

    A model and its libraries are hundreds of thousands of objects. Whenever they are looked at
    again, all requests wait for some tenths of a second.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
