"""What sampling policies ask, and every way in which their draws can come out over a few tokens."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np

from draftwood.protocols import Candidates, Continuation, Continue, Expand, Growth, Policy
from draftwood.tree import Draw, TokenTree
from tests.factories.scripted_sources import Row, Sources, path_of

Path = tuple[int, ...]
Q = Callable[[Path], Sequence[float]]
Draws = list[tuple[Path, float]]


SHARES = (0.5, 0.25, 0.15, 0.1)


def four(token: int) -> Row:
    """The successors of a token: one more digit, from 1 to 4, the first the likeliest."""
    return [(10 * token + i + 1, share) for i, share in enumerate(SHARES)]


def expansions(sources: Sources) -> list[Expand]:
    return [query for query in sources.asked if isinstance(query, Expand)]


def drawn_for(shape: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
    """Draws for every path of a uniform shape: the successors of ``four``, in this order."""
    found: dict[tuple[int, ...], list[int]] = {}
    level: list[tuple[int, ...]] = [()]
    for width in shape:
        for path in level:
            tokens = [token for token, _ in four(path[-1] if path else 0)]
            found[path] = tokens[:width]
        level = [(*path, token) for path in level for token in found[path]]
    return found


def asked(sources: Sources) -> list[tuple[list[int], int, Draw, list[set[int]]]]:
    """Nodes, k, the way to draw and the excluded tokens of each query."""
    return [(list(q.nodes), q.k, q.draw, list(map(set, q.exclude))) for q in expansions(sources)]


class Dice(Sources):
    """Draws at random without replacement, always alike for the same path."""

    def draw(self, row: Row, path: Path) -> list[tuple[int, float]]:
        if not row:
            return []
        weights = np.array([score for _, score in row])
        shares = weights / weights.sum()
        order = np.random.default_rng([*path, 1]).choice(
            len(row), len(row), replace=False, p=shares
        )
        return [(row[i][0], float(shares[i])) for i in order.tolist()]


@dataclass(frozen=True, eq=False)
class Run:
    """One way: its probability, the tree, and what each handle in ``q_rows`` stands for."""

    probability: float
    tree: TokenTree
    handles: list[tuple[Path, frozenset[int]]]


def without(q: Sequence[float], tokens: frozenset[int] | set[int]) -> list[float]:
    """q with these tokens zeroed, and renormalised; nothing but zeros if nothing is left."""
    kept = [0.0 if token in tokens else share for token, share in enumerate(q)]
    return [share / sum(kept) for share in kept] if sum(kept) > 0.0 else kept


def draws_of(q: Sequence[float], k: int, draw: Draw) -> Draws:
    """All ordered draws of ``k`` tokens, or of as many as there are, with their probabilities."""
    support = [token for token, share in enumerate(q) if share > 0.0]
    if draw is Draw.IID:
        return [
            (tokens, math.prod(q[token] for token in tokens))
            for tokens in product(support, repeat=k if support else 0)
        ]
    found: Draws = []
    for tokens in permutations(support, min(k, len(support))):
        shares = [without(q, set(tokens[:i]))[token] for i, token in enumerate(tokens)]
        found.append((tokens, math.prod(shares)))
    return found


def runs(
    policy: Policy, q: Q, growth: Growth, offers: tuple[Continuation, ...] = ()
) -> Iterator[Run]:
    """Every run of a policy, its sampled queries answered in all possible ways.

    A query about a path that ends in the same tokens twice (possible with replacement) is answered
    for each of the two nodes on its own.
    """
    pending: list[tuple[int, ...]] = [()]
    while pending:
        script = pending.pop()
        probability, asked = 1.0, 0
        handles: list[tuple[Path, frozenset[int]]] = []
        growing = policy.grow(growth, policy.start())
        answer: Any = None
        while True:
            try:
                query = growing.send(answer)
            except StopIteration as end:
                yield Run(probability, end.value, handles)
                break
            if isinstance(query, Continue):
                answer = offers
                continue
            assert isinstance(query, Expand)
            exclude = query.exclude or [frozenset[int]()] * len(query.nodes)
            places = list(zip((path_of(query.tree, n) for n in query.nodes), exclude, strict=True))
            shares = [without(q(path), kept_out) for path, kept_out in places]
            if query.draw is Draw.ONE_HOT:
                ranked = [tuple(sorted(range(len(s)), key=lambda t: -s[t])) for s in shares]
                answer = _answer(query, ranked, shares)
                continue
            ways = list(product(*(draws_of(share, query.k, query.draw) for share in shares)))
            if asked == len(script):
                pending += [(*script, i) for i in range(1, len(ways))]
                script = (*script, 0)
            way = ways[script[asked]]
            asked += 1
            probability *= math.prod(p for _, p in way)
            handles += places
            q_rows = np.arange(len(handles) - len(places), len(handles))
            answer = _answer(query, [tokens for tokens, _ in way], shares, q_rows)


def _answer(
    query: Expand,
    tokens: Sequence[Path],
    shares: Sequence[Sequence[float]],
    q_rows: Any = None,
) -> Candidates:
    found = np.full((len(tokens), query.k), -1, dtype=np.int64)
    logq = np.full((len(tokens), query.k), -np.inf, dtype=np.float32)
    for i, (row, share) in enumerate(zip(tokens, shares, strict=True)):
        for j, token in enumerate(t for t in row[: query.k] if share[t] > 0.0):
            found[i, j], logq[i, j] = token, math.log(share[token])
    return Candidates(found, logq, q_rows)


def declared(tree: TokenTree, node: int, q: Q) -> float:
    """The probability with which a tree says that a node came out, given what precedes it."""
    draw = Draw(tree.draws[node])
    if draw is Draw.ONE_HOT:
        return 1.0
    siblings = [i for i in range(1, len(tree)) if tree.parents[i] == tree.parents[node]]
    certain = {int(tree.tokens[i]) for i in siblings if tree.draws[i] == Draw.ONE_HOT}
    before = {int(tree.tokens[i]) for i in siblings if i < node} if draw != Draw.IID else set()
    row = q(tree.path_tokens(int(tree.parents[node])))
    return without(row, certain | before)[int(tree.tokens[node])]


def check_law(found: Sequence[Run], q: Q) -> None:
    """Hold the runs of a policy against what its trees declare.

    The probability of each tree is the product of the probabilities that its nodes declare, and
    these sum to 1: had a drawn token been left out, moved or chosen among others, they could not.
    """
    mass: dict[Any, float] = defaultdict(float)
    trees: dict[Any, TokenTree] = {}
    for run in found:
        tree = run.tree
        key = (*tree.tokens.tolist(), *tree.parents.tolist(), *tree.draws.tolist())
        mass[key] += run.probability
        trees[key] = tree
        for node in range(1, len(tree)):
            siblings = np.flatnonzero(tree.parents == tree.parents[node])
            certain = siblings[tree.draws[siblings] == Draw.ONE_HOT]
            if tree.draws[node] == Draw.ONE_HOT:
                assert tree.q_rows[node] == -1
                assert siblings.tolist().index(node) >= len(siblings) - len(certain)
                continue
            path, kept_out = run.handles[int(tree.q_rows[node])]
            assert path == tree.path_tokens(int(tree.parents[node]))
            assert kept_out == frozenset(tree.tokens[certain].tolist())
    for key, total in mass.items():
        tree = trees[key]
        said = math.prod(declared(tree, node, q) for node in range(1, len(tree)))
        assert math.isclose(total, said, rel_tol=1e-9), (tree, total, said)
    assert math.isclose(sum(mass.values()), 1.0, rel_tol=1e-9)
