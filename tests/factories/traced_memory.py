"""Memory that a module has allocated."""

import tracemalloc
from collections.abc import Callable
from types import ModuleType


def bytes_allocated(module: ModuleType, run: Callable[[], object]) -> int:
    """Bytes that the module's own lines allocate in a run and that are not freed in it."""
    tracemalloc.start()
    run()
    kept = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(inclusive=True, filename_pattern=str(module.__file__))]
    )
    tracemalloc.stop()
    return sum(trace.size for trace in kept.traces)
