"""Draft trees whose nodes have an acceptance probability, and their exact yield.

The yield is computed in two independent ways: `enumerated_yield` runs the greedy walk on all 2^n
outcomes, `expected_yield` is a recursion. Siblings are tested in index order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from draftwood.lab.theory.yields import AcceptanceRates, check_count, check_probability

ENUMERATION_LIMIT = 16


@dataclass(frozen=True, slots=True)
class RatedTree:
    """A rooted tree; node i > 0 is accepted with probability `rates[i]`, independently.

    Node 0 is the anchor: parent -1, rate 1. Parents come before children, and the walk tests
    siblings in index order (GOOSE Algorithm 3: the spine child has the lowest index). ValueError
    on any other shape or a rate outside [0, 1].
    """

    parents: tuple[int, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.rates):
            raise ValueError(
                f"{len(self.parents)} parents and {len(self.rates)} rates; give each node both."
            )
        if not self.parents or self.parents[0] != -1 or self.rates[0] != 1.0:
            raise ValueError("Node 0 must be the root, with parent -1 and rate 1.")
        for node, parent in enumerate(self.parents[1:], start=1):
            if not 0 <= parent < node:
                raise ValueError(
                    f"Node {node} has parent {parent}; number parents before their children."
                )
        for node, rate in enumerate(self.rates):
            check_probability(f"the rate of node {node}", rate)

    @property
    def drafted(self) -> int:
        """Nodes without the root."""
        return len(self.parents) - 1


def expected_yield(tree: RatedTree) -> float:
    """E[tokens per step] of the greedy walk, bonus included, in O(nodes).

    With siblings c_1, c_2, ... tested in order, Y(v) = sum_j prod_{i<j} (1 - r_i) r_j (1 + Y(c_j)),
    and the answer is 1 + Y(root).
    """
    below = [0.0] * len(tree.parents)
    for node in range(len(tree.parents) - 1, 0, -1):
        parent, rate = tree.parents[node], tree.rates[node]
        below[parent] = rate * (1.0 + below[node]) + (1.0 - rate) * below[parent]
    return 1.0 + below[0]


def enumerated_yield(tree: RatedTree) -> float:
    """`expected_yield` by enumeration: one walk for each of the 2^n acceptance patterns.

    ValueError above `ENUMERATION_LIMIT` drafted nodes.
    """
    return _enumerate(tree, _walk_length)


def enumerated_longest_yield(tree: RatedTree) -> float:
    """E[1 + length of the longest accepted path], which a walk without backtracking may miss.

    In a real step siblings have different tokens, so at most one is accepted and both yields are
    equal. In the independent model several siblings can be accepted. Same limit as above.
    """
    return _enumerate(tree, _longest_length)


def chain(length: int, rate: float) -> RatedTree:
    """A chain of `length` tokens, all at `rate` (context matching alone, PLD)."""
    check_count("length", length, 0)
    return RatedTree(tuple(range(-1, length)), (1.0, *(rate for _ in range(length))))


def isotropic(budget: int, fan_out: int, rate: float) -> RatedTree:
    """Iso(k): the complete k-ary tree, truncated breadth-first at `budget` drafted nodes."""
    check_count("budget", budget, 0)
    check_count("fan_out", fan_out, 1)
    parents = (-1, *((node - 1) // fan_out for node in range(1, budget + 1)))
    return RatedTree(parents, (1.0, *(rate for _ in range(budget))))


def spine_tree(
    spine_length: int, widths: Sequence[int], rates: AcceptanceRates, branch_depth: int = 1
) -> RatedTree:
    """The tree of Eq. 1: a spine of m tokens, w_i branches at node i, each a chain.

    `widths` has m entries (nodes 0..m-1, Eq. 1) or m + 1 (the tip as well, Algorithm 1). Every
    branch is a chain of `branch_depth` tokens, so the tree drafts m + branch_depth * sum(w).
    """
    check_count("spine_length", spine_length, 0)
    check_count("branch_depth", branch_depth, 1)
    if len(widths) not in (spine_length, spine_length + 1):
        raise ValueError(
            f"{len(widths)} widths for a spine of {spine_length}; give m of them, or m + 1."
        )
    parents = list(range(-1, spine_length))
    for node, width in enumerate(widths):
        check_count(f"the width at spine node {node}", width, 0)
        for _ in range(width):
            parents.append(node)
            parents.extend(range(len(parents) - 1, len(parents) + branch_depth - 2))
    branches = len(parents) - 1 - spine_length
    return RatedTree(tuple(parents), (1.0, *[rates.p_s] * spine_length, *[rates.p_t] * branches))


def _enumerate(tree: RatedTree, length: Callable[[RatedTree, Sequence[bool]], int]) -> float:
    if tree.drafted > ENUMERATION_LIMIT:
        raise ValueError(
            f"{tree.drafted} nodes have too many acceptance patterns to enumerate; "
            f"stay within {ENUMERATION_LIMIT} or use expected_yield."
        )
    total = 1.0
    for pattern in product((True, False), repeat=tree.drafted):
        rates = zip(pattern, tree.rates[1:], strict=True)
        p = prod(rate if accepted else 1.0 - rate for accepted, rate in rates)
        total += p * length(tree, (True, *pattern))
    return total


def _walk_length(tree: RatedTree, accepted: Sequence[bool]) -> int:
    node, steps = 0, 0
    while True:
        children = (n for n, parent in enumerate(tree.parents) if parent == node and accepted[n])
        child = next(children, None)
        if child is None:
            return steps
        node, steps = child, steps + 1


def _longest_length(tree: RatedTree, accepted: Sequence[bool]) -> int:
    depth = [0] * len(tree.parents)
    alive = [True] * len(tree.parents)
    for node, parent in enumerate(tree.parents[1:], start=1):
        alive[node] = alive[parent] and accepted[node]
        depth[node] = depth[parent] + 1 if alive[node] else 0
    return max(depth)
