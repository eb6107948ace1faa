"""Features of the target that wait until a draft model is asked."""

from typing import Final

import torch

_LOOSE: Final = 64
"""Most steps of a sequence whose features are not copied: those of others stay alive with them."""


class WaitingFeatures:
    """The target's features ``[n, F]`` for committed tokens of one sequence, step by step.

    Attributes:
        tokens: how many wait.
        bytes: of their features.
    """

    __slots__ = ("_loose", "_parts", "bytes", "tokens")

    def __init__(self) -> None:
        self._parts: list[torch.Tensor] = []
        self._loose = 0  # the last parts, which are not copied
        self.tokens = self.bytes = 0

    def add(self, features: torch.Tensor) -> int:
        """Add those of a prompt or of a step, which may be part of a larger tensor.

        Returns:
            Their bytes.
        """
        self._parts.append(features)
        added = features.nbytes
        self.tokens += len(features)
        self.bytes += added
        self._loose += 1
        if self._loose >= _LOOSE:
            self._parts[-_LOOSE:] = [torch.cat(self._parts[-_LOOSE:])]
            self._loose = 0
        return added

    def take(self) -> list[torch.Tensor]:
        """All of them, after which none wait."""
        found, self._parts = self._parts, []
        self._loose = self.tokens = self.bytes = 0
        return found
