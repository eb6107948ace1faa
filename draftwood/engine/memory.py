"""The memory of an engine's requests: who may begin, and who never fits.

A request begins only if its tokens, and those that it may get, fit beside those of all that run,
with the drafters' own caches. So no request runs out of memory in the middle. A cache in blocks has
room for the tokens of each request by itself. A cache in rows has a row for each running request,
as long as the longest one so far; when nothing runs, and the rows are too many or too long for the
next request, it is given back.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from draftwood.errors import DraftwoodError, integer

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
SLACK = 1.25
"""A row that grows is up to so many times as long as it must be."""


def memory_bytes(given: int | str | None, name: str = "memory") -> int | None:
    """Bytes, from a number or a text such as ``"4GB"`` (powers of 1000); None stays.

    Raises:
        DraftwoodError: it is neither, or not above 0.
    """
    if given is None:
        return None
    if isinstance(given, str):
        match = re.fullmatch(r"([0-9.]+)\s*([KMGT]?)B?", given.strip().upper())
        try:
            found = int(float(match[1]) * _UNITS[match[2]]) if match else 0
        except ValueError:
            found = 0
    else:
        found = integer(name, given)
    if found < 1:
        raise DraftwoodError(f"{name} is {given!r}: give bytes, or a text such as 4GB")
    return found


class Size(NamedTuple):
    """Tokens of a request: of its prompt, and new ones at most."""

    prompt: int
    new: int


class MemoryLimit:
    """Admits requests by the memory of their keys and values, and of their recurrent states.

    Args:
        most: bytes of all caches; None: no limit.
        token: bytes of a token, in all caches.
        slot: bytes of a request that do not depend on its tokens.
        ahead: entries of a request beyond its tokens.
        block: tokens of a block of the cache; 0: it has rows.
    """

    def __init__(self, most: int | None, token: int, slot: int, ahead: int, block: int = 0) -> None:
        self._most = most
        self._token, self._slot = token, slot
        self._ahead, self._block = ahead, block
        self._rows = self._row = 0

    @property
    def tokens(self) -> int | None:
        """Tokens of a pool that takes all memory; None: no limit, no pool, or states beside it."""
        if self._most is None or not self._block or self._slot:
            return None
        return self._most // max(1, self._token)

    def admits(self, running: Sequence[Size], own: Size) -> bool:
        """Whether a request may begin beside others; if so, its row counts from now on."""
        requests = len(running) + 1
        if self._block:
            entries = self._block + sum(map(self._entries, (*running, own)))
            return self._fits(entries, requests)
        # A cache that grows has up to a quarter more rows than it must have.
        rows = max(self._rows, requests, (requests - 1) * 5 // 4)
        row = max(self._row, self._entries(own))
        if not self._fits(rows * row, rows):
            return False
        self._rows, self._row = rows, row
        return True

    def _fits(self, entries: int, slots: int) -> bool:
        """Whether so many entries and states of so many requests fit."""
        return self._most is None or entries * self._token + slots * self._slot <= self._most

    def wastes(self, own: Size) -> bool:
        """Whether memory is limited, and rows are far longer than a request needs."""
        return self._most is not None and self._row > 2 * self._entries(own)

    def reset(self) -> None:
        """All caches have been given back."""
        self._rows = self._row = 0

    def check(self, own: Size) -> None:
        """Refuse a request that does not fit by itself.

        Raises:
            DraftwoodError: it does not.
        """
        needed = (self._block + self._entries(own)) * self._token + self._slot
        if self._most is not None and needed > self._most:
            raise DraftwoodError(
                f"a request of {own.prompt} prompt tokens and up to {own.new} new ones needs "
                f"{readable(needed)} for keys and values, and memory is {readable(self._most)}: "
                "ask for fewer tokens, or raise memory"
            )

    def share(self, tokens: int, unlimited: int) -> float:
        """Share of the limit that some cached tokens fill; without a limit, of so many tokens."""
        most = unlimited if self._most is None else self._most / max(1, self._token)
        return tokens / most

    def _entries(self, own: Size) -> int:
        """Entries that a request has at most."""
        most = own.prompt + own.new + self._ahead
        return -(-most // self._block) * self._block if self._block else int(most * SLACK)


def readable(count: int) -> str:
    """Bytes with a unit, such as ``1.5 GB``."""
    for unit, size in reversed(_UNITS.items()):
        if count >= size:
            return f"{count / size:.3g} {unit}B"
    return f"{count} B"
