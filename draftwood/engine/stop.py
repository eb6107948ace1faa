"""Finds stop strings in generated text. Knows nothing of tokens, models and requests."""

from collections.abc import Sequence

from draftwood.errors import DraftwoodError


class StopMatcher:
    """Finds the first stop string in text that arrives in pieces.

    The first one to be *completed* counts, and of several completed by the same character the
    longest, so that the answer does not depend on where the pieces were cut.

    Args:
        stops: strings that end the text; none of them empty.

    Attributes:
        matched: the stop string that ended the text, or None so far.

    Raises:
        DraftwoodError: a stop string is empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise DraftwoodError("a stop string must not be empty; leave it out")
        self._stops = stops
        self._held = ""
        self._passed = 0  # characters of it that no stop string may end with
        self.matched: str | None = None

    def feed(self, piece: str, *, counts: bool = True) -> str:
        """The text that may be shown now: no stop string, nor what may become one, is in it.

        Empty once a stop string has matched; what followed it is dropped. ``counts``: whether a
        stop string that is completed by this piece ends the text.
        """
        if self.matched is not None:
            return ""
        text = self._held + piece
        if not counts:
            self._passed = len(text)
        ended = []
        for stop in self._stops:
            start = text.find(stop, max(0, self._passed - len(stop) + 1))
            if start >= 0:
                ended.append((start + len(stop), start, stop))
        if ended:
            _, start, self.matched = min(ended)
            self._held = ""
            return text[:start]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        shown = len(text) - keep
        self._held, self._passed = text[shown:], max(0, self._passed - shown)
        return text[:shown]

    def flush(self) -> str:
        """The text held back, once none will follow."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that begins ``stop`` without being all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
