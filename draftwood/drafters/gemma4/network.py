"""A Gemma 4 assistant of transformers, run over nodes of several requests at once.

A node sees the committed tokens of its request, in the target's cache: in the assistant's full
layers all keys of the target's last full layer, in its sliding ones the last ``window + 1`` keys of
the target's last sliding layer. All nodes have the position of the root (transformers'
``SinglePositionMultiTokenCandidateGenerator``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface

from draftwood.copies import uploaded
from draftwood.kernels.grouped import grouped_attention
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
        lengths = np.array([target.length(slot) for slot in slots])
        spans = {kind: self._first(kind, lengths) for kind in self._layers}
        ends, *starts = uploaded([lengths, *spans.values()], tokens.device)
        positions = ends[:, None].expand(b, q)
        shared: dict[str, tuple[Tensor, Tensor]] = {}
        masks: dict[str, Tensor | None] = {}
        for (kind, layer), start in zip(self._layers.items(), starts, strict=True):
            first = int(spans[kind].min())
            keys, values = (each[:, :, first:] for each in target.keys_values(slots, layer))
            shared[kind] = keys, values
            # Of one request, each node sees every key that is given.
            masks[kind] = None if b == 1 else _mask(keys, start - first, ends - first)
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

    def _first(self, kind: str, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first position ``[b]`` that a kind of layer sees of each text."""
        if kind == _FULL:
            return np.zeros_like(lengths)
        return (lengths - self._window - 1).clip(min=0)

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


def _mask(keys: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """A mask ``[b, 1, 1, kv]``: a text sees the keys from its start to its end, int64 ``[b]``."""
    places = torch.arange(keys.shape[2], device=keys.device)
    seen = (places >= starts[:, None]) & (places < ends[:, None])
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
    """Attention of transformers' signature; the queries of a text see the same keys."""
    found = grouped_attention(query, key, value, attention_mask, scaling)
    return found.transpose(1, 2).contiguous(), None
