"""Answers a sampled query: tokens drawn from a draft model's distribution q after some nodes.

``races`` draws tokens from rows of q; ``draws`` makes q of logits and keeps it for the accept rule;
``coupling`` draws with the target's own random numbers.
"""

from draftwood.drafters._rollout.coupling import couple
from draftwood.drafters._rollout.draws import Draws
from draftwood.drafters._rollout.gumbel import Race, race, race_blocks, race_whole

__all__ = ["Draws", "Race", "couple", "race", "race_blocks", "race_whole"]
