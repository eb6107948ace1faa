"""The width of a chain, found by trying the next one up or down.

Tokens, seconds and acceptance of each width are moving averages. A width whose acceptance is low is
compared with the next smaller one, a width whose acceptance is high with the next larger one. The
other width stays if it yields hardly fewer tokens per second, and if it was larger, only as long as
acceptance is high. Rule and constants are onnxruntime-genai's (``AdaptiveKController``). Pure
numbers; knows nothing of trees and clocks.
"""

from dataclasses import dataclass

_NEWEST = 0.25
"""Weight of the newest round in the averages."""

_LOW, _HIGH = 0.5, 0.75
"""Acceptance below which a smaller width is tried, and from which on a larger one is."""

_RETAINED, _SEVERE = 0.97, 0.8
"""Tokens per second, relative to the width before, that a width needs to stay, and below which it
is given up at once."""

_ROUNDS = 2
"""Rounds of a width before another is tried, and before a tried one stays."""

_AFTER_KEPT, _AFTER_GIVEN_UP = 1, 6
"""Rounds before the next trial."""


@dataclass
class _Average:
    """Moving averages of the rounds of one width."""

    tokens: float = 0.0
    seconds: float = 0.0
    acceptance: float = 0.0
    rounds: int = 0

    def add(self, tokens: float, seconds: float, acceptance: float) -> None:
        share = _NEWEST if self.rounds else 1.0
        self.tokens += share * (tokens - self.tokens)
        self.seconds += share * (seconds - self.seconds)
        self.acceptance += share * (acceptance - self.acceptance)
        self.rounds += 1

    @property
    def rate(self) -> float:
        """Tokens per second; 0 before the first round."""
        return self.tokens / self.seconds if self.seconds else 0.0


class Width:
    """The width of the next chain.

    Args:
        least: the smallest one, and the first.
        most: the largest one.

    Attributes:
        now: the width.
    """

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most
        self.now = least
        self._averages = [_Average() for _ in range(most + 1)]
        self._before: int | None = None  # the width that the present one is compared with
        self._tried = 0  # rounds of the present trial
        self._stable = 0  # rounds since the last trial
        self._pause = 0  # rounds before the next trial

    def observe(self, tokens: float, seconds: float, acceptance: float) -> None:
        """Learn from a round whose chain had the present width.

        Args:
            tokens: committed.
            seconds: that it took; a round without any is left out.
            acceptance: accepted tokens over those that were looked at, the first rejected one
                included.
        """
        if seconds <= 0.0:
            return
        average = self._averages[self.now]
        average.add(tokens, seconds, acceptance)
        if self._before is not None:
            self._judge(average, self._before)
            return
        self._stable += 1
        if self._pause:
            self._pause -= 1
            return
        if average.rounds < _ROUNDS:
            return
        if average.acceptance < _LOW and self.now > self.least:
            self._try(self.now - 1)
        elif average.acceptance >= _HIGH and self.now < self.most and self._stable >= _ROUNDS:
            self._try(self.now + 1)

    def shorten(self, width: int) -> None:
        """Go back to a smaller width, as no chain has the present one; ends a trial."""
        self._end(max(self.least, width), kept=False)

    def _try(self, width: int) -> None:
        self._before, self.now = self.now, width
        self._tried = self._stable = 0

    def _judge(self, average: _Average, before: int) -> None:
        """Decide whether the width that is tried stays, once that can be said."""
        self._tried += 1
        known = self._averages[before].rate
        if average.rate < _SEVERE * known:
            self._end(before, kept=False)
        elif self._tried >= _ROUNDS:
            sound = self.now < before or average.acceptance >= _HIGH
            self._end(before, kept=sound and average.rate >= _RETAINED * known)

    def _end(self, before: int, *, kept: bool) -> None:
        if not kept:
            self.now = before
        self._before = None
        self._tried = self._stable = 0
        self._pause = _AFTER_KEPT if kept else _AFTER_GIVEN_UP
