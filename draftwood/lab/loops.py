"""Measures how much a text repeats itself.

Small models often end in loops under greedy decoding, and drafters that copy predict loops well.
The measure is the share of the text's token 8-grams that occurred earlier in the text. The prompt
is not part of the text, so copying from the prompt is no loop.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SIZE = 8
"""Tokens per n-gram: about five words, which texts without loops rarely repeat."""

LOOPING = 0.2
"""Least share of repeated 8-grams in a looping text."""


@dataclass(frozen=True)
class Repeats:
    """Counts of 8-grams in one or several texts.

    Attributes:
        repeated: 8-grams that occurred earlier in the same text; overlaps count.
        total: all 8-grams; 0 for a text of fewer than 8 tokens.
    """

    repeated: int = 0
    total: int = 0

    @property
    def share(self) -> float:
        """Share of repeated 8-grams; 0 without 8-grams."""
        return self.repeated / self.total if self.total else 0.0

    @property
    def loops(self) -> bool:
        """Whether the share is at least ``LOOPING``; False without 8-grams."""
        return self.share >= LOOPING


def grams(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    """The 8-grams of a text, in order."""
    return [tuple(tokens[i : i + SIZE]) for i in range(len(tokens) - SIZE + 1)]


def repeats(tokens: Sequence[int]) -> Repeats:
    """Count the 8-grams of a text, given by its token ids without the prompt."""
    found = grams(tokens)
    return Repeats(len(found) - len(set(found)), len(found))


def pooled(texts: Iterable[Repeats]) -> Repeats:
    """Sum of the counts of several texts; long texts weigh more."""
    found = list(texts)
    return Repeats(sum(each.repeated for each in found), sum(each.total for each in found))
