"""Traversal Verification as the paper's Algorithm 3 has it: one tree, node by node, in NumPy.

And token-level recursive rejection sampling by its definition. Slow and plain: what the product's
verifiers are held against.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from draftwood.tree import ROOT
from tests.verifiers.exact_law import Sequences
from tests.verifiers.small_laws import Draft, Row


@dataclass
class LiteralOutcome:
    """The result of a rule on a tree.

    Attributes:
        chances: acceptance of each node when the rule comes to it, in the order of its coming.
        ends: probability that the node is the last one accepted.
        bonus: distribution of the token after it, if it is.
    """

    probabilities: dict[int, float] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    bonus: dict[int, Row] = field(default_factory=dict)

    def law(self, draft: Draft) -> Sequences:
        """Law of what is committed."""
        found: Sequences = {}
        for node, end in self.ends.items():
            for token, share in enumerate(self.bonus[node].tolist()):
                tokens = (*draft.tree.path_tokens(node), token)
                found[tokens] = found.get(tokens, 0.0) + end * share
        return found


def children_of(draft: Draft) -> list[list[int]]:
    parents = draft.tree.parents.tolist()
    return [[c for c in range(len(parents)) if parents[c] == v] for v in range(len(parents))]


def normalised(row: Row) -> Row:
    return row / row.sum() if row.sum() > 0 else row


def traversal(draft: Draft, p: Sequence[Row]) -> LiteralOutcome:
    """Algorithm 3."""
    tokens, parents = draft.tree.tokens.tolist(), draft.tree.parents.tolist()
    children = children_of(draft)
    reach = {ROOT: 1.0}
    target = {node: row.copy() for node, row in enumerate(p)}

    def refresh(node: int) -> None:
        for child in children[node]:
            token, q = tokens[child], draft.drawn_from[child]
            ratio = reach[node] * target[node][token] / q[token] if q[token] > 0 else 0.0
            reach[child] = min(1.0, ratio)
            refresh(child)

    refresh(ROOT)
    found, still = LiteralOutcome(), 1.0
    while True:
        node = ROOT
        while children[node]:
            node = children[node][0]
        probability = 1.0 if node == ROOT else reach[node]
        found.probabilities[node] = probability
        found.ends[node] = still * probability
        found.bonus[node] = target[node].copy()
        still *= 1 - probability
        if node == ROOT:
            return found
        parent = parents[node]
        children[parent].remove(node)
        left = np.maximum(reach[parent] * target[parent] - draft.drawn_from[node], 0)
        mass = float(left.sum())
        if parent != ROOT:
            reach[parent] = mass / (mass + (1 - reach[parent])) if mass > 0 else 0.0
        target[parent] = normalised(left)
        refresh(parent)


def rejection(draft: Draft, p: Sequence[Row]) -> LiteralOutcome:
    """From the root down; each sibling against what the ones before it left."""
    tokens, children = draft.tree.tokens.tolist(), children_of(draft)
    found = LiteralOutcome()

    def visit(node: int, arriving: float) -> None:
        left, still = p[node], arriving
        for child in children[node]:
            token, q = tokens[child], draft.drawn_from[child]
            probability = min(1.0, left[token] / q[token]) if q[token] > 0 else 0.0
            found.probabilities[child] = probability
            visit(child, still * probability)
            still *= 1 - probability
            left = normalised(np.maximum(left - q, 0))
        found.ends[node] = still
        found.bonus[node] = left

    visit(ROOT, 1.0)
    return found
