"""Tells how much of a text repeats itself. Knows token ids only.

Small models under greedy decoding end up repeating themselves, word for word or with a name
changed here and there, and what repeats is what any drafter that copies predicts well. The measure
is the share of the text's token 8-grams that were seen earlier in the same text; the prompt is not
part of the text, so copying from a prompt is no loop.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SIZE = 8
"""Tokens of an n-gram: some five words, which texts that go on seldom say twice."""

LOOPING = 0.2
"""Share of repeated 8-grams from which on a text counts as looping."""


@dataclass(frozen=True)
class Repeats:
    """The 8-grams of a text, or of several texts together.

    Attributes:
        repeated: those that stand earlier in the same text too; overlaps count.
        total: all of them; 0 for a text of fewer than 8 tokens, which has none.
    """

    repeated: int = 0
    total: int = 0

    @property
    def share(self) -> float:
        """Of the 8-grams those that are repeated; 0 if there are none."""
        return self.repeated / self.total if self.total else 0.0

    @property
    def loops(self) -> bool:
        """Whether a text loops; one without 8-grams does not."""
        return self.share >= LOOPING


def repeats(tokens: Sequence[int]) -> Repeats:
    """The 8-grams of one text, given by its token ids without the prompt's."""
    grams = [tuple(tokens[i : i + SIZE]) for i in range(len(tokens) - SIZE + 1)]
    return Repeats(len(grams) - len(set(grams)), len(grams))


def pooled(texts: Iterable[Repeats]) -> Repeats:
    """The 8-grams of several texts together: long texts weigh more."""
    found = list(texts)
    return Repeats(sum(each.repeated for each in found), sum(each.total for each in found))


def looping(tokens: Sequence[int]) -> bool:
    """Whether a fifth or more of the text's 8-grams are repeated."""
    return repeats(tokens).loops
