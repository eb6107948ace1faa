"""Policies in lockstep: queries of a batch are merged, answers go back to whom they belong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from draftwood import Engine
from draftwood.engine.lockstep import Drafted, draft
from draftwood.errors import DraftwoodError
from draftwood.policies.auto.policy import Auto
from draftwood.protocols import (
    FREE,
    NOTHING_PAYS,
    Bid,
    Candidates,
    Coding,
    Continuation,
    Continue,
    Descend,
    Descent,
    Describe,
    Drafter,
    Expand,
    Grower,
    Growth,
    LevelBid,
    LevelBids,
    Policy,
    Price,
)
from draftwood.runner.attach import attach
from draftwood.tree import TreeBuilder
from tests.factories.scripted_sources import paths
from tests.factories.tiny_llama import tiny_llama


@dataclass
class Echo(Drafter):
    """Offers ``slot * 10 + depth`` below every node and logs how it was called."""

    calls: list[tuple[int, ...]] = field(default_factory=list)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        self.calls.append(tuple(slots))
        return [(Continuation((slot * 10 + 9,), 3, 1, 1),) for slot in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        self.calls.append(tuple(slots))
        answers = []
        for slot, query in zip(slots, queries, strict=True):
            rows = [[slot * 10 + query.tree.depths[node]] for node in query.nodes]
            tokens = np.array(rows, dtype=np.int64)
            answers.append(Candidates(tokens, np.zeros(tokens.shape, dtype=np.float32)))
        return answers


@dataclass(frozen=True)
class Staircase(Policy):
    """Asks the first source as often as there is ``growth.room``, then the second one once."""

    budget: int = 9
    sources: tuple[str, ...] = ("deep", "copy")

    def grow(self, growth: Growth, state: None) -> Grower:
        tree = TreeBuilder(growth.anchor)
        node = 0
        for source in [self.sources[0]] * growth.room + [self.sources[1]]:
            if source == "deep":
                answer = yield Expand("deep", tree, [node], 1)
                node = tree.add(node, int(answer.tokens[0, 0]), "deep")
            else:
                copied = yield Continue("copy")
                tree.add_chain(copied[0].tokens, "copy")
        return tree.build()


def test_lockstep() -> None:
    deep, copy = Echo(), Echo()
    growths = [Growth(anchor=1, room=room, budget=9) for room in (2, 0, 3)]
    drafted = draft(Staircase(), {"deep": deep, "copy": copy}, [4, 5, 6], growths, [None] * 3)
    trees = [found.tree for found in drafted]
    assert [tree.tokens.tolist() for tree in trees] == [
        [1, 40, 41, 49],
        [1, 59],
        [1, 60, 61, 62, 69],
    ]
    assert deep.calls == [(4, 6), (4, 6), (6,)]
    assert sorted(slot for call in copy.calls for slot in call) == [4, 5, 6]


def test_a_later_source_is_asked_once_nobody_waits_for_an_earlier_one() -> None:
    deep, copy = Echo(), Echo()
    growths = [Growth(anchor=1, room=room, budget=9) for room in (2, 0, 3)]
    sources = {"deep": deep, "copy": copy}  # their order here means nothing
    drafted = draft(Staircase(sources=("copy", "deep")), sources, [4, 5, 6], growths, [None] * 3)
    assert copy.calls == [(4, 6), (4, 6), (6,)]
    assert deep.calls == [(4, 5, 6)]
    assert [found.tree.tokens.tolist() for found in drafted] == [[1, 49, 40], [1, 50], [1, 69, 60]]


@dataclass(frozen=True)
class Bidder(Staircase):
    """Asks as often as there is room, bids its room, and adds a chain as long as the price.

    Without room it neither asks nor bids.
    """

    sources: tuple[str, ...] = ("deep",)

    def grow(self, growth: Growth, state: None) -> Grower:
        tree = TreeBuilder(growth.anchor)
        for _ in range(growth.room):
            yield Expand("deep", tree, [0], 1)
        if growth.room:
            price = yield Bid([1.0] * growth.room)
            tree.add_chain(range(int(price.least)), "deep")
        return tree.build()


def test_bids_wait_for_all_and_get_one_price() -> None:
    deep = Echo()
    growths = [Growth(anchor=1, room=room, budget=9) for room in (3, 1, 0, 2)]
    sizes: list[list[int]] = []

    def price(bids: Sequence[Bid]) -> Price:
        assert deep.calls == [(4, 5, 7), (4, 7), (4,)], "every query has been answered"
        sizes.append(sorted(len(bid.values) for bid in bids))
        return Price(2.0)

    drafted = draft(Bidder(), {"deep": deep}, [4, 5, 6, 7], growths, [None] * 4, price)
    assert sizes == [[1, 2, 3]]
    chains = [found.tree.tokens.tolist() for found in drafted]
    assert chains == [[1, 0, 1], [1, 0, 1], [1], [1, 0, 1]]
    # Each with its own bid, in the order of the slots; who ended without bidding has none.
    assert [found.bid and len(found.bid.values) for found in drafted] == [3, 1, None, 2]


@dataclass(frozen=True)
class Leveller(Bidder):
    """Asks as often as there is room, and then for as wide a level as it is answered."""

    def grow(self, growth: Growth, state: None) -> Grower:
        tree = TreeBuilder(growth.anchor)
        for _ in range(growth.room):
            yield Expand("deep", tree, [0], 1)
        while growth.room:
            source, width = yield LevelBids([LevelBid("deep", [0.5] * growth.room + [0.0])])
            assert source == "deep"
            if not width:
                break
            yield Expand("deep", tree, [0] * width, 1)
            tree.add_chain(range(width), "deep")
        yield Bid([0.5] * growth.room)
        return tree.build()


def test_bids_for_a_level_wait_for_all_sources_and_come_before_other_bids() -> None:
    deep = Echo()
    growths = [Growth(anchor=1, room=room, budget=9) for room in (3, 1, 0, 2)]
    answers = iter([[1, 0, 2], [0, 1], [0]])
    asked: list[list[int]] = []

    def levels(bids: Mapping[str, Sequence[LevelBid]]) -> tuple[str, list[int]]:
        asked.append([len(bid.gains) - 1 for bid in bids["deep"]])
        return "deep", next(answers)

    def price(bids: Sequence[Bid]) -> Price:
        assert len(bids) == 4
        assert len(asked) == 3
        return FREE

    drafted = draft(Leveller(), {"deep": deep}, [4, 5, 6, 7], growths, [None] * 4, price, levels)
    assert asked == [[3, 1, 2], [3, 2], [2]]
    assert deep.calls == [(4, 5, 7), (4, 7), (4,), (4, 7), (7,)]
    assert [found.tree.drafted for found in drafted] == [1, 0, 0, 2]


def test_without_a_cost_a_level_is_of_all_nodes_that_gain() -> None:
    growths = [Growth(anchor=1, room=2, budget=9)]
    deep = Echo()

    @dataclass(frozen=True)
    class Once(Leveller):
        def grow(self, growth: Growth, state: None) -> Grower:
            _, width = yield LevelBids([LevelBid("deep", [0.5, 0.2, 0.0])])
            tree = TreeBuilder(growth.anchor)
            tree.add_chain(range(width), "deep")
            return tree.build()

    assert draft(Once(), {"deep": deep}, [4], growths, [None])[0].tree.drafted == 2


@dataclass
class Levels(Echo):
    """Answers for several levels: a code for each node, and a child of the first one."""

    def describe(self, slots: Sequence[int], queries: Sequence[Describe]) -> list[list[int] | None]:
        self.calls.append(tuple(slots))
        return [[slot] * len(query.nodes) for slot, query in zip(slots, queries, strict=True)]

    def descend(self, slots: Sequence[int], queries: Sequence[Descend]) -> list[Descent | None]:
        self.calls.append(tuple(slots))
        return [
            Descent([query.nodes[0]], [slot], [2], [0.5], [0.5], [])
            for slot, query in zip(slots, queries, strict=True)
        ]


@dataclass(frozen=True)
class AskingForLevels(Policy):
    """Asks for a description and a descent, and logs the answers."""

    budget: int = 9
    sources: tuple[str, ...] = ("deep",)
    answers: list[Any] = field(default_factory=list, compare=False)

    def grow(self, growth: Growth, state: None) -> Grower:
        tree = TreeBuilder(growth.anchor)
        coding = Coding(np.zeros(1, np.int64), np.zeros(0), 1)
        said: Any = yield Describe("deep", tree, [0, 0], 1, coding)
        chances = np.ones((1, 3))
        found: Any = yield Descend(
            "deep", tree, [0], [], [1.0], 1, coding, chances, [0], 0.1, 0.1, 4, 9
        )
        self.answers.append((growth.anchor, said, found and found.tokens))
        return tree.build()


def test_queries_for_several_levels_are_answered_together_but_for_grammars() -> None:
    deep, policy = Levels(), AskingForLevels()
    growths = [Growth(anchor, 9, 9, 0.0, None, None) for anchor in (1, 2, 3)]
    constraint: Any = object()
    draft(
        policy, {"deep": deep}, [5, 6, 7], growths, [None] * 3, constraints=[None, constraint, None]
    )
    assert policy.answers == [(1, [5, 5], [5]), (2, None, None), (3, [7, 7], [7])]
    assert deep.calls == [(5, 7), (5, 7)]


def test_a_drafter_need_not_answer_for_several_levels() -> None:
    policy = AskingForLevels()
    draft(policy, {"deep": Echo()}, [5], [Growth(1, 9, 9, 0.0, None, None)], [None])
    assert policy.answers == [(1, None, None)]


def test_nobody_bids() -> None:
    def price(bids: Sequence[Bid]) -> Price:
        raise AssertionError("nothing is for sale")

    deep, copy = Echo(), Echo()
    growths = [Growth(anchor=1, room=0, budget=9)] * 2
    drafted = draft(Bidder(), {"deep": deep}, [4, 5], growths, [None] * 2, price)
    assert [(found.tree.drafted, found.bid) for found in drafted] == [(0, None)] * 2
    drafted = draft(Staircase(), {"deep": deep, "copy": copy}, [4, 5], growths, [None] * 2, price)
    assert [(found.tree.drafted, found.bid) for found in drafted] == [(1, None)] * 2
    assert draft(Bidder(), {"deep": deep}, [], [], [], price) == []


def test_without_a_price_every_candidate_is_worth_it() -> None:
    growths = [Growth(anchor=1, room=1, budget=9)]
    found = draft(Auto(), {"context": Echo(), "adjacency": Echo()}, [4], growths, [None])[0]
    assert found.bid is not None
    assert paths(found.tree) == [(49,), (40,)]
    assert found.tree.drafted == len(found.bid.values)


def test_a_batch_drafts_at_a_price_what_each_would_alone() -> None:
    policy = Auto(budget=6, neural=("draft",))
    rooms = [3, 1, 0, 2, 5]
    growths = [Growth(anchor=i, room=room, budget=9) for i, room in enumerate(rooms)]
    slots = [4, 5, 6, 7, 8]
    sizes = set()
    for price in (FREE, Price(0.25), Price(0.5), NOTHING_PAYS):

        def grown(members: Sequence[int], at: Price = price) -> list[Drafted]:
            sources = {name: Echo() for name in policy.sources}
            given = [growths[i] for i in members]
            states = [None] * len(members)
            return draft(policy, sources, [slots[i] for i in members], given, states, lambda _: at)

        together = grown(range(5))
        for i, found in enumerate(together):
            alone = grown([i])[0]
            assert found.tree.tokens.tolist() == alone.tree.tokens.tolist()
            assert found.tree.parents.tolist() == alone.tree.parents.tolist()
            assert found.tree.sources == alone.tree.sources
            assert (found.bid is None) == (alone.bid is None) == (rooms[i] == 0)
        sizes.add(sum(found.tree.drafted for found in together))
    assert len(sizes) >= 3, "the price matters"


@dataclass(frozen=True)
class Chooser(Bidder):
    """Bids for a level of its sources until none pays: the second one is not for a room of 1."""

    sources: tuple[str, ...] = ("deep", "copy")

    def grow(self, growth: Growth, state: None) -> Grower:
        tree = TreeBuilder(growth.anchor)
        left = [*self.sources][: growth.room]
        while left:
            source, width = yield LevelBids([LevelBid(source, [0.5]) for source in left])
            if not width:
                left.remove(source)
                continue
            if growth.room == 3:
                raise ArithmeticError("in a policy")
            yield Expand(source, tree, [0], 1)
            tree.add(0, len(tree), source)
        return tree.build()


def test_bids_for_a_level_of_one_source_are_answered_together() -> None:
    deep, copy = Echo(), Echo()
    growths = [Growth(anchor=1, room=room, budget=9) for room in (2, 1, 2)]
    answers = iter([("copy", [1, 0]), ("deep", [1, 1, 1]), ("copy", [0]), ("deep", [0, 0, 0])])
    asked: list[dict[str, int]] = []

    def levels(bids: Mapping[str, Sequence[LevelBid]]) -> tuple[str, list[int]]:
        assert all(bid.source == source for source, own in bids.items() for bid in own)
        asked.append({source: len(own) for source, own in bids.items()})
        return next(answers)

    sources = {"deep": deep, "copy": copy}
    drafted = draft(Chooser(), sources, [4, 5, 6], growths, [None] * 3, levels=levels)
    # Who does not bid for the source that is decided on waits, with its bid for the other.
    assert asked == [
        {"deep": 3, "copy": 2},
        {"deep": 3, "copy": 1},
        {"deep": 3, "copy": 1},
        {"deep": 3},
    ]
    assert copy.calls == [(4,)]
    assert deep.calls == [(4, 5, 6)]
    assert [found.tree.sources[1:] for found in drafted] == [("copy", "deep"), ("deep",), ("deep",)]


def test_a_policy_that_fails_between_levels_leaves_the_others_alone() -> None:
    growths = [Growth(anchor=1, room=room, budget=9) for room in (2, 3, 1)]
    answers = iter([("deep", [1, 1, 1]), ("copy", [1]), ("deep", [0, 0]), ("copy", [0])])
    sources = {"deep": Echo(), "copy": Echo()}
    drafted = draft(
        Chooser(), sources, [4, 5, 6], growths, [None] * 3, levels=lambda _: next(answers)
    )
    assert [type(found.error) for found in drafted] == [type(None), ArithmeticError, type(None)]
    assert [found.tree.sources[1:] for found in drafted] == [("deep", "copy"), (), ("deep",)]


class Broken(Echo):
    """Cannot answer slot 5."""

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        found = super().continuations(slots)
        if 5 in slots:
            raise ArithmeticError("slot 5")
        return found


def test_a_source_that_fails_for_one_request_answers_the_others() -> None:
    growths = [Growth(anchor=1, room=0, budget=9) for _ in range(3)]
    copy = Broken()
    sources = {"deep": Echo(), "copy": copy}
    drafted = draft(Staircase(), sources, [4, 5, 6], growths, [None] * 3)
    assert [type(found.error) for found in drafted] == [type(None), ArithmeticError, type(None)]
    assert [found.tree.tokens.tolist() for found in drafted] == [[1, 49], [1], [1, 69]]
    assert copy.calls == [(4, 5, 6), (4,), (5,), (6,)]


@pytest.mark.parametrize(
    ("spelt", "lacks"),
    [
        ("pld:context=adjacency", "copies no text"),
        ("ngram-trie:trie=adjacency", "copies no trees"),
        ("goose:adjacency=context", "ranks no successors of a token"),
        ("sequoia:drafter=trie", "ranks no successors of a token"),
    ],
)
def test_a_drafter_that_never_answers_is_refused(spelt: str, lacks: str) -> None:
    runner = attach(tiny_llama(), self_test=False)
    with pytest.raises(DraftwoodError, match=f"is bound to {lacks}, for which it is asked here"):
        Engine(runner, spelt)
    runner.detach()
