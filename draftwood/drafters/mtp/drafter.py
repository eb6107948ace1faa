"""The MTP drafter: multi-token-prediction layers that the target was trained with draft for it.

A layer reads a token and the target's last hidden state at the position before, after the final
norm, and predicts the token after. Targets with one layer were trained to predict one token ahead.
To draft further, the layer gets its own output in place of the hidden state, so that fewer tokens
are accepted at greater depths.

Source: DeepSeek-AI, *DeepSeek-V3* (2024), section 2.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from draftwood.drafters._rollout.head_drafter import HeadDrafter
from draftwood.protocols import DrafterSpec, DraftModel, Host, setting
from draftwood.protocols.drafter import OWN
from draftwood.tree import Draw


@dataclass(frozen=True)
class Mtp(DrafterSpec):
    """Settings of a target's multi-token-prediction layers."""

    model: str | Any = setting(
        OWN,
        "checkpoint of the target that has its MTP layers: a directory, a hub id, or 'target', the "
        "one that the target was loaded from",
        flag="head",
    )

    summary: ClassVar = "the likeliest tokens of the target's own MTP layers, or samples"
    draws: ClassVar = frozenset(Draw)

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        """Whether it is the configuration of a language model with MTP layers."""
        from draftwood.drafters.mtp.families import names_layers

        return names_layers(config)

    def build(self, host: Host) -> HeadDrafter:
        """Load the layers.

        Raises:
            DraftwoodError: they cannot be loaded, or are another target's.
        """
        from draftwood.drafters.mtp.checkpoint import load_mtp

        layers: Any = host.loaded(load_mtp, self.model, "target")
        parts = [host.head(layer) for layer in layers]
        return HeadDrafter(parts[0][0], _joined([model for _, model in parts]), host.info)


def _joined(models: list[DraftModel]) -> DraftModel:
    """One draft model of all layers."""
    if len(models) == 1:
        return models[0]
    from draftwood.drafters.mtp.stack import MtpStack

    return MtpStack(models)


PART = Mtp
