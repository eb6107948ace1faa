"""The Hydra drafter: heads that each say a token further ahead, given the drafted tokens before.

Unlike Medusa's, a node's children depend on its path. All nodes of a depth are one batch of a head,
and do not see one another. In Hydra++ a layer over the target's last hidden states of all true
positions is computed first, once a step.

Source: Ankner et al., *Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding* (2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from draftwood.drafters._features import prompt_features, step_features
from draftwood.drafters._paths import PathDrafter
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

    from draftwood.drafters._context_cache import ContextCache
    from draftwood.drafters.hydra.heads import HydraHeads


@dataclass(frozen=True)
class Hydra(DrafterSpec):
    """Settings of Hydra heads."""

    model: str | Any = setting(
        "", "Hydra heads made for this target: a directory or a hub id", flag="head"
    )
    dtype: DraftDtype = setting("auto", DRAFT_DTYPE_HELP)

    summary: ClassVar = "the likeliest tokens of heads that read the drafted tokens, or samples"
    draws: ClassVar = frozenset(Draw)

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        """Whether it is a configuration of Hydra heads."""
        return "hydra_num_heads" in config

    def build(self, host: Host) -> HydraDrafter:
        """Load the heads.

        Raises:
            DraftwoodError: they cannot be loaded, or were made for another target.
        """
        from draftwood.drafters.hydra.checkpoint import load_hydra

        return HydraDrafter(host.loaded(load_hydra, self.model, self.dtype), host.info)


@dataclass
class _Text:
    """A request's committed text.

    Attributes:
        context: of the prefix layer; None without one.
        state: ``[H]``, the target's last hidden state at the last position before the anchor and,
            once the drafter was asked in a step, what the heads read of the text.
    """

    context: ContextCache | None
    state: torch.Tensor | None = None


class HydraDrafter(PathDrafter):
    """Proposes the heads' likeliest tokens, or samples.

    Args:
        heads: on the target's device.
        target: the target.
    """

    def __init__(self, heads: HydraHeads, target: TargetInfo) -> None:
        import torch

        super().__init__(torch.arange(heads.outputs, device="cpu"), target, len(heads.heads))
        self._heads = heads
        self._texts: dict[int, _Text] = {}

    @property
    def needs(self) -> Needs:
        """The target's last hidden state."""
        return Needs(taps=(self._target.layers,))

    @property
    def token_bytes(self) -> int:
        """Bytes of a position's keys and values in the prefix layer, in buffers that grow."""
        from draftwood.drafters._context_cache import GROWTH

        if self._heads.prefix is None:
            return 0
        return int(GROWTH * 2 * self._heads.prefix.layer.self_attn.k_proj.weight[:, 0].nbytes)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts."""
        from draftwood.drafters._context_cache import ContextCache

        self.start(slot)
        prefix, states = self._heads.prefix, prompt_features(prefill)
        context = None if prefix is None else ContextCache(prefix.read)
        self._texts[slot] = _Text(context)
        self._append(slot, states)

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed: the root and the accepted nodes have states."""
        self.step(slot)
        self._append(slot, step_features(outcome))

    def release(self, slot: int) -> None:
        """The request has ended."""
        super().release(slot)
        self._texts.pop(slot, None)

    def read(self, slots: Sequence[int]) -> None:
        """Compute what the heads read of the texts."""
        prefix = self._heads.prefix
        if prefix is None:
            return
        texts = [self._texts[slot] for slot in slots]
        contexts = [text.context.layers()[0] for text in texts if text.context is not None]
        for text, state in zip(texts, prefix(self._states(slots), contexts), strict=True):
            text.state = state

    def scores(self, depth: int, slots: Sequence[int], paths: torch.Tensor) -> torch.Tensor:
        """Logits ``[m, Vd]`` of the head of a depth."""
        found: torch.Tensor = self._heads(depth, self._states(slots), paths)
        return found

    def _states(self, slots: Sequence[int]) -> torch.Tensor:
        """The states ``[m, H]`` of some slots, of which one may come several times."""
        import torch

        states = [self._texts[slot].state for slot in slots]
        return torch.stack([state for state in states if state is not None])

    def _append(self, slot: int, states: torch.Tensor) -> None:
        """Append positions by their states, ``[n, H]``."""
        text = self._texts[slot]
        # A copy, so that the other rows do not stay alive.
        text.state = states[-1].clone()
        if text.context is not None:
            text.context.append(states)


PART = Hydra
