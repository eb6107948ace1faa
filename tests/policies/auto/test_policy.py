"""All sources in one tree, from canned sources and canned probabilities."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies.auto.features import NOT_ASKED, NOT_LISTED, Codes, copied_code
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.pool import Pool
from draftwood.protocols import (
    FREE,
    NOTHING_PAYS,
    Bid,
    Continuation,
    Continue,
    Expand,
    Growth,
    Price,
    Query,
)
from draftwood.tree import ROOT, Draw, TokenTree
from tests.factories.scripted_sources import Row, Sources, check_shape, distributions, offer, paths

NEURAL = Auto(neural="draft")
Table = Mapping[int, Row] | Callable[[int], Row]


@dataclass(frozen=True)
class Given:
    """A probability for who speaks, whatever it is that is said, halved for each that disagrees."""

    copied: float = 0.8
    ranked: float = 0.4
    modelled: float = 0.6
    cost: float = 0.1
    token_weight: float = 1.0
    floor: float = 0.01
    price: float = 0.1
    coverage: float = 0.9
    catch_up: float = 0.0

    @property
    def acceptance(self) -> "Given":
        return self

    def probability(self, codes: Codes) -> float:
        said = zip(codes, (self.copied, self.ranked, self.modelled), strict=True)
        return max(each * (code > NOT_LISTED) for code, each in said) / 2.0 ** codes.count(
            NOT_LISTED
        )

    def level_cost(self, width: int) -> float:
        return self.cost


CHEAP = Given(cost=0.0)


def model(rows: Mapping[int, Row]) -> Callable[[int], Row]:
    """A model that has these opinions, and elsewhere a weak one of its own."""
    return lambda token: rows.get(token, [(77, 0.01)])


@dataclass
class Stage:
    """Three sources and a price; keeps the queries in order and the bid."""

    offers: tuple[Continuation, ...] = ()
    table: Table = field(default_factory=dict)
    model: Table = field(default_factory=dict)
    price: float = 0.0
    asked: list[Query] = field(default_factory=list)
    most: int = FREE.most

    def grow(
        self,
        policy: Auto,
        forecast: Any = None,
        room: int = 10**6,
        budget: int = 10**6,
        anchor: int = 0,
    ) -> TokenTree:
        self.asked.clear()
        tables = {
            "adjacency": Sources(self.offers, self.table),
            "context": Sources(self.offers),
            "draft": Sources(table=self.model, ranking="draft"),
        }
        growing = policy.grow(Growth(anchor, room, budget, forecast=forecast), None)
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
                answer = Price(self.price, self.most)
            else:
                answer = tables[query.source].answer(query)

    @property
    def order(self) -> list[str]:
        return ["bid" if isinstance(query, Bid) else query.source for query in self.asked]

    @property
    def bid(self) -> Bid:
        bid = self.asked[-1]
        assert isinstance(bid, Bid)
        return bid

    @property
    def pool(self) -> Pool:
        pool: Pool = self.bid.report.candidates
        return pool

    def nodes(self, source: str) -> list[list[int]]:
        """Nodes that a source was asked about, query by query."""
        return [list(q.nodes) for q in self.asked if isinstance(q, Expand) and q.source == source]


def test_sources_are_merged_in_one_tree() -> None:
    stage = Stage(
        offer(1, 2),
        {0: [(1, 0.5), (3, 0.3)], 2: [(5, 0.9)]},
        model({0: [(1, 0.6), (4, 0.2)], 1: [(6, 0.9)], 2: [(5, 0.9)], 4: [(7, 0.9)]}),
    )
    tree = stage.grow(NEURAL, Given(copied=0.5, cost=0.0, floor=0.09), room=2)
    by_path = dict(zip(paths(tree), tree.sources[1:], strict=True))
    assert by_path == {
        (1,): "context",
        (1, 2): "context",
        (3,): "adjacency",
        (4,): "draft",
        (1, 6): "draft",
        (4, 7): "draft",
    }
    assert tree.route == "auto"
    probabilities = {path: math.exp(tree.logq[i]) for i, path in enumerate(paths(tree), start=1)}
    # Token 1 has all on its side, 3 and 4 two against them each.
    assert probabilities[(1,)] == pytest.approx(0.6)
    assert probabilities[(3,)] == pytest.approx(0.4 / 4)
    assert probabilities[(4,)] == pytest.approx(0.6 / 4)


def test_the_first_continuation_is_the_preferred_one() -> None:
    class Told(Given):
        def probability(self, codes: Codes) -> float:
            return 0.5 + codes[0] / 100

    def told(match_length: int, *, preferred: bool, first: bool) -> float:
        return 0.5 + copied_code(match_length, preferred=preferred, first=first) / 100

    stage = Stage((*offer(1, 2, match_length=4), *offer(3, match_length=7)))
    tree = stage.grow(Auto(), Told())
    found = {path: math.exp(tree.logq[i]) for i, path in enumerate(paths(tree), start=1)}
    assert found == pytest.approx(
        {
            (1,): told(4, preferred=True, first=True),
            (1, 2): told(5, preferred=True, first=False),
            (3,): told(7, preferred=False, first=True),
        }
    )


def test_a_price_decides_which_candidates_are_drafted() -> None:
    stage = Stage(offer(1, 2), {0: [(3, 0.3)], 1: [(4, 0.3)]})
    forecast = Given()
    prices = {0.0: 4, 0.16: 4, 0.17: 3, 0.4: 2, 0.41: 1, 0.5: 0, 1.0: 0, 2.0: 0}
    # The chain is 0.4 and 0.4 * 0.4, as the table offers others; these are 0.2 and 0.4 * 0.2.
    found = {}
    for price in prices:
        stage.price = price
        found[price] = stage.grow(Auto(), forecast)
    everything = {(1,): 0.4, (1, 2): 0.16, (3,): 0.2, (1, 4): 0.08}
    for price, tree in found.items():
        assert set(paths(tree)) == {path for path, p in everything.items() if p >= price - 1e-12}
        assert (tree.route == "plain") == (tree.drafted == 0)
    assert found[0.0].drafted == 4
    assert not found[0.41].drafted
    assert not found[2.0].drafted


def test_sources_are_asked_in_turn_and_the_bid_comes_last() -> None:
    stage = Stage(offer(1, 2), {2: [(5, 0.9)], 6: [(7, 0.9)]}, model({0: [(6, 0.6)]}))
    stage.grow(NEURAL, CHEAP, room=4)
    assert stage.order[:4] == ["context", "adjacency", "adjacency", "draft"]
    assert stage.order[-1] == "bid"
    assert stage.order.count("bid") == stage.order.count("context") == 1
    # The table is asked of the chain at once, then of what it offered, then of what the model did.
    assert stage.nodes("adjacency")[:3] == [[0, 1, 2], [3], [4]]
    assert stage.nodes("draft")[:1] == [[ROOT]]
    # Nobody is asked of a node twice.
    for source in ("adjacency", "draft"):
        asked = [node for nodes in stage.nodes(source) for node in nodes]
        assert len(asked) == len(set(asked))


def test_queries_say_how_many_are_wanted_and_draw_nothing() -> None:
    stage = Stage(offer(1), {}, model({0: [(6, 0.6)]}))
    stage.grow(Auto(neural="draft", width=3, level=5), CHEAP, room=2)
    expansions = [query for query in stage.asked if isinstance(query, Expand)]
    assert {(query.source, query.k) for query in expansions} == {("adjacency", 3), ("draft", 5)}
    assert {query.draw for query in expansions} == {Draw.ONE_HOT}
    assert stage.asked[0] == Continue("context")


def test_without_a_model_none_is_asked() -> None:
    stage = Stage(offer(1), {0: [(3, 0.3)]}, {0: [(6, 0.6)]})
    stage.grow(Auto(), CHEAP)
    assert stage.order == ["context", "adjacency", "adjacency", "bid"]
    assert stage.bid.levels == ()


@pytest.mark.parametrize(
    ("cost", "levels"), [(0.32, 3), (0.33, 2), (0.53, 2), (0.55, 1), (0.89, 1), (0.91, 0)]
)
def test_levels_are_asked_while_their_gain_exceeds_their_cost(cost: float, levels: int) -> None:
    """A chain of the model's: its root is worth 0.9, its first node 0.9 * 0.6, its second 0.324."""
    stage = Stage(model=lambda token: [(token + 1, 0.5)])
    stage.grow(NEURAL, Given(cost=cost), room=3)
    assert len(stage.nodes("draft")) == levels
    assert stage.bid.levels == (1,) * levels


def test_a_backlog_is_paid_for_once_a_step() -> None:
    for catch_up, levels in ((0.0, 2), (0.35, 2), (0.37, 0)):
        stage = Stage(model=lambda token: [(token + 1, 0.5)])
        stage.grow(NEURAL, Given(cost=0.53, catch_up=catch_up), room=3)
        assert stage.bid.levels == (1,) * levels


def test_a_level_gains_only_what_other_sources_leave_open() -> None:
    """A likely copy leaves little to gain: 0.9 * (1 - 0.8)."""
    stage = Stage(offer(1), model={0: [(5, 0.5)]})
    stage.grow(NEURAL, Given(cost=0.17), room=1)
    assert len(stage.bid.levels) == 1
    stage.grow(NEURAL, Given(cost=0.19), room=1)
    assert not stage.bid.levels


def test_a_level_has_the_cost_of_its_width() -> None:
    widths: list[int] = []

    class Wide(Given):
        def level_cost(self, width: int) -> float:
            widths.append(width)
            return 0.05 * width

    stage = Stage(model=lambda token: [(10 * token + i, 0.5) for i in range(1, 4)])
    stage.grow(NEURAL, Wide(), room=2)
    assert widths[:2] == [1, 3]
    assert stage.bid.levels == tuple(len(nodes) for nodes in stage.nodes("draft"))


def test_a_level_is_the_likeliest_nodes_whose_parents_were_asked() -> None:
    stage = Stage(offer(1, 2, 3), {0: [(4, 0.1)]}, lambda token: [(token + 10, 0.5)])
    stage.grow(Auto(neural="draft", level=2), Given(cost=0.0, price=0.0), room=3)
    first, second, third = stage.nodes("draft")[:3]
    assert first == [ROOT]
    pool = stage.pool
    parents = pool.builder.parents
    # Of the root's children, the copied one and one more; token 2 is deeper.
    children = [node for node in range(1, len(pool)) if parents[node] == ROOT]
    assert second == sorted(children, key=lambda n: -pool.path[n])[:2]
    assert all(parents[node] in {ROOT, *first, *second} for node in third)
    assert all(len(nodes) <= 2 for nodes in stage.nodes("draft"))


@pytest.mark.parametrize(("price", "asked"), [(0.5, [1, 2]), (0.55, [1, 1]), (0.89, [1])])
def test_a_node_below_which_nothing_can_pay_is_not_asked(price: float, asked: list[int]) -> None:
    # Of the root all is left, and below its children, which have 0.64 and 0.6 of it: 0.9 of these.
    class Told(Given):
        def probability(self, codes: Codes) -> float:
            return 0.64 if codes[2] < 12 else 0.6

    stage = Stage(model=lambda token: [(10 * token + 1, 0.5), (10 * token + 2, 0.4)])
    stage.grow(NEURAL, Told(cost=0.0, price=price), room=2)
    assert [len(nodes) for nodes in stage.nodes("draft")] == asked


def test_a_floor_above_one_asks_no_source() -> None:
    growth = Growth(0, 10, 10, forecast=Given(floor=2.0))
    growing = Auto().grow(growth, None)
    with pytest.raises(StopIteration) as end:
        next(growing)
    assert end.value.value.route == "plain"
    assert end.value.value.drafted == 0


def test_a_model_that_offers_nothing_is_asked_once() -> None:
    """As where its context ends, or where a table stands in for it."""
    stage = Stage(offer(1), {0: [(3, 0.3)]})
    tree = stage.grow(NEURAL, CHEAP)
    asked = [node for nodes in stage.nodes("draft") for node in nodes]
    assert len(asked) == len(set(asked))
    assert set(paths(tree)) == {(1,), (3,)}
    tree = Stage().grow(NEURAL, CHEAP)
    assert (tree.drafted, tree.route) == (0, "plain")


def test_the_bid_shows_all_candidates_and_the_limit() -> None:
    stage = Stage(offer(1, 2), {0: [(3, 0.3)]}, price=2.0)
    tree = stage.grow(Auto(budget=5), Given())
    assert tree.drafted == 0
    assert len(stage.pool) == 4
    assert stage.bid.report.limit == 5
    assert stage.grow(Auto(budget=5), Given(), budget=2).drafted == 0
    assert stage.bid.report.limit == 2
    stage.price = 0.0
    assert stage.grow(Auto(budget=5), Given(), budget=2).drafted == 2


def test_no_answer_from_any_source_is_plain_decoding() -> None:
    stage = Stage()
    tree = stage.grow(Auto(), Given())
    assert (tree.drafted, tree.route) == (0, "plain")
    assert len(stage.pool) == 1


@pytest.mark.parametrize(("room", "budget"), [(0, 9), (-1, 9), (9, 0)])
def test_without_room_or_budget_nobody_is_asked(room: int, budget: int) -> None:
    stage = Stage(offer(1, 2))
    tree = stage.grow(NEURAL, CHEAP, room=room, budget=budget)
    assert (tree.drafted, tree.route) == (0, "plain")
    assert stage.asked == []
    assert Stage(offer(1, 2)).grow(Auto(budget=0)).drafted == 0


def test_depth_is_limited_by_room_and_by_its_own_setting() -> None:
    stage = Stage(offer(*range(1, 20)), lambda t: [(t + 50, 0.5)], lambda t: [(t + 90, 0.5)])
    certain = Given(1.0, 1.0, 1.0, cost=0.0, floor=0.05)
    assert stage.grow(Auto(neural="draft", max_depth=4), certain).depth == 4
    assert stage.grow(Auto(neural="draft", max_depth=9), certain, room=3).depth == 3
    for query in stage.asked:
        if isinstance(query, Expand):
            assert all(query.tree.depths[node] < 3 for node in query.nodes)


def test_the_floor_is_the_forecasts() -> None:
    stage = Stage(offer(*range(1, 20)))
    sizes = [stage.grow(Auto(), Given(floor=floor)).drafted for floor in (0.01, 0.3, 0.9)]
    assert sizes == [19, 5, 0]  # 0.8 ** 19 = 0.014, 0.8 ** 5 = 0.33


def test_without_a_forecast_a_copied_token_is_likelier_than_a_ranked_one() -> None:
    tree = Stage(offer(1), {0: [(3, 0.9)]}).grow(Auto(budget=1))
    assert paths(tree) == [(1,)]
    assert Stage(model={0: [(3, 0.9)]}).grow(NEURAL).drafted == 1


@given(
    seed=st.integers(0, 10**6),
    chain=st.lists(st.integers(0, 39), max_size=12),
    room=st.integers(-1, 8),
    loaded=st.integers(0, 40),
    price=st.sampled_from([FREE, Price(0.05, 64), Price(0.3, 5), Price(0.0, 2), NOTHING_PAYS]),
    policy=st.builds(
        Auto,
        budget=st.integers(0, 40),
        max_depth=st.integers(1, 8),
        width=st.integers(1, 6),
        level=st.integers(1, 4),
        neural=st.sampled_from(["", "draft"]),
    ),
    forecast=st.sampled_from([None, Given(), CHEAP, Given(1.0, 1.0, 1.0, floor=0.1)]),
)
def test_every_tree_keeps_to_its_bounds(
    seed: int,
    chain: list[int],
    room: int,
    loaded: int,
    price: Price,
    policy: Auto,
    forecast: Given | None,
) -> None:
    table, model = distributions(seed, most=8), distributions(seed + 1, most=8)
    # A drafter with a model always has something to offer.
    model |= {token: [(0, 0.5)] for token, row in model.items() if not row}
    stage = Stage(offer(*chain) if chain else (), table, model, price.least, most=price.most)
    tree = stage.grow(policy, forecast, room=room, budget=loaded, anchor=3)
    check_shape(tree, min(policy.budget, loaded), min(policy.max_depth, room))
    assert set(tree.sources[1:]) <= set(policy.sources)
    if stage.asked:
        path = stage.pool.path
        worth = sum(p >= price.least for p in path[1:])
        assert tree.drafted == min(stage.bid.report.limit, price.most, worth)


def test_what_it_declares() -> None:
    assert Auto().sources == ("context", "adjacency")
    assert NEURAL.sources == ("context", "adjacency", "draft")
    assert Auto(chain="a", table="b", neural="c").sources == ("a", "b", "c")
    assert Auto().draws == {Draw.ONE_HOT}
    assert Auto().branching
    assert NOT_ASKED == 0  # a forecast of its own relies on codes above 1 being tokens
