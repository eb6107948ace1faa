"""Sampled TALON: how many children are drawn, level by level, and TALON's own tree when greedy."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies.talon import Talon
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import Draw
from tests.factories.enumerated_draws import Dice, asked, expansions
from tests.factories.scripted_sources import (
    Row,
    check_shape,
    distributions,
    drafter,
    paths,
)

WOR, IID, ONE_HOT = Draw.WITHOUT_REPLACEMENT, Draw.IID, Draw.ONE_HOT
TABLE: dict[int, Row] = {
    0: [(1, 0.6), (2, 0.25), (3, 0.15)],
    1: [(4, 0.5), (5, 0.4), (6, 0.1)],
    2: [(9, 1.0)],
    3: [(8, 0.6), (7, 0.4)],
    5: [(10, 0.9), (11, 0.1)],
    6: [(12, 1.0)],
}


def test_by_hand() -> None:
    # Level 0 is ungated and draws two, 3 (.15) and 1 (.6). Level 1: m = .6 * .5 = .3, so mu = .15
    # asks for .045. Of 1's children .3, .24 and .06 pass, of 3's .09 and .06: three and two are
    # drawn. Level 2: below 5 (.24) there are .216 = m and .024, below 6 (.06) there is .06; the
    # gate is at .0324, so each has one child, whatever it turns out to be. 4, 7 and 8 have none.
    drawn = {(): [3, 1], (1,): [6, 5, 4], (3,): [7, 8], (1, 5): [11], (1, 6): [12]}
    sources = drafter(TABLE, drawn=drawn)
    noise = RequestNoise(3)
    tree = sources.grow(Talon(children="drawn", mu=0.15, top_k=2), temperature=0.8, noise=noise)
    assert paths(tree) == [
        *[(3,), (1,)],
        *[(3, 7), (3, 8), (1, 6), (1, 5), (1, 4)],
        *[(1, 6, 12), (1, 5, 11)],
    ]
    assert asked(sources) == [
        ([0], 2, ONE_HOT, []),
        ([0], 2, WOR, []),
        ([1, 2], 57, ONE_HOT, []),
        ([1, 2], 3, WOR, []),
        ([3, 4, 5, 6, 7], 52, ONE_HOT, []),
        ([5, 6], 1, WOR, []),
        ([8, 9], 50, ONE_HOT, []),
    ]
    assert tree.q_rows.tolist() == [-1, 0, 0, 1, 1, 2, 2, 2, 3, 4]
    assert set(tree.draws.tolist()[1:]) == {WOR}
    assert tree.route == "talon"
    assert {q.temperature for q in expansions(sources)} == {0.8}
    assert [q.noise for q in expansions(sources)][1::2] == [noise] * 3


def test_the_likeliest_last() -> None:
    # Two children of the root, of which 1 is certain. At level 1 the gate is at .15 * .3 = .045: 2
    # (.25) has one child, 9, and 1 has three, of which 4 is certain.
    sources = drafter(TABLE, drawn={(): [2], (1,): [6, 5]})
    tree = sources.grow(
        Talon(children="drawn", mu=0.15, top_k=2, last="top", max_depth=2), temperature=1.0
    )
    assert paths(tree) == [(2,), (1,), (1, 6), (1, 5), (1, 4), (2, 9)]
    assert tree.draws.tolist()[1:] == [WOR, ONE_HOT, WOR, WOR, ONE_HOT, ONE_HOT]
    # q of 2 is .25, though its share of what 1 leaves, which it was drawn with, is .625.
    assert math.exp(tree.logq[1]) == pytest.approx(0.25)
    assert asked(sources) == [
        ([0], 2, ONE_HOT, []),
        ([0], 1, WOR, [{1}]),
        ([1, 2], 57, ONE_HOT, []),
        ([2], 2, WOR, [{4}]),
    ]


def test_an_unlikely_draw_is_kept_and_not_expanded() -> None:
    table: dict[int, Row] = {0: [(1, 0.99), (2, 0.01)], 1: [(3, 0.5), (4, 0.5)], 2: [(5, 1.0)]}
    sources = drafter(table, drawn={(): [2, 1], (1,): [4, 3]})
    tree = sources.grow(Talon(children="drawn", max_depth=2), temperature=1.0)
    assert paths(tree) == [(2,), (1,), (1, 4), (1, 3)]  # 5 has .01 < .03 * .495
    sources = drafter(table, drawn={(): [2], (2,): [5]})
    tree = sources.grow(Talon(children="drawn", top_k=1, max_depth=2), temperature=1.0)
    assert paths(tree) == [(2,), (2, 5)]  # the best there is


def test_the_budget_counts_the_best_of_a_level() -> None:
    # After two at the root two are left; the best of level 1, .3 and .24, are both below 1.
    sources = drafter(TABLE, drawn={(): [3, 1], (1,): [6, 4]})
    tree = sources.grow(Talon(children="drawn", mu=0.15, top_k=2), temperature=1.0, budget=4)
    assert paths(tree) == [(3,), (1,), (1, 6), (1, 4)]
    assert asked(sources)[2:] == [([1, 2], 2, ONE_HOT, []), ([2], 2, WOR, [])]


def test_with_replacement() -> None:
    sources = drafter(TABLE, drawn={(): [1, 1], (1,): [5, 5, 5]})
    tree = sources.grow(
        Talon(children="drawn", mu=0.15, top_k=2, replacement=True, max_depth=2), temperature=1.0
    )
    assert tree.parents.tolist() == [-1, 0, 0, 1, 1, 1, 2, 2, 2]
    assert tree.tokens.tolist()[3:] == [5] * 6
    assert set(tree.draws.tolist()[1:]) == {IID}


def test_fewer_draws_than_asked_for() -> None:
    sources = drafter(TABLE, drawn={(): [3]})
    tree = sources.grow(Talon(children="drawn"), temperature=1.0)
    assert paths(tree) == [(3,)]
    assert drafter(TABLE).grow(Talon(children="drawn"), temperature=1.0).route == "plain"
    assert drafter({}).grow(Talon(children="drawn"), temperature=1.0).route == "plain"


@given(
    seed=st.integers(0, 10**6),
    budget=st.integers(-1, 59),
    room=st.integers(-1, 9),
    last=st.sampled_from(["none", "top"]),
    top_k=st.integers(1, 5),
)
def test_every_tree_keeps_to_its_bounds_and_levels_to_talons_sizes(
    seed: int, budget: int, room: int, last: Any, top_k: int
) -> None:
    table = distributions(seed, vocab=15, most=8)
    sources = Dice((), table, ranking="draft")
    tree = sources.grow(
        Talon(children="drawn", top_k=top_k, last=last), budget=budget, room=room, temperature=1.0
    )
    check_shape(tree, budget, room)
    # What TALON's gate lets through of a level's frontier is what is added below it.
    log = {0: 0.0}
    for node in range(1, len(tree)):
        log[node] = log[int(tree.parents[node])] + float(tree.logq[node])
    left = budget
    for depth in range(tree.depth):
        frontier = [n for n in log if tree.depths[n] == depth]
        pool = sorted(
            (log[n] + math.log(p) for n in frontier for _, p in table[int(tree.tokens[n])]),
            reverse=True,
        )
        passing = pool[:top_k] if not depth else [x for x in pool if x >= pool[0] + math.log(0.03)]
        added = int((tree.depths == depth + 1).sum())
        assert added == min(left, len(passing))
        left -= added
