"""The suffix match: copies what followed the longest suffix that occurred earlier in the same text.

Source: SAM-Decoding (Hu et al., 2025, arXiv 2411.10666), its dynamic suffix automaton: the one of a
request's own text. The automaton has a state for each set of end positions that some substring has.
It is extended by a token in O(1) amortised time (Blumer et al., 1985). The suffix link of the state
of the whole text is the state of the longest suffix that occurred before, so the match is at hand
after every token, and its length is exact and has no bound.

As in the paper, a state stores its earliest end position, and the copy starts behind it. In a loop
the longest match ends one period before the end of the text, so a copy is one period long; with
``wrap``, which is not in the paper, it goes on with its own tokens. Beyond the paper, the other
successors of the match and of shorter suffixes are offered as further continuations, and
occurrences are counted.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from draftwood.drafters._copied import copied
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

COUNTED = 8
"""Most occurrences that are counted. A state has no more of them than its suffix link, so counting
ends at the first link that has so many: each state is counted up at most so many times in all."""

_VISITED = 32
"""Most states, from the longest match to shorter ones, that a look-up visits."""


@dataclass(frozen=True)
class Suffix(DrafterSpec):
    """Settings of the suffix match.

    Raises:
        DraftwoodError: a bound below one.
    """

    min_match: int = setting(
        1, "shortest suffix that is continued, in tokens", least=1, most=LARGEST_COUNT
    )
    max_tokens: int = setting(
        40, "longest continuation to copy, in tokens", least=1, most=LARGEST_COUNT
    )
    max_continuations: int = setting(
        4, "most continuations, with distinct first tokens, to offer", least=1, most=LARGEST_COUNT
    )
    wrap: bool = setting(False, "continue past the end of the text with the tokens copied so far")

    summary: ClassVar = "what followed the longest suffix that occurred before, in this text"
    evidence: ClassVar = Evidence(
        copied=(
            Feature("match_length", (2, 3, 4, 6, 9, 16, 32, 64)),
            Feature("count", (2, 4)),
            Feature("preferred"),
            Feature("first"),
        )
    )

    def build(self, host: Host) -> SuffixMatch:  # noqa: ARG002
        """A drafter without text."""
        return SuffixMatch(self)


class SuffixMatch(Drafter):
    """Proposes chains that continue the text as it continued before; each slot has its own text.

    The *earliest* occurrence of the longest suffix that occurred before is preferred. Its other
    successors follow, in the order in which they first occurred, then those of shorter suffixes.
    The fields of a ``Continuation``:

    * ``tokens``: up to ``max_tokens``; fewer at the end of the text, unless they ``wrap``;
    * ``match_length``: the longest suffix of the text that was followed by the first token before;
    * ``count``: how often it was, up to :data:`COUNTED`;
    * ``agreeing``: suffix lengths whose earliest occurrence was followed by the first token. The
      lengths of the 32 longest states are looked at, which are all but in long loops.

    Memory: about 0.4 kB per token of text (code and prose), 0.3 kB where nothing repeats.
    """

    def __init__(self, settings: Suffix) -> None:
        self._settings = settings
        self._texts: dict[int, SuffixAutomaton] = {}

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Take the prompt and the first token."""
        text = SuffixAutomaton()
        text.extend(prefill.prompt.tolist())
        text.extend((prefill.first,))
        self._texts[slot] = text

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Take the tokens that the step committed."""
        self._texts[slot].extend(outcome.committed)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """Chains that followed a suffix of each slot's text before, the preferred one first."""
        return [self._texts[slot].continuations(self._settings) for slot in slots]

    def release(self, slot: int) -> None:
        """Forget the slot's text."""
        self._texts.pop(slot, None)


class SuffixAutomaton:
    """A growing text and its suffix automaton. State 0 is that of the empty suffix."""

    __slots__ = ("_count", "_first", "_last", "_length", "_link", "_next", "_text")

    def __init__(self) -> None:
        self._text = array("i")
        self._last = 0  # the state of the whole text
        self._next: list[dict[int, int]] = [{}]  # in the order in which the tokens first followed
        self._link = array("i", (-1,))
        self._length = array("i", (0,))  # of a state's longest suffix
        self._first = array("i", (-1,))  # earliest position of a suffix's last token
        self._count = bytearray((COUNTED,))

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens."""
        text, following, link, length = self._text, self._next, self._link, self._length
        first, count, last = self._first, self._count, self._last
        for token in tokens:
            new = self._add({}, 0, len(text) + 1, len(text), 1)
            text.append(token)
            state = last
            while state >= 0 and token not in following[state]:
                following[state][token] = new
                state = link[state]
            if state >= 0:
                after = following[state][token]
                if length[after] > length[state] + 1:
                    # Only the shorter suffixes of `after` end here as well: they get a state.
                    shorter = self._add(
                        following[after].copy(),
                        link[after],
                        length[state] + 1,
                        first[after],
                        count[after],
                    )
                    while state >= 0 and following[state].get(token) == after:
                        following[state][token] = shorter
                        state = link[state]
                    link[after] = after = shorter
                link[new] = state = after
                while count[state] < COUNTED:
                    count[state] += 1
                    state = link[state]
            last = new
        self._last = last

    def _add(
        self, following: dict[int, int], link: int, length: int, first: int, count: int
    ) -> int:
        """A new state."""
        self._next.append(following)
        self._link.append(link)
        self._length.append(length)
        self._first.append(first)
        self._count.append(count)
        return len(self._next) - 1

    def continuations(self, settings: Suffix) -> tuple[Continuation, ...]:
        """How suffixes of the text were continued, preferred first; see :class:`SuffixMatch`."""
        text, length = self._text, self._length
        least, most = settings.min_match, settings.max_continuations
        offered: dict[int, tuple[int, int]] = {}  # the state behind the token, and the match
        agreeing: Counter[int] = Counter()
        state = self._link[self._last]
        for _ in range(_VISITED):
            if state <= 0 or length[state] < least:
                break
            following, shorter = self._next[state], self._link[state]
            agreeing[next(iter(following))] += length[state] - max(length[shorter], least - 1)
            if len(offered) < most:
                # What longer suffixes offered comes again, and is not counted.
                for token, behind in islice(following.items(), most + len(offered)):
                    offered.setdefault(token, (behind, length[state]))
            state = shorter
        return tuple(
            Continuation(
                tokens=copied(text, self._first[behind], settings.max_tokens, wrap=settings.wrap),
                match_length=match,
                count=self._count[behind],
                agreeing=agreeing[token],
            )
            for token, (behind, match) in islice(offered.items(), most)
        )


PART = Suffix
