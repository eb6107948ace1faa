"""All sources in one tree, from canned sources, probabilities and prices."""

import math

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.policies.auto.features import NOT_LISTED, TABLE
from draftwood.policies.auto.forecast import Forecast
from draftwood.policies.auto.policy import Auto
from draftwood.protocols import FREE, NOTHING_PAYS, Continue, Expand, LevelBids, Price
from draftwood.tree import ROOT, Draw, TokenTree
from tests.factories.scripted_sources import Row, Sources, check_shape, distributions, offer, paths
from tests.policies.auto.codes import copied_code
from tests.policies.auto.stage import Stage, given, model

NEURAL = Auto(neural=("draft",))
CHEAP = given()
CHAIN = model(lambda token: [(token + 1, 0.5)])
"""A model that lists one token after each."""


def opinions(rows: dict[int, Row]) -> Sources:
    """A model that lists these tokens, and elsewhere an unlikely one."""
    return model(lambda token: rows.get(token, [(77, 0.01)]))


def probabilities(tree: TokenTree) -> dict[tuple[int, ...], float]:
    return {path: math.exp(tree.logq[i]) for i, path in enumerate(paths(tree), start=1)}


def test_sources_are_merged_in_one_tree() -> None:
    stage = Stage(
        offer(1, 2),
        {0: [(1, 0.5), (3, 0.3)], 2: [(5, 0.9)]},
        opinions({0: [(1, 0.6), (4, 0.2)], 1: [(6, 0.9)], 2: [(5, 0.9)], 4: [(7, 0.9)]}),
    )
    tree = stage.grow(NEURAL, given(copied=0.5, floor=0.09), room=2)
    assert dict(zip(paths(tree), tree.sources[1:], strict=True)) == {
        (1,): "context",
        (1, 2): "context",
        (3,): "adjacency",
        (4,): "draft",
        (1, 6): "draft",
        (4, 7): "draft",
    }
    assert tree.route == "auto"
    # All sources list token 1, and two do not list 3 and 4.
    found = probabilities(tree)
    assert [found[t,] for t in (1, 3, 4)] == pytest.approx([0.6, 0.4 / 4, 0.6 / 4])


def test_the_first_continuation_is_the_preferred_one() -> None:
    def code(match_length: int, *, preferred: bool, first: bool) -> float:
        return 0.5 + copied_code(match_length, preferred=preferred, first=first) / 100

    stage = Stage((*offer(1, 2, match_length=4), *offer(3, match_length=7)))
    tree = stage.grow(Auto(), given(by=lambda codes: 0.5 + codes[0] / 100))
    assert probabilities(tree) == pytest.approx(
        {
            (1,): code(4, preferred=True, first=True),
            (1, 2): code(5, preferred=True, first=False),
            (3,): code(7, preferred=False, first=True),
        }
    )


@pytest.mark.parametrize("price", [0.0, 0.16, 0.17, 0.4, 0.41, 0.5, 1.0, 2.0])
def test_a_price_decides_which_candidates_are_drafted(price: float) -> None:
    stage = Stage(offer(1, 2), {0: [(3, 0.3)], 1: [(4, 0.3)]}, price=Price(price))
    tree = stage.grow(Auto(), given())
    # The chain has 0.4 and 0.4 * 0.4, as the table lists others; these have 0.2 and 0.4 * 0.2.
    everything = {(1,): 0.4, (1, 2): 0.16, (3,): 0.2, (1, 4): 0.08}
    assert set(paths(tree)) == {path for path, p in everything.items() if p >= price - 1e-12}
    assert (tree.route == "plain") == (tree.drafted == 0)


def test_sources_are_asked_in_turn_and_the_bid_comes_last() -> None:
    stage = Stage(offer(1, 2), {2: [(5, 0.9)], 6: [(7, 0.9)]}, opinions({0: [(6, 0.6)]}))
    stage.grow(Auto(neural=("draft",), width=3, level=5), CHEAP, room=4)
    order = [getattr(query, "source", type(query).__name__) for query in stage.asked]
    assert order[:5] == ["context", "adjacency", "adjacency", "LevelBids", "draft"]
    assert order.index("Bid") == len(order) - 1
    assert stage.asked[0] == Continue("context")
    assert order.count("context") == 1
    # The table is asked of the chain at once, then of its own tokens, then of the model's.
    assert stage.nodes("adjacency")[:3] == [[0, 1, 2], [3], [4]]
    assert stage.nodes("draft")[0] == [ROOT]
    for source, k in (("adjacency", 3), ("draft", 5)):
        asked = [node for nodes in stage.nodes(source) for node in nodes]
        assert len(asked) == len(set(asked)), "no node twice"
        assert {(q.k, q.draw) for q in stage.expansions(source)} == {(k, Draw.ONE_HOT)}


def test_without_a_model_none_is_asked() -> None:
    stage = Stage(offer(1), {0: [(3, 0.3)]}, model({0: [(6, 0.6)]}))
    stage.grow(Auto(), CHEAP)
    assert stage.nodes("draft") == []
    assert stage.widths == ()


@pytest.mark.parametrize(
    ("cost", "catch_up", "levels"),
    [
        # The root gains 0.9, its first node 0.9 * 0.6, its second 0.324.
        (0.32, 0.0, 3),
        (0.33, 0.0, 2),
        (0.53, 0.0, 2),
        (0.55, 0.0, 1),
        (0.89, 0.0, 1),
        (0.91, 0.0, 0),
        # A backlog is paid for once a step, by its first level.
        (0.53, 0.35, 2),
        (0.53, 0.37, 0),
    ],
)
def test_levels_are_asked_while_their_gain_exceeds_their_cost(
    cost: float, catch_up: float, levels: int
) -> None:
    stage = Stage(model=CHAIN, costs=(0.0, *[cost] * 8))
    stage.grow(NEURAL, given(catch_up=catch_up, price=0.0), room=3)
    assert len(stage.nodes("draft")) == levels
    assert stage.widths == (1,) * levels


@pytest.mark.parametrize(("cost", "levels"), [(0.17, 1), (0.19, 0)])
def test_a_level_gains_only_what_other_sources_leave_open(cost: float, levels: int) -> None:
    """A likely copy leaves little to gain: 0.9 * (1 - 0.8)."""
    stage = Stage(offer(1), model=model({0: [(5, 0.5)]}), costs=(0.0, cost))
    stage.grow(NEURAL, given(price=0.0), room=1)
    assert len(stage.widths) == levels


@pytest.mark.parametrize(("cost", "levels"), [(0.35, 1), (0.37, 0)])
def test_a_level_gains_nothing_but_tokens_that_pay(cost: float, levels: int) -> None:
    """A token is worth 1 - 0.5, of which a copy has 0.6 - 0.5: 0.9 * 0.4 is left."""
    stage = Stage(offer(1), model=model({0: [(5, 0.5)]}), costs=(0.0, cost))
    stage.grow(NEURAL, given(copied=0.6, price=0.5), room=1)
    assert len(stage.widths) == levels


def test_a_level_is_as_wide_as_pays_most() -> None:
    # One node gains 0.9 * 0.6 at a cost of 0.05: 0.49. Three must not gain less together.
    for third, widths in ((1.12, (1, 3)), (1.14, (1, 1, 1, 1))):
        rows = model(lambda token: [(10 * token + i, 0.5) for i in range(1, 4)])
        stage = Stage(model=rows, costs=(0.0, 0.05, 1.11, third, *[99.0] * 9))
        stage.grow(NEURAL, given(price=0.0), room=2)
        assert stage.widths == widths == tuple(map(len, stage.nodes("draft")))


def test_one_forward_that_serves_all_levels_is_paid_for_once() -> None:
    # Deeper levels alone would not pay: they gain 0.54 and 0.324.
    stage = Stage(model=CHAIN, costs=(0.0, *[0.6] * 8))
    stage.grow(NEURAL, given(price=0.0), room=3)
    assert len(stage.nodes("draft")) == 1
    stage.grow(NEURAL, given(price=0.0, at_once=True), room=3)
    assert len(stage.nodes("draft")) == 3
    assert sum(isinstance(query, LevelBids) for query in stage.asked) == 1
    assert stage.widths == (1,)
    assert [each.headroom for each in stage.bid.report.forwards] == pytest.approx([1.0])
    # Nothing is asked where not even the first one pays.
    stage = Stage(model=CHAIN, costs=(0.0, *[0.95] * 8))
    stage.grow(NEURAL, given(price=0.0, at_once=True), room=3)
    assert stage.widths == ()


@pytest.mark.parametrize(
    ("committed", "more"),
    [((1, 9), 0), ((5, 9), 1), ((5, 6, 9), 2), ((7, 9), 0), ((5, 6, 8, 9), 2)],
)
def test_what_the_levels_added_is_what_came_of_them(committed: tuple[int, ...], more: int) -> None:
    # Without the model, 1 would have been drafted alone; with it, 5 and its child 6 are too.
    stage = Stage(offer(1), model=model({0: [(5, 0.5)], 5: [(6, 0.5)]}))
    stage.grow(NEURAL, given(copied=0.6, modelled=0.8, price=0.2), room=2)
    report = stage.bid.report
    tokens = stage.pool.builder.tokens
    (forwards,) = report.forwards
    assert [tokens[node] for node in forwards.without] == [1]
    assert sorted(tokens[node] for node in report.chosen(Price(0.2))) == [1, 5, 6]
    headroom = (0.8 - 0.4) + (0.3 - 0.2) + (0.4 - 0.2)
    assert report.gained(committed)["draft"] == pytest.approx((more - 2 * 0.2, headroom))


def test_a_level_is_nodes_with_most_to_gain_whose_parents_were_asked() -> None:
    follow = model(lambda token: [(token + 10, 0.5)])
    stage = Stage(offer(1, 2, 3), {0: [(4, 0.1)]}, follow)
    stage.grow(Auto(neural=("draft",), level=2), given(price=0.0), room=3)
    first, second, third = stage.nodes("draft")[:3]
    assert first == [ROOT]
    pool, parents = stage.pool, stage.pool.builder.parents
    # Below the root's copied child, the likeliest, is a copied token already.
    copied, *others = [node for node in range(1, len(pool)) if parents[node] == ROOT]
    assert pool.path[copied] == max(pool.path[1:])
    assert second == others
    assert all(parents[node] in {ROOT, *first, *second} for node in third)
    assert all(len(nodes) <= 2 for nodes in stage.nodes("draft"))


@pytest.mark.parametrize(("price", "asked"), [(0.5, [1, 2]), (0.61, [1, 1]), (0.89, [1])])
def test_a_node_below_which_nothing_can_pay_is_not_asked(price: float, asked: list[int]) -> None:
    # Below the root's children, whose paths have 0.64 and 0.6, none is likelier.
    stage = Stage(model=model(lambda token: [(10 * token + 1, 0.5), (10 * token + 2, 0.4)]))
    forecast = given(by=lambda codes: 0.64 if codes[2] < 12 else 0.6, price=price)
    stage.grow(NEURAL, forecast, room=2)
    assert list(map(len, stage.nodes("draft"))) == asked


@pytest.mark.parametrize(
    ("policy", "forecast", "room", "budget"),
    [
        (Auto(), given(floor=2.0), 10, 10),
        (NEURAL, CHEAP, 0, 9),
        (NEURAL, CHEAP, -1, 9),
        (NEURAL, CHEAP, 9, 0),
        (Auto(budget=0), None, 9, 9),
    ],
)
def test_no_source_is_asked_where_nothing_can_be_drafted(
    policy: Auto, forecast: Forecast | None, room: int, budget: int
) -> None:
    stage = Stage(offer(1, 2))
    tree = stage.grow(policy, forecast, room=room, budget=budget)
    assert (tree.drafted, tree.route, stage.asked) == (0, "plain", [])


def test_a_model_that_offers_nothing_is_asked_once() -> None:
    """As where its context ends, or where a table stands in for it."""
    stage = Stage(offer(1), {0: [(3, 0.3)]})
    tree = stage.grow(NEURAL, CHEAP)
    asked = [node for nodes in stage.nodes("draft") for node in nodes]
    assert len(asked) == len(set(asked))
    assert set(paths(tree)) == {(1,), (3,)}


@pytest.mark.parametrize("policy", [Auto(), NEURAL])
def test_no_answer_from_any_source_is_plain_decoding(policy: Auto) -> None:
    stage = Stage()
    tree = stage.grow(policy, CHEAP)
    assert (tree.drafted, tree.route, len(stage.pool)) == (0, "plain", 1)


@pytest.mark.parametrize(("budget", "limit"), [(9, 5), (2, 2)])
def test_the_bid_shows_all_candidates_and_the_limit(budget: int, limit: int) -> None:
    stage = Stage(offer(1, 2), {0: [(3, 0.3)]}, price=NOTHING_PAYS)
    assert stage.grow(Auto(budget=5), given(), budget=budget).drafted == 0
    assert (len(stage.pool), stage.bid.report.limit) == (4, limit)
    stage.price = FREE
    assert stage.grow(Auto(budget=5), given(), budget=budget).drafted == min(3, limit)


def test_depth_is_limited_by_room_and_by_its_own_setting() -> None:
    follow = model(lambda t: [(t + 90, 0.5)])
    stage = Stage(offer(*range(1, 20)), lambda t: [(t + 50, 0.5)], follow)
    certain = given(1.0, 1.0, 1.0, floor=0.05)
    assert stage.grow(Auto(neural=("draft",), max_depth=4), certain).depth == 4
    assert stage.grow(Auto(neural=("draft",), max_depth=9), certain, room=3).depth == 3
    for query in (*stage.expansions("draft"), *stage.expansions("adjacency")):
        assert all(query.tree.depths[node] < 3 for node in query.nodes)


def test_the_floor_is_the_forecasts() -> None:
    stage = Stage(offer(*range(1, 20)))
    sizes = [stage.grow(Auto(), given(floor=floor)).drafted for floor in (0.01, 0.3, 0.9)]
    assert sizes == [19, 5, 1]  # 0.8 ** 19 = 0.014, 0.8 ** 5 = 0.33; the root's child is kept


@pytest.mark.parametrize(("floor", "most"), [(0.4, 3), (0.26, 4), (0.004, 8)])
def test_no_more_successors_are_added_than_could_be_likely_enough(floor: float, most: int) -> None:
    # All are children of the root, which the floor does not drop.
    stage = Stage(offer(6), {0: [(token, 0.1) for token in range(1, 10)]})
    stage.grow(Auto(), given(floor=floor))
    assert stage.pool.builder.tokens[1:] == [6, *(t for t in range(1, most + 1) if t != 6)]
    # What was copied has the table's opinion all the same.
    assert stage.pool.codes[1][TABLE] > NOT_LISTED


def test_children_of_candidates_below_the_floor_are_not_asked_for() -> None:
    stage = Stage(table={0: [(1, 0.9)], 1: [(2, 0.9)]})
    stage.grow(Auto(), given(floor=0.5))
    assert stage.nodes("adjacency") == [[0]]
    stage.grow(Auto(), given(floor=0.3))
    assert stage.nodes("adjacency") == [[0], [1]]


def test_a_chain_is_the_best_path_of_the_tree() -> None:
    def stage() -> Stage:
        return Stage(offer(1, 2), {0: [(3, 0.9)], 3: [(4, 0.9)], 4: [(5, 0.9)]})

    by = given(copied=0.5, ranked=0.8, floor=0.01)
    tree = stage().grow(Auto(), by)
    assert {(1, 2), (3, 4, 5)} <= set(paths(tree))
    chain = stage().grow(Auto(shape="chain"), by)
    assert paths(chain) == [(3,), (3, 4), (3, 4, 5)]
    assert probabilities(chain) == {path: probabilities(tree)[path] for path in paths(chain)}
    cut = stage().grow(Auto(shape="chain"), by, price=lambda bid: Price(bid.values[1]))
    assert paths(cut) == [(3,), (3, 4)]
    assert Auto().branching
    assert not Auto(shape="chain").branching


@pytest.mark.parametrize("layout", ["drawn", "either"])
def test_a_chain_has_no_sampled_siblings(layout: str) -> None:
    Auto(shape="chain", neural=("draft",))
    with pytest.raises(DraftwoodError, match=f"layout={layout} samples siblings"):
        Auto(shape="chain", neural=("draft",), layout=layout)  # type: ignore[arg-type]


def test_a_source_that_is_left_out_is_not_asked() -> None:
    stage = Stage(offer(1, 2), {0: [(3, 0.9)], 1: [(4, 0.9)]})
    assert Auto(chain="").sources == ("adjacency",)
    assert set(stage.grow(Auto(chain=""), CHEAP).sources[1:]) == {"adjacency"}
    assert not [query for query in stage.asked if isinstance(query, Continue)]
    assert Auto(table="").sources == ("context",)
    assert set(stage.grow(Auto(table=""), CHEAP).sources[1:]) == {"context"}
    assert not [query for query in stage.asked if isinstance(query, Expand)]
    assert stage.grow(Auto(chain="", table=""), CHEAP).drafted == 0


def test_without_a_forecast_a_copied_token_is_likelier_than_a_ranked_one() -> None:
    assert paths(Stage(offer(1), {0: [(3, 0.9)]}).grow(Auto(budget=1))) == [(1,)]
    assert Stage(model=model({0: [(3, 0.9)]})).grow(NEURAL).drafted == 1


@examples(
    seed=st.integers(0, 10**6),
    chain=st.lists(st.integers(0, 39), max_size=12),
    room=st.integers(-1, 8),
    loaded=st.integers(0, 40),
    price=st.sampled_from([FREE, Price(0.05), Price(0.3), NOTHING_PAYS]),
    policy=st.builds(
        Auto,
        budget=st.integers(0, 40),
        max_depth=st.integers(1, 8),
        width=st.integers(1, 6),
        level=st.integers(1, 4),
        neural=st.sampled_from([(), ("draft",)]),
    ),
    forecast=st.sampled_from([None, given(), CHEAP, given(1.0, 1.0, 1.0, floor=0.1)]),
)
def test_every_tree_keeps_to_its_bounds(
    seed: int,
    chain: list[int],
    room: int,
    loaded: int,
    price: Price,
    policy: Auto,
    forecast: Forecast | None,
) -> None:
    table, rows = distributions(seed, most=8), distributions(seed + 1, most=8)
    # A drafter with a model always lists a token.
    rows |= {token: [(0, 0.5)] for token, row in rows.items() if not row}
    stage = Stage(offer(*chain) if chain else (), table, model(rows), price)
    tree = stage.grow(policy, forecast, room=room, budget=loaded, anchor=3)
    check_shape(tree, min(policy.budget, loaded), min(policy.max_depth, room))
    assert set(tree.sources[1:]) <= set(policy.sources)
    if stage.asked:
        paying = sum(path >= price.least for path in stage.pool.path[1:])
        assert tree.drafted == min(stage.bid.report.limit, paying)


def test_its_declarations() -> None:
    assert Auto(chain="a", table="b").sources == ("a", "b")
    assert NEURAL.sources == ("context", "adjacency", "draft")
    assert Auto().draws == {Draw.ONE_HOT}
    assert Auto().branching
