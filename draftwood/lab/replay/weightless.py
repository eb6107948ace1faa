"""A target without weights: slots, and output without logits."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.protocols import Computed, Needs, TargetInfo, TargetOutput
from draftwood.tree import TokenTree

S = TypeVar("S")

_NO_LOGITS = torch.zeros((1, 1))


class WeightlessTarget(ABC, Generic[S]):
    """The part of a :class:`draftwood.protocols.Target` for greedy decoding that needs no weights.

    ``_slots`` holds the state of each prefilled slot.

    Attributes:
        info: facts of the target.
    """

    def __init__(self, info: TargetInfo) -> None:
        self.info = info
        self._open: set[int] = set()
        self._slots: dict[int, S] = {}

    def open(self, capacity: int) -> int:  # noqa: ARG002
        """Reserve a slot."""
        slot = next(i for i in range(len(self._open) + 1) if i not in self._open)
        self._open.add(slot)
        return slot

    def release(self, slot: int) -> None:
        """Free a slot."""
        self._open.remove(slot)
        self._slots.pop(slot, None)

    def trim(self) -> None:
        """There is no cache."""

    @abstractmethod
    def forward(
        self, slots: Sequence[int], trees: Sequence[TokenTree], needs: Needs
    ) -> list[TargetOutput]:
        """The output for the trees' nodes."""

    def submit(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        numbers: NDArray[np.int64] | None = None,  # noqa: ARG002 - tokens are drawn on the host
    ) -> Computed:
        """The output of :meth:`forward`, computed at once."""
        return Computed(self.forward(slots, trees, needs))

    def keys_values(
        self,
        slots: Sequence[int],  # noqa: ARG002
        layer: int,  # noqa: ARG002
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Not available: there are no weights.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError("there are no weights here: give the model itself")

    def embedding(self) -> torch.nn.Module:
        """Not available: there are no weights.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError("there are no weights here: give the model itself")

    def lm_head(self) -> torch.nn.Module | None:
        """None: there are no weights."""
        return None


def output(
    argmax: Sequence[int], tokens: NDArray[np.int64], probs: NDArray[np.float32], logits: int
) -> TargetOutput:
    """Output with these tokens and probabilities, and placeholders for ``logits`` rows."""
    rows = _NO_LOGITS.expand(logits, 1)
    return TargetOutput(rows, np.array(argmax, dtype=np.int64), tokens, probs)
