"""``throughput-chain``: a copied chain, its length found by the measured tokens per second.

The rule is onnxruntime-genai's adaptive proposal width.
"""

from draftwood.policies.throughput_chain.policy import PART
from draftwood.protocols import Recipe

RECIPES = (
    Recipe(
        "throughput-chain",
        "a chain copied from the context, its length found by measured throughput",
        "n-gram decoding of onnxruntime-genai (2026)",
        drafters={"context": "context"},
        presets={
            "context.lengths": (3,),
            "context.max_tokens": 16,
            "context.max_continuations": 1,
            "context.wrap": True,
        },
    ),
)

__all__ = ["PART", "RECIPES"]
