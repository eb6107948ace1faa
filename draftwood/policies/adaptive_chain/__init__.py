"""``adaptive-chain``: a draft model's chain, cut where a further token costs more than it adds.

The rule is vLLM's adaptive verification.
"""

from draftwood.policies.adaptive_chain.policy import PART
from draftwood.protocols import Recipe

RECIPES = (
    Recipe(
        "adaptive-chain",
        "a draft model's chain, cut by calibrated survival and by the cost of a step",
        "vLLM's adaptive verification (2026)",
        drafters={"draft": "model"},
    ),
)

__all__ = ["PART", "RECIPES"]
