"""The common part of drafters whose model reads masks in place of drafted tokens: PARD, P-EAGLE.

One forward reads the committed tokens that are new to the model, and a chain of masks behind them.
The output at the root says the next token, and that at the i-th mask the token i places further on,
whatever comes between. Masks are dropped from the model's cache, and accepted tokens are read in
the next step like all committed ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftwood.drafters._marginals import MarginalDrafter
from draftwood.drafters._rollout.drafter import RolloutDrafter
from draftwood.protocols import Mask, Needs, Outcome, Prefill, TargetInfo

if TYPE_CHECKING:
    from draftwood.drafters._rollout.topk import Place


class MaskedDrafter(MarginalDrafter):
    """Proposes the likeliest tokens of each depth, or samples.

    Args:
        reader: has the model, and is told what is committed; its own queries are not asked.
        mask: the model's.
        target: the target.
        ahead: most tokens drafted, one more than masks are read.
    """

    def __init__(self, reader: RolloutDrafter, mask: Mask, target: TargetInfo, ahead: int) -> None:
        # Here, so that settings can be listed without torch.
        import torch

        super().__init__(torch.from_numpy(reader.to_target), target)
        self._reader, self._mask, self._ahead = reader, mask, ahead

    @property
    def needs(self) -> Needs:
        """What the model reads of the target."""
        return self._reader.needs

    @property
    def note(self) -> str:
        """See :attr:`draftwood.protocols.Drafter.note`."""
        return self._reader.note

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in the model's cache."""
        return self._reader.token_bytes

    @property
    def slot_bytes(self) -> int:
        """Bytes of a request's recurrent states."""
        return self._reader.slot_bytes

    @property
    def node_bytes(self) -> int:
        """Bytes that recurrent layers keep of a node."""
        return self._reader.node_bytes

    @property
    def deepest(self) -> int:
        """Tokens drafted ahead."""
        return self._ahead

    def read_in_pieces(self) -> None:
        """From now on, read long backlogs in pieces while several requests run."""
        self._reader.read_in_pieces()

    def allocate(self, tokens: int) -> None:
        """Make the pool of the model's cache at once."""
        self._reader.allocate(tokens)

    def trim(self) -> None:
        """Give back the memory of the model's cache."""
        self._reader.trim()

    def backlog(self, slot: int) -> int:
        """Number of committed tokens that the model has not read, in its own tokens."""
        return self._reader.backlog(slot)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts."""
        self.start(slot)
        self._reader.begin(slot, prefill)

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed."""
        self.step(slot)
        self._reader.observe(slot, outcome)

    def release(self, slot: int) -> None:
        """The request has ended."""
        super().release(slot)
        self._reader.release(slot)

    def marginals(self, slots: Sequence[int]) -> list[list[Place]]:
        """The outputs at each root and at the masks behind it.

        There are fewer where the model's context ends, and none beyond it.
        """
        return self._reader.expand_masks(slots, self._mask, self._ahead - 1, self._wanted)
