"""The draft levels of one step of one request: what each neural drafter could be asked next.

A drafter is asked level by level, about nodes of any source: a parent before its children, and no
node twice. Which drafter is next is the tuner's decision. One that is not worth its time is not
asked again in this step. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from draftwood.policies.auto.forecast import Forecast
from draftwood.policies.auto.pool import Pool
from draftwood.policies.auto.report import Forwards
from draftwood.protocols import Level, LevelBid, LevelBids
from draftwood.tree import ROOT

Offers: TypeAlias = dict[str, dict[int, float]]
"""By drafter, the nodes to ask it about, best first, with their headroom."""


@dataclass
class _Run:
    """Levels of one drafter that follow one another; see :class:`.report.Forwards`."""

    source: str
    without: list[int]
    headroom: float = 0.0


class DraftLevels:
    """The draft levels of a step.

    Args:
        pool: of candidates.
        sources: names of the neural drafters.
        forecast: for this step.
        deepest: depth of the deepest useful node.
        level: most nodes of a level.
        budget: most candidates that are drafted.

    Attributes:
        widths: nodes of each forward, by drafter.
    """

    def __init__(
        self,
        pool: Pool,
        sources: Sequence[str],
        forecast: Forecast,
        deepest: int,
        level: int,
        budget: int,
    ) -> None:
        self.widths: dict[str, list[int]] = {}
        self._pool = pool
        self._forecast = forecast
        self._deepest = deepest
        self._level = level
        self._budget = budget
        self._asked: dict[str, set[int]] = {
            source: set() for source in sources if self._may_pay(source)
        }
        self._runs: list[_Run] = []

    def offers(self) -> Offers:
        """The drafters that could be asked; none if no candidate could be added."""
        if self._pool.full:
            return {}
        found = {source: self._promising(source) for source in self._asked}
        return {source: nodes for source, nodes in found.items() if nodes}

    def served(self, offers: Offers) -> Level | None:
        """A level that an earlier forward of the step answers."""
        for source, nodes in offers.items():
            if source in self.widths and self._forecast.of(source).at_once:
                return Level(source, len(nodes))
        return None

    def bids(self, offers: Offers) -> LevelBids:
        """What the forwards are expected to add."""
        weight, found = self._forecast.token_weight, []
        for source, nodes in offers.items():
            draft = self._forecast.of(source)
            share = weight * draft.gain
            gains = [share * most for most in nodes.values()]
            found.append(LevelBid(source, gains, 0.0 if source in self.widths else draft.catch_up))
        return LevelBids(found)

    def begin(self, offers: Offers, level: Level, *, served: bool) -> list[int]:
        """The nodes to ask about now; none if the drafter is not worth its time.

        ``served``: no forward is made for them.
        """
        source, width = level
        if not width:
            del self._asked[source]
            return []
        nodes = sorted([*offers[source]][:width])
        self._asked[source].update(nodes)
        # A level that is served was not bid for: its headroom is not counted either.
        if not served:
            if not self._runs or self._runs[-1].source != source:
                without = self._pool.chosen(self._forecast.price, self._budget)
                self._runs.append(_Run(source, without))
            self.widths.setdefault(source, []).append(width)
            self._runs[-1].headroom += sum(offers[source][node] for node in nodes)
        return nodes

    def forwards(self) -> list[Forwards]:
        """The record of the step's forwards."""
        price = self._forecast.price
        return [Forwards(run.source, run.headroom, run.without, price) for run in self._runs]

    def _may_pay(self, source: str) -> bool:
        """Whether the first level of a drafter, which is the root alone, may gain what it costs.

        What other requests ask does not change that, so that no round of bids is needed.
        """
        draft, most = self._forecast.of(source), 1.0 - self._forecast.price
        return self._forecast.token_weight * draft.gain * most > draft.catch_up

    def _promising(self, source: str) -> dict[int, float]:
        """The nodes to ask a drafter about next that may gain most, best first, by headroom."""
        pool, price, asked = self._pool, self._forecast.price, self._asked[source]
        own = self._forecast.of(source).deepest
        deepest = self._deepest if own is None else min(own, self._deepest)
        parents, depths = pool.builder.parents, pool.builder.depths
        # Only below nodes that were asked about, so at first it is the root alone.
        below = (node for node in range(1, len(pool) if asked else 0) if parents[node] in asked)
        open_nodes = [
            node for node in (ROOT, *below) if depths[node] < deepest and node not in asked
        ]
        found = {node: pool.headroom(node, price) for node in open_nodes if pool.path[node] > price}
        best = sorted(found, key=found.__getitem__, reverse=True)[: self._level]
        return {node: found[node] for node in best}
