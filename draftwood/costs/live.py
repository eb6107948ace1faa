"""Costs that follow the steps: the target's forward and what a step takes outside of forwards,
the growing of trees aside: that is spent when nodes are chosen.

Batches of about one size are followed by themselves: what is measured beforehand is mostly one
sequence, and neither the forward nor what is around it is the same for many at once.

The forward's curve comes right by :mod:`draftwood.costs.refine`. Seconds outside of forwards are a
line over drafted nodes, fitted to the steps of late; one that took far longer than usual counts as
if it had taken a few times as long. Levels of drafters move with the machine as a whole, and with
how much longer than without them it takes to grow trees. Knows neither engine nor clock.
"""

import math
from dataclasses import replace

from draftwood.costs.curve import StepCosts
from draftwood.costs.refine import Refined

_EVERY = 8
"""Steps after which the curve is made anew; the first ones each do so."""

_HALF_LIFE = 64.0
_KEPT = 2.0 ** (-1.0 / _HALF_LIFE)
_WEIGHT = 16.0
"""Steps that what was known before counts for."""

_SPREAD = 16.0
"""Standard deviation of the drafted nodes that these steps are taken to have had."""

_CUT = 4.0
_LOOK = 0.1
"""Part of what a look or a level took longer than usual that becomes usual."""


class LiveCosts:
    """See the module.

    Args:
        costs: as measured or expected.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._given = costs
        self._followed: dict[int, _Followed] = {}

    def now(self, batch: int) -> StepCosts:
        """As they are known by now, for so many sequences."""
        return self._at(batch).now

    def look(self, batch: int) -> float:
        """Seconds that it takes of late to look for candidates of so many sequences; 0 if nobody
        has looked."""
        return self._at(batch).look

    def observe(self, tokens: int, context: int, batch: int, target: float, outside: float) -> None:
        """A step is over.

        Args:
            tokens: scored by the target, roots included.
            context: cached tokens, summed over the batch.
            batch: sequences.
            target: seconds of the target's forward.
            outside: seconds outside of all forwards, from when the trees stood.
        """
        self._at(batch).observe(tokens, context, batch, target, outside)

    def grown(self, batch: int, seconds: float, levels: float) -> None:
        """In a step somebody has looked for candidates, until all trees stood.

        Args:
            batch: sequences.
            seconds: that it took.
            levels: seconds that levels of drafters were expected to take of it; 0 if none was run.
        """
        if levels:
            self._at(batch).drafted(seconds, levels)
        else:
            self._at(batch).looked(seconds)

    def _at(self, batch: int) -> "_Followed":
        """Shared by all that are nearest to the same power of two, on a logarithmic scale."""
        if batch not in self._followed:
            about = 1 << round(math.log2(batch))
            if about not in self._followed:
                self._followed[about] = _Followed(_spread(self._given, about))
            self._followed[batch] = self._followed[about]
        return self._followed[batch]


def _spread(costs: StepCosts, batch: int) -> StepCosts:
    """The same with a table that goes on to sizes that such a batch has."""
    known = costs.target
    beyond = tuple(batch * size for size in known.sizes if batch * size > known.sizes[-1])
    base = known.base + tuple(map(known.seconds, beyond))
    return replace(costs, target=replace(known, sizes=known.sizes + beyond, base=base))


class _Followed:
    """Costs of batches of about one size."""

    def __init__(self, costs: StepCosts) -> None:
        self.now = costs
        self.look = 0.0
        self._levels = 1.0
        self._given = costs
        self._target = Refined(costs.target)
        self._steps = 0
        self._waiting: list[tuple[int, int, int, float, float]] = []
        # Sums over steps: 1, n, n^2, seconds, n * seconds.
        n, square = _SPREAD, 2 * _SPREAD**2
        line = (1.0, n, square, costs.fixed + costs.node * n, costs.fixed * n + costs.node * square)
        self._sums = [_WEIGHT * value for value in line]

    def observe(self, tokens: int, context: int, batch: int, target: float, outside: float) -> None:
        """What the forward took, and what followed."""
        # Nobody reads what a step says before the curve is made anew. It waits until then: behind a
        # forward all code is slow at first, and of several steps at once only one pays for that.
        self._waiting.append((tokens, context, batch, target, outside))
        self._steps += 1
        if self._steps < _EVERY or self._steps % _EVERY == 0:
            for step in self._waiting:
                self._count(*step)
            self._waiting.clear()
            self._renew()

    def looked(self, seconds: float) -> None:
        """For candidates."""
        if not self.look:
            self.look = seconds
        self.look += _LOOK * (min(seconds, _CUT * self.look) - self.look)

    def drafted(self, seconds: float, expected: float) -> None:
        """With levels of drafters, which were expected to take so much of it."""
        ratio = max(0.0, seconds - self.look) / expected
        self._levels *= min(max(ratio, 1.0 / _CUT), _CUT) ** _LOOK

    def _count(self, tokens: int, context: int, batch: int, target: float, outside: float) -> None:
        self._target = self._target.observe(tokens, context, batch, target)
        nodes = tokens - batch
        usual = self.now.fixed + self.now.node * nodes
        seconds = max(0.0, outside - self.now.sequence * (batch - 1))
        if usual > 0.0:
            seconds = min(seconds, _CUT * usual)
        new = (1.0, nodes, nodes * nodes, seconds, nodes * seconds)
        self._sums = [_KEPT * old + value for old, value in zip(self._sums, new, strict=True)]

    def _renew(self) -> None:
        weight, n, square, seconds, product = self._sums
        spread = square - n * n / weight
        slope = max(0.0, (product - n * seconds / weight) / spread) if spread > 0.0 else 0.0
        fixed = max(0.0, (seconds - slope * n) / weight)
        factor = self._target.factor * self._levels
        self.now = StepCosts(
            target=self._target.curve,
            drafters={
                name: replace(
                    level,
                    base=tuple(factor * value for value in level.base),
                    per_context=factor * level.per_context,
                    per_pair=factor * level.per_pair,
                    per_sequence=factor * level.per_sequence,
                )
                for name, level in self._given.drafters.items()
            },
            fixed=fixed,
            node=slope,
            sequence=self._given.sequence,
        )
