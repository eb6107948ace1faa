"""The memory of an engine's requests: who may begin, and who never fits.

A KV cache has a row for each running request, as long as the longest one so far. A request begins
only if the rows of all that run then fit, with the drafters' own caches. So no request runs out of
memory in the middle. When nothing runs, and the rows are too many or too long for the next request,
the caches are given back.
"""

import re

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


class MemoryLimit:
    """Admits requests by the memory of their keys and values.

    Args:
        most: bytes of all caches; None: no limit.
        token: bytes of a token, in all caches.
        ahead: entries of a row beyond the tokens of its request.
    """

    def __init__(self, most: int | None, token: int, ahead: int) -> None:
        self._most = most
        self._token, self._ahead = token, ahead
        self._rows = self._row = 0

    def admits(self, requests: int, prompt: int, new: int) -> bool:
        """Whether a request may begin; if so, its row counts from now on.

        Args:
            requests: that run then.
            prompt: tokens of the request's prompt.
            new: most new tokens of it.
        """
        # A cache that grows has up to a quarter more rows than it must have.
        rows = max(self._rows, requests, (requests - 1) * 5 // 4)
        row = max(self._row, self._entries(prompt, new))
        if self._most is not None and rows * row * self._token > self._most:
            return False
        self._rows, self._row = rows, row
        return True

    def wastes(self, prompt: int, new: int) -> bool:
        """Whether memory is limited, and rows are far longer than a request needs."""
        return self._most is not None and self._row > 2 * self._entries(prompt, new)

    def reset(self) -> None:
        """All caches have been given back."""
        self._rows = self._row = 0

    def check(self, prompt: int, new: int) -> None:
        """Refuse a request that does not fit by itself.

        Raises:
            DraftwoodError: it does not.
        """
        needed = self._entries(prompt, new) * self._token
        if self._most is not None and needed > self._most:
            raise DraftwoodError(
                f"a request of {prompt} prompt tokens and up to {new} new ones needs "
                f"{readable(needed)} for keys and values, and memory is {readable(self._most)}: "
                "ask for fewer tokens, or raise memory"
            )

    def share(self, tokens: int, unlimited: int) -> float:
        """Share of the limit that some cached tokens fill; without a limit, of so many tokens."""
        most = unlimited if self._most is None else self._most / max(1, self._token)
        return tokens / most

    def _entries(self, prompt: int, new: int) -> int:
        """Entries that a row has at most."""
        return int((prompt + new + self._ahead) * SLACK)


def readable(count: int) -> str:
    """Bytes with a unit, such as ``1.5 GB``."""
    for unit, size in reversed(_UNITS.items()):
        if count >= size:
            return f"{count / size:.3g} {unit}B"
    return f"{count} B"
