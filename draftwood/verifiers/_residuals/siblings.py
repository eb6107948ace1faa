"""Shared parts of verifiers of sampled trees: siblings to test, the result, and the bonus token."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

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
    """A node with its children to test, one or more, and P(node) > 0 as ``reach``."""

    case: Verification
    node: int
    children: Sequence[int]
    reach: float


class Tested(Protocol):
    """The result of testing a node's children; it may be computed lazily."""

    @property
    def known(self) -> bool:
        """Whether the result is computed, so that reading it is free."""
        ...

    @property
    def probabilities(self) -> Iterable[float]:
        """P of each child, in drawing order; to be read once."""
        ...

    @property
    def mass(self) -> float:
        """Sum of R after the last child."""
        ...

    @property
    def residual(self) -> torch.Tensor:
        """R after the last child ``[V]``, up to a factor."""
        ...


def keep_probability(tested: Tested, reach: float) -> float:
    """h: probability to keep a node with P = ``reach`` if no child is accepted.

    In this form rounding of a tiny mass gives neither a value above 1 nor a division by zero.
    """
    return tested.mass / (tested.mass + (1 - reach)) if tested.mass > 0 else 0.0


def bonus(case: Verification, node: int, tested: Tested | None) -> int:
    """The token after the last accepted node, drawn from the residual that its children left."""
    # Only rounding leaves no residual: in exact arithmetic such a node is never the last one.
    if tested is None or tested.mass == 0:
        return case.p.draw(node, case.noise)
    return case.noise.choose(int(case.tree.depths[node]), tested.residual)


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
