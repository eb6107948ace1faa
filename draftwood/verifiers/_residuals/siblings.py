"""Nodes whose children are tried, what comes of it, and what the verifiers do with that."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from draftwood.errors import DraftwoodError
from draftwood.protocols import Distributions, Proposals, Verdict, Verification
from draftwood.tree import SAMPLED, Draw, TokenTree
from draftwood.verifiers._walk import walk


def judge(
    cases: Sequence[Verification], rule: Callable[[list[Verification]], list[Verdict]]
) -> list[Verdict]:
    """Verdicts by ``rule`` on the trees with sampled nodes, by the target walk on the others.

    Where nothing was sampled, no rule accepts more than the walk.

    Raises:
        DraftwoodError: a tree has sampled nodes and coupled ones.
    """
    kinds = [set(case.tree.draws.tolist()) for case in cases]
    sampled = [bool(kind & SAMPLED) for kind in kinds]
    if any(yes and Draw.COUPLED in kind for yes, kind in zip(sampled, kinds, strict=True)):
        raise DraftwoodError(
            "a tree has nodes that were drawn with the target's random numbers and others that "
            "were drawn with their own: no rule is lossless for both"
        )
    found = iter(rule([case for case, yes in zip(cases, sampled, strict=True) if yes]))
    return [next(found) if yes else walk(case) for case, yes in zip(cases, sampled, strict=True)]


def children_of(tree: TokenTree) -> list[list[int]]:
    """The children of every node, in drawing order."""
    found: list[list[int]] = [[] for _ in range(len(tree))]
    for node, parent in enumerate(tree.parents.tolist()[1:], start=1):
        found[parent].append(node)
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Siblings:
    """A node whose children, one at least, are to be tried, and P(node), which is above 0."""

    case: Verification
    node: int
    children: Sequence[int]
    reach: float


class Tested(Protocol):
    """What comes of it; it may be worked out as it is asked for."""

    @property
    def known(self) -> bool:
        """Whether all of it is known already, so that asking costs nothing."""
        ...

    @property
    def chances(self) -> Iterable[float]:
        """P of each child, in drawing order; to be gone through once."""
        ...

    @property
    def mass(self) -> float:
        """Sum of R."""
        ...

    @property
    def residual(self) -> torch.Tensor:
        """``[V]``, in proportion to R after the last child."""
        ...


def kept(tried: Tested, reach: float) -> float:
    """h: probability to keep a node, reached with P = ``reach``, if no child is accepted.

    In this form a tiny mass cannot take it above 1, nor divide it by zero.
    """
    return tried.mass / (tried.mass + (1 - reach)) if tried.mass > 0 else 0.0


def bonus(case: Verification, node: int, tried: Tested | None) -> int:
    """The token after the last accepted node: drawn from what its children, if any, left of p."""
    # Only rounding leaves nothing at all: in exact arithmetic such a node is never the last one.
    if tried is None or tried.mass == 0:
        return case.p.draw(node, case.noise)
    return case.noise.choose(int(case.tree.depths[node]), tried.residual)


def rows_of(asked: Sequence[tuple[Distributions | Proposals, int]]) -> list[torch.Tensor]:
    """Distributions at nodes of several trees, ``[V]`` each; every tree is asked once."""
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
