"""Features of a candidate token: one code for each source of candidates.

A code numbers what a source says of the candidate, which the source declares
(:mod:`draftwood.protocols.evidence`). Of a copied token that is the length of the match, of a
ranked token its rank and score. A neural drafter's token may also be ranked in the Gumbel top-k
order of the target's random numbers, or sampled. A missing token is a feature as well: a table that
knows the place and does not list the token speaks against it.

:mod:`draftwood.policies.auto.calibration` counts how often candidates with some codes are taken.
Pure; knows nothing of trees.
"""

from bisect import bisect, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from draftwood.protocols import Coding, Continuation, Evidence, Feature
from draftwood.protocols.evidence import values

NOT_ASKED = 0
"""Code of a source that was not asked at this place, or offers nothing there."""

NOT_LISTED = 1
"""Code of a source that offers other tokens at this place, and not this one."""

_MATCHES = (2, 3, 4, 6, 9, 16, 32, 64)
_SCORES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95)
_RANKS = 3
"""Lowest match lengths and scores of the bins, and ranks that are told apart."""
_PLACES = _RANKS * (len(_SCORES) + 1)

Codes: TypeAlias = tuple[int, ...]
"""Features of a candidate: the code of each source, in the order of the sources."""


@dataclass(frozen=True)
class Source:
    """A source of candidates.

    Attributes:
        name: in calibration files.
        evidence: what it says of a candidate.
        neural: whether its tokens may also be sampled, or ranked with the target's random numbers.
    """

    name: str
    evidence: Evidence
    neural: bool = False

    @cached_property
    def ranked_from(self) -> int:
        """The first code of a ranked token; copied tokens have those from 2 on."""
        return 2 + (values(self.evidence.copied) if self.evidence.copied else 0)

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.evidence, self.neural))

    def __hash__(self) -> int:
        # Known already: sources are looked up for every tree.
        return self._hash

    @cached_property
    def codes(self) -> int:
        """The number of its codes."""
        ranked = values(self.evidence.ranked) if self.evidence.ranked else 0
        return self.ranked_from + ranked * (3 if self.neural else 1)


_COPIES = Evidence(
    copied=(Feature("match_length", _MATCHES), Feature("preferred"), Feature("first"))
)
_RANKS_TOKENS = Evidence(
    ranked=(Feature("rank", tuple(range(1, _RANKS))), Feature("score", _SCORES))
)

SOURCES = (
    Source("copied", _COPIES),
    Source("table", _RANKS_TOKENS),
    Source("neural", _RANKS_TOKENS, neural=True),
)
"""The sources that every method of ``auto`` has; further ones follow them. The third is the first
neural drafter; further neural drafters have its evidence, and so its codes."""

COPIED, TABLE, NEURAL = range(3)
"""Positions of :data:`SOURCES`."""

COPIED_CODES, RANKED_CODES = SOURCES[COPIED].codes, SOURCES[TABLE].codes

SCHEME = f"matches {_MATCHES}, scores {_SCORES}, ranks {_RANKS}, drawn, coupled"
"""The meaning of the codes of :data:`SOURCES`; a calibration file holds it."""


def neural_source(name: str) -> Source:
    """A further neural drafter."""
    return Source(name, SOURCES[NEURAL].evidence, neural=True)


UNKNOWN = Evidence(_COPIES.copied, _RANKS_TOKENS.ranked)
"""What a further source says where its drafter is not known."""


def copied_codes(source: Source, offer: Continuation, *, preferred: bool) -> Callable[[int], int]:
    """The code of each token of a continuation, by its place, 0 for the first."""
    match_edges: tuple[float, ...] = ()
    fixed, match_stride, first_stride = 2, 0, 0
    for feature, stride in _strides(source.evidence.copied):
        if feature.name == "match_length":
            match_edges, match_stride = feature.edges, stride
        elif feature.name == "first":
            first_stride = stride
        else:
            value = preferred if feature.name == "preferred" else getattr(offer, feature.name)
            fixed += stride * bisect_right(feature.edges, value)
    length = offer.match_length

    def code(place: int) -> int:
        match = match_stride * bisect_right(match_edges, length + place)
        return fixed + match + (0 if place else first_stride)

    return code


def ranked_codes(logq: NDArray[np.float32], source: Source = SOURCES[TABLE]) -> NDArray[np.int64]:
    """Codes of every token of ranked rows, likeliest first.

    Args:
        logq: ``[m, k]``, natural logs of the scores; ``-inf`` where there is no token.
        source: that ranks.

    Returns:
        int64 ``[m, k]``; entries without a token, or with a score that is not a number, mean
        nothing.
    """
    return coding(source, logq.shape[1]).codes(logq)


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
def coding(source: Source, k: int) -> Coding:
    """The codes of a source's ranked tokens, of ``k`` ranks."""
    first = np.full(k, source.ranked_from)
    edges, score_stride = np.zeros(0), 1
    for feature, stride in _strides(source.evidence.ranked):
        if feature.name == "rank":
            first += stride * np.searchsorted(np.array(feature.edges), np.arange(k), side="right")
        else:
            edges, score_stride = np.log(np.array(feature.edges)), stride
    return Coding(first, edges, score_stride)


@cache
def _strides(features: tuple[Feature, ...]) -> tuple[tuple[Feature, int], ...]:
    """Each feature with what its next bin adds to the code; the last feature's is 1."""
    found, stride = [], 1
    for feature in reversed(features):
        found.append((feature, stride))
        stride *= len(feature.edges) + 1
    return tuple(reversed(found))


class Features:
    """Features of candidates that one source alone lists; made once for some sources.

    Args:
        sources: in the order of the codes.

    Attributes:
        copying: positions of the further sources that copy.
        ranking: positions of the further sources that rank, neural drafters excepted.
        neural: positions of the neural drafters.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = tuple(sources)
        further = range(len(SOURCES), len(sources))
        self.copying = [i for i in further if sources[i].evidence.copied]
        self.ranking = [i for i in further if sources[i].evidence.ranked and not sources[i].neural]
        self.neural = [i for i, source in enumerate(sources) if source.neural]
        self._known: dict[tuple[int, int], list[Codes]] = {}

    def only(self, answered: int, source: int) -> list[Codes]:
        """Features of a candidate that only ``source`` lists, indexed by that source's code.

        Args:
            answered: sources that offer tokens at this place, a bit for each.
            source: position of the source.
        """
        key = answered, source
        if key not in self._known:
            bits = range(len(self.sources))
            codes = [NOT_LISTED if answered >> each & 1 else NOT_ASKED for each in bits]
            before, after = codes[:source], codes[source + 1 :]
            self._known[key] = [(*before, n, *after) for n in range(self.sources[source].codes)]
        return self._known[key]


@cache
def features_of(sources: tuple[Source, ...]) -> Features:
    """The features of some sources; the same object each time."""
    return Features(sources)


def bucket_of(codes: Codes) -> int:
    """The number of a bucket: its codes of :data:`SOURCES` are the digits."""
    number, stride = 0, 1
    for place, size in _digits():
        number += stride * codes[place]
        stride *= size
    return number


def codes_of(bucket: int) -> Codes:
    """The codes of a bucket.

    Raises:
        ValueError: there is no such bucket.
    """
    rest, codes = bucket, [NOT_ASKED] * len(SOURCES)
    for place, size in _digits():
        rest, codes[place] = divmod(rest, size)
    if rest:
        raise ValueError(f"there is no bucket {bucket}")
    return tuple(codes)


def _digits() -> Iterator[tuple[int, int]]:
    """Position and number of codes of each source, the lowest digit of a bucket's number first."""
    for place in (NEURAL, TABLE, COPIED):
        yield place, SOURCES[place].codes
