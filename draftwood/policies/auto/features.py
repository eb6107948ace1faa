"""Features of a candidate token: one code for each source of candidates.

A source copies text, ranks successors, or runs a model; its kind says what its codes mean. A copied
token's code is the length of the match, a ranked token's its rank and score. A model's token may
also be ranked in the Gumbel top-k order of the target's random numbers, or sampled. All codes
together are the candidate's bucket, in which :mod:`draftwood.policies.auto.calibration`
counts how often such candidates are taken. A missing token is a feature as well: a table that knows
the place and does not list the token speaks against it. Pure; knows nothing of trees.
"""

from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError

NOT_ASKED = 0
"""Code of a source that was not asked at this place, or offers nothing there."""

NOT_LISTED = 1
"""Code of a source that offers other tokens at this place, and not this one."""

_MATCHES = (2, 3, 4, 6, 9, 16, 32, 64)
_SCORES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95)
_LOG_SCORES = np.log(np.array(_SCORES))
_RANKS = 3
"""Lowest match lengths and scores of the bins, and ranks that are told apart."""
_PLACES = _RANKS * (len(_SCORES) + 1)

COPIED_CODES = 2 + 4 * (len(_MATCHES) + 1)
RANKED_CODES = 2 + _PLACES
KINDS = {
    "copied": COPIED_CODES,
    "ranked": RANKED_CODES,
    "neural": RANKED_CODES + 2 * _PLACES,
}
"""Kind of a source -> number of its codes. A neural drafter's tokens are ranked, sampled, or ranked
by Gumbel top-k with the target's random numbers."""

Codes: TypeAlias = tuple[int, ...]
"""Features of a candidate: the code of each source, in the order of the sources."""


class Source(NamedTuple):
    """A source of candidates: its name in calibration files and its kind (:data:`KINDS`)."""

    name: str
    kind: str


SOURCES = (Source("copied", "copied"), Source("table", "ranked"), Source("neural", "neural"))
"""The sources that every method of ``auto`` has; further ones follow them."""

COPIED, TABLE, NEURAL = range(3)
"""Positions of :data:`SOURCES`."""

SCHEME = f"matches {_MATCHES}, scores {_SCORES}, ranks {_RANKS}, drawn, coupled"
"""The meaning of the codes; a calibration file holds it."""

_BUCKET_OF_MATCH = np.searchsorted(np.array(_MATCHES), np.arange(_MATCHES[-1] + 1), side="right")


def further_source(text: str) -> Source:
    """The source that ``NAME/KIND`` spells.

    Raises:
        DraftwoodError: there is no such kind, or the kind needs a model.
    """
    name, _, kind = text.partition("/")
    if not name or kind not in {"copied", "ranked"}:
        raise DraftwoodError(f"also={text!r}: write NAME/copied or NAME/ranked for each source")
    return Source(name, kind)


def copied_code(match_length: int, *, preferred: bool, first: bool) -> int:
    """Code of a copied token.

    Args:
        match_length: tokens before it that the text and the copied place have in common; further
            down a chain, the chain's tokens count.
        preferred: whether the continuation is the first one offered.
        first: whether it is the continuation's first token.
    """
    bucket = int(_BUCKET_OF_MATCH[min(match_length, _MATCHES[-1])])
    return 2 + 4 * bucket + 2 * preferred + first


def ranked_codes(logq: NDArray[np.float32]) -> NDArray[np.int64]:
    """Codes of every token of ranked rows, likeliest first.

    Args:
        logq: ``[m, k]``, natural logs of the scores; ``-inf`` where there is no token.

    Returns:
        int64 ``[m, k]``; entries without a token, or with a score that is not a number, mean
        nothing.
    """
    bins: NDArray[np.int64] = _LOG_SCORES.searchsorted(logq, side="right")
    return bins + _first_codes(logq.shape[1])


def coupled_codes(logq: NDArray[np.float32]) -> NDArray[np.int64]:
    """Codes of every token of rows in Gumbel top-k order with the target's own random numbers.

    Args:
        logq: ``[m, k]``, natural logs of the tokens' shares in that order
            (:mod:`draftwood.drafters._rollout.coupling`); ``-inf`` where there is no token.

    Returns:
        int64 ``[m, k]``, as of :func:`ranked_codes`.
    """
    return ranked_codes(logq) + (RANKED_CODES + _PLACES - 2)


def sampled_code(place: int, left: float) -> int:
    """Code of a sampled token, which is known before the token is sampled.

    The probability that the target accepts the token depends little on the token, and much on the
    probability that its earlier siblings leave.

    Args:
        place: among the siblings that are sampled, 0 for the first.
        left: probability that none of the siblings that are not sampled is taken.
    """
    return RANKED_CODES + min(place, _RANKS - 1) * (len(_SCORES) + 1) + bisect(_SCORES, left)


@cache
def _first_codes(k: int) -> NDArray[np.int64]:
    """Codes of the least score at each of ``k`` ranks."""
    return np.array([2 + min(rank, _RANKS - 1) * (len(_SCORES) + 1) for rank in range(k)])


class Features:
    """Features of candidates that one source alone lists; made once for some sources.

    Args:
        sources: in the order of the codes.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = tuple(sources)
        self._sizes = [KINDS[source.kind] for source in sources]
        self._known: dict[tuple[int, int], list[Codes]] = {}

    def only(self, answered: int, source: int) -> list[Codes]:
        """Features of a candidate that only ``source`` lists, indexed by that source's code.

        Args:
            answered: sources that offer tokens at this place, a bit for each.
            source: position of the source.
        """
        key = answered, source
        if key not in self._known:
            bits = range(len(self._sizes))
            codes = [NOT_LISTED if answered >> each & 1 else NOT_ASKED for each in bits]
            before, after = codes[:source], codes[source + 1 :]
            self._known[key] = [(*before, n, *after) for n in range(self._sizes[source])]
        return self._known[key]


@cache
def features_of(sources: tuple[Source, ...]) -> Features:
    """The features of some sources; the same object each time."""
    return Features(sources)


def bucket_of(codes: Codes, sources: Sequence[Source] = SOURCES) -> int:
    """The number of a bucket: its codes are the digits, in the order of :func:`_digits`."""
    number, stride = 0, 1
    for place, size in _digits(sources):
        number += stride * codes[place]
        stride *= size
    return number


def codes_of(bucket: int, sources: Sequence[Source] = SOURCES) -> Codes:
    """The codes of a bucket.

    Raises:
        ValueError: there is no such bucket.
    """
    rest, codes = bucket, [NOT_ASKED] * len(sources)
    for place, size in _digits(sources):
        rest, codes[place] = divmod(rest, size)
    if rest:
        raise ValueError(f"there is no bucket {bucket}")
    return tuple(codes)


def _digits(sources: Sequence[Source]) -> Iterator[tuple[int, int]]:
    """Position and number of codes of each source, the lowest digit of a bucket's number first.

    Further sources are the highest digits, so that the numbers of buckets without them stay as they
    are.
    """
    for place in (NEURAL, TABLE, COPIED, *range(len(SOURCES), len(sources))):
        yield place, KINDS[sources[place].kind]
