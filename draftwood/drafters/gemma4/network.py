"""A Gemma 4 assistant of transformers, run over nodes of several requests at once.

A node sees the committed tokens of its request, in the target's cache: in the assistant's full
layers all keys of the target's last full layer, in its sliding ones the last ``window + 1`` keys of
the target's last sliding layer. All nodes have the position of the root (transformers'
``SinglePositionMultiTokenCandidateGenerator``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from draftwood.protocols import Target

_ATTENTION = "draftwood_assistant"
_FULL = "full_attention"


class Assistant(nn.Module):
    """An assistant with its target's embedding.

    Args:
        model: transformers' ``Gemma4AssistantForCausalLM``, or the one of unified checkpoints.
        layers: the target's layer that each kind of the assistant's layers reads.
        embedding: the target's, which may scale its rows.
    """

    def __init__(self, model: Any, layers: Mapping[str, int], embedding: nn.Module) -> None:
        super().__init__()
        AttentionInterface.register(_ATTENTION, _attend)
        model.set_attn_implementation(_ATTENTION)
        self.model = model
        self._layers = dict(layers)
        # In a tuple, where nn.Module does not see it.
        self._embedding = (embedding,)
        text = model.config.get_text_config()
        self.outputs = int(text.vocab_size)
        self._window = int(text.sliding_window)

    def forward(
        self, tokens: Tensor, vectors: Tensor, target: Target, slots: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Logits ``[b * q, Vd]``, and the vectors ``[b * q, H]`` of the nodes' children.

        Args:
            tokens: int64 ``[b, q]``, q nodes of each request.
            vectors: ``[b, q, H]``, beside the tokens.
            target: holds the keys and values.
            slots: of the requests in it, b.
        """
        b, q = tokens.shape
        lengths = [target.length(slot) for slot in slots]
        positions = torch.tensor(lengths, device=tokens.device)[:, None].expand(b, q)
        shared: dict[str, tuple[Tensor, Tensor]] = {}
        masks: dict[str, Tensor | None] = {}
        for kind, layer in self._layers.items():
            starts = [0 if kind == _FULL else max(0, n - self._window - 1) for n in lengths]
            first = min(starts)
            keys, values = (each[:, :, first:] for each in target.keys_values(slots, layer))
            shared[kind] = keys, values
            spans = [(start - first, n - first) for start, n in zip(starts, lengths, strict=True)]
            # Of one request, each node sees every key that is given.
            masks[kind] = None if b == 1 else _mask(keys, spans)
        embedded = self._embedding[0](tokens).to(vectors.dtype)
        joined = self.model.pre_projection(torch.cat([embedded, vectors], dim=-1))
        states = self.model.model(
            inputs_embeds=joined,
            attention_mask=masks,
            position_ids=positions,
            shared_kv_states=shared,
            use_cache=False,
            # No number, with which transformers would drop rows that are not the last ones.
            logits_to_keep=positions,
        ).last_hidden_state
        logits = self._logits(states.flatten(0, 1)[:, None])
        return logits.flatten(0, 1), self.model.post_projection(states).flatten(0, 1)

    def _logits(self, states: Tensor) -> Tensor:
        """Logits ``[n, 1, Vd]`` of last hidden states ``[n, 1, Ha]``."""
        output: nn.Module = self.model.lm_head
        if self.model.masked_embedding is None:
            found: Tensor = output(states)
            return found
        found = self.model.masked_embedding(states, output.weight)
        # Tokens of other clusters have one logit, the least of all rows less one. In each row it
        # becomes the row's own least less one, as if the row were alone.
        chosen = found > found.min()
        least = found.masked_fill(~chosen, torch.inf).amin(dim=-1, keepdim=True) - 1
        return torch.where(chosen, found, least)


def _mask(keys: Tensor, spans: Sequence[tuple[int, int]]) -> Tensor:
    """A mask ``[b, 1, 1, kv]``: a sequence sees the keys from its span's start to its end."""
    places = torch.arange(keys.shape[2], device=keys.device)
    bounds = torch.tensor(spans, device=keys.device)
    seen = (places >= bounds[:, :1]) & (places < bounds[:, 1:])
    return seen[:, None, None]


def _attend(
    module: nn.Module,  # noqa: ARG001
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention of transformers' signature for queries ``[b, heads, q, d]`` that see the same keys.

    Those of the heads that share a key head become queries of it, so that no key is repeated.
    """
    b, heads, q, d = query.shape
    packed = query.reshape(b, key.shape[1], -1, d)
    found = scaled_dot_product_attention(packed, key, value, attention_mask, scale=scaling)
    return found.reshape(b, heads, q, -1).transpose(1, 2).contiguous(), None
