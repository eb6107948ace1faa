"""Grows trees of ``auto`` from canned sources, probabilities and prices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftwood.policies.auto.features import NOT_LISTED, Codes
from draftwood.policies.auto.forecast import Forecast, Predictor
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.pool import Pool
from draftwood.protocols import FREE, Bid, Continuation, Expand, Growth, Price, Query
from draftwood.tree import Draw, TokenTree
from tests.factories.scripted_sources import Row, Sources

ENOUGH = 10**6


@dataclass
class Stage:
    """Three sources and a price; stores the queries in order."""

    offers: tuple[Continuation, ...] = ()
    table: Mapping[int, Row] | Callable[[int], Row] = field(default_factory=dict)
    model: Sources = field(default_factory=lambda: Sources(ranking="draft"))
    price: Price = FREE
    asked: list[Query] = field(default_factory=list)

    def grow(
        self,
        policy: Auto,
        forecast: Forecast | None = None,
        *,
        temperature: float = 0.0,
        room: int = ENOUGH,
        budget: int = ENOUGH,
        anchor: int = 0,
        price: Callable[[Bid], Price] | None = None,
    ) -> TokenTree:
        """The tree at the price, or at the one that a function makes of the bid."""
        self.asked.clear()
        sources = {
            "adjacency": Sources((), self.table),
            "context": Sources(self.offers),
            "draft": self.model,
        }
        noise: Any = object()
        growing = policy.grow(Growth(anchor, room, budget, temperature, noise, forecast), None)
        answer: Any = None
        while True:
            try:
                query = growing.send(answer)
            except StopIteration as end:
                tree: TokenTree = end.value
                return tree
            self.asked.append(query)
            assert len(self.asked) < 1000, "it asks without end"
            if isinstance(query, Bid):
                answer = price(query) if price else self.price
            else:
                answer = sources[query.source].answer(query)
            if isinstance(query, Expand) and query.draw is not Draw.ONE_HOT:
                assert query.noise is noise
                assert query.temperature == temperature

    @property
    def bid(self) -> Bid:
        bid = self.asked[-1]
        assert isinstance(bid, Bid)
        return bid

    @property
    def pool(self) -> Pool:
        pool: Pool = self.bid.report.candidates
        return pool

    def expansions(self, source: str) -> list[Expand]:
        return [q for q in self.asked if isinstance(q, Expand) and q.source == source]

    def nodes(self, source: str) -> list[list[int]]:
        """Nodes that a source was asked about, query by query."""
        return [list(query.nodes) for query in self.expansions(source)]


def model(
    rows: Mapping[int, Row] | Callable[[int], Row],
    drawn: Mapping[tuple[int, ...], Sequence[int]] | None = None,
) -> Sources:
    """A draft model with these successors and samples."""
    return Sources(table=rows, ranking="draft", drawn=drawn or {})


@dataclass(frozen=True)
class BySource(Predictor):
    """A probability for each source, halved for each source that does not list the token."""

    each: tuple[float, float, float]

    def probability(self, codes: Codes) -> float:
        listed = [p for code, p in zip(codes, self.each, strict=True) if code > NOT_LISTED]
        return max(listed, default=0.0) / 2.0 ** codes.count(NOT_LISTED)


@dataclass(frozen=True)
class By(Predictor):
    """Any function of the codes."""

    function: Callable[[Codes], float]

    def probability(self, codes: Codes) -> float:
        return self.function(codes)


def given(
    copied: float = 0.8,
    ranked: float = 0.4,
    modelled: float = 0.6,
    *,
    by: Callable[[Codes], float] | None = None,
    cost: float | tuple[float, ...] = 0.1,
    floor: float = 0.01,
    **facts: float,
) -> Forecast:
    """A forecast by source, or by any function of the codes, with one cost for every width."""
    acceptance = BySource((copied, ranked, modelled)) if by is None else By(by)
    costs = (cost,) * 99 if isinstance(cost, float) else cost
    return Forecast(acceptance, floor=floor, level_costs=costs, **{"drafter_gain": 0.9} | facts)
