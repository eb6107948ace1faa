"""Growing a tree level by level: the frontier, its children as arrays, and the nodes made of them.

The policies over a draft model share this module. Children of one frontier are compared as NumPy
arrays, and a policy makes nodes of a :class:`TreeBuilder` from those that it chooses. Paths are
compared as sums of logarithms, which stay exact where a product of probabilities would underflow. A
drafter's estimate above 1 counts as 1, so that a child is never likelier than its parent.
"""

import math
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.protocols import Candidates, Continuation, Continue
from draftwood.tree import ROOT, Draw, TreeBuilder

UNLIMITED = sys.maxsize
NO_ROWS: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Frontier:
    """Nodes to expand next.

    Attributes:
        nodes: indices in the growing tree, all of one depth.
        path: float64 ``[m]``, natural log of each one's path probability.
    """

    nodes: list[int]
    path: NDArray[np.float64]

    def where(self, mask: NDArray[np.bool_]) -> "Frontier":
        """The nodes that ``mask`` (``[m]``) selects."""
        return Frontier([self.nodes[i] for i in np.flatnonzero(mask).tolist()], self.path[mask])


def certain_frontier(nodes: Iterable[int] = (ROOT,)) -> Frontier:
    """Nodes whose paths count as certain: the root, or nodes whose probabilities are not used."""
    found = list(nodes)
    return Frontier(found, np.zeros(len(found)))


@dataclass(frozen=True, eq=False)
class Level:
    """Children offered below some nodes: parallel arrays of length ``n``.

    Attributes:
        parents: int64, each one's parent, a node of the growing tree.
        tokens: int64, token ids.
        logq: float64, natural log of the drafter's estimate given the parent, at most 0.
        path: float64, natural log of the path probability.
    """

    parents: NDArray[np.int64]
    tokens: NDArray[np.int64]
    logq: NDArray[np.float64]
    path: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.path)

    def rows(self) -> Iterator[tuple[int, int, float]]:
        """Parent, token and logq of each child."""
        lists = self.parents.tolist(), self.tokens.tolist(), self.logq.tolist()
        return zip(*lists, strict=True)

    def take(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> "Level":
        """The children at these indices, in this order, or those that a mask selects."""
        return Level(
            self.parents[chosen], self.tokens[chosen], self.logq[chosen], self.path[chosen]
        )

    def likeliest(self, n: int) -> "Level":
        """The ``n`` of the largest path probability, in the order in which they were offered."""
        return self.take(likeliest(self.path, n))

    def best_first(self, n: int) -> "Level":
        """The ``n`` of the largest path probability, largest first, ties as offered."""
        return self.take(np.argsort(-self.path, kind="stable")[: max(n, 0)])


def certain_children(parents: Sequence[int] = (), tokens: Sequence[int] = ()) -> Level:
    """Children that count as certain; none without arguments."""
    logs = np.zeros(len(tokens))
    return Level(np.array(parents, dtype=np.int64), np.array(tokens, dtype=np.int64), logs, logs)


def likeliest(path: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Indices of the ``n`` largest entries, ascending; of equal entries the earlier ones.

    Over levels joined from the root down this set is closed under parents, since no child exceeds
    its parent and of equal ones the parent comes first.
    """
    if n >= len(path):
        return np.arange(len(path), dtype=np.int64)
    if n < 1:
        return np.zeros(0, dtype=np.int64)
    least = np.partition(path, len(path) - n)[len(path) - n]
    chosen = path > least
    ties = np.flatnonzero(path == least)
    chosen[ties[: n - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)


def log_probability(p: float) -> float:
    """Natural log of a threshold; ``-inf`` for 0, below which nothing lies."""
    return math.log(p) if p > 0.0 else -math.inf


def children(
    frontier: Frontier, answer: Candidates, widths: NDArray[np.int64] | None = None
) -> Level:
    """All children that a drafter offers below a frontier: parent by parent, best first.

    Args:
        frontier: ``m`` nodes, in the order in which they were asked about.
        answer: ``m`` rows; an entry without a token or with probability 0 offers nothing.
        widths: ``[m]``, most children of each node (None: as many as are offered).
    """
    offered = (answer.tokens >= 0) & (answer.logq > -np.inf)
    if widths is not None:
        offered &= np.arange(answer.tokens.shape[1]) < widths[:, None]
    row, rank = np.nonzero(offered)
    logq = np.minimum(answer.logq[row, rank].astype(np.float64), 0.0)
    parents = np.array(frontier.nodes, dtype=np.int64)[row]
    return Level(parents, answer.tokens[row, rank], logq, frontier.path[row] + logq)


def join(levels: Sequence[Level]) -> Level:
    """Several levels (at least one) as one, in order."""
    return Level(
        np.concatenate([level.parents for level in levels]),
        np.concatenate([level.tokens for level in levels]),
        np.concatenate([level.logq for level in levels]),
        np.concatenate([level.path for level in levels]),
    )


def promote(
    builder: TreeBuilder,
    level: Level,
    source: str,
    budget: int = UNLIMITED,
    draw: Draw = Draw.ONE_HOT,
    q_rows: Mapping[int, int] = NO_ROWS,
) -> Frontier:
    """Make nodes of a level's children, in order, until the tree has ``budget`` drafted nodes.

    A deterministic child that already is a node (another source offered it) costs nothing and is
    returned like the others.

    Args:
        builder: the growing tree.
        level: the children.
        source: name of the drafter that offered them.
        budget: most nodes of the tree, root excluded.
        draw: how the children were drawn.
        q_rows: of sampled children, by parent: :attr:`draftwood.protocols.Candidates.q_rows`.
    """
    nodes: list[int] = []
    for parent, token, logq in level.rows():
        if builder.drafted >= budget:
            break
        q_row = q_rows.get(parent, -1)
        nodes.append(builder.add(parent, token, source, logq=logq, draw=draw, q_row=q_row))
    return Frontier(nodes, level.path[: len(nodes)])


def transplant(grown: TreeBuilder, chosen: Level, source: str) -> TreeBuilder:
    """A tree of the chosen children alone.

    Args:
        grown: the tree whose nodes are the children's parents; it may hold others besides.
        chosen: children from the root down, none without its parent.
        source: name of the drafter that offered them.
    """
    builder = TreeBuilder(grown.tokens[ROOT])
    moved = {ROOT: ROOT}
    for parent, token, logq in chosen.rows():
        node = builder.add(moved[parent], token, source, logq=logq)
        expanded = grown.child(parent, token)
        if expanded is not None:
            moved[expanded] = node
    return builder


def preferred(source: str) -> Generator[Continue, Any, tuple[int, ...]]:
    """Ask for the tokens of the source's preferred continuation; none if it copies nothing."""
    offers: tuple[Continuation, ...] = yield Continue(source)
    return offers[0].tokens if offers else ()


def lay_copied(builder: TreeBuilder, source: str, most: int) -> Generator[Continue, Any, None]:
    """Copy the first ``most`` tokens of the source's preferred continuation below the root."""
    if most > 0:
        tokens = yield from preferred(source)
        builder.add_chain(tokens[:most], source)
