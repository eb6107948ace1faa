"""Grows trees of ``auto`` from canned sources, probabilities and prices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftwood.policies.auto.features import NOT_LISTED, Codes
from draftwood.policies.auto.forecast import DEFAULT_FORECAST, DraftForecast, Forecast, Predictor
from draftwood.policies.auto.levels import best_level
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.pool import Pool
from draftwood.protocols import (
    FREE,
    Bid,
    Continuation,
    Descend,
    Describe,
    Expand,
    Growth,
    Level,
    LevelBids,
    Price,
    Query,
)
from draftwood.tree import Draw, TokenTree
from tests.factories.scripted_sources import Row, Sources

ENOUGH = 10**6


@dataclass
class Stage:
    """Sources, a price and what a draft level costs by its width; stores the queries."""

    offers: tuple[Continuation, ...] = ()
    table: Mapping[int, Row] | Callable[[int], Row] = field(default_factory=dict)
    model: Sources = field(default_factory=lambda: Sources(ranking="draft"))
    price: Price = FREE
    costs: tuple[float, ...] = (0.0,) * 99
    further: Mapping[str, Sources] = field(default_factory=dict)
    further_costs: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
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
            **self.further,
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
            if isinstance(query, Describe | Descend):
                answer = None  # its twin is tested: a query for each level
                continue
            self.asked.append(query)
            assert len(self.asked) < 1000, "it asks without end"
            if isinstance(query, Bid):
                answer = price(query) if price else self.price
            elif isinstance(query, LevelBids):
                bids = {bid.source: [bid] for bid in query.bids}
                source, (width,) = best_level(bids, lambda name, nodes, _: self.cost(name)[nodes])
                answer = Level(source, width)
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

    @property
    def widths(self) -> tuple[int, ...]:
        """Nodes of each forward of the draft model."""
        return tuple(self.bid.levels.get("draft", ()))

    def cost(self, source: str) -> tuple[float, ...]:
        return self.further_costs.get(source, self.costs)

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
    floor: float = 0.01,
    drafter_gain: float = 0.9,
    catch_up: float = 0.0,
    price: float = 0.1,
    at_once: bool = False,
    further: Mapping[str, DraftForecast] | None = None,
    tokens: Callable[[int], float] = DEFAULT_FORECAST.tokens,
) -> Forecast:
    """A forecast by source, or by any function of the codes."""
    acceptance = BySource((copied, ranked, modelled)) if by is None else By(by)
    return Forecast(
        acceptance,
        floor=floor,
        price=price,
        drafts={"draft": DraftForecast(drafter_gain, catch_up, at_once), **(further or {})},
        tokens=tokens,
    )
