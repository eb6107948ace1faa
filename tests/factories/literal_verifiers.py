"""Verifiers as the papers write their loops, and a wrong one."""

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
class Traversal:
    """Traversal verification as its loop is printed: from the leaves up, redoing the parents."""

    accepts: ClassVar = ALL
    branching: ClassVar = True

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        return [self._one(case) for case in cases]

    def _one(self, case: Verification) -> Verdict:
        tree, q = case.tree, proposals(case)
        p = {n: case.p.probabilities([n])[0].double() for n in range(len(tree))}
        below = {n: children(tree, n) for n in range(len(tree))}
        share = {ROOT: 1.0}

        def refresh(node: int) -> None:
            for child in below[node]:
                token = int(tree.tokens[child])
                mine = float(q[child][token])
                ratio = share[node] * float(p[node][token]) / mine if mine > 0 else 0.0
                share[child] = min(1.0, ratio)
                refresh(child)

        refresh(ROOT)
        while True:
            node = ROOT
            while below[node]:
                node = below[node][0]
            if node == ROOT or case.noise.accepts(node, share[node]):
                path = tree.path(node)
                return Verdict(path, case.noise.choose(len(path), p[node]))
            above = int(tree.parents[node])
            below[above].remove(node)
            left = (share[above] * p[above] - q[node]).clamp(min=0)
            total = float(left.sum())
            if above != ROOT:
                share[above] = total / (total + 1 - share[above]) if total > 0 else 0.0
            if total > 0:
                p[above] = left / total
            refresh(above)


@dataclass(frozen=True)
class Twice:
    """Wrong: judges a node twice, hoping for a second chance."""

    accepts: ClassVar = ALL
    branching: ClassVar = True

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        found = []
        for case in cases:
            token = case.p.draw(ROOT, case.noise)
            child = 1 if len(case.tree) > 1 else None
            if child is not None and (
                case.noise.accepts(child, 0.5) or case.noise.accepts(child, 0.5)
            ):
                found.append(Verdict((child,), 0))
            else:
                found.append(Verdict((), token))
        return found
