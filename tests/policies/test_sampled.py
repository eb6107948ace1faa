"""Sampled static trees: what is asked, where the answers go, limits and greedy requests."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftwood.errors import DraftwoodError
from draftwood.policies._static import SPARSE
from draftwood.policies.sampled import Sampled
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import Draw
from tests.factories.enumerated_draws import asked, drawn_for, expansions, four
from tests.factories.scripted_sources import (
    check_shape,
    drafter,
    offer,
    paths,
)

WOR, IID, ONE_HOT = Draw.WITHOUT_REPLACEMENT, Draw.IID, Draw.ONE_HOT


# --- what is asked, and where the answers go ------------------------------------------------------


def test_a_binary_tree_by_hand() -> None:
    drawn = {(): [3, 1], (3,): [34, 31], (1,): [12, 11]}
    sources = drafter(four, drawn=drawn)
    noise = RequestNoise(7)
    tree = sources.grow(Sampled(shape="2x2"), temperature=0.7, noise=noise)
    assert tree.tokens.tolist() == [0, 3, 1, 34, 31, 12, 11]
    assert tree.parents.tolist() == [-1, 0, 0, 1, 1, 2, 2]
    assert tree.draws.tolist() == [ONE_HOT] + [WOR] * 6
    assert tree.q_rows.tolist() == [-1, 0, 0, 1, 1, 2, 2]
    assert tree.sources == ("root", *["draft"] * 6)
    assert tree.route == "sampled"
    assert np.exp(tree.logq[1:]) == pytest.approx([0.15, 0.5, 0.1, 0.5, 0.25, 0.5])
    assert asked(sources) == [([0], 2, WOR, []), ([1, 2], 2, WOR, [])]
    assert {query.temperature for query in expansions(sources)} == {0.7}
    assert all(query.noise is noise for query in expansions(sources))


def test_a_draft_has_its_own_temperature_if_it_is_given() -> None:
    sources = drafter(four, drawn={(): [2]})
    sources.grow(Sampled(shape="1", draft_temperature=0.4), temperature=0.7)
    sources.grow(Sampled(shape="2", draft_temperature=0.4, last="top"), temperature=0.7)
    assert [query.temperature for query in expansions(sources)] == [0.4] * 3


def test_siblings_may_differ_in_number() -> None:
    drawn = {(): [4, 3, 2, 1], (4,): [41, 42, 43], (3,): [31, 32, 33], (2,): [21, 22, 23, 24]}
    sources = drafter(four, drawn={**drawn, (1,): [14, 13, 12], (4, 41): [411]})
    tree = sources.grow(Sampled(shape="sparse"), temperature=1.0, room=2)
    # Node 1 has three children, nodes 2 and 3 two, node 4 one: the front of what was drawn.
    assert paths(tree)[4:] == [
        *[(4, 41), (4, 42), (4, 43)],
        *[(3, 31), (3, 32)],
        *[(2, 21), (2, 22)],
        (1, 14),
    ]
    assert asked(sources) == [([0], 4, WOR, []), ([1, 2, 3, 4], 3, WOR, [])]


def test_only_nodes_with_children_are_asked_about() -> None:
    sources = drafter(four, drawn=drawn_for([4, 3, 3, 3, 2]))
    tree = sources.grow(Sampled(shape="sparse"), temperature=1.0)
    # Drawn in order of likelihood, the tree is the one that the ranks describe.
    tokens = {
        tuple(int("".join(str(r + 1) for r in path[: i + 1])) for i in range(len(path)))
        for path in SPARSE
    }
    assert set(paths(tree)) == tokens
    assert [(len(q.nodes), q.k) for q in expansions(sources)] == [
        (1, 4),
        (4, 3),
        (4, 3),
        (1, 3),
        (1, 2),
    ]
    check_shape(tree, 25, 5)


def test_with_replacement_every_repetition_is_a_node_of_its_own() -> None:
    sources = drafter(four, drawn={(): [2, 2, 1], (2,): [21, 21], (1,): [12, 11]})
    tree = sources.grow(Sampled(shape="3x2", replacement=True), temperature=1.0)
    assert tree.tokens.tolist() == [0, 2, 2, 1, 21, 21, 21, 21, 12, 11]
    assert tree.parents.tolist() == [-1, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert tree.draws.tolist()[1:] == [IID] * 9
    assert tree.q_rows.tolist()[1:] == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert asked(sources)[1][0] == [1, 2, 3]


def test_a_file_gives_numbers_of_children(tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    ranks = [[0], [3], [3, 0], [3, 2], [3, 2, 1]]
    file.write_text(json.dumps({"acceptance": [0.5, 0.2, 0.1, 0.05], "paths": ranks}))
    policy = Sampled(shape=str(file))
    sources = drafter(four, drawn={(): [2, 1], (2,): [22, 21], (2, 22): [224]})
    # Which rank a child has says nothing here: the one with the deepest subtree is drawn first.
    assert paths(sources.grow(policy, temperature=1.0)) == [
        (2,),
        (1,),
        (2, 22),
        (2, 21),
        (2, 22, 224),
    ]


# --- limits ---------------------------------------------------------------------------------------


def test_a_budget_narrows_what_is_asked_for() -> None:
    sources = drafter(four, drawn=drawn_for([2, 2, 2]))
    tree = sources.grow(Sampled(shape="2x2x2", budget=5), temperature=1.0)
    assert paths(tree) == [(1,), (2,), (1, 11), (1, 12), (2, 21)]
    assert asked(sources) == [([0], 2, WOR, []), ([1, 2], 2, WOR, [])]
    sources.asked.clear()
    sources.grow(Sampled(shape="2x2x2"), temperature=1.0, budget=1)
    sources.grow(Sampled(shape="2x2x2"), temperature=1.0, room=1)
    assert asked(sources) == [([0], 1, WOR, []), ([0], 2, WOR, [])]


def test_what_hangs_below_a_missing_child_is_left_out() -> None:
    # One token below the root where two are wanted, none below 1 of 2, and so on down.
    sources = drafter(four, drawn={(): [2], (2,): [21, 22], (2, 22): [221]})
    tree = sources.grow(Sampled(shape="2x2x2"), temperature=1.0)
    assert paths(tree) == [(2,), (2, 21), (2, 22), (2, 22, 221)]
    assert [list(query.nodes) for query in expansions(sources)] == [[0], [1], [2, 3]]
    assert drafter(four).grow(Sampled(), temperature=1.0).route == "plain"
    assert drafter({}).grow(Sampled(), temperature=0.0).route == "plain"


# --- greedy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["none", "top", "greedy"])
@pytest.mark.parametrize("replacement", [False, True])
def test_a_greedy_request_gets_the_likeliest_tokens_in_the_same_shape(
    last: Any, replacement: bool
) -> None:
    sources = drafter(four)
    deepest: Any = "first" if last == "none" else "last"
    policy = Sampled(shape="sparse", last=last, deepest=deepest, replacement=replacement)
    tree = sources.grow(policy, noise=RequestNoise(1))
    ranks = [[int(digit) - 1 for digit in str(path[-1])] for path in paths(tree)]
    assert ranks == [list(path) for path in SPARSE]
    assert set(tree.draws.tolist()) == {ONE_HOT}
    assert set(tree.q_rows.tolist()) == {-1}
    assert tree.route == "sampled"
    assert [(q.k, q.draw, q.noise) for q in expansions(sources)] == [
        (k, ONE_HOT, None) for k in (4, 3, 3, 3, 2)
    ]


def test_a_greedy_request_with_a_spine() -> None:
    sources = drafter(four, offer(1, 19))
    tree = sources.grow(Sampled(shape="2x2", last="context"))
    # 1 is the likeliest too, so the next best stands beside it.
    assert paths(tree) == [(2,), (1,), (2, 21), (2, 22), (1, 11), (1, 19)]
    assert asked(sources) == [([0], 1, ONE_HOT, [{1}]), ([1, 2], 2, ONE_HOT, [set(), {19}])]


# --- what it declares -----------------------------------------------------------------------------


def test_what_it_declares() -> None:
    assert Sampled().draws == {ONE_HOT, WOR}
    assert Sampled(replacement=True).draws == {ONE_HOT, IID}
    assert Sampled(last="top").draws == {ONE_HOT, WOR}
    assert Sampled(last="top", shape="1x1").draws == {ONE_HOT}
    assert Sampled(last="greedy", shape="1x1").draws == {ONE_HOT, WOR}
    assert Sampled(last="context", shape="1x1").draws == {ONE_HOT, WOR}
    assert Sampled(last="context").sources == ("draft", "context")
    assert Sampled(shape="sparse").branching
    assert not Sampled(shape="1x1x1").branching
    assert not Sampled(budget=1).branching


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"shape": "2x0"}, 'shape is "2x0"; give children per level'),
        ({"shape": "missing.json"}, r"cannot read missing\.json"),
        ({"deepest": "last"}, "give last=top, last=context or last=greedy"),
    ],
)
def test_shapes_that_are_none_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(DraftwoodError, match=said):
        Sampled(**wrong)
