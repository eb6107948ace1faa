"""The tuner of ``throughput-chain``: one width for all requests of a batch."""

from collections.abc import Sequence

from draftwood.costs.clock import Clock, StepSize
from draftwood.policies.throughput_chain.width import Width
from draftwood.protocols import (
    FREE,
    Bid,
    Prediction,
    Price,
    RequestLoad,
    StepReport,
    Tuner,
)

_SHORT = 6
"""Rounds without a whole chain, one after another, after which the width is that of the longest."""

_FAILURES = 3
"""Rounds without an accepted token, one after another, after which one step is plain."""


class ThroughputTuner(Tuner):
    """Measures what a chain of each width yields.

    A *round* is a step in which a request has a chain. The rounds of one step count as one, with
    the mean of their tokens. Only those whose chain has the whole width teach the width: a copy may
    end early, and a request too. Where none has it, as the source copies fewer tokens, the width is
    that of the longest.

    Args:
        width: of the next chains; learns.
        clock: says what a step took.
        cooldown: whether a step is plain after three rounds of the smallest width in which nothing
            was accepted.
    """

    def __init__(self, width: Width, clock: Clock, *, cooldown: bool) -> None:
        self._width = width
        self._clock = clock
        self._cooldown = cooldown
        self._failures = 0
        self._short: list[int] = []
        self._given = width.now
        self._context = 0

    def begin(self, loads: Sequence[RequestLoad]) -> list[int]:
        """The width for every request; 0 in a plain step."""
        self._context = sum(load.cached for load in loads)
        self._given = self._width.now
        if self._cooldown and self._failures == _FAILURES:
            self._failures = self._given = 0
        return [self._given] * len(loads)

    def price(self, bids: Sequence[Bid]) -> Price:
        """Free; the policy does not ask."""
        return FREE

    def observe(self, report: StepReport) -> list[Prediction | None]:
        """See :class:`draftwood.protocols.Tuner`; nothing is predicted."""
        outcomes = report.outcomes
        rounds = [each for each in outcomes if each.tree.drafted and each.committed]
        if rounds:
            failed = self._given == self._width.least and not any(each.path for each in rounds)
            self._failures = self._failures + 1 if failed else 0
        filled = [each for each in rounds if each.tree.drafted == self._given]
        if rounds:
            longest = max(each.tree.drafted for each in rounds)
            self._short = [] if filled else [*self._short, longest]
        if len(self._short) == _SHORT:
            self._width.shorten(max(self._short))
            self._short = []
        if filled and report.typical:
            accepted = sum(len(each.path) for each in filled)
            looked_at = sum(min(len(each.path) + 1, self._given) for each in filled)
            committed = sum(len(each.committed) for each in filled) / len(filled)
            tokens = len(outcomes) + sum(each.tree.drafted for each in outcomes)
            size = StepSize(tokens, self._context, len(outcomes))
            seconds = self._clock.seconds(size, report.times.total)
            self._width.observe(committed, seconds, accepted / looked_at)
        return [None] * len(outcomes)
