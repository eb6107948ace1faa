"""The OpenMP threads that compute for a thread: each thread that uses torch has workers of its own.

They sleep while they are not needed, but count. Once there are more of them than cores, GNU's
OpenMP lets every worker sleep at each barrier instead of waiting actively. A step whose layers run
one by one has hundreds of barriers, and takes a third longer then.
"""

from draftwood.kernels.functions import torch_functions

_SOFT = 1  # omp_pause_soft: what was set stays, and threads are made anew when they are needed


def end_workers() -> bool:
    """End the OpenMP workers of the calling thread, before another thread computes instead of it.

    They are made anew if the thread computes again.

    Returns:
        Whether torch's OpenMP can do that, and did.
    """
    try:
        [pause] = torch_functions("omp_pause_resource_all")
    except (OSError, AttributeError):
        return False
    return bool(pause(_SOFT) == 0)
