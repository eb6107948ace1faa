"""GOOSE's spine tree (method ``goose``): a chain of copied tokens with likely branches.

Source: GOOSE, Algorithm 1 (tree), Algorithm 2 (routing) and Section 4.3 (adaptation). One source
copies chains, the other ranks successors. Where the paper is silent or ambiguous:

* Consensus as printed holds for almost every match; see ``draftwood.policies._spine.bypasses``.
* A match without any successor is verified as the whole chain: cutting it to the spine's share
  would leave the rest of the budget unused and break Proposition 4.
* The budget that per-node caps leave over goes to step 4, first come first served: a branch leaf
  gets at most ``max(1, round(K * score / best score among those attached with it))`` successors.
* Successors with a score below ``min_score`` are dropped wherever they would be attached. The paper
  prunes its table at 0.01. The bound also serves sources that prune nothing, such as a draft model
  or an EAGLE-3 head.
* ``spine="control"`` (Table 2) draws the spine's tokens, and the bypass chain's, one by one from
  the ranking source. They carry the copying source's name, by which acceptance is measured.

The paper's tree always spends its budget, whatever a node costs.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from draftwood.policies._spine import SpineRule, SpineShape, SpineState, bypasses
from draftwood.protocols import (
    Candidates,
    Continuation,
    Continue,
    Expand,
    Grower,
    Growth,
    Recipe,
    setting,
)
from draftwood.tree import ROOT, TreeBuilder

Successors: TypeAlias = tuple[list[list[int]], list[list[float]]]
"""For each node asked about: tokens, best first, and scores. A negative token ends the row, and so
does a score of 0 or below ``SpineShape.min_score``."""


def attach_branches(
    builder: TreeBuilder, shape: SpineShape, source: str
) -> Generator[list[int], Successors, None]:
    """Steps 2 to 4 of Algorithm 1, over a builder that holds the spine and nothing else.

    Yields lists of nodes and is sent the :data:`Successors` of each, at most ``shape.top_k``.
    Nodes are appended in the order of the algorithm. To ask about many leaves at once, the front of
    the queue is taken for as long as its widths fit into what is left of the budget: whatever
    these leaves' children are, they queue up behind them.
    """
    size, deepest, add = shape.size, shape.max_depth, builder.add
    least = shape.min_score
    sequence, depths, spine = builder.tokens, builder.depths, builder.drafted
    queue: list[tuple[int, int, float]] = []  # leaf, depth below its branching point, score / best

    def attach(parent: int, tokens: list[int], scores: list[float], most: int, below: int) -> None:
        extensible = below < deepest and depths[parent] + 1 < shape.room
        best = 0.0
        for token, score in zip(tokens, scores, strict=True):
            index = len(sequence)
            if most <= 0 or token < 0 or score <= 0.0 or score < least or index >= size:
                return
            if add(parent, token, source, logq=math.log(score)) != index:
                continue
            most -= 1
            best = best or score
            if extensible:
                queue.append((index, below, score / best))

    shares = [shape.root_branches(spine), *shape.node_branches(spine)]
    asked = [(node, 0, share) for node, share in enumerate(shares) if share and node < shape.room]
    head = 0
    while asked:
        tokens, scores = yield [node for node, _, _ in asked]
        for i, (node, below, width) in enumerate(asked):
            attach(node, tokens[i], scores[i], width, below + 1)
        left = size - len(sequence)
        asked = []
        while left > 0 and head < len(queue):
            node, below, relative = queue[head]
            width = shape.leaf_width(relative)
            asked.append((node, below, width))
            left -= width
            head += 1


@dataclass(frozen=True)
class Spine(SpineRule):
    """The policy of GOOSE, with its ablations.

    Raises:
        DraftwoodError: a setting outside its range, or one source named twice.
    """

    min_chain: int = setting(1, "shorter copied chains count as no match, in tokens", least=1)
    spine: Literal["on", "off", "control"] = setting(
        "on", "ablations: no spine, or a spine from the ranking source"
    )
    spine_branches: bool = setting(True, "ablation: off leaves the spine's nodes without branches")
    branches: str = setting("adjacency", "name of the source that ranks", source="successors")

    def grow(self, growth: Growth, state: SpineState) -> Grower:
        """Grow the tree by Algorithm 2.

        Routes: ``bypass``, ``spine``, ``transition`` (no spine), ``chain`` (no successors) and
        ``plain`` (neither source has a candidate).
        """
        builder = TreeBuilder(growth.anchor)
        budget = min(self.budget, growth.budget)
        if budget < 1 or growth.room < 1:
            return builder.build("plain")
        offers: tuple[Continuation, ...] = yield Continue(self.chain)
        tokens = offers[0].tokens[: min(budget, growth.room)] if offers else ()
        if offers and len(offers[0].tokens) < self.min_chain:
            tokens = ()
        if tokens and bypasses(offers[0], self.bypass, self.bypass_length):
            yield from self._lay(builder, tokens)
            return builder.build("bypass" if builder.drafted else "plain")
        if self.spine == "off":
            tokens = ()
        shape = self.shape(budget, growth.room, state, self.spine_branches)
        yield from self._lay(builder, tokens[: shape.spine_length(len(tokens))])
        spine = builder.drafted
        yield from self._branch(builder, shape)
        if builder.drafted > spine:
            return builder.build("spine" if spine else "transition")
        if self.spine == "on":
            builder.add_chain(tokens[spine:], self.chain, parent=spine)
        return builder.build("chain" if builder.drafted else "plain")

    def _lay(self, builder: TreeBuilder, tokens: Sequence[int]) -> Generator[Expand, Any, None]:
        if self.spine != "control":
            builder.add_chain(tokens, self.chain)
            return
        node = ROOT
        for _ in tokens:
            answer: Candidates = yield Expand(self.branches, builder, [node], 1)
            if answer.tokens[0, 0] < 0 or math.exp(answer.logq[0, 0]) < self.min_score:
                return
            node = builder.add(
                node, int(answer.tokens[0, 0]), self.chain, logq=float(answer.logq[0, 0])
            )

    def _branch(
        self, builder: TreeBuilder, shape: SpineShape
    ) -> Generator[Expand, Candidates, None]:
        growing = attach_branches(builder, shape, self.branches)
        nodes = next(growing, None)
        while nodes is not None:
            answer = yield Expand(self.branches, builder, nodes, shape.top_k)
            try:
                nodes = growing.send((answer.tokens.tolist(), np.exp(answer.logq).tolist()))
            except StopIteration:
                return


PART = Spine
RECIPES = (
    Recipe(
        "goose",
        "a spine copied from the context, with branches from the adjacency table",
        "GOOSE (spine trees of context match and adjacency)",
        drafters={"context": "context", "adjacency": "adjacency"},
    ),
    Recipe(
        "goose-eagle3",
        "GOOSE's spine, with branches from an EAGLE-3 head",
        "GOOSE, proposed there as future work",
        drafters={"context": "context", "draft": "eagle3"},
        presets={"branches": "draft"},
    ),
)
