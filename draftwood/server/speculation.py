"""What drafting did for a choice, in vLLM's form."""

import math
from itertools import pairwise

from draftwood.engine.stats import Tally
from draftwood.server.schemas.answers import SpeculativeStats


def speculative_stats(tally: Tally, budget: int) -> SpeculativeStats:
    """The statistics of a finished choice; ``budget``: most nodes that a step may draft."""
    reached = [tally.steps, *(tally.reached_by_depth[d] for d in range(1, _deepest(tally) + 1)), 0]
    return SpeculativeStats(
        mean_acceptance_length=_number(tally.mean_acceptance_length),
        draft_acceptance_rate=_number(tally.acceptance_rate),
        acceptance_histogram=[a - b for a, b in pairwise(reached)],
        num_spec_steps=tally.steps,
        num_accepted_draft_tokens=tally.accepted,
        num_draft_tokens=tally.drafted,
        num_spec_tokens=budget,
        sources=dict(tally.accepted_by_source),
    )


def _deepest(tally: Tally) -> int:
    return max((depth for depth, steps in tally.reached_by_depth.items() if steps), default=0)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value  # JSON has no NaN
