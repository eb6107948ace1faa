"""Hydra's heads: residual blocks on the target's last hidden state and the drafted tokens.

Source: Ankner et al., *Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding* (2024).
Head i reads the state P of the last true position n - 1, and the embeddings of the tokens n to
n + i, joined; it says token n + i + 1. P is the target's last hidden state, after its final norm,
or in Hydra++ the output of a prefix layer on these states of all positions.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    rotate_half,
)

from draftwood.copies import uploaded
from draftwood.drafters._context_cache import KeysValues
from draftwood.drafters.hydra.config import HydraConfig
from draftwood.kernels.grouped import grouped_attention


class PrefixLayer(nn.Module):
    """A Llama layer and norm on the target's last hidden states, of which the last row is read.

    Keys and values of a row depend on that row alone, since there is one layer. So other rows need
    no queries.

    Args:
        config: of the layer.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList([LlamaDecoderLayer(config, 0)])
        self.norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = LlamaRotaryEmbedding(config)

    @property
    def layer(self) -> LlamaDecoderLayer:
        """The layer."""
        found = self.layers[0]
        assert isinstance(found, LlamaDecoderLayer)
        return found

    def read(self, states: Tensor, start: int) -> list[KeysValues]:
        """Keys and values of the layer.

        Args:
            states: ``[n, H]``, the target's at consecutive positions.
            start: the first position.
        """
        attention = self.layer.self_attn
        rows = self._normed(states)
        cos, sin = self._factors(rows, torch.arange(start, start + len(rows), device=rows.device))
        keys = self._heads(attention.k_proj(rows)).transpose(0, 1)
        keys = keys * cos + rotate_half(keys) * sin  # type: ignore[no-untyped-call]
        return [(keys, self._heads(attention.v_proj(rows)).transpose(0, 1))]

    def forward(self, states: Tensor, contexts: Sequence[KeysValues]) -> Tensor:
        """The output ``[b, H]`` at the last position of some texts.

        Args:
            states: ``[b, H]``, the target's at that position.
            contexts: keys and values of each text, the last position's included.
        """
        layer, rows = self.layer, self._normed(states)
        lengths = np.array([keys.shape[1] for keys, _ in contexts])
        [last] = uploaded([lengths - 1], rows.device)
        cos, sin = self._factors(rows, last)
        queries = self._heads(layer.self_attn.q_proj(rows))
        queries = queries * cos[:, None] + rotate_half(queries) * sin[:, None]  # type: ignore[no-untyped-call]
        found = [
            grouped_attention(query[None, :, None], keys[None], values[None])
            for query, (keys, values) in zip(queries, contexts, strict=True)
        ]
        output = states.to(rows.dtype) + layer.self_attn.o_proj(torch.cat(found).flatten(1))
        output = output + layer.mlp(layer.post_attention_layernorm(output))
        normed: Tensor = self.norm(output)
        return normed

    def _normed(self, states: Tensor) -> Tensor:
        rows: Tensor = self.layer.input_layernorm(states.to(self.norm.weight.dtype))
        return rows

    def _factors(self, rows: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotary cosines and sines ``[n, d]`` of positions, int64 ``[n]``."""
        cos, sin = self.rotary_emb(rows[None], positions[None])
        return cos[0], sin[0]

    def _heads(self, rows: Tensor) -> Tensor:
        """Rows ``[n, heads * d]`` as ``[n, heads, d]``."""
        return rows.view(len(rows), -1, self.layer.self_attn.head_dim)


class HydraHead(nn.Module):
    """One head.

    Args:
        joined: vectors of width H that it reads.
        layers: its linear layers, the output excluded.
        hidden_size: H.
        outputs: tokens of its output.
    """

    def __init__(self, joined: int, layers: int, hidden_size: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(joined * hidden_size, hidden_size)
        self.skip = nn.Linear(joined * hidden_size, hidden_size)
        self.blocks = nn.ModuleList(nn.Linear(hidden_size, hidden_size) for _ in range(layers - 1))
        self.output = nn.Linear(hidden_size, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        """Logits ``[m, Vd]`` for joined vectors ``[m, joined * H]``."""
        rows = self.skip(rows) + functional.silu(self.first(rows))
        for block in self.blocks:
            rows = rows + functional.silu(block(rows))
        logits: Tensor = self.output(rows)
        return logits


class HydraHeads(nn.Module):
    """All heads of a checkpoint; the embedding is the target's (:meth:`share_embedding`).

    Args:
        config: numbers of heads and layers, and the prefix layer's sizes.
        hidden_size: width H of the target's hidden states.
        outputs: tokens Vd of each head's output, the target's first ones.
    """

    def __init__(self, config: HydraConfig, hidden_size: int, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.heads = nn.ModuleList(
            HydraHead(i + 2, config.layers, hidden_size, outputs) for i in range(config.heads)
        )
        self.prefix = None if config.prefix is None else PrefixLayer(config.prefix)
        self._shared: tuple[nn.Module, ...] = ()

    def share_embedding(self, module: nn.Module) -> None:
        """Share ``module.weight``, the target's embedding ``[V, H]``."""
        # In a tuple, where nn.Module does not see it.
        self._shared = (module,)

    def forward(self, depth: int, states: Tensor, tokens: Tensor) -> Tensor:
        """Logits ``[m, Vd]`` of the tokens after some nodes of a depth.

        Args:
            depth: of the nodes, from 0 on, below the number of heads.
            states: P of each node's text, ``[m, H]``.
            tokens: int64 ``[m, depth + 1]``, from the root to each node.
        """
        head = self.heads[depth]
        dtype = next(head.parameters()).dtype
        embedded = functional.embedding(tokens, self._shared[0].weight).flatten(1)  # type: ignore[arg-type]
        logits: Tensor = head(torch.cat([states.to(dtype), embedded.to(dtype)], dim=1))
        return logits
