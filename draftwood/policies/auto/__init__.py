"""``auto``: the candidates of all sources in one tree, sized by what pays."""

from draftwood.policies.auto.policy import PART
from draftwood.protocols import Recipe

RECIPES = (
    Recipe(
        "auto",
        "all sources in one tree, sized by what pays on this machine and text",
        "-",
        drafters={"context": "context", "adjacency": "adjacency", "draft": "model"},
        verifier="traversal",  # which walks trees without sampled nodes
        presets={"context.wrap": True, "context.max_tokens": 64},  # unlikely ones are not drafted
        optional={"draft": "neural"},
    ),
)

__all__ = ["PART", "RECIPES"]
