"""The policies whose children are the likeliest or drawn: what their base class decides."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.policies._sampling import TopOrDrawn
from draftwood.policies.dynatree import DynaTree
from draftwood.policies.sampled_spine import SampledSpine
from draftwood.policies.talon import Talon
from draftwood.protocols import Continue
from draftwood.tree import Draw
from tests.factories.enumerated_draws import expansions
from tests.factories.scripted_sources import Row, distributions, drafter, offer, paths

WOR, IID, ONE_HOT = Draw.WITHOUT_REPLACEMENT, Draw.IID, Draw.ONE_HOT
each_policy = pytest.mark.parametrize("policy", [Talon(), DynaTree()])


@each_policy
def test_a_copied_path_is_neither_gated_nor_expanded_without_the_drafter(
    policy: TopOrDrawn,
) -> None:
    sources = drafter({0: [(1, 0.95)], 1: [(2, 0.95)]}, offer(7, 8, 9))
    tree = sources.grow(replace(policy, chain="context"))
    assert paths(tree) == [(7,), (7, 8), (7, 8, 9), (1,), (1, 2)]
    assert tree.sources[1:] == ("context",) * 3 + ("draft",) * 2
    assert sources.asked[0] == Continue("context")
    assert sources.expansions == [[0], [4], [5]]


@each_policy
def test_a_token_that_both_offer_is_one_node_and_costs_nothing(policy: TopOrDrawn) -> None:
    table: dict[int, Row] = {0: [(1, 0.5), (7, 0.45)], 7: [(6, 0.6), (8, 0.3)], 8: [(5, 0.99)]}
    sources = drafter(table, offer(7, 8, 9))
    tree = sources.grow(replace(policy, chain="context"))
    assert paths(tree) == [(7,), (7, 8), (7, 8, 9), (1,), (7, 6), (7, 8, 5)]
    assert tree.sources[1:] == ("context",) * 3 + ("draft",) * 3
    # The shared node 1 is expanded with the drafter's own path probability, and so is node 2.
    assert sources.expansions == [[0], [4, 1], [5, 2], [6]]


@each_policy
def test_the_copied_path_takes_at_most_half_of_the_budget(policy: TopOrDrawn) -> None:
    sources = drafter(lambda token: [(token + 1, 0.5), (token + 2, 0.3)], offer(*range(50, 90)))
    copying = replace(policy, chain="context")

    def laid(policy: TopOrDrawn, **limits: int) -> int:
        return sources.grow(policy, **limits).sources.count("context")

    assert [laid(copying, **limits) for limits in ({}, {"budget": 7}, {"budget": 1})] == [10, 3, 0]
    assert laid(copying, room=2) == 2
    assert laid(replace(copying, copied=40)) == 29
    assert laid(policy) == 0


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Talon, {"mu": st.sampled_from([0.0307, 0.297, 1.0]), "top_k": st.integers(1, 12)}),
        (Talon, {"robust": st.integers(0, 3), "max_depth": st.integers(1, 7)}),
        (DynaTree, {"b_max": st.integers(2, 4), "tau": st.sampled_from([0.0, 0.0497, 0.1509])}),
        (DynaTree, {"breadth": st.sampled_from(["adaptive", "fixed"]), "prune": st.booleans()}),
        (DynaTree, {"rho_stop": st.sampled_from([0.0213, 0.1013]), "base_depth": st.just(2)}),
    ],
)
@given(
    data=st.data(),
    seed=st.integers(0, 10**6),
    budget=st.integers(0, 59),
    room=st.integers(0, 9),
    last=st.sampled_from(["none", "top"]),
)
def test_a_greedy_request_gets_the_likeliest_children(
    kind: type[TopOrDrawn],
    settings: dict[str, Any],
    data: st.DataObject,
    seed: int,
    budget: int,
    room: int,
    last: Any,
) -> None:
    top = kind(**data.draw(st.fixed_dictionaries(settings)))
    drawn = replace(top, children="drawn", last=last)
    table = distributions(seed, vocab=25, most=15)
    expected = drafter(table).grow(top, budget=budget, room=room)
    sources = drafter(table)
    tree = sources.grow(drawn, budget=budget, room=room)
    assert paths(tree) == paths(expected)
    assert tree.logq.tolist() == expected.logq.tolist()
    assert {query.draw for query in expansions(sources)} <= {ONE_HOT}


@pytest.mark.parametrize("kind", [Talon, DynaTree])
def test_declared_draws(kind: type[TopOrDrawn]) -> None:
    assert kind().draws == {ONE_HOT}
    drawn = kind(children="drawn")
    assert drawn.branching
    assert drawn.draws == replace(drawn, last="top").draws == {ONE_HOT, WOR}
    assert replace(drawn, replacement=True).draws == {ONE_HOT, IID}


def test_a_chain_whose_last_children_are_the_likeliest_draws_nothing() -> None:
    chain = DynaTree(children="drawn", b_mid=1, b_max=1)
    assert not chain.branching
    assert chain.draws == {ONE_HOT, WOR}
    assert replace(chain, last="top").draws == {ONE_HOT}


def test_sources_are_asked_in_order() -> None:
    assert SampledSpine(source="head").sources == ("context", "head")
    assert Talon(children="drawn", source="head").sources == ("head",)
    assert Talon(chain="context").sources == ("draft", "context")


@pytest.mark.parametrize("kind", [Talon, DynaTree])
def test_a_drawn_tree_has_no_copied_path(kind: type[TopOrDrawn]) -> None:
    with pytest.raises(DraftwoodError, match="leave chain out"):
        kind(children="drawn", chain="context")
