"""Contamination check: training text must not share a 13-gram with an evaluation prompt.

The definition is GPT-3's (Brown et al. 2020, arXiv 2005.14165, appendix C): a word is what stands
between white space, lower-cased and without its punctuation; a 13-gram is 13 consecutive words. A
word that was punctuation only does not count. A prompt of fewer than 13 words counts as a whole: it
is shared if all its words follow one another in a document. Every turn of a dialogue is a prompt.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from draftwood.errors import DraftwoodError

WORDS = 13
"""Length of a gram."""

Text = tuple[str, str]
"""A name, for messages, and a text."""

_PUNCTUATION = re.compile(r"[^\w\s]|_")


@dataclass(frozen=True)
class Overlap:
    """Words that a document shares with a prompt; both by name."""

    document: str
    prompt: str
    words: tuple[str, ...]


class EvaluationText:
    """The grams of evaluation prompts.

    Args:
        prompts: name and text of each prompt.
    """

    def __init__(self, prompts: Iterable[Text]) -> None:
        self._prompts: dict[int, dict[tuple[str, ...], str]] = {}
        for name, text in prompts:
            found = words(text)
            count = min(WORDS, len(found))
            if count:
                known = self._prompts.setdefault(count, {})
                for gram in _grams(found, count):
                    known.setdefault(gram, name)

    def overlap(self, document: Text) -> Overlap | None:
        """The first gram that a document shares with a prompt, longer ones first."""
        name, text = document
        found = words(text)
        for count in sorted(self._prompts, reverse=True):
            known = self._prompts[count]
            # Nearly all documents share nothing, and this search is not a loop of Python's.
            if not known.keys().isdisjoint(_grams(found, count)):
                gram = next(gram for gram in _grams(found, count) if gram in known)
                return Overlap(name, known[gram], gram)
        return None

    def refuse(self, documents: Iterable[Text]) -> None:
        """Refuse documents that share a gram with a prompt.

        Raises:
            DraftwoodError: one does; the message names document, prompt and words.
        """
        for document in documents:
            found = self.overlap(document)
            if found is not None:
                raise DraftwoodError(
                    f"{found.document} shares {' '.join(found.words)!r} with the evaluation prompt "
                    f"{found.prompt}: leave the document out"
                )


def words(text: str) -> list[str]:
    """The words of a text, lower-cased and without punctuation."""
    return _PUNCTUATION.sub("", text.lower()).split()


def _grams(found: list[str], count: int) -> Iterator[tuple[str, ...]]:
    return zip(*(found[start:] for start in range(count)), strict=False)
