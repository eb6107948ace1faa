"""Medusa heads with random weights."""

import torch

from draftwood.drafters.medusa.heads import MedusaHeads
from draftwood.protocols import TargetInfo


def made_heads(
    count: int,
    target: TargetInfo,
    *,
    output: torch.nn.Module | None = None,
    ids: torch.Tensor | None = None,
    seed: int = 5,
) -> MedusaHeads:
    """Heads for a target: with outputs of their own, over some of its tokens, or with its own."""
    torch.manual_seed(seed)
    drafted = torch.arange(target.vocab_size) if ids is None else ids
    heads = MedusaHeads(count, 1, target.hidden_size, len(drafted) if output is None else None)
    if output is None:
        heads.token_ids.copy_(drafted)
    for parameter in heads.parameters():
        parameter.data.normal_(std=0.3)
    if output is not None:
        heads.share_output(output)
    heads.train(mode=False)
    return heads
