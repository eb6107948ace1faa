"""The head of EAGLE-1 and EAGLE-2: a Llama layer on a token and the target's last hidden state.

Source: Li et al., *EAGLE* (2024), section 4.1; EAGLE-2 changes the tree alone. Parameter names and
layout are those of published checkpoints. The row with the target's last hidden state of position i
(after its final norm) holds token i + 1 and predicts token i + 2. Both are joined by ``fc``. The
layer has no input norm, and there is no norm before the target's ``lm_head``. For drafted nodes, h
is the layer's output at the position before.

Variant: norms of the token's embedding and of h before ``fc`` (HASS).
"""

from typing import Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from numpy.typing import NDArray
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

from draftwood.drafters._head import AutoregressiveHead


@strict
class Eagle1Config(LlamaConfig):  # type: ignore[no-untyped-call]
    """A Llama config of one layer, with the fields of an EAGLE-1 head.

    Attributes:
        taps: the target's number of layers, which stands for its last hidden state.
        own_embedding: False: the target's is shared.
        own_output: False: the target's is shared.
        fc_bias: ``fc`` has a bias.
        norms: the embedding and h are normed before ``fc``.
    """

    model_type = "draftwood_eagle1"

    num_hidden_layers: int = 1
    taps: tuple[int, ...] | list[int] = (32,)
    own_embedding: bool = False
    own_output: bool = False
    fc_bias: bool = True
    norms: bool = False

    @property
    def draft_vocab_size(self) -> int:
        """All tokens of the target."""
        return int(self.vocab_size)


class Eagle1Layer(nn.Module):
    """Llama's decoder layer without the norm before its attention."""

    def __init__(self, config: Eagle1Config) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(config, 0)
        self.mlp = LlamaMLP(config)  # type: ignore[no-untyped-call]
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, hidden: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Output ``[b, q, H]`` of rows of that shape; ``kwargs`` go to attention."""
        attended, _ = self.self_attn(hidden_states=hidden, **kwargs)
        hidden = hidden + attended
        return hidden + self.mlp(self.post_attention_layernorm(hidden))  # type: ignore[no-any-return]


class Eagle1Head(AutoregressiveHead):
    """An EAGLE-1 head with the target's embedding and ``lm_head``.

    Args:
        config: sizes, and the target's number of layers.
    """

    config: Eagle1Config
    config_class = Eagle1Config
    _no_split_modules = ["Eagle1Layer"]  # noqa: RUF012

    def __init__(self, config: Eagle1Config) -> None:
        super().__init__(config)
        width, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(2 * width, width, bias=config.fc_bias)
        if config.norms:
            self.embedding_layernorm = LlamaRMSNorm(width, eps=eps)
            self.hidden_states_layernorm = LlamaRMSNorm(width, eps=eps)
        self.layers = nn.ModuleList([Eagle1Layer(config)])
        self.rotary_emb = LlamaRotaryEmbedding(config)
        self.post_init()  # type: ignore[no-untyped-call]

    @property
    def weights(self) -> torch.Tensor:
        """A weight, whose dtype is that of all."""
        found: torch.Tensor = self.fc.weight
        return found

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """h ``[.., H]`` of committed tokens: the target's last hidden states."""
        return features.to(self.fc.weight.dtype)

    def run_layers(
        self, embedded: torch.Tensor, vectors: torch.Tensor, shared: dict[str, Any]
    ) -> torch.Tensor:
        """See :meth:`AutoregressiveHead.run_layers`."""
        if self.config.norms:
            embedded = self.embedding_layernorm(embedded)
            vectors = self.hidden_states_layernorm(vectors)
        states: torch.Tensor = self.fc(torch.cat([embedded, vectors], dim=-1))
        for layer in self.layers:
            states = layer(states, **shared)
        return states

    def read_out(
        self, states: torch.Tensor, kept: slice | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`AutoregressiveHead.read_out`; the next row's h is the layer's output."""
        return self.logits_of(states[:, kept]), states

    def target_ids(self) -> NDArray[np.int64]:
        """int64 ``[V]`` on the host: every token of the target."""
        return np.arange(self.config.vocab_size)
