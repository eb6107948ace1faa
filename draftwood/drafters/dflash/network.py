"""The network of a DFlash drafter: a block of masks that attends to the target's hidden states.

Source: *DFlash: Block Diffusion for Flash Speculative Decoding* (z-lab, 2026), and its published
checkpoints. For each true position i, the target's tapped states give one vector
``c_i = hidden_norm(fc(states))``. Every layer takes keys and values of the context from it, without
the layer's input norm. A block is the anchor (the last token, whose states are not known) and masks
at the positions after it. Its slots attend to the context and to one another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3MLP,
    Qwen3RotaryEmbedding,
    apply_rotary_pos_emb,
    rotate_half,
)

from draftwood.drafters.dflash.config import DFlashConfig
from draftwood.drafters.dflash.convolution import SlotConvolution
from draftwood.drafters.dflash.markov import MarkovHead
from draftwood.drafters.dflash.selector import CandidateSelector
from draftwood.kernels.grouped import grouped_attention


@dataclass(frozen=True)
class Stored:
    """The parts that a checkpoint has, beside those of every one.

    Attributes:
        outputs: rows of its own ``lm_head``, Vd; None: the target's is shared.
        embeddings: rows of its own embedding; None: the target's is shared.
        mask: whether the masks' embedding is a tensor of its own.
        qk_norm: whether queries and keys are normed.
        markov: tokens that the Markov head reads and drafts, if the configuration has one.
        codebook: rows of the selector's codebooks, if the configuration has one.
    """

    outputs: int | None = None
    embeddings: int | None = None
    mask: bool = False
    qk_norm: bool = True
    markov: tuple[int, int] = (0, 0)
    codebook: int = 0


class BlockAttention(nn.Module):
    """Attention of a block's slots to the context and to one another."""

    def __init__(self, config: DFlashConfig, index: int, qk_norm: bool) -> None:
        super().__init__()
        sizes = config.layers
        self.head_dim = int(sizes.head_dim)
        self.window, self.causal = config.windows[index], config.causal[index]
        width, bias = sizes.hidden_size, bool(sizes.attention_bias)
        heads = sizes.num_attention_heads * self.head_dim
        kv_heads = int(sizes.num_key_value_heads or 0) * self.head_dim
        self.q_proj = nn.Linear(width, heads, bias=bias)
        self.k_proj = nn.Linear(width, kv_heads, bias=bias)
        self.v_proj = nn.Linear(width, kv_heads, bias=bias)
        self.o_proj = nn.Linear(heads, width, bias=bias)
        eps = sizes.rms_norm_eps
        self.q_norm = LlamaRMSNorm(self.head_dim, eps=eps) if qk_norm else nn.Identity()
        self.k_norm = LlamaRMSNorm(self.head_dim, eps=eps) if qk_norm else nn.Identity()

    def context(self, vectors: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values ``[kv heads, n, d]`` of the context's vectors ``[n, H]``."""
        keys = self._heads(self.k_norm, self.k_proj, vectors[None])
        keys = keys * cos + rotate_half(keys) * sin  # type: ignore[no-untyped-call]
        values = self.v_proj(vectors[None]).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return keys[0], values[0]

    def forward(
        self,
        slots: Tensor,
        factors: tuple[Tensor, Tensor],
        contexts: Sequence[tuple[Tensor, Tensor]],
        masks: Sequence[Tensor] = (),
    ) -> Tensor:
        """The output ``[b, B, H]`` of slots of that shape.

        Args:
            slots: normed.
            factors: rotary cosines and sines ``[b, B, d]``.
            contexts: keys and values of each block's context, ``[kv heads, n, d]``.
            masks: which keys each slot sees, bool ``[B, n + B]`` for each block; by default those
                of a block right behind its context.
        """
        queries = self._heads(self.q_norm, self.q_proj, slots)
        keys = self._heads(self.k_norm, self.k_proj, slots)
        queries, keys = apply_rotary_pos_emb(queries, keys, *factors)
        values = self.v_proj(slots).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        found = []
        for block, (before, given) in enumerate(contexts):
            if self.window is not None and not masks:
                # What the first slot does not see, no other one does.
                first = max(0, before.shape[1] - (self.window - 1))
                before, given = before[:, first:], given[:, first:]
            seen = torch.cat([before, keys[block]], dim=1)[None]
            read = torch.cat([given, values[block]], dim=1)[None]
            if masks:
                mask: Tensor | None = masks[block]
            else:
                mask = self._mask(before.shape[1], slots.shape[1], slots.device)
            found.append(grouped_attention(queries[block : block + 1], seen, read, mask))
        joined = torch.cat(found).transpose(1, 2).flatten(2)
        output: Tensor = self.o_proj(joined)
        return output

    def _heads(self, norm: nn.Module, linear: nn.Module, rows: Tensor) -> Tensor:
        """Queries or keys ``[b, heads, n, d]``, normed, before RoPE."""
        found: Tensor = norm(linear(rows).unflatten(-1, (-1, self.head_dim))).transpose(1, 2)
        return found

    def _mask(self, context: int, slots: int, device: torch.device) -> Tensor | None:
        """Which keys each slot sees, bool ``[slots, context + slots]``; None: all."""
        if self.window is None and not self.causal:
            return None
        positions = torch.arange(context + slots, device=device)
        apart = positions[context:, None] - positions
        seen = apart >= 0 if self.causal else torch.ones_like(apart, dtype=torch.bool)
        if self.window is not None:
            seen &= apart.abs() < self.window
        return seen


class BlockLayer(nn.Module):
    """A decoder layer of a block."""

    def __init__(self, config: DFlashConfig, index: int, qk_norm: bool) -> None:
        super().__init__()
        width, eps = config.layers.hidden_size, config.layers.rms_norm_eps
        self.self_attn = BlockAttention(config, index, qk_norm)
        self.mlp = Qwen3MLP(config.layers)  # type: ignore[no-untyped-call]
        self.input_layernorm = LlamaRMSNorm(width, eps=eps)
        self.post_attention_layernorm = LlamaRMSNorm(width, eps=eps)
        self.attention_conv = self.mlp_conv = None
        if config.selector is not None:
            sizes = config.selector.kernel, config.selector.group, width
            self.attention_conv = SlotConvolution(*sizes)
            self.mlp_conv = SlotConvolution(*sizes)

    def forward(
        self,
        slots: Tensor,
        factors: tuple[Tensor, Tensor],
        contexts: Sequence[tuple[Tensor, Tensor]],
        masks: Sequence[Tensor] = (),
    ) -> Tensor:
        """The output ``[b, B, H]``; see :meth:`BlockAttention.forward`."""

        def attend(rows: Tensor) -> Tensor:
            found: Tensor = self.self_attn(rows, factors, contexts, masks)
            return found

        slots = slots + _through(self.attention_conv, self.input_layernorm(slots), attend)
        return slots + _through(self.mlp_conv, self.post_attention_layernorm(slots), self.mlp)


def _through(
    convolution: SlotConvolution | None, normed: Tensor, sublayer: Callable[[Tensor], Tensor]
) -> Tensor:
    """The output of a sublayer on normed rows, convolved if there is a convolution."""
    if convolution is None:
        return sublayer(normed)
    found: Tensor = convolution(normed, sublayer)
    return found


class DFlashNetwork(nn.Module):
    """A DFlash drafter; embedding and output are the target's unless it has its own.

    Args:
        config: the drafter's.
        stored: its own parts.

    Attributes:
        token_ids: int64 ``[Vd]``, the target's id of each output.
    """

    token_ids: Tensor

    def __init__(self, config: DFlashConfig, stored: Stored | None = None) -> None:
        super().__init__()
        own = stored or Stored()
        sizes = config.layers
        width, eps = sizes.hidden_size, sizes.rms_norm_eps
        self.config = config
        self.fc = nn.Linear(len(config.taps) * width, width, bias=False)
        self.hidden_norm = LlamaRMSNorm(width, eps=eps)
        count = int(sizes.num_hidden_layers or 0)
        self.layers = nn.ModuleList(BlockLayer(config, i, own.qk_norm) for i in range(count))
        self.norm = LlamaRMSNorm(width, eps=eps)
        self.rotary_emb = Qwen3RotaryEmbedding(sizes)
        if own.embeddings is not None:
            self.embed_tokens = nn.Embedding(own.embeddings, width)
        if own.outputs is not None:
            self.lm_head = nn.Linear(width, own.outputs, bias=False)
        if own.mask:
            self.mask_embedding = nn.Parameter(torch.zeros(width))
        if config.markov:
            self.markov_head = MarkovHead(config.markov, config.markov_rank, width, *own.markov)
        if config.selector is not None:
            rank, top_k = config.selector.rank, config.selector.top_k
            self.candidate_selector = CandidateSelector(rank, top_k, width, own.codebook)
        self.register_buffer("token_ids", torch.arange(own.outputs or 0))
        self._shared: dict[str, nn.Module] = {}

    def share(self, embedding: nn.Module, output: nn.Module | None, vocabulary: int) -> None:
        """Share the target's embedding and ``lm_head``, where the drafter has none of its own."""
        # In a dictionary, where nn.Module does not see them.
        self._shared["embedding"] = embedding
        if not hasattr(self, "lm_head") and output is not None:
            self._shared["output"] = output
            self.token_ids = torch.arange(vocabulary, device=self.token_ids.device)

    def read(self, features: Tensor, start: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values ``[kv heads, n, d]`` of each layer.

        Args:
            features: ``[n, taps * H]``, the target's at consecutive positions.
            start: the first position.
        """
        vectors = self.hidden_norm(self.fc(features.to(self.fc.weight.dtype)))
        positions = torch.arange(start, start + len(vectors), device=vectors.device)[None]
        cos, sin = self.rotary_emb(vectors[None], positions)
        attentions = [layer.self_attn for layer in self.layers]
        return [each.context(vectors, cos, sin) for each in attentions]  # type: ignore[operator,union-attr]

    def forward(
        self,
        anchors: Tensor,
        positions: Tensor,
        contexts: Sequence[Sequence[tuple[Tensor, Tensor]]],
        slots: int,
    ) -> Tensor:
        """Logits ``[b, slots, Vd]`` of a block after each context; see :meth:`block`."""
        return self.logits(self.block(anchors, positions, contexts, slots))

    def block(
        self,
        anchors: Tensor,
        positions: Tensor,
        contexts: Sequence[Sequence[tuple[Tensor, Tensor]]],
        slots: int,
    ) -> Tensor:
        """The last hidden states ``[b, slots, H]`` of a block after each context.

        Args:
            anchors: int64 ``[b]``.
            positions: int64 ``[b]``, of the anchors.
            contexts: keys and values of each layer, for each block.
            slots: computed, the anchor's included.
        """
        rows = self.embedded(anchors, slots)
        where = positions[:, None] + torch.arange(slots, device=positions.device)
        factors = self.rotary_emb(rows, where)
        for index, layer in enumerate(self.layers):
            rows = layer(rows, factors, [context[index] for context in contexts])
        normed: Tensor = self.norm(rows)
        return normed

    def embedded(self, anchors: Tensor, slots: int) -> Tensor:
        """The embeddings ``[b, slots, H]`` of anchors, int64 ``[b]``, and of masks behind them."""
        config, dtype = self.config, self.fc.weight.dtype
        own_mask = hasattr(self, "mask_embedding")
        ids = anchors.new_full((len(anchors), slots), 0 if own_mask else config.mask_token)
        ids[:, 0] = anchors
        own: Any = self.embed_tokens if hasattr(self, "embed_tokens") else None
        module: Any = own or self._shared["embedding"]
        # The table alone: published drafters do not scale as a target's own embedding may.
        rows = functional.embedding(ids, module.weight).to(dtype)
        if own_mask:
            rows[:, 1:] = self.mask_embedding
        return rows * config.input_scale if config.input_scale != 1 else rows

    def logits(self, rows: Tensor) -> Tensor:
        """Logits ``[b, slots, Vd]`` of last hidden states, without what a Markov head adds."""
        output = getattr(self, "lm_head", None) or self._shared["output"]
        flat = rows.flatten(0, 1).to(next(output.parameters()).dtype)
        logits: Tensor = output(flat)
        if self.config.output_scale != 1:
            logits = logits * self.config.output_scale
        cap = self.config.softcap
        if cap is not None:
            logits = torch.tanh(logits / cap) * cap
        return logits.view(*rows.shape[:2], -1)
