"""The tree that a source copies as a whole."""

from collections.abc import Sequence

import pytest

from draftwood.engine.lockstep import draft
from draftwood.policies.copied_tree import CopiedTree
from draftwood.protocols import Branches, Continuation, Drafter, Growth
from draftwood.tree import TokenTree
from tests.factories.scripted_sources import offer, paths

PATHS = ((5,), (5, 6), (7,), (5, 6, 8), (7, 5))


class Copied(Drafter):
    """Offers the paths above, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Branches] = []

    def branches(
        self, slots: Sequence[int], queries: Sequence[Branches]
    ) -> list[tuple[tuple[int, ...], ...]]:
        self.asked += queries
        return [PATHS for _ in slots]


def grown(source: Drafter, budget: int, room: int) -> TokenTree:
    [found] = draft(CopiedTree(), {"trie": source}, [0], [Growth(3, room, budget)], [None])
    assert found.error is None
    return found.tree


@pytest.mark.parametrize(
    ("budget", "room", "wanted"),
    [
        (9, 9, PATHS),
        (3, 9, PATHS[:3]),
        (9, 1, ((5,), (7,))),
        (9, 2, ((5,), (5, 6), (7,), (7, 5))),
        (0, 9, ()),
        (9, 0, ()),
    ],
)
def test_it_takes_as_many_nodes_as_may_be_drafted(
    budget: int, room: int, wanted: tuple[tuple[int, ...], ...]
) -> None:
    source = Copied()
    tree = grown(source, budget, room)
    assert tuple(paths(tree)) == wanted
    assert tree.route == ("copied" if wanted else "plain")
    assert source.asked == ([Branches("trie", budget, room)] if budget and room else [])


class Chains(Drafter):
    """A drafter that copies chains only."""

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        return [(*offer(1, 2, 3), *offer(4, 2)) for _ in slots]


def test_other_sources_that_copy_give_their_chains() -> None:
    assert paths(grown(Chains(), 4, 9)) == [(1,), (1, 2), (1, 2, 3), (4,)]
