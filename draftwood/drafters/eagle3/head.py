"""The EAGLE-3 head: a modified Llama layer that drafts from features of the target.

Source: Li et al., *EAGLE-3* (2025), section 3 and figure 5. Parameter names and layout are those of
published checkpoints. The layer's input at a position is a token and a vector h. Its queries, keys
and values come from ``cat(input_layernorm(embedding), hidden_norm(h))``. For committed tokens, h is
:meth:`Eagle3Head.project` of the target's features. For drafted nodes, h is the head's own
``hidden`` at the position before. Tokens are one position ahead of features: the row with the
target's features of position i holds token i + 1 and predicts token i + 2.

Published variants, each a field of :class:`draftwood.drafters.eagle3.config.Eagle3Config`: further
ordinary layers after the first; norms of the features before ``fc`` (of each tap, or of all
together); no ``fc``; norms of queries and keys, as in Qwen3; h after the final norm (EAGLE-3.1);
the target's own ``lm_head``. A P-EAGLE head reads masks in place of drafted nodes: a mask's row
holds the mask token, and its h is that of ``mask_hidden`` in place of features.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaDecoderLayer,
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

from draftwood.drafters._head import AutoregressiveHead
from draftwood.drafters.eagle3.config import Eagle3Config
from draftwood.protocols import Mask


def _attention(config: Eagle3Config, index: int) -> nn.Module:
    if config.qk_norm:
        return Qwen3Attention(config, index)  # type: ignore[arg-type]
    return LlamaAttention(config, index)


def _further_layer(config: Eagle3Config, index: int) -> nn.Module:
    """An ordinary decoder layer, after the first."""
    layer = LlamaDecoderLayer(config, index)
    if config.qk_norm:
        layer.self_attn = _attention(config, index)  # type: ignore[assignment]
    return layer


class Eagle3Layer(nn.Module):
    """Llama's decoder layer, with queries, keys and values taken from rows of width 2H."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = _attention(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            narrow = getattr(self.self_attn, name)
            wide = nn.Linear(2 * width, narrow.out_features, bias=config.attention_bias)
            setattr(self.self_attn, name, wide)
        self.mlp = LlamaMLP(config)  # type: ignore[no-untyped-call]
        self.hidden_norm = LlamaRMSNorm(width, eps=eps)
        self.input_layernorm = LlamaRMSNorm(width, eps=eps)
        self.post_attention_layernorm = LlamaRMSNorm(width, eps=eps)
        self.norm_before_residual = config.norm_before_residual

    def forward(self, embedded: torch.Tensor, hidden: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Output ``[b, q, H]`` from embeddings and h of that shape; ``kwargs`` go to attention."""
        normed = self.hidden_norm(hidden)
        residual = normed if self.norm_before_residual else hidden
        joined = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
        attended, _ = self.self_attn(hidden_states=joined, **kwargs)
        hidden = residual + attended
        return hidden + self.mlp(self.post_attention_layernorm(hidden))  # type: ignore[no-any-return]


class Eagle3Head(AutoregressiveHead):
    """A draft network on top of a target; a transformers model in its own right.

    Args:
        config: sizes, vocabulary and the target's layers that are read.

    A new head drafts the first Vd tokens of the target's vocabulary (``d2t`` is zero).
    """

    config: Eagle3Config
    config_class = Eagle3Config
    _no_split_modules = ["Eagle3Layer"]  # noqa: RUF012

    d2t: torch.Tensor
    t2d: torch.Tensor

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__(config)
        width, drafted, eps = config.hidden_size, config.draft_vocab_size, config.rms_norm_eps
        taps, tapped = len(config.taps), config.target_hidden_size
        if config.fuse:
            self.fc = nn.Linear(taps * tapped, width, bias=config.fc_bias)
        if config.norm_before_fc:
            self.input_norm = LlamaRMSNorm(taps * tapped, eps=eps)
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(LlamaRMSNorm(tapped, eps=eps) for _ in range(taps))
        self.midlayer = Eagle3Layer(config)
        if config.num_hidden_layers > 1:
            # Named by their number in the published files, where the first layer is number 0.
            further = range(1, config.num_hidden_layers)
            self.layers = nn.ModuleDict({str(i): _further_layer(config, i) for i in further})
        self.norm = LlamaRMSNorm(width, eps=eps)
        if config.own_output:
            self.lm_head = nn.Linear(width, drafted, bias=False)
        self.rotary_emb = LlamaRotaryEmbedding(config)
        self.register_buffer("d2t", torch.zeros(drafted, dtype=torch.int64))
        self.register_buffer("t2d", torch.arange(config.vocab_size) < drafted)
        if config.own_embedding:
            self.embed_tokens = nn.Embedding(config.vocab_size, width)
        if config.mask_token is not None:
            self.mask_hidden = nn.Parameter(torch.zeros(1, 1, taps * tapped))
        self.post_init()  # type: ignore[no-untyped-call]

    @property
    def weights(self) -> torch.Tensor:
        """A weight, whose dtype is that of all."""
        found: torch.Tensor = self.norm.weight
        return found

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """h ``[.., H]`` of committed tokens.

        Args:
            features: ``[.., taps * Ht]``, the target's hidden states entering ``config.taps``.
        """
        found = features.to(self.norm.weight.dtype)
        if self.config.norm_before_fc:
            found = self.input_norm(found)
        if self.config.fc_norm:
            taps = found.chunk(len(self.config.taps), dim=-1)
            normed = [norm(tap) for norm, tap in zip(self.fc_norm, taps, strict=True)]
            found = torch.cat(normed, dim=-1)
        return self.fc(found) if self.config.fuse else found

    @property
    def mask(self) -> Mask | None:
        """What a P-EAGLE head reads in place of drafted tokens; None for an EAGLE-3 head."""
        if self.config.mask_token is None:
            return None
        with torch.inference_mode():
            return Mask(self.config.mask_token, self.project(self.mask_hidden)[0, 0])

    def run_layers(
        self, embedded: torch.Tensor, vectors: torch.Tensor, shared: dict[str, Any]
    ) -> torch.Tensor:
        """See :meth:`AutoregressiveHead.run_layers`."""
        states: torch.Tensor = self.midlayer(embedded, vectors, **shared)
        if self.config.num_hidden_layers > 1:
            for layer in self.layers.values():
                states = layer(states, **shared)
        return states

    def read_out(
        self, states: torch.Tensor, kept: slice | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`AutoregressiveHead.read_out`.

        The next row's h is the layers' output before the final norm or, with ``norm_output``, after
        it.
        """
        if self.config.norm_output:
            states = self.norm(states)
            return self.logits_of(states[:, kept]), states
        return self.logits_of(self.norm(states[:, kept])), states

    def target_ids(self) -> NDArray[np.int64]:
        """int64 ``[Vd]`` on the host: the target's id of each draft id."""
        ids: NDArray[np.int64] = (
            self.to_target(torch.arange(len(self.d2t)).to(self.d2t)).cpu().numpy()
        )
        return ids

    def to_target(self, ids: torch.Tensor) -> torch.Tensor:
        """Target ids of draft ids, any shape."""
        return ids + self.d2t[ids]
