"""A static tree of sampled tokens (``traversal``, ``rrsw``, ``specinfer``, ``block``, ``mixed``).

Source: Traversal Verification, Sections 3.1 and 4.1 (a chain, a binary tree, and EAGLE's sparse
tree, all of depth 5). With replacement it is SpecInfer's tree (Miao et al., 2024). Method
``greedy-order`` draws children as Hu et al. do ("Towards Optimal Multi-Draft Speculative Decoding",
2025, arXiv 2502.18779).

* The shape is fixed before anything is drawn, and every drawn token stays. A shape larger than the
  budget is cut breadth first. Of siblings, the one with the deepest subtree comes first; equal ones
  stay in the order of the shape. So a rank in the shape is the drawing order, not a likelihood.
* ``last`` makes one child of a node deterministic (not in the papers). It is known before its
  siblings are drawn, its token is excluded from their drawing, and it is verified after them. With
  ``top`` it is the drafter's likeliest token, and an only child too is that token. With ``context``
  it is the next token of a copied continuation, at the root and along the continuation; all
  children of other nodes are sampled.
* ``last="greedy"`` is the order of Hu et al.: of k children the k - 1 likeliest tokens are
  deterministic and one is sampled from the rest of q; an only child is sampled. The sampled child
  is verified first. Then token-level rejection accepts a sibling with probability sum min(p, q')
  over the rest, whose q' is q renormalised, plus the sum of p over the k - 1: the most that any
  rule accepts of such siblings. In the order of likelihood it would accept less.
* ``deepest="last"`` gives the likeliest deterministic child the deepest subtree of its siblings,
  instead of the first drawn child. Which is likelier depends on the drafter's confidence.
* A level costs one draft forward: the query for the likeliest tokens and the one for drawn tokens
  read the same rows.
* A greedy request (temperature 0) gets the tree of the drafter's likeliest tokens in this shape.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from draftwood.errors import DraftwoodError
from draftwood.policies._frontier import (
    Level,
    certain_children,
    certain_frontier,
    children,
    preferred,
)
from draftwood.policies._sampling import Drawing, DrawnPolicy, draw_below
from draftwood.policies._static import Deepest, RankPath, layout, shape_paths
from draftwood.protocols import Candidates, Expand, Grower, Growth, Recipe, setting
from draftwood.tree import ROOT, Draw, TreeBuilder


@dataclass(frozen=True)
class Sampled(DrawnPolicy):
    """Samples the children of a fixed shape, level by level.

    Raises:
        DraftwoodError: a setting outside its range, a shape that is none, or one source named
            twice.
    """

    budget: int = setting(62, "most nodes to draft, root excluded; cuts the shape", least=0)
    shape: str = setting(
        "2x2x2x2x2", 'children per level ("1x1x1" is a chain), "sparse", or a JSON file'
    )
    last: Literal["none", "top", "context", "greedy"] = setting(
        "none",
        "a node's last child: sampled too, the likeliest, or the copied one; greedy: all children "
        "but one are the likeliest",
    )
    deepest: Deepest = setting("first", "which child has the deepest subtree of its siblings")
    chain: str = setting(
        "context", "name of the source that copies, for last=context", source="chains"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.deepest == "last" and self.last == "none":
            raise DraftwoodError(
                "deepest=last is for a child that is not drawn; give last=top, last=context or "
                "last=greedy too"
            )
        len(self.paths)  # reads the file, so that a wrong one is refused before anything is loaded

    @cached_property
    def paths(self) -> tuple[RankPath, ...]:
        """The shape's nodes."""
        return shape_paths(self.shape, self.budget)

    @cached_property
    def _widest(self) -> int:
        levels = layout(self.paths, self.budget, self.deepest)
        return max((width for level in levels for width in level), default=0)

    @property
    def sources(self) -> tuple[str, ...]:
        """The drafter, and the copying source if it gives the last children."""
        return (self.source, self.chain) if self.last == "context" else (self.source,)

    @property
    def draws(self) -> frozenset[Draw]:
        """Sampled nodes, and deterministic ones, at least where the request is greedy."""
        if self.last == "top" and self._widest <= 1:
            return frozenset({Draw.ONE_HOT})
        return super().draws

    @property
    def branching(self) -> bool:
        """False if the shape is a chain."""
        return self._widest > 1

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree.

        Routes: ``sampled``, ``spine`` where copied tokens are among the nodes, or ``plain`` where
        nothing could be drafted.
        """
        tree = TreeBuilder(growth.anchor)
        drawing = self.drawing(growth)
        last, deepest = self.last, self.deepest
        if last in ("top", "greedy") and drawing.draw is Draw.ONE_HOT:
            last, deepest = "none", "first"  # the likeliest is the first of the top k anyway
        budget = min(self.budget, growth.budget)
        levels = layout(self.paths, budget, deepest)[: max(0, growth.room)]
        copied: tuple[int, ...] = ()
        if levels and last == "context":
            copied = yield from preferred(self.chain)
        places: list[int | None] = [ROOT]
        match = ROOT  # the deepest node on the copied path
        for depth, level in enumerate(levels):
            widths = {
                node: width
                for node, width in zip(places, level, strict=True)
                if node is not None and width
            }
            if not widths:
                break
            certain, certain_source = certain_children(), self.source
            if last in ("top", "greedy"):
                kept = {node: 1 if last == "top" else width - 1 for node, width in widths.items()}
                certain = yield from _likeliest(tree, kept, drawing)
                if deepest == "last":
                    certain = _likeliest_last(certain)
                asked = {*certain.parents.tolist()}
                widths = {n: width for n, width in widths.items() if not kept[n] or n in asked}
            elif match in widths and depth < len(copied):
                certain = certain_children([match], [copied[depth]])
                certain_source = self.chain
            counts = dict(widths)
            for parent in certain.parents.tolist():
                counts[parent] -= 1
            drawn, certain_nodes = yield from draw_below(
                tree,
                certain_frontier(counts),
                np.array(list(counts.values()), dtype=np.int64),
                drawing,
                certain,
                certain_source,
            )
            if certain_source == self.chain:
                match = certain_nodes.nodes[0]
            places = _places(tree, places, level, drawn.nodes, certain_nodes.nodes)
        if not tree.drafted:
            return tree.build("plain")
        return tree.build("sampled" if match == ROOT else "spine")


def _likeliest(
    tree: TreeBuilder, counts: Mapping[int, int], drawing: Drawing
) -> Generator[Expand, Any, Level]:
    """So many of the likeliest children of each node, parent by parent."""
    wanted = {node: count for node, count in counts.items() if count}
    if not wanted:
        return certain_children()
    parents = certain_frontier(wanted)
    answer: Candidates = yield drawing.likeliest(tree, parents, max(wanted.values()))
    return children(parents, answer, np.array([*wanted.values()], dtype=np.int64))


def _likeliest_last(level: Level) -> Level:
    """The children, the first of each parent behind all others."""
    first = np.diff(level.parents, prepend=-1) != 0
    return level.take(np.argsort(first, kind="stable"))


def _places(
    tree: TreeBuilder,
    above: Sequence[int | None],
    widths: Sequence[int],
    drawn: Sequence[int],
    certain_nodes: Sequence[int],
) -> list[int | None]:
    """The nodes of a level by their place in the shape; None where nothing was offered."""
    first: dict[int | None, list[int]] = {}
    for node in drawn:
        first.setdefault(tree.parents[node], []).append(node)
    last: dict[int | None, list[int]] = {}
    for node in certain_nodes:
        last.setdefault(tree.parents[node], []).append(node)
    found: list[int | None] = []
    for parent, width in zip(above, widths, strict=True):
        if width:
            places: list[int | None] = [*first.get(parent, ()), *[None] * width][:width]
            behind = last.get(parent, ())
            found += [*places[: width - len(behind)], *behind]
    return found


PART = Sampled
RECIPES = (
    Recipe(
        "traversal",
        "a sparse tree sampled from a draft model, its paths verified as wholes",
        "Traversal Verification",
        drafters={"draft": "model", "context": "context"},
        verifier="traversal",
        presets={"shape": "sparse"},  # most accepted per node, of the shapes tried
    ),
    Recipe(
        "rrsw",
        "a sparse tree sampled from a draft model, verified token by token",
        "RRSw (Jeon et al. 2024), baseline of Traversal Verification",
        drafters={"draft": "model", "context": "context"},
        verifier="rejection",
        presets={"shape": "sparse"},
    ),
    Recipe(
        "specinfer",
        "a sparse tree sampled with replacement, verified token by token",
        "SpecInfer (Miao et al. 2024)",
        drafters={"draft": "model", "context": "context"},
        verifier="rejection",
        presets={"shape": "sparse", "replacement": True},
    ),
    Recipe(
        "block",
        "a chain sampled from a draft model, verified as a whole",
        "Block Verification (Sun et al. 2024)",
        drafters={"draft": "model", "context": "context"},
        verifier="block",
        presets={"shape": "1x1x1x1x1"},
    ),
    Recipe(
        "mixed",
        "a binary tree of a sampled and a likeliest child, its paths verified as wholes",
        "Traversal Verification; this layout is not in the paper",
        drafters={"draft": "model", "context": "context"},
        verifier="traversal",
        presets={"last": "top"},
    ),
    Recipe(
        "greedy-order",
        "a sparse tree of the likeliest children and a sampled one, verified token by token",
        "Optimal Multi-Draft (Hu et al. 2025), its greedy draft sampling",
        drafters={"draft": "model", "context": "context"},
        verifier="rejection",
        presets={"shape": "sparse", "last": "greedy", "deepest": "last"},
    ),
)
