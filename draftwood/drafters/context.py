"""The context match: copies what followed the current suffix earlier in the same text.

Source: GOOSE, Section 4.1 and Appendix B.2 (CONTEXTMATCH, the paper's PLD). The index is
incremental: a new token costs one dictionary update per query length, and the text is never
scanned again.

The paper's copy ends at the end of the text. With ``wrap`` it continues with the copied tokens
themselves, so a text of a short period can be copied for more than one period.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import ClassVar

from draftwood.drafters._copied import copied
from draftwood.errors import DraftwoodError
from draftwood.protocols import (
    LARGEST_COUNT,
    Continuation,
    Drafter,
    DrafterSpec,
    Evidence,
    Feature,
    Host,
    Outcome,
    Prefill,
    setting,
)

# The key of a suffix is one integer that holds all its tokens, so equal keys mean equal suffixes.
# 25 bits per token hold any vocabulary. Python folds the hash of an integer at 61 bits; a divisor
# of 61 would map the tokens of a long suffix to the same bits of the hash.
_BITS = 25

# Positions at which a suffix continued. Most suffixes occur once and need a bare position. Others
# need (position, count, position, count, ...), one pair per distinct next token, most recent first.
_Record = int | tuple[int, ...]


@dataclass(frozen=True)
class Context(DrafterSpec):
    """Settings of the context match (GOOSE, Table 5).

    Raises:
        DraftwoodError: a length or a bound below one, or no distinct lengths.
    """

    lengths: tuple[int, ...] = setting(
        (5, 4, 3),
        "suffix lengths, in tokens, that are looked up, longest first",
        least=1,
        most=LARGEST_COUNT,
    )
    max_tokens: int = setting(
        20, "longest continuation to copy, in tokens", least=1, most=LARGEST_COUNT
    )
    max_continuations: int = setting(
        4, "most continuations, with distinct first tokens, to offer", least=1, most=LARGEST_COUNT
    )
    max_match: int = setting(64, "longest match to measure, in tokens", least=1, most=LARGEST_COUNT)

    wrap: bool = setting(False, "continue past the end of the text with the tokens copied so far")

    summary: ClassVar = "what followed the end of the text before, in this text"
    evidence: ClassVar = Evidence(
        copied=(
            Feature("match_length", (2, 3, 4, 6, 9, 16, 32, 64)),
            Feature("preferred"),
            Feature("first"),
        )
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = sorted(self.lengths)
        if not lengths or any(a == b for a, b in pairwise(lengths)):
            raise DraftwoodError(f"lengths is {self.lengths}; give at least one length, each once")

    def build(self, host: Host) -> ContextIndex:
        """A fresh index.

        Raises:
            DraftwoodError: the vocabulary has more than 2**25 tokens.
        """
        if host.info.vocab_size > 1 << _BITS:
            raise DraftwoodError(
                f"the context match keys tokens by {_BITS} bits, but the target's vocabulary has"
                f" {host.info.vocab_size} tokens; use another drafter"
            )
        return ContextIndex(self)


class ContextIndex(Drafter):
    """Proposes chains that continue the text as it continued before; each slot has its own text.

    The *most recent* earlier occurrence of the longest matching suffix is preferred. If earlier
    occurrences disagree on the next token, each distinct token may start a further chain: those of
    longer suffixes first, then the more recent. The fields of a ``Continuation``:

    * ``tokens``: up to ``max_tokens``; fewer at the end of the text, unless they ``wrap``;
    * ``match_length``: the common suffix of the text and of the text before the copied
      occurrence, measured up to ``max_match`` tokens;
    * ``count``: occurrences of the longest suffix offering this first token that were so continued
      (exact for suffixes with at most ``max_continuations`` distinct continuations; with more,
      the least recent one is forgotten, and its count with it);
    * ``agreeing``: lengths whose own preferred continuation has this first token (0 for a token
      that is no length's first choice). GOOSE's consensus flag is ``agreeing >= 2``.

    Memory: about 0.3 kB per token of text whose suffixes never repeat, at three lengths.
    """

    def __init__(self, settings: Context) -> None:
        self._settings = settings
        self._texts: dict[int, _IndexedText] = {}

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Index the prompt and the first token."""
        text = _IndexedText(self._settings)
        text.extend(prefill.prompt.tolist())
        text.extend((prefill.first,))
        self._texts[slot] = text

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Index the tokens that the step committed."""
        self._texts[slot].extend(outcome.committed)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """Chains that followed each slot's current suffix before, the preferred one first."""
        return [self._texts[slot].continuations() for slot in slots]

    def release(self, slot: int) -> None:
        """Forget the slot's text."""
        self._texts.pop(slot, None)


class _IndexedText:
    """One text, and for every query length where each suffix of that length was continued."""

    __slots__ = ("_settings", "_tables", "_tokens", "_window")

    def __init__(self, settings: Context) -> None:
        self._settings = settings
        self._tokens = array("i")
        self._window = 0
        self._tables: list[tuple[int, int, dict[int, _Record]]] = [
            (length, (1 << _BITS * length) - 1, {})
            for length in sorted(settings.lengths, reverse=True)
        ]

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens; each one is a continuation of the suffixes that ended before it."""
        text, window, tables = self._tokens, self._window, self._tables
        full = tables[0][1]
        position = len(text)
        for token in tokens:
            for length, mask, index in tables:
                if position >= length:
                    key = window & mask
                    known = index.get(key)
                    index[key] = position if known is None else self._again(known, position, token)
            text.append(token)
            position += 1
            window = (window << _BITS | token) & full
        self._window = window

    def _again(self, known: _Record, position: int, token: int) -> _Record:
        text = self._tokens
        pairs = (known, 1) if isinstance(known, int) else known
        for i in range(0, len(pairs), 2):
            if text[pairs[i]] == token:
                return (position, pairs[i + 1] + 1, *pairs[:i], *pairs[i + 2 :])
        return (position, 1, *pairs[: 2 * self._settings.max_continuations - 2])

    def continuations(self) -> tuple[Continuation, ...]:
        """See :class:`ContextIndex`."""
        text, window, settings = self._tokens, self._window, self._settings
        choices: list[int] = []
        offered: dict[int, tuple[int, int, int]] = {}
        for length, mask, index in self._tables:
            known = index.get(window & mask) if len(text) >= length else None
            if known is None:
                continue
            pairs = (known, 1) if isinstance(known, int) else known
            choices.append(text[pairs[0]])
            for i in range(0, len(pairs), 2):
                offered.setdefault(text[pairs[i]], (pairs[i], pairs[i + 1], length))
        return tuple(
            Continuation(
                tokens=copied(text, position, settings.max_tokens, wrap=settings.wrap),
                match_length=self._match_length(position, length),
                count=count,
                agreeing=choices.count(token),
            )
            for token, (position, count, length) in islice(
                offered.items(), settings.max_continuations
            )
        )

    def _match_length(self, position: int, known: int) -> int:
        # By bisection over slices: a loop over tokens costs five times as much on a long match.
        text = self._tokens
        end = len(text)
        beyond = min(position, self._settings.max_match) + 1
        while known + 1 < beyond:
            length = (known + beyond) // 2
            if text[position - length : position - known] == text[end - length : end - known]:
                known = length
            else:
                beyond = length
        return known


PART = Context
