"""What autoregressive heads have in common: shared tables, and a forward over rows.

These are heads of the EAGLE family and multi-token-prediction layers. A head is a transformers
model whose rows are a token and a vector h each. Attention runs through transformers' interface,
so the caller chooses masks and caches.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from transformers import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import LlamaPreTrainedModel

from draftwood.errors import DraftwoodError
from draftwood.protocols import Mask


@dataclass(frozen=True, eq=False)
class HeadOutput:
    """The output of one forward of a head.

    Attributes:
        logits: ``[b, q', Vd]`` over *draft* ids, for the q' requested rows.
        hidden: ``[b, q, H]``, the next row's h.
        past_key_values: the cache that was written, if any.
    """

    logits: torch.Tensor
    hidden: torch.Tensor
    past_key_values: Cache | None


class AutoregressiveHead(LlamaPreTrainedModel):  # type: ignore[no-untyped-call]
    """A head with an embedding and an output of its own, or with the target's.

    Its config has ``vocab_size``, ``hidden_size``, ``draft_vocab_size``, ``own_embedding``,
    ``own_output`` and ``taps``. A head without ``own_embedding`` is given the target's by
    :meth:`set_input_embeddings`, and one without ``own_output`` the target's ``lm_head`` by
    :meth:`share_output`. Both are shared, not owned: neither ``state_dict`` nor ``to()`` of the
    head includes them.
    """

    config: Any
    embed_tokens: nn.Embedding
    rotary_emb: nn.Module

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._shared_embedding: tuple[nn.Module, ...] = ()
        self._shared_output: tuple[nn.Module, ...] = ()

    @property
    @abstractmethod
    def weights(self) -> torch.Tensor:
        """A weight, whose dtype is that of all."""

    @abstractmethod
    def project(self, features: torch.Tensor) -> torch.Tensor:
        """h ``[.., H]`` of committed tokens, from the target's features ``[.., taps * Ht]``."""

    def rotary_factors(self, embedded: torch.Tensor, position_ids: torch.Tensor) -> Any:
        """The rotary factors of positions ``[b, q]``, in the dtype of ``embedded``."""
        return self.rotary_emb(embedded, position_ids)

    @abstractmethod
    def target_ids(self) -> NDArray[np.int64]:
        """int64 ``[Vd]`` on the host: the target's id of each draft id."""

    @abstractmethod
    def run_layers(
        self, embedded: torch.Tensor, vectors: torch.Tensor, shared: dict[str, Any]
    ) -> torch.Tensor:
        """The layers' output ``[b, q, H]``.

        Args:
            embedded: the tokens' embeddings, ``[b, q, H]``.
            vectors: h of every row, of that shape.
            shared: what every layer's attention is called with.
        """

    @abstractmethod
    def read_out(
        self, states: torch.Tensor, kept: slice | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits of the rows that are kept, and the next rows' h, from the layers' output."""

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

    def logits_of(self, normed: torch.Tensor) -> torch.Tensor:
        if self.config.own_output:
            return self.lm_head(normed)  # type: ignore[no-any-return]
        if not self._shared_output:
            raise DraftwoodError(
                "the head has no lm_head of its own; give it the target's: "
                "head.share_output(model.get_output_embeddings())"
            )
        return self._shared_output[0](normed)  # type: ignore[no-any-return]

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
    ) -> HeadOutput:
        """Score ``[b, q]`` rows.

        Args:
            input_ids: int64 ``[b, q]`` *target* ids.
            attention_mask: ``[b, 1, q, kv]`` for the attention, or ``[b, kv]`` with 0 at padding,
                or None: causal.
            position_ids: int64 ``[b, q]``; None: those after the cached tokens.
            past_key_values: the KV cache.
            use_cache: create a cache if none is given.
            logits_to_keep: number of last rows, or int64 ``[n]`` rows; 0: all rows.
            hidden: ``[b, q, H]``, h of every row: ``project`` of features, or ``hidden`` of an
                earlier output. None means zeros, for probing shapes only.
            kwargs: passed to the attention function.
        """
        rows = functional.embedding(input_ids, self.get_input_embeddings().weight)  # type: ignore[arg-type]
        embedded = rows.to(self.weights.dtype)
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
            "position_embeddings": self.rotary_factors(embedded, position_ids),
            "past_key_values": past_key_values,
            "use_cache": use_cache,
        }
        states = self.run_layers(embedded, vectors, shared)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits, following = self.read_out(states, kept)
        return HeadOutput(logits, following, past_key_values)

    @property
    def mask(self) -> Mask | None:
        """What it reads in place of drafted tokens; None: their own output."""
        return None

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers whose entering hidden states are the features."""
        return tuple(self.config.taps)
