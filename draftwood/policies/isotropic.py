"""Iso(k) (methods ``iso3``, ``iso5``): the balanced k-ary tree, a baseline of GOOSE.

Source: GOOSE, Sections 5.1 and 5.3 (a uniform-rate tree over the same pool of candidates).
"""

import math
from dataclasses import dataclass

from draftwood.policies._frontier import preferred
from draftwood.protocols import (
    Candidates,
    Expand,
    Grower,
    Growth,
    Policy,
    Recipe,
    setting,
)
from draftwood.tree import ROOT, TreeBuilder


@dataclass(frozen=True)
class Isotropic(Policy):
    """Every node gets ``k`` children, level by level, until the budget is spent.

    On the path of the copied continuation the first child is its next token; all others are the
    ranking source's best ones. No chain is ever verified alone.

    Raises:
        DraftwoodError: a negative budget or no children at all.
    """

    budget: int = setting(59, "most nodes to draft, root excluded", search=(8, 16, 32, 59), least=0)
    k: int = setting(3, "children of every node", least=1)
    chain: str = setting("context", "name of the source that copies", source="chains")
    branches: str = setting("adjacency", "name of the source that ranks", source="successors")

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``isotropic``, or ``plain`` without candidates."""
        builder = TreeBuilder(growth.anchor)
        size = min(self.budget, growth.budget) + 1
        if size < 2 or growth.room < 1:
            return builder.build("plain")
        copied = yield from preferred(self.chain)
        match = ROOT  # the deepest node on the copied path
        queue = [ROOT]
        head = 0
        while head < len(queue) and len(builder) < size:
            # As many parents as it takes at k children each: later ones could not be served.
            parents = math.ceil((size - len(builder)) / self.k)
            asked = queue[head : head + parents]
            head += len(asked)
            answer: Candidates = yield Expand(self.branches, builder, asked, self.k)
            tokens, logq = answer.tokens.tolist(), answer.logq.tolist()
            for i, parent in enumerate(asked):
                first = len(builder)
                most = min(first + self.k, size)
                if parent == match and builder.depths[parent] < len(copied):
                    match = builder.add(parent, copied[builder.depths[parent]], self.chain)
                for token, score in zip(tokens[i], logq[i], strict=True):
                    if token < 0 or len(builder) >= most:
                        break
                    builder.add(parent, token, self.branches, logq=score)
                if builder.depths[parent] + 1 < growth.room:
                    queue += range(first, len(builder))
        return builder.build("isotropic" if builder.drafted else "plain")


PART = Isotropic
RECIPES = (
    Recipe(
        "iso3",
        "a uniform 3-ary tree over GOOSE's two sources",
        "GOOSE's baseline Iso(3)",
        drafters={"context": "context", "adjacency": "adjacency"},
        presets={"k": 3},
    ),
    Recipe(
        "iso5",
        "a uniform 5-ary tree over GOOSE's two sources",
        "GOOSE's baseline Iso(5)",
        drafters={"context": "context", "adjacency": "adjacency"},
        presets={"k": 5},
    ),
)
