"""An EAGLE-3 head run over text as it runs when drafting: its chains, unrolled from every position.

Knows the head's layer and in what order drafting calls it; refuses to know targets, losses and
optimisers.

Source: Li et al., *EAGLE-3* (2025), section 3.2 and figure 6, the "training-time test": what the
head returns goes in again, for as many steps as chains are to be long. Row i of step 0 holds the
target's features of position i and token i + 1. Row i of step k holds the output of row i of step
k - 1 and token i + 1 + k, has position i + k, and predicts token i + 2 + k. It sees what a drafted
node sees: the rows of step 0 up to i, where the target has been, and row i of every later step,
its own chain.

Deviations: tokens are the text's at every step, as in the paper's code, so a chain follows the text
even where the head would have drafted another token.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.errors import DraftwoodError

ATTENTION = "draftwood_unrolled"
_PLAIN = "sdpa"


@dataclass
class _Chains:
    """Keys and values [rows, key heads, n, d] of the steps so far; later steps are shorter."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


def unroll(head: Eagle3Head, features: Tensor, tokens: Tensor, steps: int) -> list[Tensor]:
    """Run ``steps`` steps of the head from every position; each as drafting would run it.

    Args:
        head: whose attention implementation is :data:`ATTENTION`, which changes nothing elsewhere.
        features: the target's [rows, length, taps * Ht] at the positions of ``tokens``.
        tokens: int64 [rows, length]; length is ``steps + 1`` or more.
        steps: how many, 1 or more.

    Returns:
        Per step k, what the head's layer yields, before the final norm: [rows, length - 1 - k, H].
        Row i predicts what follows position i + 1 + k.

    Raises:
        DraftwoodError: the head attends in another way, which knows nothing of chains.
    """
    if head.config._attn_implementation != ATTENTION:
        raise DraftwoodError(
            f"the head's attention is {head.config._attn_implementation!r}; to unroll it, call "
            f"head.set_attn_implementation({ATTENTION!r}) first"
        )
    table: Tensor = head.get_input_embeddings().weight  # type: ignore[assignment]
    count = tokens.shape[1] - 1
    hidden = head.project(features[:, :count])
    chains = _Chains()
    outputs = []
    for step in range(steps):
        read = tokens[:, 1 + step :]
        embedded = functional.embedding(read, table).to(head.fc.weight.dtype)
        positions = torch.arange(step, count, device=tokens.device)[None]
        hidden = head.midlayer(
            embedded,
            hidden[:, : count - step].to(embedded.dtype),
            attention_mask=None,
            position_embeddings=head.rotary_emb(embedded, positions),
            draftwood_chains=chains,
        )
        outputs.append(hidden)
    return outputs


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    draftwood_chains: _Chains | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The next step of chains; without any, transformers' own attention."""
    first = draftwood_chains is not None and not draftwood_chains.keys
    if draftwood_chains is not None:
        draftwood_chains.keys.append(key)
        draftwood_chains.values.append(value)
    if draftwood_chains is None or first:
        # Without a mask, it is causal.
        plain = ALL_ATTENTION_FUNCTIONS[_PLAIN]
        found: tuple[Tensor, Tensor | None] = plain(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return found
    return _later(query, draftwood_chains, scaling), None


def _later(query: Tensor, chains: _Chains, scaling: float) -> Tensor:
    """Attention [rows, n, heads, d] of a step after the first: one softmax over two kinds of keys.

    Every query has a score for each row of step 0, [n, n] in all, but only one for each later step,
    so these come from products of vectors that stand side by side.
    """
    rows, heads, count, size = query.shape
    key_heads = chains.keys[0].shape[1]
    group = heads // key_heads
    keys, values = (
        [states[:, :, None, :count] for states in kind] for kind in (chains.keys, chains.values)
    )
    grouped = query.view(rows, key_heads, group, count, size) * scaling
    unseen = torch.full((count, count), -torch.inf, dtype=query.dtype, device=query.device).triu(1)
    stem = torch.baddbmm(
        unseen.repeat(group, 1),
        grouped.reshape(rows * key_heads, group * count, size),
        keys[0].reshape(rows * key_heads, count, size).transpose(1, 2),
    ).view(rows, key_heads, group, count, count)
    own = [(grouped * k).sum(-1, keepdim=True) for k in keys[1:]]
    weights = torch.cat([stem, *own], dim=-1).softmax(-1, dtype=torch.float32).to(values[0].dtype)
    mixed = weights[..., :count] @ values[0]
    for place, states in enumerate(values[1:], start=count):
        mixed = mixed + weights[..., place : place + 1] * states
    return mixed.view(rows, heads, count, size).transpose(1, 2)


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS[_PLAIN])
