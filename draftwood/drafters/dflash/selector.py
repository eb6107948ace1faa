"""DFlash2's selector: scores of a slot's likeliest tokens, given the token drafted before.

Source: DFlash2 (z-lab, 2026), in its published checkpoints. The candidates of slot j are the K
tokens c with the largest logits u. After the token p, the score of c is
``u + <A[p] * (P h), B[c]>``, with h the slot's last hidden state, A and B the codebooks and P the
projection. Other tokens are never drafted.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class SlotCandidates(NamedTuple):
    """The candidates of some slots.

    Attributes:
        tokens: int64 ``[.., K]``.
        logits: u, float32 ``[.., K]``.
        vectors: ``(P h) * B[c]``, ``[.., K, r]``.
    """

    tokens: Tensor
    logits: Tensor
    vectors: Tensor


class CandidateSelector(nn.Module):
    """The selector.

    Args:
        rank: r, width of the codebooks.
        top_k: K, candidates of a slot.
        hidden_size: width H of the slots.
        tokens: rows of the codebooks.
    """

    def __init__(self, rank: int, top_k: int, hidden_size: int, tokens: int) -> None:
        super().__init__()
        self.top_k = top_k
        self.predecessor_codebook = nn.Parameter(torch.zeros(tokens, rank))
        self.successor_codebook = nn.Parameter(torch.zeros(tokens, rank))
        self.hidden_projection = nn.Linear(hidden_size, rank, bias=False)

    def candidates(self, rows: Tensor, logits: Tensor) -> SlotCandidates:
        """The candidates of slots, by last hidden states ``[.., H]`` and logits ``[.., V]``."""
        best = logits.topk(min(self.top_k, logits.shape[-1]), dim=-1)
        vectors = self.successor_codebook[best.indices] * self.hidden_projection(rows)[..., None, :]
        return SlotCandidates(best.indices, best.values.float(), vectors)

    def forward(self, before: Tensor, found: SlotCandidates) -> Tensor:
        """Scores float32 ``[m, K]`` of candidates after the tokens ``before``, int64 ``[m]``."""
        added = found.vectors @ self.predecessor_codebook[before][..., None]
        return found.logits + added[..., 0].float()
