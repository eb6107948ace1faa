"""The best static tree for given acceptance by rank, and the fastest one for given step times.

Source: Sequoia (Chen et al., 2025), dynamic programme and hardware-aware choice. Model: at every
node, the child of rank b is accepted with probability p[b]. A tree's expected length is the sum
over its nodes of the product of p along their paths, with 1 for the root (the bonus token).

Trees have *at most* n nodes: where a rank is never accepted, or the depth is limited, further nodes
would add nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftwood.lab.theory.yields import FloatArray, check_count, check_probability

IntArray = NDArray[np.int64]
RankPath = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankTree:
    """A tree by the ranks on its nodes' paths, in depth-first order (parents first).

    `length` is the expected number of committed tokens per step, bonus included.
    """

    paths: tuple[RankPath, ...]
    length: float

    @property
    def depth(self) -> int:
        """Levels below the root: draft forwards that fill the tree."""
        return max(map(len, self.paths), default=0)


class TreeSearch:
    """Table T of the best trees for all sizes up to `nodes` and depths up to `max_depth`.

    T[m][l][b] is the largest expected length of a tree of at most m nodes, root included, at most
    l levels deep, whose root has the b likeliest ranks as children:
    `T[m][l][b] = max_y T[y][l][b-1] + p[b] * max_b' T[m-y][l-1][b']`, p[b] being the b-th rank's.
    O(nodes^2 * max_depth * ranks), one matrix per depth and rank.

    ValueError for an acceptance outside [0, 1], none at all, or a negative size or depth.
    """

    def __init__(self, acceptance: Sequence[float], nodes: int, max_depth: int) -> None:
        check_count("the number of ranks", len(acceptance), 1)
        check_count("nodes", nodes, 0)
        check_count("max_depth", max_depth, 0)
        for rank, p in enumerate(acceptance):
            check_probability(f"the acceptance of rank {rank}", p)
        sizes = nodes + 1
        self._best: list[FloatArray] = [np.ones(sizes)]  # by depth, then by m - 1
        self._width: list[IntArray] = [np.zeros(sizes, dtype=np.int64)]  # the b that gives it
        self._split: list[list[IntArray]] = [[]]  # by depth and b - 1: the y that gives T, less 1
        for _ in range(max_depth):
            by_width = [np.ones(sizes)]  # the root alone
            splits: list[IntArray] = []
            for p in acceptance:
                value, split = _attach(by_width[-1], p * self._best[-1])
                by_width.append(value)
                splits.append(split)
            table = np.stack(by_width)
            self._best.append(table.max(axis=0))
            self._width.append(table.argmax(axis=0))
            self._split.append(splits)

    def length(self, nodes: int, max_depth: int) -> float:
        """The largest expected length with at most `nodes` drafted nodes and `max_depth` levels."""
        return float(self._best[max_depth][nodes])

    def tree(self, nodes: int, max_depth: int) -> RankTree:
        """A tree with the largest expected length."""
        return RankTree(tuple(self._paths(nodes, max_depth)), self.length(nodes, max_depth))

    def _paths(self, nodes: int, depth: int) -> list[RankPath]:
        found: list[list[RankPath]] = []
        for rank in reversed(range(int(self._width[depth][nodes]))):
            elder = int(self._split[depth][rank][nodes])
            below = self._paths(nodes - elder - 1, depth - 1)
            found.append([(rank,), *((rank, *path) for path in below)])
            nodes = elder
        return [path for subtree in reversed(found) for path in subtree]


def _attach(elder: FloatArray, child: FloatArray) -> tuple[FloatArray, IntArray]:
    """Maximum over y of elder[y] + child[m - y], where both have at least one node.

    Arrays are indexed by size less 1. Returns the values, `-inf` for m = 1, and the best y less 1.
    """
    sizes = len(elder)
    total, part = np.arange(sizes)[:, None], np.arange(sizes)[None, :]
    left = total - part - 1
    sums = np.where(left >= 0, elder[part] + child[np.maximum(left, 0)], -np.inf)
    split = sums.argmax(axis=1)
    return sums[np.arange(sizes), split], split


def best_tree(acceptance: Sequence[float], nodes: int, max_depth: int | None = None) -> RankTree:
    """The tree of at most `nodes` drafted nodes with the largest expected length.

    `max_depth` of None is no limit. ValueError as in :class:`TreeSearch`.
    """
    depth = nodes if max_depth is None else min(nodes, max_depth)
    return TreeSearch(acceptance, nodes, depth).tree(nodes, depth)


def fastest_tree(
    acceptance: Sequence[float],
    draft_time: float,
    target_times: Sequence[float],
    max_depth: int,
) -> RankTree:
    """The tree that takes the least time per committed token.

    Minimises (d * draft_time + target_times[m]) / length over depths d up to `max_depth` and
    drafted nodes m; `target_times[m]` is the time of a target forward over the root and m nodes,
    so entry 0 is plain decoding. Ties go to the shallower, then to the smaller tree.
    ValueError for no or non-positive target times, or a negative draft time.
    """
    times = np.asarray(target_times, dtype=np.float64)
    if not times.size or not np.all(times > 0.0) or not draft_time >= 0.0:
        raise ValueError("Give a draft time of at least 0 and target times above 0, one per size.")
    search = TreeSearch(acceptance, len(times) - 1, max_depth)
    lengths = np.array(
        [[search.length(m, d) for m in range(len(times))] for d in range(max_depth + 1)]
    )
    seconds_per_token = (np.arange(max_depth + 1)[:, None] * draft_time + times) / lengths
    depth, nodes = divmod(int(seconds_per_token.argmin()), len(times))
    return search.tree(nodes, depth)
