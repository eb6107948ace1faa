"""Prompt lookup: the preferred continuation, cut to what may be drafted."""

import pytest

from draftwood.policies.chain import Chain
from tests.factories.scripted_sources import Sources, offer


def test_it_copies_the_preferred_continuation() -> None:
    sources = Sources((*offer(4, 5, 6), *offer(7, 8, 9)))
    tree = sources.grow(Chain(), anchor=3)
    assert tree.tokens.tolist() == [3, 4, 5, 6]
    assert tree.parents.tolist() == [-1, 0, 1, 2]
    assert (tree.route, tree.sources[1:]) == ("chain", ("context",) * 3)


@pytest.mark.parametrize(
    ("budget", "loaded", "room", "length"),
    [(20, 99, 99, 20), (5, 99, 99, 5), (20, 7, 99, 7), (20, 99, 3, 3), (0, 9, 9, 0), (9, 9, 0, 0)],
)
def test_its_length_is_bounded(budget: int, loaded: int, room: int, length: int) -> None:
    tree = Sources(offer(*range(30))).grow(Chain(budget), budget=loaded, room=room)
    assert tree.drafted == length
    assert tree.route == ("chain" if length else "plain")
