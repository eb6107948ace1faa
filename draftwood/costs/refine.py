"""Online refinement of a cost curve from timed forwards: pure, one observation at a time.

An observation's error is the log of measured over predicted seconds. It updates three corrections.
*Drift* is one factor for all sizes: the whole machine has become slower, which changes no
comparison of costs. *Rates* is a further factor of what cached tokens cost: it moves as far as the
prediction consists of that. *Offsets* are a further factor per size of the curve. The observed size
moves, its neighbours move half as much, and the mean of all offsets is added to the drift. A size
that was never observed interpolates its neighbours' offsets, linear in the log of the size. So
without cached tokens, observations of a single size change the drift alone.

Errors are clipped at a multiple of the mean error, so a long pause moves the curve no more than a
slow step does (Huber's estimator by stochastic approximation; Huber 1964, Robbins and Monro 1951).
The mean error is a moving average of clipped errors, and grows if all of them are large. The first
observations of a size are clipped as those of a new curve are: it may be further off than others.
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
"""Learning rate of the drift."""
_OWN, _SETTLED = 0.25, 0.02
"""Learning rate of a size's offset: the first, and the least."""
_PATIENCE = 4.0
"""That rate is 1 / (1 / first + observations / this)."""
_BESIDE = 0.5
"""Learning rate of the neighbouring sizes, relative to it."""
_RATES = 2.0
"""Learning rate of the factor of cached tokens, relative to that of a size's offset."""
_CUT = 2.0
"""Errors are clipped at this multiple of the mean error."""
_ERROR_RATE = 0.1
"""Learning rate of the mean error."""
_LEAST, _BEGIN = 0.01, 0.15
"""Mean error: its lower bound, and its value before any observation."""


@dataclass(frozen=True)
class Refined:
    """A curve and its corrections.

    Attributes:
        prior: the curve as measured or predicted.
        drift: log of the factor for all sizes.
        rates: log of the further factor of cached tokens.
        offsets: log of the further factor, by index of an observed size.
        seen: number of observations, by index of the size.
        mean_error: moving average of the absolute error of the log.
    """

    prior: Curve
    drift: float = 0.0
    rates: float = 0.0
    offsets: Mapping[int, float] = field(default_factory=dict)
    seen: Mapping[int, int] = field(default_factory=dict)
    mean_error: float = _BEGIN

    def observe(self, tokens: int, context: int, batch: int, seconds: float) -> "Refined":
        """The curve after one more forward; ignored without tokens or a positive time.

        Args:
            tokens: see :meth:`draftwood.costs.curve.Curve.seconds`.
            context: see there.
            batch: see there.
            seconds: measured.
        """
        if tokens < 1 or not 0.0 < seconds < math.inf:
            return self
        size = self._nearest(tokens)
        seen = self.seen.get(size, 0)
        offset = self.offsets[size] if size in self.offsets else self._offsets()[size]
        # As the curve has it: an offset is of the base alone, and rates of the rest.
        base = self.prior.seconds(tokens)
        rest = self.prior.seconds(tokens, context, batch) - base
        base, rest = base * math.exp(offset), rest * math.exp(self.rates)
        expected = math.log(base + rest) + self.drift
        # A size that was seldom seen may be further off than those that the mean error is of.
        cut = _CUT * max(self.mean_error, _BEGIN / (1.0 + seen / _PATIENCE))
        error = min(max(math.log(seconds) - expected, -cut), cut)
        # The rate falls with observations: choosing the best of several sizes would otherwise
        # choose the one with the luckiest noise.
        own = max(_SETTLED, 1.0 / (1.0 / _OWN + seen / _PATIENCE))
        offsets = {**self.offsets, size: offset + own * error}
        for beside in (size - 1, size + 1):
            if beside in offsets:
                offsets[beside] += own * _BESIDE * error
        counts = {**self.seen, size: seen + 1}
        # The mean of all offsets belongs to the drift.
        common = sum([offsets[i] * n for i, n in counts.items()]) / sum(counts.values())
        return Refined(
            self.prior,
            self.drift + _DRIFT * error + common,
            self.rates + own * _RATES * error * rest / (base + rest),
            {i: value - common for i, value in offsets.items()},
            counts,
            max(_LEAST, self.mean_error + _ERROR_RATE * (abs(error) - self.mean_error)),
        )

    @property
    def factor(self) -> float:
        """The drift as a factor: how much slower the machine is than the prior says."""
        return math.exp(self.drift)

    @cached_property
    def curve(self) -> Curve:
        """The refined curve."""
        base = [
            seconds * math.exp(self.drift + offset)
            for seconds, offset in zip(self.prior.base, self._offsets(), strict=True)
        ]
        weights = [1.0 + self.seen.get(i, 0) for i in range(len(base))]
        cached = self.factor * math.exp(self.rates)
        return Curve(
            self.prior.sizes,
            tuple(isotonic(base, weights)),
            self.prior.per_context * cached,
            self.prior.per_pair * cached,
            self.prior.per_sequence * cached,
        )

    def _nearest(self, tokens: int) -> int:
        """Index of the curve's size that is nearest on a logarithmic scale."""
        sizes = self.prior.sizes
        above = min(bisect_left(sizes, tokens), len(sizes) - 1)
        below = max(above - 1, 0)
        return below if tokens * tokens < sizes[below] * sizes[above] else above

    def _offsets(self) -> list[float]:
        """The offset of each size, observed or interpolated."""
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
    """Logarithms of the sizes."""
    return tuple(map(math.log, sizes))
