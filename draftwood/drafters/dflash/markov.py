"""The Markov head of DSpark: what the tokens drafted before add to a slot's logits.

Source: DSpark (DeepSeek, 2026), in its published checkpoints. With e the embedding of the token
before the one that slot j drafts, and h the slot's last hidden state, it adds

* vanilla: ``W2 e``;
* gated: ``W2 (sigmoid(G [h; e] + b) * e)``;
* rnn: ``W2 tanh(o)`` with ``[g; c; o] = J [s; e; h] + b``, where the state s is zero at the first
  drafted token, and ``sigmoid(g) * s + (1 - sigmoid(g)) * tanh(c)`` at the next one.
"""

import torch
from torch import Tensor, nn


class MarkovHead(nn.Module):
    """A head of low rank over the tokens drafted before.

    Args:
        kind: ``vanilla``, ``gated`` or ``rnn``.
        rank: r, width of the embedding.
        hidden_size: width H of the slots.
        tokens: rows of the embedding, by the target's ids.
        outputs: tokens that are drafted, Vd.
    """

    def __init__(self, kind: str, rank: int, hidden_size: int, tokens: int, outputs: int) -> None:
        super().__init__()
        self.kind = kind
        self.markov_w1 = nn.Embedding(tokens, rank)
        self.markov_w2 = nn.Linear(rank, outputs, bias=False)
        if kind == "gated":
            self.gate_proj = nn.Linear(hidden_size + rank, rank)
        elif kind == "rnn":
            self.joint_proj = nn.Linear(2 * rank + hidden_size, 3 * rank)

    def forward(self, slots: Tensor, paths: Tensor) -> Tensor:
        """What is added to the logits of the last slot, ``[m, Vd]``.

        Args:
            slots: last hidden states of the slots so far, ``[m, d + 1, H]``.
            paths: int64 ``[m, d + 1]``, the token before the one that each slot drafts.
        """
        embedded = self.markov_w1(paths)
        if self.kind == "gated":
            last = embedded[:, -1]
            gate = torch.sigmoid(self.gate_proj(torch.cat([slots[:, -1], last], dim=-1)))
            found: Tensor = self.markov_w2(gate * last)
        elif self.kind == "rnn":
            found = self.markov_w2(self._recur(slots, embedded))
        else:
            found = self.markov_w2(embedded[:, -1])
        return found

    def _recur(self, slots: Tensor, embedded: Tensor) -> Tensor:
        """The recurrence's output ``[m, r]`` at the last slot."""
        state = torch.zeros_like(embedded[:, 0])
        for place in range(slots.shape[1]):
            joined = torch.cat([state, embedded[:, place], slots[:, place]], dim=-1)
            gate, candidate, output = self.joint_proj(joined).chunk(3, dim=-1)
            kept = torch.sigmoid(gate)
            state = kept * state + (1 - kept) * torch.tanh(candidate)
        return torch.tanh(output)
