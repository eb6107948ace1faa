"""Training-time unrolling of an EAGLE-3 head: a draft chain from every position of a text.

Source: Li et al., *EAGLE-3* (2025), section 3.2 and figure 6, the "training-time test": the head's
output is its input in the next step. Row i of step 0 has the target's features of position i and
token i + 1. Row i of step k has the output of row i of step k - 1 and token i + 1 + k, is at
position i + k, and predicts token i + 2 + k. It attends to what a drafted node attends to: the rows
of step 0 up to i, which the target has processed, and row i of every later step, its own chain.

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
    """Keys and values [rows, key heads, n, d] of each step; later steps are shorter."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


def unroll(head: Eagle3Head, features: Tensor, tokens: Tensor, steps: int) -> list[Tensor]:
    """Run ``steps`` steps of the head from every position, as in drafting.

    Args:
        head: its attention implementation must be :data:`ATTENTION`.
        features: the target's features [rows, length, taps * Ht] of ``tokens``.
        tokens: int64 [rows, length]; length is ``steps + 1`` or more.
        steps: number of steps, 1 or more.

    Returns:
        Output of the head's layer per step k, before the final norm: [rows, length - 1 - k, H].
        Row i predicts the token after position i + 1 + k.

    Raises:
        DraftwoodError: the head has another attention implementation.
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
        inputs = tokens[:, 1 + step :]
        embedded = functional.embedding(inputs, table).to(head.fc.weight.dtype)
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
    """Attention of the next step of ``draftwood_chains``; without chains, transformers' own."""
    first = draftwood_chains is not None and not draftwood_chains.keys
    if draftwood_chains is not None:
        draftwood_chains.keys.append(key)
        draftwood_chains.values.append(value)
    if draftwood_chains is None or first:
        # Causal, as there is no mask.
        plain = ALL_ATTENTION_FUNCTIONS[_PLAIN]
        found: tuple[Tensor, Tensor | None] = plain(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return found
    return _later(query, draftwood_chains, scaling), None


def _later(query: Tensor, chains: _Chains, scaling: float) -> Tensor:
    """Attention [rows, n, heads, d] of a step after the first.

    Every query has a score for each row of step 0, [n, n] in total, and one score for each later
    step, computed row by row. One softmax is over all of them.
    """
    rows, heads, count, size = query.shape
    key_heads = chains.keys[0].shape[1]
    group = heads // key_heads
    keys, values = (
        [states[:, :, None, :count] for states in kind] for kind in (chains.keys, chains.values)
    )
    grouped = query.view(rows, key_heads, group, count, size) * scaling
    mask = torch.full((count, count), -torch.inf, dtype=query.dtype, device=query.device).triu(1)
    stem = torch.baddbmm(
        mask.repeat(group, 1),
        grouped.reshape(rows * key_heads, group * count, size),
        keys[0].reshape(rows * key_heads, count, size).transpose(1, 2),
    ).view(rows, key_heads, group, count, count)
    own = [(grouped * k).sum(-1, keepdim=True) for k in keys[1:]]
    weights = torch.cat([stem, *own], dim=-1).softmax(-1, dtype=torch.float32).to(values[0].dtype)
    mixed = weights[..., :count] @ values[0]
    for column, states in enumerate(values[1:], start=count):
        mixed = mixed + weights[..., column : column + 1] * states
    return mixed.view(rows, heads, count, size).transpose(1, 2)


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS[_PLAIN])
