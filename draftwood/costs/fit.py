"""Fits: a curve to timed forwards, and host costs to timed steps.

Both are non-negative least squares: the unknowns are costs, namely the rises of the table from size
to size and the rates. So noise never makes the curve fall, and a term that the timings do not show
is 0. Errors are relative to the time, because policies compare costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from draftwood.costs.curve import Curve
from draftwood.errors import DraftwoodError


def nnls(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """The non-negative x that minimises ``|a x - b|`` (Lawson and Hanson 1974, NNLS).

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
    for _ in range(3 * n):  # ends earlier, but rounding could make it cycle
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
    """The best x on the free entries; entries that would become negative are fixed at 0 again."""
    while True:
        best = np.zeros_like(x)
        best[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
        wrong = free & (best <= 0.0)
        if not wrong.any():
            return best
        steps = x[wrong] / np.maximum(x[wrong] - best[wrong], 1e-300)
        step = float(steps.min())
        x = x + step * (best - x)
        free[np.flatnonzero(wrong)[steps <= step]] = False
        x[~free] = 0.0


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to ``values`` in weighted least squares.

    The method is pool adjacent violators. All weights are above 0.
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, count
    for value, weight in zip(values, weights, strict=True):
        count = 1
        while blocks and blocks[-1][0] > value:
            before, heavier, more = blocks.pop()
            value = (before * heavier + value * weight) / (heavier + weight)
            weight, count = heavier + weight, more + count
        blocks.append((value, weight, count))
    return [value for value, _, count in blocks for _ in range(count)]


@dataclass(frozen=True)
class Sample:
    """A timed forward.

    Attributes:
        tokens: scored tokens, over the batch.
        context: cached tokens, over the batch.
        batch: sequences.
        seconds: typical time over its repetitions.
    """

    tokens: int
    context: int
    batch: int
    seconds: float


@dataclass(frozen=True)
class HostSample:
    """Seconds of one step outside of forwards, with its batch's drafted nodes and sequences."""

    nodes: int
    batch: int
    seconds: float


def fit(samples: Sequence[Sample]) -> Curve:
    """Fit a curve to the samples.

    A rate is separated from the table only if samples differ in it: with a single context, the
    table includes the cost of reading it; with a single batch, that of its sequences. The table has
    the sizes of the smallest batch and all larger ones, so that larger batches are explained by
    rates. It begins at one token, at the cost of the smallest size if one token was not timed.

    Raises:
        DraftwoodError: there are fewer than two sizes, or a time is not above 0.
    """
    fewest = min((sample.batch for sample in samples), default=1)
    alone = {sample.tokens for sample in samples if sample.batch == fewest}
    sizes = sorted(alone | {s.tokens for s in samples if s.tokens > max(alone)})
    if len(sizes) < 2:
        raise DraftwoodError(f"sizes {sizes} were timed: a cost curve needs two or more")
    seconds = np.array([sample.seconds for sample in samples])
    if not np.all(np.isfinite(seconds)) or seconds.min() <= 0.0:
        raise DraftwoodError("a forward took no time: give a clock that runs")
    n = np.array([sample.tokens for sample in samples], dtype=np.float64)
    c = np.array([sample.context for sample in samples], dtype=np.float64)
    b = np.array([sample.batch for sample in samples], dtype=np.float64)
    rises = [np.interp(n, sizes[i : i + 2], (0.0, 1.0)) for i in range(len(sizes) - 1)]
    columns = [np.ones_like(n), *rises]
    rates = []
    if len(set(c / b)) > 1:
        columns += [c, n * c / b]
        rates += ["per_context", "per_pair"]
    if len(set(b)) > 1:
        columns.append(b - 1)
        rates.append("per_sequence")
    found = nnls(np.stack(columns, axis=1) / seconds[:, None], np.ones_like(seconds))
    base = np.cumsum(np.maximum(found[: len(sizes)], 0.0))
    # A context that explains everything would leave nothing for the table.
    base = np.maximum(base, 1e-3 * seconds.min())
    if sizes[0] > 1:
        sizes, base = [1, *sizes], np.concatenate([base[:1], base])
    named = dict(zip(rates, map(float, found[len(rises) + 1 :]), strict=True))
    return Curve(tuple(sizes), tuple(base.tolist()), **named)


def fit_prompts(samples: Sequence[Sample]) -> Curve | None:
    """The curve of prompts that were timed; None if these are fewer than two."""
    return fit(samples) if len(samples) > 1 else None


def fit_host(samples: Sequence[HostSample]) -> tuple[float, float, float]:
    """Fit the costs outside of forwards to the median of each size, weighted by its steps.

    Returns:
        Seconds per step, per drafted node, and per sequence after the first.

    Raises:
        DraftwoodError: there are no steps.
    """
    if not samples:
        raise DraftwoodError("no step was timed: give longer answers or more time")
    groups: dict[tuple[int, int], list[float]] = {}
    for sample in samples:
        groups.setdefault((sample.nodes, sample.batch), []).append(sample.seconds)
    nodes, batches = np.array(list(groups), dtype=np.float64).T
    columns = np.stack([np.ones(len(groups)), nodes, batches - 1], axis=1)
    weights = np.sqrt([len(found) for found in groups.values()])
    middles = np.array([median(found) for found in groups.values()])
    varied = [True, len(set(nodes)) > 1, len(set(batches)) > 1]
    costs = np.zeros(3)
    costs[varied] = nnls(columns[:, varied] * weights[:, None], middles * weights)
    fixed, node, sequence = costs.tolist()
    return fixed, node, sequence
