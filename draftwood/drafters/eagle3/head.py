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
the target's own ``lm_head``.

Attention runs through transformers' interface, so the caller chooses masks and caches.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from transformers import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaDecoderLayer,
    LlamaMLP,
    LlamaPreTrainedModel,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

from draftwood.drafters.eagle3.config import Eagle3Config
from draftwood.errors import DraftwoodError


@dataclass(frozen=True, eq=False)
class Eagle3Output:
    """The output of one forward of the head.

    Attributes:
        logits: ``[b, q', Vd]`` over *draft* ids, for the q' requested rows.
        hidden: ``[b, q, H]``, the next row's h: the last layer's output before the final norm or,
            with ``norm_output``, after it.
        past_key_values: the cache that was written, if any.
    """

    logits: torch.Tensor
    hidden: torch.Tensor
    past_key_values: Cache | None


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


class Eagle3Head(LlamaPreTrainedModel):  # type: ignore[no-untyped-call]
    """A draft network on top of a target; a transformers model in its own right.

    Args:
        config: sizes, vocabulary and the target's layers that are read.

    A head without ``own_embedding`` is given the target's by :meth:`set_input_embeddings`, and one
    without ``own_output`` the target's ``lm_head`` by :meth:`share_output`. Both are shared, not
    owned: neither ``state_dict`` nor ``to()`` of the head includes them. A new head drafts the
    first Vd tokens of the target's vocabulary (``d2t`` is zero).
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
        self._shared_embedding: tuple[nn.Module, ...] = ()
        self._shared_output: tuple[nn.Module, ...] = ()
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Module:
        """The head's own embedding or the shared one.

        Raises:
            DraftwoodError: there is neither.
        """
        if self.config.own_embedding:
            return self.embed_tokens
        if not self._shared_embedding:
            raise DraftwoodError(
                "the head has no embedding of its own; give it the target's: "
                "head.set_input_embeddings(model.get_input_embeddings())"
            )
        return self._shared_embedding[0]

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Share ``value.weight``, the target's embedding ``[V, H]`` or longer.

        Only the table is used. Published heads do not scale embeddings, even if their target
        does (Gemma).

        Raises:
            DraftwoodError: the head has an embedding of its own, or the table's shape is wrong.
        """
        if self.config.own_embedding:
            raise DraftwoodError("the head brings embed_tokens.weight itself; give no embedding")
        rows, width = self.config.vocab_size, self.config.hidden_size
        shape = list(value.weight.shape)  # type: ignore[arg-type]
        if len(shape) != 2 or shape[0] < rows or shape[1] != width:
            raise DraftwoodError(
                f"the target's embedding is {shape}, but the head needs embed_tokens.weight of "
                f"[{rows}, {width}]; give a head made for this target, or one that brings its own"
            )
        # In a tuple, where nn.Module does not see it.
        self._shared_embedding = (value,)

    def share_output(self, module: nn.Module) -> None:
        """Share ``module``, the target's ``lm_head``.

        Raises:
            DraftwoodError: the head has one of its own, or the module's shape is wrong.
        """
        if self.config.own_output:
            raise DraftwoodError("the head brings lm_head.weight itself; give no lm_head")
        rows, width = self.config.draft_vocab_size, self.config.hidden_size
        found = [getattr(module, name, None) for name in ("out_features", "in_features")]
        if found != [rows, width]:
            raise DraftwoodError(
                f"the target's lm_head is {found}, but the head needs one of [{rows}, {width}]; "
                "give a head made for this target, or one that brings lm_head.weight"
            )
        # In a tuple, where nn.Module does not see it.
        self._shared_output = (module,)

    def _logits(self, normed: torch.Tensor) -> torch.Tensor:
        if self.config.own_output:
            return self.lm_head(normed)  # type: ignore[no-any-return]
        if not self._shared_output:
            raise DraftwoodError(
                "the head has no lm_head of its own; give it the target's: "
                "head.share_output(model.get_output_embeddings())"
            )
        return self._shared_output[0](normed)  # type: ignore[no-any-return]

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

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        hidden: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Eagle3Output:
        """Score ``[b, q]`` rows.

        Args:
            input_ids: int64 ``[b, q]`` *target* ids.
            attention_mask: ``[b, 1, q, kv]`` for the attention, or ``[b, kv]`` with 0 at padding,
                or None: causal.
            position_ids: int64 ``[b, q]``; None: those after the cached tokens.
            past_key_values: the KV cache.
            use_cache: create a cache if none is given.
            logits_to_keep: number of last rows, or int64 ``[n]`` rows; 0: all rows.
            hidden: ``[b, q, H]``, h of every row: :meth:`project` of features, or ``hidden`` of an
                earlier output. None means zeros, for probing shapes only.
            kwargs: passed to the attention function.
        """
        rows = functional.embedding(input_ids, self.get_input_embeddings().weight)  # type: ignore[arg-type]
        embedded = rows.to(self.norm.weight.dtype)
        vectors = torch.zeros_like(embedded) if hidden is None else hidden.to(embedded.dtype)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            seen = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None] + seen
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=embedded,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=position_ids,
        )
        shared = kwargs | {
            "attention_mask": mask,
            "position_ids": position_ids,
            "position_embeddings": self.rotary_emb(embedded, position_ids),
            "past_key_values": past_key_values,
            "use_cache": use_cache,
        }
        states = self.midlayer(embedded, vectors, **shared)
        if self.config.num_hidden_layers > 1:
            for layer in self.layers.values():
                states = layer(states, **shared)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        if self.config.norm_output:
            states = self.norm(states)
            return Eagle3Output(self._logits(states[:, kept]), states, past_key_values)
        return Eagle3Output(self._logits(self.norm(states[:, kept])), states, past_key_values)

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers whose entering hidden states are the features."""
        return tuple(self.config.taps)

    def target_ids(self) -> NDArray[np.int64]:
        """int64 ``[Vd]`` on the host: the target's id of each draft id."""
        ids: NDArray[np.int64] = (
            self.to_target(torch.arange(len(self.d2t)).to(self.d2t)).cpu().numpy()
        )
        return ids

    def to_target(self, ids: torch.Tensor) -> torch.Tensor:
        """Target ids of draft ids, any shape."""
        return ids + self.d2t[ids]
