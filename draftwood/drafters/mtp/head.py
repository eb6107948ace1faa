"""One MTP layer as a head that the runner can run over trees.

Source: DeepSeek-AI, *DeepSeek-V3* (2024), equations 21 to 23. The layer is transformers' own
(``MtpLayer``): norms of the token's embedding and of h, which ``eh_proj`` joins, a decoder layer of
the target, and a norm. The row with the target's last hidden state of position i holds token i + 1
and predicts token i + 2. For drafted nodes, h is the output of the last norm at the position
before.
"""

import inspect
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from draftwood.drafters._head import AutoregressiveHead


class MtpHead(AutoregressiveHead):  # type: ignore[no-untyped-call]
    """An MTP layer with the target's embedding and ``lm_head``.

    Args:
        config: of the layer, with the fields that :class:`AutoregressiveHead` asks for.
        layer: transformers' ``MtpLayer`` of this config, with its weights.
        rotary: the target's kind of rotary embedding.
    """

    def __init__(self, config: Any, layer: nn.Module, rotary: nn.Module) -> None:
        super().__init__(config)
        self.layer = layer
        self.rotary_emb = rotary
        by_kind = "layer_type" in inspect.signature(rotary.forward).parameters
        self._kind = {"layer_type": config.layer_types[0]} if by_kind else {}

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        # transformers looks for experts in this file; those of the layer can be set.
        return True

    @property
    def weights(self) -> torch.Tensor:
        """A weight, whose dtype is that of all."""
        found: torch.Tensor = self.layer.eh_proj.weight  # type: ignore[union-attr,assignment]
        return found

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """h ``[.., H]`` of committed tokens: the target's last hidden states."""
        return features.to(self.weights.dtype)

    def rotary_factors(self, embedded: torch.Tensor, position_ids: torch.Tensor) -> Any:
        """See :meth:`AutoregressiveHead.rotary_factors`.

        Some families have factors by kind of layer.
        """
        return self.rotary_emb(embedded, position_ids=position_ids, **self._kind)

    def run_layers(
        self, embedded: torch.Tensor, vectors: torch.Tensor, shared: dict[str, Any]
    ) -> torch.Tensor:
        """See :meth:`AutoregressiveHead.run_layers`."""
        found: torch.Tensor = self.layer(embedded, vectors, **shared)
        return found

    def read_out(
        self, states: torch.Tensor, kept: slice | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`AutoregressiveHead.read_out`.

        The next row's h is the layer's normed output.
        """
        return self.logits_of(states[:, kept]), states

    def target_ids(self) -> NDArray[np.int64]:
        """int64 ``[V]`` on the host: every token of the target."""
        return np.arange(self.config.vocab_size)
