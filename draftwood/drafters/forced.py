"""What a request's grammar forces: the text that must come next, as the tokenizer would spell it.

In a JSON record of known keys, much of the text is decided by the schema. The grammar forces a
text, but not its tokens: the target may spell it in other ones, and then it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftwood.protocols import (
    Constraint,
    Continuation,
    Drafter,
    DrafterSpec,
    Evidence,
    Feature,
    Host,
    Prefill,
)

_LIKE = 64
"""Length of match that a forced text is taken for. Before anything is known of them, ``auto`` takes
tokens of a further source for about as likely as those of a copy."""


@dataclass(frozen=True)
class Forced(DrafterSpec):
    """The source has no settings."""

    summary: ClassVar = "what the request's grammar forces; nothing without a grammar"
    evidence: ClassVar = Evidence(copied=(Feature("match_length", (_LIKE,)), Feature("first")))

    def build(self, host: Host) -> ForcedText:  # noqa: ARG002
        """A drafter without requests."""
        return ForcedText()


class ForcedText(Drafter):
    """Proposes one chain, where the grammar of a slot's request leaves no choice of text."""

    def __init__(self) -> None:
        self._constraints: dict[int, Constraint] = {}

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Take the request's grammar, which moves on with its committed tokens."""
        self.release(slot)
        if prefill.constraint is not None:
            self._constraints[slot] = prefill.constraint

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """The forced text of each slot."""
        return [self._forced(slot) for slot in slots]

    def release(self, slot: int) -> None:
        """Forget the slot's grammar."""
        self._constraints.pop(slot, None)

    def _forced(self, slot: int) -> tuple[Continuation, ...]:
        constraint = self._constraints.get(slot)
        tokens = () if constraint is None else constraint.forced()
        return (Continuation(tokens, _LIKE, count=1, agreeing=1),) if tokens else ()


PART = Forced
