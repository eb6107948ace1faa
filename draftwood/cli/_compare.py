"""``generate --compare``: the same request by plain decoding, beside the method's completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftwood.lab.bench.loop_marks import note
from draftwood.lab.loops import repeats
from draftwood.tree import common_prefix

if TYPE_CHECKING:
    from draftwood.engine.request import Completion
    from draftwood.lab.bench.margins import Margin


@dataclass(frozen=True)
class Comparison:
    """A method's completion and plain decoding's of the same request.

    Attributes:
        method: the method's.
        plain: plain decoding's, through the same engine.
        exact: whether the method promises plain decoding's tokens for this request; otherwise it
            promises their distribution.
        margin: between the first two tokens that differ; None if none do or it is not known.
    """

    method: Completion
    plain: Completion
    exact: bool
    margin: Margin | None = None

    @property
    def speed_up(self) -> float | None:
        """Tokens per second over those of plain decoding; None without a second token."""
        method, plain = self.method.tpot, self.plain.tpot
        return plain / method if method > 0 and plain > 0 else None

    @property
    def first_difference(self) -> int | None:
        """Position of the first new token that differs; None if all are the same."""
        if self.method.tokens == self.plain.tokens:
            return None
        return common_prefix(self.method.tokens, self.plain.tokens)

    def lines(self) -> list[str]:
        """The comparison in words, for the terminal."""
        rate = f"{1 / self.plain.tpot:.2f} tok/s" if self.plain.tpot > 0 else "not timed"
        gain = "" if self.speed_up is None else f"; speed-up {self.speed_up:.2f}x"
        tokens = f"{len(self.plain.tokens)} tokens"
        found = [f"[plain decoding: {tokens}, {rate}{gain}, {self._sameness()}]"]
        loop = repeats(self.plain.tokens)
        if loop.loops:
            found.append(note(1, 1, loop.share))
        return found

    @property
    def differing(self) -> tuple[int, int] | None:
        """The first two tokens that differ; None if none do, or if one text is only longer."""
        at = self.first_difference
        if at is None or at >= min(len(self.method.tokens), len(self.plain.tokens)):
            return None
        return self.plain.tokens[at], self.method.tokens[at]

    def _sameness(self) -> str:
        if self.first_difference is None:
            return "same tokens"
        if not self.exact:
            return "other tokens of the same distribution"
        found = f"tokens differ from number {self.first_difference + 1} on"
        if self.margin is None:
            return found
        gap = f"{self.margin.gap:.2g} apart, and rounding moves them by up to"
        kind = "a near tie" if self.margin.near_tie else "NOT a near tie"
        return f"{found}: {kind} (logits {gap} {self.margin.bound:.2g})"

    def document(self) -> Mapping[str, object]:
        """The comparison as a JSON object."""
        return {
            "plain_tokens_per_second": _rounded(1 / self.plain.tpot if self.plain.tpot > 0 else 0),
            "speed_up": None if self.speed_up is None else _rounded(self.speed_up),
            "same_tokens": self.first_difference is None,
            "first_difference": self.first_difference,
            "near_tie": None if self.margin is None else self.margin.near_tie,
            "repeated_8grams": _rounded(repeats(self.plain.tokens).share),
        }


def _rounded(value: float) -> float:
    return round(value, 4)
