"""From timed forwards to a curve, and from timed steps to what they cost outside of forwards.

Both are least squares in which every unknown is a cost and hence not negative: rises of
the table from size to size, and the rates. So the curve never falls because of noise, and a term
that the timings do not speak of is 0. Errors count relative to the time, since a policy compares
costs. Pure; refuses to know who took the times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from draftwood.costs.curve import Curve
from draftwood.costs.regression import nonnegative
from draftwood.errors import DraftwoodError


@dataclass(frozen=True)
class Sample:
    """A forward of one size, timed.

    Attributes:
        tokens: scored, over the batch.
        context: cached, over the batch.
        batch: sequences.
        seconds: as typical as its repetitions allow.
    """

    tokens: int
    context: int
    batch: int
    seconds: float


@dataclass(frozen=True)
class HostSample:
    """What one step took outside of forwards: drafted nodes and sequences of its batch."""

    nodes: int
    batch: int
    seconds: float


@dataclass(frozen=True)
class HostCosts:
    """Seconds a step outside of forwards, for each drafted node, and for each further sequence."""

    fixed: float
    node: float
    sequence: float


def fit(samples: Sequence[Sample]) -> Curve:
    """The curve nearest to the samples.

    Rates are told apart from the table only where samples differ: with a single context the table
    holds what reading it costs, and with a single batch what its sequences cost. The table's sizes
    are those of the smallest batch and all larger ones: sizes of its own would let a larger batch
    explain itself. It begins at one token, at the price of the smallest size if that was not timed.

    Raises:
        DraftwoodError: there are not two sizes, or a time is not above 0.
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
    found = nonnegative(np.stack(columns, axis=1) / seconds[:, None], np.ones_like(seconds))
    base = np.cumsum(np.maximum(found[: len(sizes)], 0.0))
    # A context that explains everything would leave nothing for the table.
    base = np.maximum(base, 1e-3 * seconds.min())
    if sizes[0] > 1:
        sizes, base = [1, *sizes], np.concatenate([base[:1], base])
    named = dict(zip(rates, map(float, found[len(rises) + 1 :]), strict=True))
    return Curve(tuple(sizes), tuple(base.tolist()), **named)


def fit_host(samples: Sequence[HostSample]) -> HostCosts:
    """Costs outside of forwards; steps of one size count by their median, and by their number.

    Raises:
        DraftwoodError: there are no steps.
    """
    if not samples:
        raise DraftwoodError("no step was timed: give longer answers or more time")
    groups: dict[tuple[int, int], list[float]] = {}
    for sample in samples:
        groups.setdefault((sample.nodes, sample.batch), []).append(sample.seconds)
    sizes = np.array(list(groups), dtype=np.float64)
    weights = np.sqrt([len(found) for found in groups.values()])
    columns = [np.ones(len(groups)), sizes[:, 0], sizes[:, 1] - 1]
    varied = [i for i, column in enumerate(columns) if i == 0 or len(set(column)) > 1]
    matrix = np.stack([columns[i] for i in varied], axis=1)
    middles = np.array([median(found) for found in groups.values()])
    found = dict.fromkeys(range(3), 0.0)
    found |= dict(
        zip(varied, nonnegative(matrix * weights[:, None], middles * weights), strict=True)
    )
    return HostCosts(float(found[0]), float(found[1]), float(found[2]))
