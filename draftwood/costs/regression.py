"""Two least-squares fits that keep to a sign or an order, on numbers that are few.

Pure; knows nothing of what is fitted.

Sources: Lawson and Hanson, *Solving Least Squares Problems* (1974), chapter 23; Ayer et al. (1955),
pool adjacent violators.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def nonnegative(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """The x of no negative entry that minimises ``|a x - b|``.

    Args:
        a: float64 ``[m, n]``, no column zero.
        b: float64 ``[m]``.
    """
    scale = np.linalg.norm(a, axis=0)
    a = a / scale
    n = a.shape[1]
    x = np.zeros(n)
    free = np.zeros(n, dtype=bool)
    tolerance = 1e-12 * max(float(np.linalg.norm(b)), 1e-300)
    for _ in range(3 * n):  # ends by itself; rounding could make it go round
        gradient = np.where(free, -np.inf, a.T @ (b - a @ x))
        if free.all() or gradient.max() <= tolerance:
            break
        free[int(gradient.argmax())] = True
        x = _descend(a, b, x, free)
    found: NDArray[np.float64] = x / scale
    return found


def _descend(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    x: NDArray[np.float64],
    free: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """The best x on the free entries, those that would turn negative being fixed at 0 again."""
    while True:
        best = np.zeros_like(x)
        best[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
        wrong = free & (best <= 0.0)
        if not wrong.any():
            return best
        ways = x[wrong] / np.maximum(x[wrong] - best[wrong], 1e-300)
        way = float(ways.min())
        x = x + way * (best - x)
        free[np.flatnonzero(wrong)[ways <= way]] = False
        x[~free] = 0.0


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """What never falls and is nearest to ``values``, in least squares with weights above 0."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, count
    for value, weight in zip(values, weights, strict=True):
        count = 1
        while blocks and blocks[-1][0] > value:
            before, heavier, more = blocks.pop()
            value = (before * heavier + value * weight) / (heavier + weight)
            weight, count = heavier + weight, more + count
        blocks.append((value, weight, count))
    return [value for value, _, count in blocks for _ in range(count)]
