"""The fixed tree (``sd``, ``fixed-tree``, ``dflash``, ``pard``, ``peagle``): breadth and depth.

Source: DynaTree, Section 4.3 and Appendix A (its baselines). With ``breadth=1`` and
``threshold=0`` this is linear speculative decoding, a chain of the drafter's likeliest tokens.

Depths are counted from the anchor. The paper's tree has a root token, the drafter's top-1 at depth
0, where this one has ``breadth`` first tokens: its D = 8 is a depth of 9 here. As in the paper's
Algorithm 1 the tree grows breadth first, parents in order, until the budget is spent. A child below
the threshold takes no budget: it is dropped when it is offered, because no descendant could stay.
"""

from dataclasses import dataclass

from draftwood.policies._frontier import certain_frontier, children, log_probability, promote
from draftwood.protocols import Candidates, Expand, Grower, Growth, Policy, Recipe, setting
from draftwood.tree import TreeBuilder


@dataclass(frozen=True)
class Fixed(Policy):
    """The top ``breadth`` children of every node, one draft forward per level.

    Raises:
        DraftwoodError: a setting outside its range.
    """

    budget: int = setting(59, "most nodes to draft, root excluded", search=(16, 59), least=0)
    depth: int | None = setting(
        9, "deepest node (D); none: as deep as the budget reaches", search=(3, 5, 9), least=1
    )
    breadth: int = setting(3, "children of every node (B)", search=(1, 2, 3), least=1)
    threshold: float = setting(0.1, "least path probability of a node (tau)", least=0, below=1)
    source: str = setting("draft", "name of the drafter", source="successors")

    @property
    def branching(self) -> bool:
        """False if the breadth is 1."""
        return self.breadth > 1

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``fixed``, or ``plain`` where nothing could be drafted."""
        builder = TreeBuilder(growth.anchor)
        budget = min(self.budget, growth.budget)
        deepest = growth.room if self.depth is None else min(self.depth, growth.room)
        least = log_probability(self.threshold)
        frontier = certain_frontier()
        depth = 0
        while frontier.nodes and builder.drafted < budget and depth < deepest:
            k = min(self.breadth, budget - builder.drafted)
            answer: Candidates = yield Expand(self.source, builder, frontier.nodes, k)
            level = children(frontier, answer)
            likely = level.take(level.path >= least)
            frontier = promote(builder, likely, self.source, budget)
            depth += 1
        return builder.build("fixed" if builder.drafted else "plain")


PART = Fixed
RECIPES = (
    Recipe(
        "sd",
        "a chain of a draft model's likeliest tokens",
        "Speculative decoding (Leviathan et al. 2023)",
        drafters={"draft": "model"},
        presets={"budget": 5, "breadth": 1, "depth": None, "threshold": 0.0},
        search={"budget": (1, 2, 3, 5, 8), "breadth": (), "depth": ()},
    ),
    Recipe(
        "fixed-tree",
        "a draft model's tree of fixed breadth and depth",
        "DynaTree's fixed tree (D=8, B=3, tau=0.1)",
        drafters={"draft": "model"},
    ),
    Recipe(
        "dflash",
        "a chain of a block drafter's likeliest tokens",
        "DFlash (z-lab, 2026)",
        drafters={"draft": "dflash"},
        presets={"budget": 15, "breadth": 1, "depth": None, "threshold": 0.0},
        search={"budget": (3, 5, 7, 15), "breadth": (), "depth": ()},
    ),
    Recipe(
        "pard",
        "a chain of a draft model's likeliest tokens, which it predicts in one forward",
        "PARD (An et al. 2025)",
        drafters={"draft": "pard"},
        presets={"budget": 8, "breadth": 1, "depth": None, "threshold": 0.0},
        search={"budget": (3, 5, 8), "breadth": (), "depth": ()},
    ),
    Recipe(
        "peagle",
        "a chain of a P-EAGLE head's likeliest tokens, which it predicts in one forward",
        "P-EAGLE (AWS, 2026)",
        drafters={"draft": "peagle"},
        presets={"budget": 8, "breadth": 1, "depth": None, "threshold": 0.0},
        search={"budget": (3, 5, 8), "breadth": (), "depth": ()},
    ),
)
