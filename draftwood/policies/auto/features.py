"""What is known of a candidate token, as one small number: its cell.

A candidate may be offered by any of three kinds of source: text that is copied (a match and how
long it is), a table of successors, and a neural drafter (a rank and a score each, in its own order
or in a race with the target's random numbers, or that it was drawn). What each of them says of a
candidate is one code, and the three codes together are its cell, in which
:mod:`draftwood.policies.auto.calibration` counts how often such candidates are taken. Silence
counts as evidence too: a table that knows the place and does not list the token speaks against it.
Pure; knows nothing of trees.
"""

import math
from bisect import bisect
from enum import IntEnum
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

SILENT = 0
"""A source that has nothing to say at this place."""

OTHER = 1
"""A source that offers other tokens here, and not this one."""

_MATCHES = (2, 3, 4, 6, 9, 16, 32, 64)
_SCORES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95)
_LOG_SCORES = np.log(np.array(_SCORES))
_RANKS = 3

COPIED_CODES = 2 + 4 * (len(_MATCHES) + 1)
_PLACES = _RANKS * (len(_SCORES) + 1)
RANKED_CODES = 2 + _PLACES
CODES = (COPIED_CODES, RANKED_CODES, RANKED_CODES + 2 * _PLACES)
"""How many codes each kind of source has: one that copies, a table, a neural drafter, whose tokens
may be ranked, drawn, or drawn with the target's numbers."""

CELLS = math.prod(CODES)

Codes: TypeAlias = tuple[int, int, int]
"""What each kind of source says of one candidate."""


class Voice(IntEnum):
    """The kind of a source, in the order of a cell's codes."""

    COPIED = 0
    TABLE = 1
    NEURAL = 2


SCHEME = f"matches {_MATCHES}, scores {_SCORES}, ranks {_RANKS}, drawn, coupled"
"""What codes mean, for whoever keeps them."""

_STRIDES = np.array([CODES[1] * CODES[2], CODES[2], 1])
_BUCKET_OF_MATCH = np.searchsorted(np.array(_MATCHES), np.arange(_MATCHES[-1] + 1), side="right")


def copied_code(match_length: int, *, preferred: bool, first: bool) -> int:
    """Of a copied token.

    Args:
        match_length: tokens before it that the text and the copied place have in common; further
            down a chain, the chain's tokens count.
        preferred: whether the continuation is the first one offered.
        first: whether it is the continuation's first token.
    """
    bucket = int(_BUCKET_OF_MATCH[min(match_length, _MATCHES[-1])])
    return 2 + 4 * bucket + 2 * preferred + first


def ranked_codes(logq: NDArray[np.float32]) -> NDArray[np.int64]:
    """Of every token of ranked rows, likeliest first.

    Args:
        logq: ``[m, k]``, natural logs of the scores; ``-inf`` where there is no token.

    Returns:
        int64 ``[m, k]``; what stands where there is no token, or a score that is not a number,
        means nothing.
    """
    bins: NDArray[np.int64] = _LOG_SCORES.searchsorted(logq, side="right")
    return bins + _first_codes(logq.shape[1])


def coupled_codes(logq: NDArray[np.float32]) -> NDArray[np.int64]:
    """Of every token of rows that were drawn with the target's own random numbers, the first of its
    race first.

    Args:
        logq: ``[m, k]``, natural logs of their shares in the race
            (:mod:`draftwood.drafters._rollout.coupling`); ``-inf`` where there is no token.

    Returns:
        int64 ``[m, k]``, as of :func:`ranked_codes`.
    """
    return ranked_codes(logq) + (RANKED_CODES + _PLACES - 2)


def drawn_code(place: int, left: float) -> int:
    """Of a token that is drawn, known before it is: whether it will be taken depends little on
    which token it is, and much on the probability that its siblings leave it.

    Args:
        place: among the siblings that are drawn, 0 for the first.
        left: chance that none of the siblings that are not drawn is taken.
    """
    return RANKED_CODES + min(place, _RANKS - 1) * (len(_SCORES) + 1) + bisect(_SCORES, left)


@cache
def _first_codes(k: int) -> NDArray[np.int64]:
    """Of the least score at each of ``k`` ranks."""
    return np.array([2 + min(rank, _RANKS - 1) * (len(_SCORES) + 1) for rank in range(k)])


def cell(codes: Codes) -> int:
    """The cell of one candidate, from its codes."""
    copied, ranked, neural = codes
    return (copied * CODES[1] + ranked) * CODES[2] + neural


def cells(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The cells of candidates, int64 ``[n]``, from the codes of each, ``[n, 3]``."""
    return np.asarray(codes @ _STRIDES, dtype=np.int64)


@cache
def naming(spoken: int, voice: Voice) -> list[Codes]:
    """Of a token that one voice alone names, by the voice's code.

    Args:
        spoken: who has offered tokens at this place, a bit for each voice.
        voice: who names it.
    """
    heard = [OTHER if spoken >> each & 1 else SILENT for each in Voice]
    found: list[Codes] = []
    for code in range(CODES[voice]):
        heard[voice] = code
        found.append((heard[0], heard[1], heard[2]))
    return found
