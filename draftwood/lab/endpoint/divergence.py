"""The first difference between two answers, and whether rounding explains it.

The reference reports the likeliest tokens at every place of its answer. At the first place where
the other answer has another token, the gap is the difference between the log probabilities of the
two tokens there, both as the reference reports them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from draftwood.lab.endpoint.answer import Choice, Token
from draftwood.tree import common_prefix

_SHOWN = 60
"""Most characters of the text before a divergence that are repeated."""

_PART = 12
"""Characters that are shown of a text whose next token is not known."""

_BACK = 12
"""Tokens before a difference of texts in which it may have begun, and that are shown."""

Score: TypeAlias = Callable[[str, float, Sequence[Token]], tuple[float, ...]]
"""What a token is chosen by: from its text, its log probability and the tokens generated before it.
Several numbers: one for each way in which servers do it. None: that is not known."""


def plain_score(_text: str, logprob: float, _before: Sequence[Token]) -> tuple[float, ...]:
    """The log probability itself."""
    return (logprob,)


@dataclass(frozen=True)
class Divergence:
    """A difference between two answers.

    Attributes:
        token: number of the reference's first other token, from 0; None: not known.
        before: end of the text before it.
        expected: text of the reference's token; empty: the reference's answer ends there.
        found: text of the other token, or the beginning of what follows; empty: it ends there.
        gap: by how much the reference prefers its own token; None: not known.
        at_least: whether the gap may be larger, as the other token is not among the reported ones.
        tolerance: largest gap that rounding explains.
        lengths: in words, how both lengths differ though a limit of tokens ended both; empty: they
            do not.
    """

    token: int | None
    before: str
    expected: str
    found: str
    gap: float | None
    at_least: bool
    tolerance: float
    lengths: str = ""

    @property
    def cause(self) -> Literal["rounding", "fault", "unknown"]:
        """What explains the difference."""
        if self.lengths:
            return "fault"
        if self.gap is None:
            return "unknown"
        if self.gap > self.tolerance:
            return "fault"
        return "unknown" if self.at_least else "rounding"

    def __str__(self) -> str:
        if self.lengths:
            return f"{self.lengths}, and the same limit ended both"
        place = "the text" if self.token is None else f"token {self.token}"
        words = f"{place} is {_shown(self.found)} and not {_shown(self.expected)}"
        if self.gap is None:
            return f"{words}; how far the reference prefers its own is not known"
        if self.at_least:
            return f"{words}, which is not among the reference's likeliest (gap > {self.gap:.2g})"
        verdict = "rounding" if self.cause == "rounding" else "more than rounding"
        sign = "within" if self.cause == "rounding" else "above"
        return f"{words}; gap {self.gap:.2g}, {sign} {self.tolerance:.2g}: {verdict}"


def divergence(
    reference: Choice,
    other: Choice,
    tolerance: float,
    *,
    cut: bool = False,
    score: Score = plain_score,
) -> Divergence | None:
    """The first difference of two answers to one prompt; None if their texts are equal.

    Args:
        reference: with log probabilities, if it has them.
        other: the answer that is judged.
        tolerance: see :class:`Divergence`.
        cut: ``other`` had a smaller limit of tokens, so that only its beginning is compared.
        score: what the reference chooses its tokens by.
    """
    # A text that is cut inside a character ends with a replacement character.
    text = other.text.rstrip("\ufffd") if cut else other.text
    if text == reference.text or (cut and reference.text.startswith(text)):
        return None
    same = common_prefix(reference.text, text)
    expected, rest = (each[same : same + _PART] for each in (reference.text, text))
    lengths = "" if cut else _other_lengths(reference, other)
    if lengths:
        end = _end(text[:same])
        return Divergence(None, end, expected, rest, None, False, tolerance, lengths)
    found = [
        _at(reference.tokens, place, rival, tolerance, score)
        for place, rival in _places(reference, other, text, same)
    ]
    if found:  # of several explanations, one with a known gap, and the smallest one
        return min(found, key=lambda each: (each.at_least, each.gap is None, each.gap or 0.0))
    return Divergence(None, _end(text[:same]), expected, rest, None, False, tolerance)


def _other_lengths(reference: Choice, other: Choice) -> str:
    """How the lengths differ if one text is the other's beginning, and a limit ended both."""
    if reference.reason != "length" or other.reason != "length":
        return ""
    # A character that is cut may be shown, or held back.
    texts = [each.text.rstrip("\ufffd") for each in (reference, other)]
    if len(texts[0]) == len(texts[1]) or common_prefix(*texts) < min(map(len, texts)):
        return ""
    if not (reference.tokens and other.tokens):
        return f"{len(texts[1])} characters, not {len(texts[0])}"
    # As many tokens may be a shorter text, if rounding has changed how a word is cut.
    expected, found = len(reference.tokens), len(other.tokens)
    return "" if expected == found else f"{found} tokens, not {expected}"


def _places(reference: Choice, other: Choice, text: str, same: int) -> Iterator[tuple[int, str]]:
    """Tokens of the reference that may be the first other one, each with what is there instead.

    Args:
        reference: has the tokens.
        other: its tokens decide if they are known.
        text: of the other answer.
        same: characters that the texts have in common.
    """
    for number, (a, b) in enumerate(zip(reference.tokens, other.tokens, strict=False)):
        if a.text != b.text:
            yield number, b.text
            return
    # Only the text is known. Where it parts from the reference's text is in one token; an earlier
    # one may be another, longer token already, as " the" where the text goes on with " then".
    numbers = [n for n, token in enumerate(reference.tokens) if token.start <= same]
    for number in numbers[-_BACK:]:
        token, rest = reference.tokens[number], text[reference.tokens[number].start :]
        rivals = [rival for rival, _ in token.top if rival != token.text and _begins(rest, rival)]
        last = number == numbers[-1]
        rivals = [each for each in rivals if last or token.start + len(each) > same]
        if rivals:
            yield number, max(rivals, key=len)
        elif last and rest and _holds(reference.text, token, same):
            yield number, rest[:_PART]


def _begins(text: str, token: str) -> bool:
    """Whether a text begins with a token, which some servers spell without its space."""
    return bool(token) and (text.startswith(token) or text.startswith(f" {token}"))


def _holds(text: str, token: Token, place: int) -> bool:
    """Whether a place of a text is in a token, and not behind the last one that is reported."""
    if token.start >= len(text):
        return True  # the token that ended the text
    whole = text.startswith(token.text, token.start)
    end = token.start + len(token.text) + (0 if whole else 1)
    return _begins(text[token.start :], token.text) and place < end


def _at(
    tokens: Sequence[Token], number: int, found: str, tolerance: float, score: Score
) -> Divergence:
    """The divergence if a token of the reference is the first other one."""
    own, before = tokens[number], tokens[:number]
    text = "".join(each.text for each in before[-_BACK:])
    gap, at_least = _gap(own, before, found, score)
    return Divergence(number, _end(text), own.text, found, gap, at_least, tolerance)


def _gap(
    own: Token, before: Sequence[Token], found: str, score: Score
) -> tuple[float | None, bool]:
    """The gap between a token of the reference and another, and whether it may be larger."""
    top = dict(own.top)
    if len(top) < 2:
        return None, False
    known = found in top
    expected = score(own.text, own.logprob, before)
    rival = score(found, top[found] if known else min(top.values()), before)
    # The reference shows in which way it chooses: its own token is the best one, or nearly so.
    pairs = zip(expected, rival, strict=False)
    gaps = [abs(a - b) if known else max(0.0, a - b) for a, b in pairs]
    return min(filter(math.isfinite, gaps), default=None), not known


def _end(text: str) -> str:
    return text if len(text) <= _SHOWN else f"...{text[-_SHOWN:]}"


def _shown(text: str) -> str:
    return repr(text) if text else "the end"
