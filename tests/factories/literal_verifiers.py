"""Token-level rejection as a plain loop, a base of wrong verifiers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from draftwood.protocols import Verdict, Verification
from draftwood.tree import ROOT, Draw, TokenTree

ALL = frozenset(Draw)


def proposals(case: Verification) -> dict[int, "torch.Tensor"]:
    """Q of every node: q with its earlier siblings out, q, or one-hot."""
    found: dict[int, torch.Tensor] = {}
    tree = case.tree
    size = case.p.probabilities([ROOT]).shape[1]
    for node in range(1, len(tree)):
        token, draw = int(tree.tokens[node]), Draw(tree.draws[node])
        if draw is Draw.ONE_HOT:
            q = torch.zeros(size, dtype=torch.float64)
            q[token] = 1
        else:
            q = case.q.probabilities([node])[0].double()
        if draw is Draw.WITHOUT_REPLACEMENT:
            q = q.clone()
            for sibling in range(1, node):
                if (
                    tree.parents[sibling] == tree.parents[node]
                    and tree.draws[sibling] == Draw.WITHOUT_REPLACEMENT
                ):
                    q[int(tree.tokens[sibling])] = 0
            q /= q.sum()
        found[node] = q
    return found


def children(tree: TokenTree, node: int) -> list[int]:
    return np.flatnonzero(tree.parents == node).tolist()


@dataclass(frozen=True)
class Rejection:
    """Recursive rejection, top down: every sibling in turn, then the residual."""

    accepts: ClassVar = ALL
    branching: ClassVar = True
    leniency: float = field(default=1.0)

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        return [self._one(case) for case in cases]

    def _one(self, case: Verification) -> Verdict:
        q = proposals(case)
        node, path = ROOT, list[int]()
        while True:
            left = case.p.probabilities([node])[0].double()
            for child in children(case.tree, node):
                token = int(case.tree.tokens[child])
                share = float(left[token] / q[child][token]) * self.leniency
                if case.noise.accepts(child, share):
                    path.append(child)
                    node = child
                    break
                left = (left - q[child]).clamp(min=0)
                left = left / left.sum() if left.sum() > 0 else left
            else:
                return Verdict(tuple(path), case.noise.choose(len(path), left))


@dataclass(frozen=True)
class Eager(Rejection):
    """Wrong: takes any child of the root that the target could have taken."""

    def _one(self, case: Verification) -> Verdict:
        row = case.p.probabilities([ROOT])[0]
        below = children(case.tree, ROOT)
        end = next((child for child in below if row[int(case.tree.tokens[child])] > 0), ROOT)
        return Verdict(case.tree.path(end), case.p.draw(end, case.noise))
