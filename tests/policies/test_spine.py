"""GOOSE: shares of the budget, routes, ablations and adaptation, from canned sources.

The trees themselves are held against a literal Algorithm 1 in ``tests/golden/test_spine_trees.py``.
"""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies._spine import SpineShape, SpineState
from draftwood.policies.spine import Spine
from draftwood.protocols import Continuation
from tests.factories.scripted_sources import Row, Sources, check_shape, offer, outcome

TREE = Spine(bypass="off")


def table(seed: int, vocab: int = 30, most: int = 10) -> dict[int, Row]:
    rng = random.Random(seed)
    rows: dict[int, Row] = {}
    for token in range(vocab):
        scores = sorted((rng.uniform(0.01, 1) for _ in range(rng.randint(0, most))), reverse=True)
        rows[token] = list(zip(rng.sample(range(vocab), len(scores)), scores, strict=True))
    return rows


def plenty(token: int) -> Row:
    return [((7 * token + i) % 1000, 0.5 / (i + 1)) for i in range(10)]


def test_the_papers_shares_of_sixty_nodes() -> None:
    shape = SpineShape(size=60, ratio=0.3, rho=0.5, max_depth=6, top_k=10, room=100)
    assert shape.spine_length(20) == 18
    assert shape.spine_length(5) == 5
    assert shape.root_branches(18) == 20
    # 21 left for spine nodes, by 1/i over the 18th harmonic number 3.495
    assert shape.node_branches(18) == [6, 3, 2, 1, 1, 1] + [0] * 12
    assert replace(shape, spine_branches=False).node_branches(18) == [0] * 18
    assert replace(shape, room=4).spine_length(20) == 4
    assert [shape.leaf_width(x) for x in (1.0, 0.55, 0.25, 0.01)] == [10, 6, 3, 1]


def test_routes() -> None:
    strong = offer(1, 2, 3, count=2)
    assert Sources(strong, plenty).grow(Spine()).route == "bypass"
    assert Sources(strong, plenty).grow(TREE).route == "spine"
    assert Sources(offer(1, 2, 3), plenty).grow(Spine()).route == "spine"
    assert Sources((), plenty).grow(Spine()).route == "transition"
    assert Sources(offer(1, 2, 3)).grow(Spine()).route == "chain"
    assert Sources().grow(Spine()).route == "plain"
    assert Sources(strong, plenty).grow(Spine(), room=0).route == "plain"
    assert Sources(strong, plenty).grow(Spine(budget=0)).route == "plain"


def test_the_bypass_rules() -> None:
    agree = offer(1, 2, agreeing=2)
    long_match = offer(1, 2, match_length=8)
    twice = offer(1, 2, count=2)
    long_chain = offer(*range(1, 9))

    def routes(policy: Spine) -> list[bool]:
        return [
            Sources(offers, plenty).grow(policy).route == "bypass"
            for offers in (agree, long_match, twice, long_chain, offer(1, 2))
        ]

    assert routes(Spine(bypass="distinct")) == [False, True, True, False, False]
    assert routes(Spine(bypass="paper")) == [True, False, False, True, False]
    assert routes(Spine(bypass="off")) == [False] * 5
    assert routes(Spine(bypass_length=9)) == [False, False, True, False, False]


def test_a_bypass_is_the_bare_chain() -> None:
    sources = Sources(offer(*range(1, 31), match_length=20), plenty)
    tree = sources.grow(Spine(budget=25))
    assert tree.path_tokens(25) == tuple(range(1, 26))
    assert sources.expansions == []
    assert sources.grow(Spine(), room=4).path_tokens(4) == (1, 2, 3, 4)


def test_without_successors_the_whole_chain_is_kept() -> None:
    # The spine's share of 60 nodes at p_s = 0.1 would be 9.
    tree = Sources(offer(*range(1, 21))).grow(TREE, state=SpineState(0.1))
    assert tree.path_tokens(20) == tuple(range(1, 21))
    assert tree.route == "chain"


def test_a_chain_that_is_too_short_is_no_match() -> None:
    tree = Sources(offer(1, 2, count=5), plenty).grow(Spine(min_chain=3))
    assert tree.route == "transition"


def test_only_the_preferred_continuation_is_used() -> None:
    offers = (*offer(1, 2), *offer(9, 8, count=4))
    tree = Sources(offers).grow(Spine())
    assert tree.tokens.tolist() == [0, 1, 2]


def test_many_nodes_are_asked_about_at_once() -> None:
    sources = Sources(offer(*range(1, 21)), plenty)
    tree = sources.grow(TREE)
    assert tree.drafted == 59
    assert sources.expansions[0] == list(range(7))  # the root and the spine nodes with a share
    assert len(sources.expansions) == 2


def test_unlikely_successors_are_dropped_wherever_they_would_be_attached() -> None:
    # Of a source that prunes nothing by itself, such as a draft model: below the root, below the
    # spine's nodes and below branch leaves.
    def row(token: int) -> Row:
        return [(100 * token + 1, 0.6), (100 * token + 2, 0.011), (100 * token + 3, 0.009)]

    for offers in ((), offer(7, 8, 9)):
        tree = Sources(offers, row).grow(TREE)
        branches = [i for i in range(1, len(tree)) if tree.sources[i] == "adjacency"]
        assert {int(tree.tokens[i]) % 100 for i in branches} == {1, 2}
        assert {int(tree.depths[i]) for i in branches} >= {1, 2, 3}
        uncut = Sources(offers, row).grow(replace(TREE, min_score=0.0))
        assert 3 in {int(t) % 100 for t in uncut.tokens[1:]}


def test_a_control_spine_ends_where_the_source_is_unsure() -> None:
    policy = Spine(spine="control")
    rows = {0: [(5, 0.5)], 5: [(6, 0.009)]}
    tree = Sources(offer(1, 2, 3, count=2), rows).grow(policy)
    assert (tree.tokens.tolist(), tree.route) == ([0, 5], "bypass")


def test_no_spine_branches() -> None:
    sources = Sources(offer(*range(1, 21)), plenty)
    tree = sources.grow(replace(TREE, spine_branches=False))
    spine = [i for i, source in enumerate(tree.sources) if source == "context"]
    assert len(spine) == 18
    assert all(tree.parents.tolist().count(node) <= 1 for node in spine)
    assert tree.drafted == 59  # the share went to the root's branches


def test_no_spine() -> None:
    policy = replace(TREE, spine="off")
    assert "context" not in Sources(offer(1, 2, 3), plenty).grow(policy).sources
    assert Sources(offer(1, 2, 3)).grow(policy).route == "plain"
    bypassing = replace(policy, bypass="distinct")
    assert Sources(offer(1, 2, 3, count=2), plenty).grow(bypassing).route == "bypass"


def test_the_control_keeps_the_shape_and_replaces_the_tokens() -> None:
    sources = Sources(offer(*range(500, 520)), plenty)
    own, control = sources.grow(TREE), sources.grow(replace(TREE, spine="control"))
    spine = [i for i, source in enumerate(control.sources) if source == "context"]
    assert spine == [i for i, source in enumerate(own.sources) if source == "context"]
    assert control.path_tokens(18) == (0,) * 18  # the best successor of 0 is 0
    assert own.path_tokens(18) == tuple(range(500, 518))
    assert control.drafted == own.drafted
    bypass = Spine(spine="control")
    tree = Sources(offer(1, 2, count=2), lambda token: [(token + 5, 0.5)]).grow(bypass)
    assert (tree.tokens.tolist(), tree.route) == ([0, 5, 10], "bypass")
    assert Sources(offer(1, 2, count=2)).grow(bypass).route == "plain"


def test_p_s_is_averaged_in_steps_that_drafted_a_spine() -> None:
    policy = Spine()
    start = policy.start()
    assert start == SpineState(0.3)
    bypass = Sources(offer(1, 2, 3, 4, count=2), plenty).grow(policy)
    assert policy.learn(start, outcome(bypass, 1, 2)).p_s == pytest.approx(0.7 * 0.3 + 0.3 * 0.5)
    spine = Sources(offer(1, 2, 3, 4), plenty).grow(policy)
    branch = next(i for i in range(1, len(spine)) if spine.parents[i] == 1 and i != 2)
    learnt = policy.learn(start, outcome(spine, 1, branch))
    assert learnt.p_s == pytest.approx(0.7 * 0.3 + 0.3 * 0.25)
    transition = Sources((), plenty).grow(policy)
    assert policy.learn(start, outcome(transition, 1)) == start


def test_tiers_of_the_ratio() -> None:
    policy = Spine()
    ratios = [SpineState(p).ratio(policy.ratio) for p in (0.0, 0.19, 0.2, 0.39, 0.4, 1.0)]
    assert ratios == [0.15, 0.15, 0.30, 0.30, 0.50, 0.50]
    assert SpineState(0.9).ratio(0.25) == 0.25
    lengths = [
        Sources(offer(*range(1, 31)), plenty)
        .grow(TREE, state=SpineState(p))
        .sources.count("context")
        for p in (0.1, 0.3, 0.9)
    ]
    assert lengths == [9, 18, 30]


@given(
    seed=st.integers(0, 10**6),
    chain=st.lists(st.integers(0, 29), max_size=25),
    match_length=st.integers(3, 10),
    budget=st.integers(0, 70),
    room=st.integers(-1, 12),
    loaded=st.integers(0, 70),
    p_s=st.floats(0, 1),
    policy=st.builds(
        Spine,
        max_depth=st.integers(1, 6),
        rho=st.floats(0, 1),
        top_k=st.integers(1, 10),
        ratio=st.floats(0, 1),
        bypass=st.sampled_from(["distinct", "paper", "off"]),
        spine=st.sampled_from(["on", "off", "control"]),
        spine_branches=st.booleans(),
    ),
)
def test_every_tree_keeps_to_its_bounds(
    seed: int,
    chain: list[int],
    match_length: int,
    budget: int,
    room: int,
    loaded: int,
    p_s: float,
    policy: Spine,
) -> None:
    policy = replace(policy, budget=budget)
    offers = (Continuation(tuple(chain), match_length, 1, 1),) if chain else ()
    tree = Sources(offers, table(seed)).grow(
        policy, anchor=3, room=room, budget=loaded, state=SpineState(p_s)
    )
    check_shape(tree, min(budget, loaded), room)
    spine = [i for i, source in enumerate(tree.sources) if source == "context"]
    assert spine == list(range(1, len(spine) + 1))
    assert all(int(tree.parents[i]) == i - 1 for i in spine)
    for node in range(len(spine) + 1, len(tree)):
        below = sum(tree.sources[i] == "adjacency" for i in tree.path(node))
        assert below <= policy.max_depth
    if policy.spine == "on" and spine:
        assert tree.path_tokens(len(spine)) == tuple(chain[: len(spine)])
    assert bool(spine) == (tree.route in {"bypass", "spine", "chain"})
