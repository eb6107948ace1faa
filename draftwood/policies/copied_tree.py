"""A tree that its source copies as a whole (method ``ngram-trie``).

Source: SGLang's NGRAM speculative decoding. Where the shape of the tree follows from the source's
index, as from a trie, the drafter arranges it (:mod:`draftwood.drafters.trie`), and the policy
takes as much of it as it may draft. SGLang verifies a fixed number of nodes, 12 with the root, and
fills a tree that has fewer with tokens that mean nothing; these are left out here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from draftwood.protocols import Branches, Grower, Growth, Policy, Recipe, setting
from draftwood.tree import ROOT, TreeBuilder


@dataclass(frozen=True)
class CopiedTree(Policy):
    """Drafts the first ``budget`` nodes of the source's tree.

    Raises:
        DraftwoodError: a negative budget.
    """

    budget: int = setting(
        11, "most nodes to draft, root excluded", search=(7, 11, 15, 31, 63), least=0
    )
    source: str = setting("trie", "name of the source that copies a tree", source="trees")

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``copied``, or ``plain`` where nothing matches."""
        builder = TreeBuilder(growth.anchor)
        budget = min(self.budget, growth.budget)
        if budget > 0 and growth.room > 0:
            paths: Iterable[tuple[int, ...]] = yield Branches(self.source, budget, growth.room)
            for path in paths:
                node = ROOT
                for token in path[: growth.room]:
                    below = builder.child(node, token)
                    if below is None and builder.drafted >= budget:
                        break
                    node = builder.add(node, token, self.source) if below is None else below
        return builder.build("copied" if builder.drafted else "plain")


PART = CopiedTree
RECIPES = (
    Recipe(
        "ngram-trie",
        "a tree from a trie of what was generated, in this and in earlier requests",
        "NGRAM speculative decoding of SGLang (2025)",
        drafters={"trie": "trie"},
    ),
)
