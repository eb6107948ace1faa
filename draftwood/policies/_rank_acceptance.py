"""Acceptance by rank, counted from an engine's steps, and the static tree that is best for it.

Source: Sequoia (Chen et al., 2025), Section 3.1: the probability that a child is the accepted one
depends on its rank alone. The paper measures it once before; here every step of an engine counts,
whichever request and temperature it is of. The first steps only measure: their tree is the root and
its likeliest children.

A child is counted where its position was verified: its parent is the root or was accepted. Ranks
that the parent had no child of are not counted. So the acceptance of a rank is

    (PRIOR_WEIGHT * assumed + accepted) / (PRIOR_WEIGHT + verified)

but no more than that of the rank above, where ``assumed`` is :data:`DEFAULT_ACCEPTANCE`. A rank
that was never drafted continues that law from the rank above: it is worth the estimate of that rank
times their ratio in the law.
"""

from collections import Counter
from collections.abc import Sequence

from draftwood.policies._static import RankPath, likeliest_paths
from draftwood.protocols import (
    FREE,
    Bid,
    Outcome,
    Prediction,
    Price,
    RequestLoad,
    StepReport,
    Tuner,
)
from draftwood.tree import ROOT

DEFAULT_ACCEPTANCE = tuple(0.6 / (1 + rank) ** 2 for rank in range(10))
"""A power law in the rank, as Sequoia observes them; its sum is 0.93. An assumption."""

PRIOR_WEIGHT = 4.0
"""Weight of the assumed acceptance of a rank, in verified children."""

FIRST = 4
"""Steps that measure, after which a tree is computed; then whenever their number doubles."""

MEASURED: tuple[RankPath, ...] = tuple((rank,) for rank in range(len(DEFAULT_ACCEPTANCE)))
"""The tree of the first steps: a child of each rank that is counted."""


class RankCounts:
    """Counts by rank.

    Attributes:
        verified: children whose position was verified.
        accepted: those that were accepted.
        steps: that were counted.
    """

    def __init__(self) -> None:
        self.verified = [0] * len(DEFAULT_ACCEPTANCE)
        self.accepted = [0] * len(DEFAULT_ACCEPTANCE)
        self.steps = 0

    def add(self, outcome: Outcome) -> None:
        """Count a step; one that drafted nothing, or failed, says nothing."""
        if not outcome.tree.drafted or not outcome.committed:
            return
        self.steps += 1
        width = Counter(outcome.tree.parents.tolist())
        above = (ROOT, *outcome.path)
        for parent in above:
            for rank in range(width[parent]):
                self.verified[rank] += 1
        for parent, child in zip(above, outcome.path, strict=False):
            siblings = outcome.tree.parents[:child] == parent
            self.accepted[int(siblings.sum())] += 1

    @property
    def acceptance(self) -> tuple[float, ...]:
        """The estimate of each rank; it never rises."""
        found: list[float] = []
        for rank, assumed in enumerate(DEFAULT_ACCEPTANCE):
            weight = PRIOR_WEIGHT + self.verified[rank]
            estimate = (PRIOR_WEIGHT * assumed + self.accepted[rank]) / weight
            if rank and not self.verified[rank]:
                estimate = found[-1] * assumed / DEFAULT_ACCEPTANCE[rank - 1]
            found.append(min([estimate, *found[-1:]]))
        return tuple(found)


class RankTuner(Tuner):
    """Forecasts the tree of a step: the rank paths that are likeliest by the counts so far.

    Args:
        size: nodes of the tree.
        counts: those of other engines on the host, which this one goes on with.
        deepest: depth of the deepest nodes that the drafter proposes; None: any.
    """

    def __init__(
        self, size: int, counts: RankCounts | None = None, deepest: int | None = None
    ) -> None:
        self.counts = counts or RankCounts()
        self._size, self._deepest = size, deepest
        self._due = FIRST
        self._paths = MEASURED[:size]

    def begin(self, loads: Sequence[RequestLoad]) -> list[tuple[RankPath, ...]]:
        """The same tree for all requests."""
        if self.counts.steps >= self._due:
            self._paths = likeliest_paths(self.counts.acceptance, self._size, self._deepest)
            self._due = 2 * self.counts.steps
        return [self._paths] * len(loads)

    def price(self, bids: Sequence[Bid]) -> Price:
        """Every node is drafted."""
        return FREE

    def observe(self, report: StepReport) -> list[Prediction | None]:
        """Count the step of each request; nothing is predicted."""
        for outcome in report.outcomes:
            self.counts.add(outcome)
        return [None] * len(report.outcomes)
