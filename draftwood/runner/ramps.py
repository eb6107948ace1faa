"""Counts of consecutive numbers, one behind the other."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Ramps:
    """Writes runs of consecutive numbers from one array, which grows as needed."""

    def __init__(self) -> None:
        self._ramp = np.arange(1024)

    def write(
        self, firsts: Sequence[int], counts: Sequence[int], into: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Write ``counts[i]`` numbers from ``firsts[i]`` on, for each i; returns what is written.

        Args:
            firsts: first number of each run.
            counts: their lengths.
            into: int64, at least as long as all runs.
        """
        longest, begin = max(counts), 0
        if longest > self._ramp.size:
            self._ramp = np.arange(2 * longest)
        for first, count in zip(firsts, counts, strict=True):
            np.add(self._ramp[:count], first, out=into[begin : begin + count])
            begin += count
        return into[:begin]
