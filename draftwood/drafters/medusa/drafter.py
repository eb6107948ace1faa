"""Medusa's heads: each says a token further ahead from the target's last hidden state.

Head i gives the distribution of the token i + 2 places after the last position that the target has
read, whatever comes between. So siblings are the likeliest tokens of a depth, and nothing tells
which of them follow which parent.

Source: Cai et al., *Medusa* (2024), section 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from draftwood.drafters._features import prompt_features, step_features
from draftwood.drafters._marginals import MarginalDrafter
from draftwood.protocols import (
    DraftDtype,
    DrafterSpec,
    Host,
    Needs,
    Outcome,
    Prefill,
    TargetInfo,
    setting,
)
from draftwood.protocols.drafter import DRAFT_DTYPE_HELP
from draftwood.tree import Draw

if TYPE_CHECKING:
    import torch

    from draftwood.drafters._rollout.topk import Place
    from draftwood.drafters.medusa.heads import MedusaHeads


@dataclass(frozen=True)
class Medusa(DrafterSpec):
    """Settings of Medusa's heads."""

    model: str | Any = setting(
        "", "Medusa heads made for this target: a directory or a hub id", flag="head"
    )
    dtype: DraftDtype = setting("auto", DRAFT_DTYPE_HELP)

    summary: ClassVar = "the likeliest tokens of heads that each look a token further, or samples"
    draws: ClassVar = frozenset(Draw)

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        """Whether it is a configuration of Medusa heads."""
        return "medusa_num_heads" in config or config.get("model_type") == "medusa"

    def build(self, host: Host) -> MedusaDrafter:
        """Load the heads.

        Raises:
            DraftwoodError: they cannot be loaded, or were made for another target.
        """
        from draftwood.drafters.medusa.checkpoint import load_medusa

        return MedusaDrafter(host.loaded(load_medusa, self.model, self.dtype), host.info)


class MedusaDrafter(MarginalDrafter):
    """Proposes the heads' likeliest tokens, or samples.

    Args:
        heads: on the target's device.
        target: the target.
    """

    def __init__(self, heads: MedusaHeads, target: TargetInfo) -> None:
        super().__init__(heads.token_ids, target)
        self._heads = heads
        self._last = target.layers
        self._states: dict[int, torch.Tensor] = {}

    @property
    def needs(self) -> Needs:
        """The target's last hidden state."""
        return Needs(taps=(self._last,))

    @property
    def deepest(self) -> int:
        """One level for each head."""
        return len(self._heads.blocks)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts: the heads read the prompt's last position."""
        self.start(slot)
        self._read(slot, prompt_features(prefill))

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed: the heads read the last accepted node."""
        self.step(slot)
        self._read(slot, step_features(outcome))

    def release(self, slot: int) -> None:
        """The request has ended."""
        super().release(slot)
        self._states.pop(slot, None)

    def marginals(self, slots: Sequence[int]) -> list[list[Place]]:
        """The outputs of each head."""
        import torch

        with torch.inference_mode():
            logits = self._heads(torch.stack([self._states[slot] for slot in slots]))
        return self.by_depth(logits)

    def _read(self, slot: int, states: torch.Tensor) -> None:
        # A copy, so that the other rows do not stay alive.
        self._states[slot] = states[-1].clone()


PART = Medusa
