"""``auto``: one tree of all sources' candidates, sized for the most tokens per second."""

from draftwood.policies.auto.policy import PART
from draftwood.protocols import Recipe

RECIPES = (
    Recipe(
        "auto",
        "one tree of all sources' candidates, sized by costs and acceptance",
        "-",
        drafters={"context": "context", "adjacency": "adjacency", "draft": "model"},
        verifier="traversal",  # which walks trees without sampled nodes
        presets={
            "context.wrap": True,
            "context.max_tokens": 64,  # unlikely ones are not drafted
            "adjacency.prompt": False,  # it doubles prefill, for hardly better trees
        },
        optional={"draft": "neural"},
        further=("also", "neural"),
    ),
)

__all__ = ["PART", "RECIPES"]
