"""Sources with canned answers, and a driver that grows one tree from them."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    TargetOutput,
)
from draftwood.tree import Draw, TokenTree, TreeBuilder

Row = Sequence[tuple[int, float]]
PathScore = tuple[tuple[int, ...], float]
NO_ROWS: Any = None


def offer(
    *tokens: int, match_length: int = 3, count: int = 1, agreeing: int = 1
) -> tuple[Continuation, ...]:
    """One continuation, by default too weak for any bypass but the printed one on length."""
    return (Continuation(tokens, match_length, count, agreeing),)


def drafter(
    table: Mapping[int, Row] | Callable[[int], Row],
    offers: tuple[Continuation, ...] = (),
    drawn: Mapping[tuple[int, ...], Sequence[int]] | None = None,
) -> "Sources":
    """A drafter named ``draft`` with this table, and a source ``context`` that copies."""
    return Sources(offers, table, ranking="draft", drawn=drawn or {})


def distributions(seed: int, vocab: int = 40, most: int = 30) -> dict[int, Row]:
    """For every token a distribution over some others, some peaked and some flat, best first."""
    rng = random.Random(seed)
    table: dict[int, Row] = {}
    for token in range(vocab):
        sharpness = rng.choice((0.5, 2.0, 6.0))
        weights = [rng.random() ** sharpness / 2**i for i in range(rng.randint(0, most))]
        total = sum(weights) + rng.random()
        scores = sorted((weight / total for weight in weights), reverse=True)
        table[token] = [
            (successor, score)
            for successor, score in zip(rng.sample(range(vocab), len(scores)), scores, strict=True)
            if score > 0.0
        ]
    return table


def offered(table: Mapping[int, Row], path: tuple[int, ...], anchor: int = 0) -> list[PathScore]:
    """The children of a node, best first, each as its path with its log given the parent."""
    last = path[-1] if path else anchor
    return [((*path, token), float(np.float32(math.log(p)))) for token, p in table.get(last, ())]


def paths(tree: TokenTree) -> list[tuple[int, ...]]:
    """The drafted nodes as the tokens on their paths, in order."""
    return [tree.path_tokens(node) for node in range(1, len(tree))]


@dataclass
class Sources:
    """A copying source that offers ``offers`` and a ranking one that looks up the last token.

    ``table`` maps a token to its successors with scores, or is a function of the token. Every query
    is kept in ``asked``. The two answer to the names ``copying`` and ``ranking``, and to no other.

    Sampled children are those that ``drawn`` lists for a path, or their front if fewer are asked
    for; ``handles`` says which path and which excluded tokens a handle in ``q_rows`` stands for.
    """

    offers: tuple[Continuation, ...] = ()
    table: Mapping[int, Row] | Callable[[int], Row] = field(default_factory=dict)
    asked: list[Query] = field(default_factory=list)
    copying: str = "context"
    ranking: str = "adjacency"
    drawn: Mapping[tuple[int, ...], Sequence[int]] = field(default_factory=dict)
    handles: list[tuple[tuple[int, ...], frozenset[int]]] = field(default_factory=list)

    def successors(self, token: int) -> Row:
        return self.table(token) if callable(self.table) else self.table.get(token, ())

    def answer(self, query: Query) -> tuple[Continuation, ...] | Candidates:
        if isinstance(query, Continue):
            return self.continuations(query)
        assert isinstance(query, Expand)
        return self.expand(query)

    def continuations(self, query: Continue) -> tuple[Continuation, ...]:
        self.asked.append(query)
        assert query.source == self.copying
        return self.offers

    def expand(self, query: Expand) -> Candidates:
        self.asked.append(query)
        assert query.source == self.ranking
        assert len(query.nodes) == len(set(query.nodes)) > 0
        assert query.k > 0
        assert len(query.exclude) in {0, len(query.nodes)}
        found = Candidates.none(query)
        for i, node in enumerate(query.nodes):
            exclude = query.exclude[i] if query.exclude else frozenset[int]()
            row = [(t, s) for t, s in self.successors(query.tree.tokens[node]) if t not in exclude]
            if query.draw is not Draw.ONE_HOT:
                self.handles.append((path_of(query.tree, node), exclude))
                row = self.draw(row, self.handles[-1][0])
            for j, (token, score) in enumerate(row[: query.k]):
                found.tokens[i, j], found.logq[i, j] = token, math.log(score)
        if query.draw is Draw.ONE_HOT:
            return found
        q_rows = np.arange(len(self.handles) - len(query.nodes), len(self.handles))
        return replace(found, q_rows=q_rows)

    def draw(self, row: Row, path: tuple[int, ...]) -> list[tuple[int, float]]:
        """The canned draws of a node, with their shares of what is not excluded."""
        total = sum(score for _, score in row)
        shares = {token: score / total for token, score in row}
        return [(token, shares[token]) for token in self.drawn.get(path, ())]

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
        temperature: float = 0.0,
        noise: Any = None,
    ) -> TokenTree:
        """The tree that ``policy`` makes of these answers."""
        growth = Growth(anchor, room, budget, temperature=temperature, noise=noise)
        growing = policy.grow(growth, policy.start() if state is None else state)
        answer = None
        while True:
            try:
                query = growing.send(answer)
            except StopIteration as end:
                tree: TokenTree = end.value
                return tree
            answer = self.answer(query)


def path_of(tree: TreeBuilder, node: int) -> tuple[int, ...]:
    """The tokens on a path of a growing tree."""
    above = tree.parents[node]
    return () if above < 0 else (*path_of(tree, above), tree.tokens[node])


def outcome(tree: TokenTree, *path: int) -> Outcome:
    """A step that accepted ``path``; policies under test read no rows."""
    rows: TargetOutput = NO_ROWS
    return Outcome(tree, path, (*(int(tree.tokens[i]) for i in path), 0), rows)


def check_shape(tree: TokenTree, budget: int, room: int) -> None:
    """What every tree must keep: budget, room, and no repeated sibling."""
    assert tree.drafted <= max(0, budget)
    assert tree.depth <= max(0, room)
    pairs = list(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert (tree.route == "plain") == (tree.drafted == 0)
