"""Compares an inflated head's drafts with those of its source, each on its own target."""

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.lab.inflate.model import Comparison, agreeing, compared


def check_head(
    before: tuple[LlamaForCausalLM, Eagle3Head],
    after: tuple[LlamaForCausalLM, Eagle3Head],
    ids: Tensor,
) -> Comparison:
    """Compare the heads on a text and refuse a difference.

    Args:
        before: the small model and its head, float32.
        after: the inflated ones, on the same device.
        ids: tokens of the text, int64 ``[n]``, at least 3.

    Raises:
        DraftwoodError: a likeliest drafted token differs, or a logit by more than the tolerance of
            models.
    """
    ours, theirs = (drafted(*each, ids) for each in (before, after))
    return agreeing(compared(ours, theirs), "the inflated head")


@torch.no_grad()
def drafted(model: LlamaForCausalLM, head: Eagle3Head, ids: Tensor) -> Tensor:
    """Logits of a head along a text, ``[2n - 3, Vd]``.

    The first n - 1 rows read the target's features, as rows of committed tokens do; the others read
    the head's own output for the token before, as drafted nodes do.

    Args:
        model: the head's target.
        head: in evaluation mode.
        ids: int64 ``[n]``.
    """
    text = ids[None].to(model.device)
    states = model(text, output_hidden_states=True, use_cache=False).hidden_states
    vectors = head.project(torch.cat([states[tap] for tap in head.taps], dim=-1))
    first = head(text[:, 1:], hidden=vectors[:, :-1], use_cache=False)
    second = head(text[:, 2:], hidden=first.hidden[:, :-1], use_cache=False)
    return torch.cat([first.logits[0], second.logits[0]])
