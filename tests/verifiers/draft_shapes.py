"""Small ways to draw a tree, lossless ones and others."""

from dataclasses import replace

import numpy as np

from draftwood.tree import ROOT, Draw
from tests.verifiers.small_laws import Draft, Drafting, Grow, Row, Tokens

WITHOUT = Draw.WITHOUT_REPLACEMENT


def chain(length: int, draw: Draw = WITHOUT) -> Grow:
    def grow(drafting: Drafting) -> None:
        node = ROOT
        for _ in range(length):
            (node,) = drafting.sample(node, 1, draw)

    return grow


def flat(count: int, draw: Draw = WITHOUT) -> Grow:
    def grow(drafting: Drafting) -> None:
        drafting.sample(ROOT, count, draw)

    return grow


def binary(draw: Draw) -> Grow:
    """Two children, and two of each."""

    def grow(drafting: Drafting) -> None:
        for node in drafting.sample(ROOT, 2, draw):
            drafting.sample(node, 2, draw)

    return grow


def uneven(drafting: Drafting) -> None:
    """The first sibling deepest; one of them childless."""
    first, *others = drafting.sample(ROOT, 3)
    for node in drafting.sample(first, 2)[:1]:
        drafting.sample(node, 1)
    for node in others[:1]:
        drafting.sample(node, 1, Draw.IID)


def sampled_first(drafting: Drafting) -> None:
    """One child drawn without the likeliest token, which follows it; two levels."""

    def below(node: int) -> list[int]:
        top = int(drafting.q(node).argmax())
        children = drafting.sample(node, 1, exclude=[top])
        return [*children, drafting.put(node, top)]

    for child in below(ROOT):
        below(child)


def greedy_order(drafting: Drafting) -> None:
    """One child drawn without the two likeliest tokens, which follow it; two levels."""

    def below(node: int) -> list[int]:
        top = (-drafting.q(node)).argsort()[:2].tolist()
        children = drafting.sample(node, 1, exclude=top)
        return [*children, *(drafting.put(node, token) for token in top)]

    for child in below(ROOT)[:2]:
        below(child)


def known_first(drafting: Drafting) -> None:
    """Not the best order, but lossless too."""
    top = int(drafting.q(ROOT).argmax())
    node = drafting.put(ROOT, top)
    drafting.sample(node, 2)
    for child in drafting.sample(ROOT, 2, exclude=[top]):
        drafting.sample(child, 1)


def kinds(drafting: Drafting) -> None:
    """Siblings of every kind, with equal tokens among them."""
    drafting.sample(ROOT, 1, Draw.IID)
    first, *_ = drafting.sample(ROOT, 2)
    drafting.sample(ROOT, 1, Draw.IID)
    drafting.sample(first, 1)


def two_sources(drafting: Drafting) -> None:
    """Two drafters' distributions under one parent."""

    def other(prefix: Tokens) -> Row:
        return np.roll(drafting.law(prefix), 1)

    children = drafting.sample(ROOT, 2)
    children += drafting.sample(ROOT, 1, source="other", law=other)
    for child in children[::2]:
        drafting.sample(child, 1, source="other", law=other)


def confident(drafting: Drafting) -> None:
    """A tree whose numbers of children and levels depend on the probabilities so far."""
    frontier = [(ROOT, 1.0)]
    while frontier:
        node, path = frontier.pop(0)
        row = drafting.q(node)
        depth = len(drafting.tokens(node))
        if depth == 3 or (depth and path < 0.3) or len(drafting.builder) > 5:
            continue
        for child in drafting.sample(node, 1 if row.max() > 0.6 else 2):
            frontier.append((child, path * row[drafting.builder.tokens[child]]))


def interrupted(drafting: Drafting) -> None:
    """A chain in which one token is not drawn."""
    (first,) = drafting.sample(ROOT, 1, Draw.IID)
    second = drafting.put(first, int(drafting.q(first).argmax()))
    drafting.sample(second, 1)


CHAINS: dict[str, Grow] = {
    "one": chain(1),
    "two": chain(2),
    "three": chain(3),
    "with replacement": chain(3, Draw.IID),
    "interrupted": interrupted,
}
TREES: dict[str, Grow] = {
    "binary": binary(WITHOUT),
    "binary with replacement": binary(Draw.IID),
    "uneven": uneven,
    "sampled first": sampled_first,
    "greedy order": greedy_order,
    "known first": known_first,
    "kinds": kinds,
    "two sources": two_sources,
    "confident": confident,
}


def ragged(depth: int, width: int) -> Grow:
    """Any number of siblings of every kind, drawn ones first; at most four parents a level."""

    def grow(drafting: Drafting) -> None:
        level = [ROOT]
        for _ in range(depth):
            below: list[int] = []
            for node in level:
                # What a shape depends on must be known before its children are drawn.
                shape = np.random.default_rng([node, *drafting.tokens(node), 5])
                tops = (-drafting.q(node)).argsort()[: shape.integers(0, 2)].tolist()
                for draw in (WITHOUT, Draw.IID):
                    count = int(shape.integers(0, width))
                    below += drafting.sample(node, count, draw, exclude=tops)
                below += [drafting.put(node, token) for token in tops]
            level = [node for node in below if node % 3][:4]

    return grow


# --- not lossless ---------------------------------------------------------------------------------


def reranked(drafting: Drafting) -> None:
    """The likelier of two drawn tokens is made the first."""
    row = drafting.q(ROOT)
    drawn = _draw_two(drafting)
    _pretend(drafting, sorted(drawn, key=lambda token: -row[token]))


def by_token(drafting: Drafting) -> None:
    """Siblings in the order of their tokens."""
    _pretend(drafting, sorted(_draw_two(drafting)))


def pruned(drafting: Drafting) -> None:
    """Unlikely tokens are thrown away once drawn."""
    row = drafting.q(ROOT)
    _pretend(drafting, [token for token in _draw_two(drafting) if row[token] > 0.3])


def distinct(drafting: Drafting) -> None:
    """A token drawn twice is kept once."""
    row = drafting.q(ROOT)
    for token in dict.fromkeys(drafting.pick(row) for _ in range(2)):
        drafting.add(ROOT, token, row, row, Draw.IID)


def top_two(drafting: Drafting) -> None:
    """The two likeliest tokens, said to be drawn."""
    _pretend(drafting, (-drafting.q(ROOT)).argsort()[:2].tolist())


def shared_noise(drafting: Drafting) -> None:
    """The same draws below both children, for a drafter that knows no context."""
    first, second = drafting.sample(ROOT, 2)
    copied = [drafting.builder.tokens[node] for node in drafting.sample(first, 2)]
    _pretend(drafting, copied, second)


def _draw_two(drafting: Drafting) -> list[int]:
    row = drafting.q(ROOT)
    first = drafting.pick(row)
    row[first] = 0
    return [first, drafting.pick(row)] if row.sum() else [first]


def _pretend(drafting: Drafting, tokens: list[int], node: int = ROOT) -> None:
    row = drafting.q(node)
    for token in tokens:
        drafting.add(node, token, row, row, WITHOUT)


WRONG: dict[str, Grow] = {
    "reranked": reranked,
    "by token": by_token,
    "pruned": pruned,
    "distinct": distinct,
    "top two": top_two,
}


def declared_known(draft: Draft) -> Draft:
    """The same tree, its nodes declared to be what they are once they have been meddled with."""
    tree = replace(draft.tree, draws=np.full_like(draft.tree.draws, Draw.ONE_HOT))
    return Draft(tree, {}, {})
