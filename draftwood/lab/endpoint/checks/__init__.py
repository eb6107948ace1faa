"""The checks, one a module, and the order in which they run."""

from draftwood.lab.endpoint.checks import (
    bias,
    choices,
    distribution,
    ends,
    greedy,
    logprobs,
    penalties,
    seeds,
    streaming,
)

CHECKS = (
    greedy.CHECK,  # first: the others compare with its answers
    streaming.CHECK,
    logprobs.CHECK,
    penalties.CHECK,
    bias.CHECK,
    ends.CHECK,
    choices.CHECK,
    seeds.CHECK,
    distribution.CHECK,
)
