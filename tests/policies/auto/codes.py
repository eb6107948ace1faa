"""The codes of copied tokens, by what they say."""

from collections.abc import Callable

from draftwood.policies.auto.features import COPIED, SOURCES, copied_codes
from draftwood.protocols import Continuation


def by_place(match_length: int, *, preferred: bool = True) -> Callable[[int], int]:
    """The code of each token of a continuation of the context."""
    offer = Continuation((), match_length, count=1, agreeing=1)
    return copied_codes(SOURCES[COPIED], offer, preferred=preferred)


def copied_code(match_length: int, *, preferred: bool, first: bool) -> int:
    """The code of one of its tokens, which so many tokens before it match."""
    place = 0 if first else 1
    return by_place(match_length - place, preferred=preferred)(place)
