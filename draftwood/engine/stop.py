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
        self.matched: str | None = None

    def feed(self, piece: str) -> str:
        """The text that may be shown now: no stop string, nor what may become one, is in it.

        Empty once a stop string has matched; what followed it is dropped.
        """
        if self.matched is not None:
            return ""
        text = self._held + piece
        found = [(text.find(stop), stop) for stop in self._stops]
        ended = [(start + len(stop), start, stop) for start, stop in found if start >= 0]
        if ended:
            _, start, self.matched = min(ended)
            self._held = ""
            return text[:start]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The text held back, once none will follow."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that begins ``stop`` without being all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
