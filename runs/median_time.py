"""The time of a call on a device."""

import statistics
import time
from collections.abc import Callable

import torch


def median_seconds(call: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    """Median seconds of a call, after a few that do not count."""
    found = []
    for _ in range(repeats + 3):
        begun = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - begun)
    return statistics.median(found[3:])
