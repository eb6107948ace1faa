"""A curve that comes right while steps are being timed: pure, one observation at a time.

What a forward took is compared with what the curve says, as the logarithm of the ratio. The error
goes to two places. *Drift* is one factor for all sizes: a machine that has become slower as a
whole, which changes no decision that weighs costs against one another. *Offsets* are a further
factor for each of the curve's sizes; the size that was seen moves, the sizes beside it half as
much, and what all seen ones have in common goes over to the drift. A size that was never seen takes
the offsets of those around it, linear in the logarithm of size, so that seeing one size alone is
drift alone.

Robust: an error counts up to a few times the usual one and no further, so that a pause of any
length moves the curve as little as a merely slow step does (Huber's estimator, taken one step of
stochastic approximation at a time; Huber 1964, Robbins and Monro 1951). The usual error is itself
an average of errors so cut, and grows if all of them are large. Knows neither engine nor clock.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise

from draftwood.costs.curve import Curve
from draftwood.costs.fit import isotonic

_DRIFT = 0.1
"""Part of an error that goes to the drift."""
_OWN, _SETTLED = 0.25, 0.02
"""Part of an error that goes to the offset of its size: at first, and at least."""
_PATIENCE = 4.0
"""The larger, the longer that part stays large."""
_BESIDE = 0.5
"""Part of that which goes to the sizes beside it."""
_CUT = 2.0
"""An error counts up to so many usual ones."""
_USUAL = 0.1
"""Part of an error's size that goes to the usual error."""
_LEAST, _BEGIN = 0.01, 0.15
"""The usual error: never below, and before anything was seen."""


@dataclass(frozen=True)
class Refined:
    """A curve and what observations say of it.

    Attributes:
        prior: as measured or expected.
        drift: log of the factor for all sizes.
        offsets: log of the further factor, by size that was seen, as an index into the curve's.
        seen: observations, by the same.
        usual: typical absolute error of the log.
    """

    prior: Curve
    drift: float = 0.0
    offsets: Mapping[int, float] = field(default_factory=dict)
    seen: Mapping[int, int] = field(default_factory=dict)
    usual: float = _BEGIN

    def observe(self, tokens: int, context: int, batch: int, seconds: float) -> "Refined":
        """With one more forward; one without tokens or seconds says nothing.

        Args:
            tokens: as of :meth:`draftwood.costs.curve.Curve.seconds`, like the next two.
            context: see there.
            batch: see there.
            seconds: what it took.
        """
        if tokens < 1 or not 0.0 < seconds < math.inf:
            return self
        size = self._nearest(tokens)
        seen = self.seen.get(size, 0)
        offset = self.offsets[size] if size in self.offsets else self._offsets()[size]
        expected = math.log(self.prior.seconds(tokens, context, batch)) + self.drift + offset
        cut = _CUT * self.usual
        error = min(max(math.log(seconds) - expected, -cut), cut)
        # Where many were seen the shape is known better than any one of them tells: who takes the
        # best of several sizes would take the one that noise flatters most.
        own = max(_SETTLED, 1.0 / (1.0 / _OWN + seen / _PATIENCE))
        offsets = {**self.offsets, size: offset + own * error}
        for beside in (size - 1, size + 1):
            if beside in offsets:
                offsets[beside] += own * _BESIDE * error
        counts = {**self.seen, size: seen + 1}
        # What all offsets have in common belongs to the drift.
        common = sum([offsets[i] * n for i, n in counts.items()]) / sum(counts.values())
        return Refined(
            self.prior,
            self.drift + _DRIFT * error + common,
            {i: value - common for i, value in offsets.items()},
            counts,
            max(_LEAST, self.usual + _USUAL * (abs(error) - self.usual)),
        )

    @property
    def factor(self) -> float:
        """How much slower the machine is as a whole than the curve says."""
        return math.exp(self.drift)

    @cached_property
    def curve(self) -> Curve:
        """The curve as refined; the rates move with the drift alone."""
        base = [
            seconds * math.exp(self.drift + offset)
            for seconds, offset in zip(self.prior.base, self._offsets(), strict=True)
        ]
        weights = [1.0 + self.seen.get(i, 0) for i in range(len(base))]
        return Curve(
            self.prior.sizes,
            tuple(isotonic(base, weights)),
            self.prior.per_context * self.factor,
            self.prior.per_pair * self.factor,
            self.prior.per_sequence * self.factor,
        )

    def _nearest(self, tokens: int) -> int:
        """Index of the curve's size that is nearest on a logarithmic scale."""
        sizes = self.prior.sizes
        above = min(bisect_left(sizes, tokens), len(sizes) - 1)
        below = max(above - 1, 0)
        return below if tokens * tokens < sizes[below] * sizes[above] else above

    def _offsets(self) -> list[float]:
        """Of each size its own, or what those of its neighbours say."""
        if not self.offsets:
            return [0.0] * len(self.prior.sizes)
        own, places = self.offsets, _places(self.prior.sizes)
        known = sorted(own)
        found = [own[known[0]]] * known[0]
        for below, above in pairwise(known):
            slope = (own[above] - own[below]) / (places[above] - places[below])
            found += [own[below] + slope * (p - places[below]) for p in places[below:above]]
        return found + [own[known[-1]]] * (len(places) - known[-1])


@cache
def _places(sizes: tuple[int, ...]) -> tuple[float, ...]:
    """On a logarithmic scale."""
    return tuple(map(math.log, sizes))
