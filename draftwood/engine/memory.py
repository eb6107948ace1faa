"""The memory of an engine's requests: who may begin, and who never fits.

A request begins only if its tokens, and those that it may get, fit beside those of all that run,
with the drafters' own caches. So no request runs out of memory in the middle. A cache in blocks has
room for the tokens of each request by itself. A cache in rows has a row for each running request,
as long as the longest one so far. Recurrent states are of slots, of which there are as many as
there were at most. When nothing runs, and what is held is too much for the next request, all is
given back.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from draftwood.errors import DraftwoodError, integer

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
SLACK = 1.25
"""A row that grows is up to so many times as long as it must be."""
_GROWTH = 4
"""Blocks by which a pool grows at least, where it is not made at once."""


def memory_bytes(given: int | str | None) -> int | None:
    """Bytes, from a number or a text such as ``"4GB"`` (powers of 1000); None stays.

    Raises:
        DraftwoodError: it is neither, or not above 0.
    """
    return None if given is None else _bytes("memory", given, least=1)


def prefix_bytes(given: int | str | None) -> int | None:
    """Bytes of a prefix cache, likewise; None, for none, of 0 too.

    Raises:
        DraftwoodError: it is neither, or below 0.
    """
    return None if given is None else _bytes("prefix_cache", given, least=0) or None


def _bytes(name: str, given: int | str, least: int) -> int:
    if isinstance(given, str):
        match = re.fullmatch(r"([0-9.]+)\s*([KMGT]?)B?", given.strip().upper())
        try:
            found = int(float(match[1]) * _UNITS[match[2]]) if match else -1
        except ValueError:
            found = -1
    else:
        found = integer(name, given)
    if found < least:
        none = "" if least else ", or 0 for none"
        raise DraftwoodError(f"{name} is {given!r}: give bytes, or a text such as 4GB{none}")
    return found


class Size(NamedTuple):
    """A request.

    Attributes:
        prompt: tokens of its prompt.
        new: new ones at most.
        slots: that have all of them at once.
    """

    prompt: int
    new: int
    slots: int = 1


class MemoryLimit:
    """Admits requests by the memory of their keys and values, and of their recurrent states.

    Args:
        most: bytes of all caches; None: no limit.
        token: bytes of a token, in all caches.
        slot: bytes of a slot that do not depend on its tokens; they stay when a request ends.
        running: further bytes of a request, until it ends.
        ahead: entries of a request beyond its tokens.
        block: tokens of a block of the cache; 0: it has rows.
    """

    def __init__(
        self, most: int | None, token: int, slot: int, running: int, ahead: int, block: int = 0
    ) -> None:
        self._most = most
        self._token, self._slot, self._running = token, slot, running
        self._ahead, self._block = ahead, block
        self._slots = self._row = self._held = 0

    @property
    def tokens(self) -> int | None:
        """Tokens of a pool that takes all memory; None: no limit, no pool, or states beside it."""
        if self._most is None or not self._block or self._beside:
            return None
        return self._most // max(1, self._token)

    @property
    def _beside(self) -> int:
        """Bytes of a single request beside its tokens."""
        return self._slot + self._running

    def admits(self, running: Sequence[Size], own: Size) -> bool:
        """Whether a request may begin beside others; if so, what it has counts from now on."""
        everyone = (*running, own)
        taken = sum(each.slots for each in everyone)
        # Slots that grow, and rows with them, are up to a quarter more than they must be.
        slots = max(self._slots, taken, (taken - 1) * 5 // 4)
        row = max(self._row, self._entries(own))
        entries = slots * row
        if self._block:
            pooled = sum(each.slots * self._entries(each) for each in everyone)
            entries = max(self._held, self._pool(pooled))
        needed = entries * self._token + slots * self._slot + len(everyone) * self._running
        if self._most is not None and needed > self._most:
            return False
        self._slots, self._row, self._held = slots, row, entries
        return True

    def wastes(self, own: Size) -> bool:
        """Whether memory is limited, and far more of it is held than a request needs.

        A pool of blocks that was made at once is kept: it takes all memory, and no states are
        beside it.
        """
        if self._most is None:
            return False
        if not self._block:
            return self._row > 2 * self._entries(own)
        if not self._beside:
            return False
        held = self._held * self._token + self._slots * self._slot
        return 2 * (held - self._alone(own) - self._slot) > self._most

    def reset(self) -> None:
        """All caches have been given back."""
        self._slots = self._row = self._held = 0

    def check(self, own: Size) -> None:
        """Refuse a request that does not fit by itself.

        Raises:
            DraftwoodError: it does not.
        """
        tokens = self._alone(own)
        if self._most is None or tokens + self._beside <= self._most:
            return
        of_states = f" and {readable(self._beside)} for recurrent states" if self._beside else ""
        help_ = "ask for fewer tokens, or raise memory"
        if self._beside >= self._most:
            help_ = f"fewer tokens do not help: raise memory above {readable(self._beside)}"
        raise DraftwoodError(
            f"a request of {own.prompt} prompt tokens and up to {own.new} new ones needs "
            f"{readable(tokens)} for keys and values{of_states}, and memory is "
            f"{readable(self._most)}: {help_}"
        )

    def _alone(self, own: Size) -> int:
        """Bytes of the keys and values of a single request."""
        return self._pool(own.slots * self._entries(own)) * self._token

    def _pool(self, entries: int) -> int:
        """Entries that a cache takes for so many of requests; a row has no others.

        The first block of a pool has none. A pool that was not made at once is up to a quarter
        larger than it must be.
        """
        if not self._block:
            return entries
        most = self._block + entries
        return most + max(_GROWTH * self._block, most // 4) if self._beside else most

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
