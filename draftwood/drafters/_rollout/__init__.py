"""Answers a sampled query: tokens drawn from a draft model's distribution q after some nodes.

``races`` draws tokens from rows of q; ``draws`` makes q of logits and keeps it for the accept rule;
``coupling`` draws with the target's own random numbers.
"""

from draftwood.drafters._rollout.coupling import couple
from draftwood.drafters._rollout.draws import Draws
from draftwood.drafters._rollout.gumbel import (
    GumbelTopK,
    gumbel_top_k,
    gumbel_top_k_blocks,
    gumbel_top_k_whole,
)

__all__ = [
    "Draws",
    "GumbelTopK",
    "couple",
    "gumbel_top_k",
    "gumbel_top_k_blocks",
    "gumbel_top_k_whole",
]
