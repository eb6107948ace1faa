"""Runs a draft model over growing trees and answers a policy's queries.

* ``rollout``: the forwards, level by level, over a batch; ``entries``: their KV cache entries;
* ``topk``: the likeliest tokens after a node; ``vocabulary``: the target's ids of the outputs;
* ``draws``: tokens sampled from q by ``gumbel``'s top-k, with q stored for the accept rule;
* ``coupling``: tokens sampled with the target's own random numbers.
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
