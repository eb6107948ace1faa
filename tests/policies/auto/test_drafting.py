"""Several models in one step: which is asked, about which nodes, and what each has added."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import pytest

from draftwood.errors import DraftwoodError
from draftwood.policies.auto.drafting import DraftLevels
from draftwood.policies.auto.features import NOT_LISTED, Codes
from draftwood.policies.auto.forecast import DraftForecast, Forecast
from draftwood.policies.auto.policy import Auto
from draftwood.protocols import Expand, LevelBids
from draftwood.tree import ROOT, Draw
from tests.factories.scripted_sources import Row, Sources, offer, paths
from tests.policies.auto.stage import Stage, given, model

BOTH = Auto(neural=("draft", "second"))


def likely(codes: Codes) -> float:
    """What the second model lists is likelier than what the first one alone does."""
    copied, _, first, second = codes
    listed = (0.3, copied), (0.5, first), (0.8, second)
    return max((p for p, code in listed if code > NOT_LISTED), default=0.0)


def second(rows: Mapping[int, Row]) -> dict[str, Sources]:
    return {"second": Sources(table=rows, ranking="second")}


def forecast(gain: float = 0.9, *, at_once: bool = False, catch_up: float = 0.0) -> Forecast:
    """Both models are as good; the second one as given."""
    return given(by=likely, price=0.0, further={"second": DraftForecast(gain, catch_up, at_once)})


def order(stage: Stage) -> list[str]:
    """The models that were asked, in turn."""
    return [query.source for query in stage.asked if isinstance(query, Expand)][1:]


def costs(each: float) -> tuple[float, ...]:
    return (0.0, *[each] * 9)


@pytest.mark.parametrize(
    ("gain", "dear", "asked"),
    [
        # The second one leaves 1 - 0.8 to the first, which gains 0.9 of that.
        (0.95, 0.1, ["second", "draft"]),
        (0.85, 0.1, ["draft", "second"]),
        (0.95, 0.2, ["draft", "second"]),
        # A level costs more than it gains behind the first one, which leaves 1 - 0.5, or at all.
        (0.9, 0.44, ["draft", "second"]),
        (0.9, 0.46, ["draft"]),
        (0.9, 5.0, ["draft"]),
    ],
)
def test_the_model_that_gains_most_is_asked_first(
    gain: float, dear: float, asked: list[str]
) -> None:
    stage = Stage(
        model=model({0: [(5, 0.5)]}),
        further=second({0: [(6, 0.5)]}),
        costs=costs(0.1),
        further_costs={"second": costs(dear)},
    )
    tree = stage.grow(BOTH, forecast(gain), room=1)
    assert [source for source in order(stage) if source != "adjacency"] == asked
    assert set(tree.sources[1:]) == set(asked)
    assert stage.bid.levels == {source: [1] for source in asked}


def test_a_model_that_did_not_pay_does_not_keep_the_other_from_going_on() -> None:
    stage = Stage(
        model=model({0: [(5, 0.5)], 5: [(7, 0.5)]}),
        further=second({}),
        costs=costs(0.3),
        further_costs={"second": costs(0.5)},
    )
    stage.grow(BOTH, forecast(), room=3)
    assert stage.bid.levels == {"draft": [1, 1]}
    queries = [query for query in stage.asked if isinstance(query, LevelBids)]
    bids = [[bid.source for bid in query.bids] for query in queries]
    assert bids[:3] == [["draft", "second"]] * 3


def test_a_model_grows_below_what_others_drafted() -> None:
    stage = Stage(
        offer(1),
        model=model({0: [(5, 0.5)], 1: [(8, 0.5)]}),
        further=second({5: [(6, 0.5)], 8: [(9, 0.5)]}),
        costs=costs(0.0),
    )
    tree = stage.grow(BOTH, forecast(), room=3)
    assert dict(zip(paths(tree), tree.sources[1:], strict=True)) == {
        (1,): "context",
        (5,): "draft",
        (1, 8): "draft",
        (5, 6): "second",
        (1, 8, 9): "second",
    }


def test_each_model_is_asked_about_a_parent_before_its_children_and_once() -> None:
    follow = model(lambda token: [(token + 10, 0.5)])
    rows: dict[int, Row] = {0: [(3, 0.5)], 10: [(4, 0.5)], 3: [(5, 0.5)]}
    stage = Stage(offer(1, 2), model=follow, further=second(rows), costs=costs(0.0))
    stage.grow(BOTH, forecast(), room=3)
    parents = stage.pool.builder.parents
    for source in BOTH.neural:
        asked: list[int] = []
        for nodes in stage.nodes(source):
            assert all(node == ROOT or parents[node] in asked for node in nodes)
            asked += nodes
        assert len(asked) == len(set(asked)) > 2


def test_what_one_forward_serves_is_free_while_the_other_model_bids() -> None:
    stage = Stage(
        model=model({0: [(4, 0.5)]}),
        further=second({0: [(5, 0.5)], 5: [(6, 0.5)], 6: [(7, 0.5)]}),
        costs=costs(0.17),
        further_costs={"second": costs(0.1)},
    )
    stage.grow(BOTH, forecast(at_once=True), room=3)
    assert stage.bid.levels["second"] == [1]
    tokens = stage.pool.builder.tokens
    asked = [[tokens[node] for node in nodes] for nodes in stage.nodes("second")]
    # Its own, and then what the first one has drafted meanwhile.
    assert asked == [[0], [5], [6], [4]]
    assert [tokens[node] for node in stage.nodes("draft")[0]] == [0]


def test_below_its_last_level_a_model_is_not_asked() -> None:
    stage = Stage(model=model({0: [(4, 0.9)], 4: [(5, 0.9)]}), costs=costs(0.0))
    for deepest, asked in ((None, 3), (2, 2), (1, 1)):
        own = DraftForecast(deepest=deepest)
        stage.grow(Auto(neural=("draft",)), given(price=0.0, further={"draft": own}), room=3)
        assert len(stage.nodes("draft")) == asked
        assert len(stage.bid.levels["draft"]) == asked


@pytest.mark.parametrize(
    ("gain", "catch_up", "bidding"),
    [(0.9, 0.89, ["draft", "second"]), (0.9, 0.9, ["draft"]), (0.0, 0.0, ["draft"])],
)
def test_a_model_whose_root_cannot_pay_does_not_bid(
    gain: float, catch_up: float, bidding: list[str]
) -> None:
    stage = Stage(model=model({0: [(5, 0.5)]}), further=second({0: [(6, 0.5)]}), costs=costs(0.0))
    stage.grow(BOTH, forecast(gain, catch_up=catch_up), room=2)
    first = next(query for query in stage.asked if isinstance(query, LevelBids))
    assert [bid.source for bid in first.bids] == bidding


def test_where_no_model_can_pay_nobody_bids_and_the_tree_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def grown(free: float, other: float) -> tuple[object, ...]:
        stage = Stage(
            offer(1),
            model=model({0: [(5, 0.5)], 1: [(8, 0.5)]}),
            further=second({0: [(6, 0.5)], 8: [(9, 0.5)]}),
            costs=costs(0.02),
        )
        drafts = {"draft": DraftForecast(0.9, free), "second": DraftForecast(0.8, other)}
        tree = stage.grow(BOTH, replace(forecast(), drafts=drafts), room=3)
        rounds = sum(isinstance(query, LevelBids) for query in stage.asked)
        return rounds, paths(tree), tree.sources, stage.bid.levels

    costly = (0.0, 0.5, 0.79, 0.8, 0.85, 0.9, 2.0)
    found = {pair: grown(*pair) for pair in product(costly, repeat=2)}
    assert found[2.0, 2.0][0] == 0
    monkeypatch.setattr(DraftLevels, "_may_pay", lambda self, source: True)
    for pair, (rounds, *decided) in found.items():
        more, *expected = grown(*pair)
        assert decided == expected
        assert rounds <= more  # type: ignore[operator]


def test_the_backlog_of_each_model_is_its_own() -> None:
    stage = Stage(model=model({0: [(5, 0.5)]}), further=second({0: [(6, 0.5)]}), costs=costs(0.1))
    stage.grow(BOTH, forecast(catch_up=0.5), room=2)
    first = next(query for query in stage.asked if isinstance(query, LevelBids))
    assert {bid.source: bid.further for bid in first.bids} == {"draft": 0.0, "second": 0.5}


@pytest.mark.parametrize(
    ("committed", "first", "other"),
    [((5, 9), 1, 0), ((6, 9), 0, 1), ((5, 7, 9), 1, 1), ((3,), 0, 0)],
)
def test_what_each_model_added_is_its_own(committed: Sequence[int], first: int, other: int) -> None:
    # The first one drafts 5, the second one 6 beside it and 7 below it.
    stage = Stage(
        model=model({0: [(5, 0.5)]}),
        further=second({0: [(6, 0.5)], 5: [(7, 0.5)]}),
        costs=costs(0.1),
        further_costs={"second": costs(0.25)},
    )
    at = given(by=likely, price=0.2, further={"second": DraftForecast(0.9)})
    stage.grow(BOTH, at, room=2)
    found = stage.bid.report.gained(committed)
    assert list(stage.bid.levels) == ["draft", "second"]
    assert found["draft"][0] == pytest.approx(first - 0.2)
    assert found["second"][0] == pytest.approx(other - 2 * 0.2)
    # The first one could add 0.8 at the root, then 0.3 below 5 and 0.6 below 6. Its 5, with 0.5,
    # leaves 0.5 at the root to the second one.
    assert found["draft"][1] == pytest.approx(0.8 + 0.3 + 0.6)
    assert found["second"][1] == pytest.approx(0.5 + 0.3 + 0.6)


def test_children_of_both_models_are_coupled() -> None:
    stage = Stage(
        model=Sources(ranking="draft", table={0: [(5, 0.5)]}, drawn={(): [5]}),
        further={"second": Sources(ranking="second", table={0: [(6, 0.5)]}, drawn={(): [6]})},
        costs=costs(0.0),
    )
    tree = stage.grow(BOTH, forecast(), room=1, temperature=0.7)
    assert set(paths(tree)) == {(5,), (6,)}
    assert set(tree.draws[1:]) == {Draw.COUPLED}


@pytest.mark.parametrize("layout", ["drawn", "either"])
def test_samples_are_of_one_model(layout: str) -> None:
    with pytest.raises(DraftwoodError, match=f"layout={layout} samples from one model, and neural"):
        Auto(neural=("draft", "second"), layout=layout)  # type: ignore[arg-type]


def test_a_source_is_named_once() -> None:
    with pytest.raises(DraftwoodError, match="name different ones"):
        Auto(neural=("draft", "draft"))
    with pytest.raises(DraftwoodError, match="already: leave it out of also"):
        Auto(neural=("draft",), also=("draft",))
