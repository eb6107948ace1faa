"""Siblings to test, and the distributions at their parents."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from draftwood.protocols import Distributions, Proposals, Verification
from draftwood.tree import TokenTree


def children_of(tree: TokenTree) -> list[list[int]]:
    """The children of every node, in drawing order."""
    found: list[list[int]] = [[] for _ in range(len(tree))]
    for node, parent in enumerate(tree.parents.tolist()[1:], start=1):
        found[parent].append(node)
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Siblings:
    """A node with its children to test, one or more."""

    case: Verification
    node: int
    children: Sequence[int]


def rows_of(asked: Sequence[tuple[Distributions | Proposals, int]]) -> list[torch.Tensor]:
    """Distributions ``[V]`` at nodes of several trees, with one call per tree."""
    if len(asked) == 1:
        [(tree, node)] = asked
        return [tree.probabilities([node])[0]]
    places: dict[int, list[int]] = {}
    for i, (tree, _) in enumerate(asked):
        places.setdefault(id(tree), []).append(i)
    found: dict[int, torch.Tensor] = {}
    for own in places.values():
        rows = asked[own[0]][0].probabilities([asked[i][1] for i in own])
        found.update(zip(own, rows, strict=True))
    return [found[i] for i in range(len(asked))]
