"""Trees of what followed the ends of a text, as SGLang arranges them.

An *end* is a suffix of the text that occurred before. Ends are taken in turn, the longest first.
What followed an end joins the tree that there is, until the tree has enough nodes; nodes that a
longer end gave already cost nothing. What followed one end is arranged

* by recency (SGLang's ``BFS``): breadth first, the latest successors of a node first. A node has
  the fewer children, the more tokens there are before them, those of the end included;
* by frequency (``PROB``): the likeliest path first. A path's probability is the product of its
  tokens' shares among the most frequent successors of each node.

Pure.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from typing import TypeAlias

from draftwood.drafters.trie.index import Place, count, successors, used

Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """Bounds of a tree.

    Attributes:
        depth: tokens of the longest n-gram of the trie.
        least: fewest successors of a node that recency takes.
        most: most successors of a node.
    """

    depth: int
    least: int
    most: int

    def breadth(self, before: int) -> int:
        """Successors that recency takes of an n-gram of so many tokens."""
        deepest = max(1, self.depth - 1)
        slope = (self.most - self.least) / deepest
        return max(1, int((deepest - before) * slope + self.least))


def latest(place: Place, most: int) -> list[tuple[int, Place]]:
    """So many successors of an n-gram at most, the latest first."""
    return heapq.nlargest(most, successors(place).items(), key=lambda each: used(each[1]))


def most_frequent(place: Place, most: int) -> list[tuple[int, Place]]:
    """The same, the most frequent first, of equal ones the smaller token."""
    found = successors(place).items()
    return heapq.nsmallest(most, found, key=lambda each: (-count(each[1]), each[0]))


def by_recency(end: Place, length: int, shape: Shape, deepest: int) -> Iterator[Path]:
    """The nodes below an end of so many tokens, breadth first."""
    queue: deque[tuple[Path, Place]] = deque([((), end)] if deepest > 0 else [])
    while queue:
        path, place = queue.popleft()
        for token, below in latest(place, shape.breadth(length + len(path))):
            further: Path = (*path, token)
            yield further
            if len(further) < deepest:
                queue.append((further, below))


def by_frequency(end: Place, length: int, shape: Shape, deepest: int) -> Iterator[Path]:  # noqa: ARG001
    """The nodes below an end, the likeliest path first."""
    number = numbers()
    heap: list[tuple[float, int, Path, Place]] = []

    def offer(path: Path, place: Place, probability: float) -> None:
        best = most_frequent(place, shape.most)
        total = sum(count(below) for _, below in best)
        for token, below in best:
            share = probability * count(below) / total
            heapq.heappush(heap, (-share, next(number), (*path, token), below))

    if deepest > 0:
        offer((), end, 1.0)
    while heap:
        negative, _, path, place = heapq.heappop(heap)
        yield path
        if len(path) < deepest:
            offer(path, place, -negative)


Arrange: TypeAlias = Callable[[Place, int, Shape, int], Iterator[Path]]


def merged(
    ends: Sequence[tuple[int, Place]], arrange: Arrange, shape: Shape, nodes: int, deepest: int
) -> tuple[Path, ...]:
    """The nodes of a tree, each as the tokens on its path; parents come first.

    Args:
        ends: length and n-gram of each, the longest first.
        arrange: orders what followed an end.
        shape: bounds.
        nodes: most nodes.
        deepest: most tokens of a path.
    """
    found: dict[Path, None] = {}
    for length, end in ends:
        for path in arrange(end, length, shape, deepest):
            if path not in found and len(found) >= nodes:
                return tuple(found)
            found[path] = None
    return tuple(found)
