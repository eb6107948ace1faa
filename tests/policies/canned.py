"""Sources with canned answers, and a driver that grows one tree from them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from draftwood.protocols import (
    Candidates,
    Continuation,
    Continue,
    Expand,
    Growth,
    Outcome,
    Policy,
    Query,
    Rows,
)
from draftwood.tree import TokenTree

Row = Sequence[tuple[int, float]]
NO_ROWS: Any = None


def offer(
    *tokens: int, match_length: int = 3, count: int = 1, agreeing: int = 1
) -> tuple[Continuation, ...]:
    """One continuation, by default too weak for any bypass but the printed one on length."""
    return (Continuation(tokens, match_length, count, agreeing),)


@dataclass
class Sources:
    """A copying source that offers ``offers`` and a ranking one that looks up the last token.

    ``table`` maps a token to its successors with scores, or is a function of the token. Every query
    is kept in ``asked``.
    """

    offers: tuple[Continuation, ...] = ()
    table: Mapping[int, Row] | Callable[[int], Row] = field(default_factory=dict)
    asked: list[Query] = field(default_factory=list)

    def successors(self, token: int) -> Row:
        return self.table(token) if callable(self.table) else self.table.get(token, ())

    def answer(self, query: Query) -> tuple[Continuation, ...] | Candidates:
        self.asked.append(query)
        if isinstance(query, Continue):
            assert query.source == "context"
            return self.offers
        assert query.source == "adjacency"
        assert len(query.nodes) == len(set(query.nodes)) > 0
        tokens = np.full((len(query.nodes), query.k), -1, dtype=np.int64)
        logq = np.full((len(query.nodes), query.k), -np.inf, dtype=np.float32)
        for i, node in enumerate(query.nodes):
            for j, (token, score) in enumerate(self.successors(query.tree.tokens[node])[: query.k]):
                tokens[i, j], logq[i, j] = token, math.log(score)
        return Candidates(tokens, logq)

    @property
    def expansions(self) -> list[list[int]]:
        """Nodes asked about, query by query."""
        return [list(query.nodes) for query in self.asked if isinstance(query, Expand)]

    def grow(
        self,
        policy: Policy,
        anchor: int = 0,
        room: int = 10**6,
        budget: int = 10**6,
        state: Any = None,
    ) -> TokenTree:
        """The tree that ``policy`` makes of these answers."""
        growing = policy.grow(
            Growth(anchor, room, budget), policy.start() if state is None else state
        )
        answer = None
        while True:
            try:
                query = growing.send(answer)
            except StopIteration as end:
                tree: TokenTree = end.value
                return tree
            answer = self.answer(query)


def outcome(tree: TokenTree, *path: int) -> Outcome:
    """A step that accepted ``path``; policies under test read no rows."""
    rows: Rows = NO_ROWS
    return Outcome(tree, path, (*(int(tree.tokens[i]) for i in path), 0), rows)


def check_shape(tree: TokenTree, budget: int, room: int) -> None:
    """What every tree must keep: budget, room, and no repeated sibling."""
    assert tree.drafted <= max(0, budget)
    assert tree.depth <= max(0, room)
    pairs = list(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert (tree.route == "plain") == (tree.drafted == 0)
