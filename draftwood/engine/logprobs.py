"""Log probabilities of committed tokens, from the target's logits of the step that chose them.

They are those of the model: of its raw logits, before temperature, truncation and processors.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from draftwood.copies import downloaded, uploaded


class TokenLogprob(NamedTuple):
    """The log probability of a committed token, and of the likeliest ones at its place.

    Attributes:
        token: the committed one.
        logprob: natural logarithm of its softmax probability.
        top: the likeliest tokens and their log probabilities, likeliest first, as many as were
            asked for.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@torch.inference_mode()
def token_logprobs(
    logits: torch.Tensor, rows: Sequence[int], tokens: Sequence[int], most: int
) -> tuple[TokenLogprob, ...]:
    """The log probabilities of tokens.

    Args:
        logits: ``[n, V]``; computed with in float32.
        rows: row of the logits that each token was chosen from.
        tokens: the committed ones.
        most: likeliest tokens of each row.
    """
    places, ids = uploaded([np.array(rows), np.array(tokens)], logits.device)
    logprobs = torch.log_softmax(logits[places].float(), dim=-1)
    found = logprobs.topk(most, dim=-1)
    own, best, values = downloaded(
        [logprobs.gather(1, ids[:, None])[:, 0], found.indices, found.values]
    )
    top = [
        tuple(zip(*pair, strict=True)) for pair in zip(best.tolist(), values.tolist(), strict=True)
    ]
    return tuple(map(TokenLogprob, tokens, own.tolist(), top))
