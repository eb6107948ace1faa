"""A drafter that has nothing to say: what a source is bound to where a tree is to do without it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from draftwood.errors import DraftwoodError
from draftwood.protocols import Candidates, Continuation, Expand, Host, Needs, Outcome, Prefill
from draftwood.tree import Draw


@dataclass(frozen=True)
class Silent:
    """There is nothing to set."""

    model: ClassVar = None
    draws: ClassVar = frozenset({Draw.ONE_HOT})

    def build(self, host: Host) -> "SilentDrafter":  # noqa: ARG002
        """One that says nothing."""
        return SilentDrafter()


class SilentDrafter:
    """Implements :class:`draftwood.protocols.Drafter`."""

    needs = Needs()
    forwards = 0

    def backlog(self, slot: int) -> int:  # noqa: ARG002
        """None: there is no model."""
        return 0

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Nothing is learnt."""

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Nothing is learnt."""

    def release(self, slot: int) -> None:
        """Nothing was kept."""

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """None."""
        return [() for _ in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:  # noqa: ARG002
        """No children."""
        shapes = [(len(query.nodes), query.k) for query in queries]
        return [
            Candidates(np.full(shape, -1), np.full(shape, -np.inf, dtype=np.float32))
            for shape in shapes
        ]

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:  # noqa: ARG002
        """None.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError("nothing was drawn here")
