"""Acceptance probabilities of candidate tokens, estimated from counts by feature.

One table per temperature band counts candidates by *bucket*, their codes of the sources that every
method has (:mod:`draftwood.policies.auto.features`): how many were offered below a token that was
committed, and how many of these were the next token. A bucket's estimate is its own frequency,
shrunk towards the sources' codes one by one (their log odds added up, as if the codes were
independent given the token) with the weight of a few observations. A code's estimate is shrunk
towards the frequency of all candidates. Further sources shift the estimate
(:mod:`draftwood.policies.auto.offsets`). Old counts decay, so that the table follows the text.
Knows nothing of trees and costs.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from draftwood.policies.auto.features import NOT_ASKED, SOURCES, Codes, Source
from draftwood.policies.auto.offsets import Learnt, Offsets, OffsetTable, begin

BANDS = ("greedy", "low", "high")
_LOW = 0.6
"""Highest temperature of the low band."""

HALF_LIFE = 200.0
"""Steps after which a count has lost half its weight."""

_OWN = 2.0
"""Weight of what a frequency is shrunk to, in observations."""

_PRIOR, _PRIOR_OF_ALL = 20.0, 200.0
"""Observations at which the prior counts of a row, and those of all candidates, are capped."""

_START = (2.0, 0.5)
"""Offered and taken candidates that are added to those of all."""

_LIMIT = 1e9
"""Weight of an observation at which all counts are scaled back."""

_SURE = (1e-4, 1.0 - 1e-4)
"""Bounds of a code's frequency."""

_SPARE = 256
"""Rows that are left free for new buckets."""

Prior: TypeAlias = Mapping[Codes, tuple[float, float]]
"""Offered and taken candidates by bucket."""

_Key: TypeAlias = tuple[int, int] | Codes


def band(temperature: float) -> str:
    """The table for a temperature: acceptance falls with it."""
    if temperature <= 0.0:
        return "greedy"
    return "low" if temperature <= _LOW else "high"


class AcceptanceTable:
    """Acceptance probabilities of one temperature band, frozen.

    Args:
        rows: row of each code of each source, and of each bucket; may grow.
        counts: float64 ``[n, 3]``, read only: offered, taken and the weight of what their frequency
            is shrunk to.
        weight: of one observation, in the unit of the counts.
        common: frequency of all candidates.
        offsets: of the further sources.
    """

    def __init__(
        self,
        rows: Mapping[_Key, int],
        counts: NDArray[np.float64],
        weight: float,
        common: float,
        offsets: OffsetTable,
    ) -> None:
        self._rows, self._counts, self._weight = rows, counts, weight
        self._offsets = offsets
        self._common = min(max(common, _SURE[0]), _SURE[1])
        # A step asks for the same few over and over.
        self._odds: dict[tuple[int, int], float] = {}
        self._known: dict[Codes, float] = {}

    def probability(self, codes: Codes) -> float:
        """The probability that the target accepts a candidate with these codes."""
        if codes not in self._known:
            self._known[codes] = self._estimate(codes)
        return self._known[codes]

    @property
    def common(self) -> float:
        """Log odds of all candidates."""
        return math.log(self._common / (1.0 - self._common))

    def _estimate(self, codes: Codes) -> float:
        if len(codes) > len(SOURCES):
            return self._offsets.shifted(codes, self.probability(codes[: len(SOURCES)]))
        odds = base = self.common
        for source, code in enumerate(codes):
            if code != NOT_ASKED:
                odds += self.odds_of(source, code) - base
        offered, taken, own = self._row(codes)
        return (taken + own / (1.0 + math.exp(-odds))) / (offered + own)

    def odds_of(self, source: int, code: int) -> float:
        """Log odds of candidates with this code of one source."""
        key = source, code
        if key not in self._odds:
            offered, taken, own = self._row((-1 - source, code))
            rate = (taken + own * self._common) / (offered + own)
            rate = min(max(rate, _SURE[0]), _SURE[1])
            self._odds[key] = math.log(rate / (1.0 - rate))
        return self._odds[key]

    def _row(self, key: _Key) -> tuple[float, float, float]:
        row = self._rows.get(key, -1)
        if not 0 <= row < len(self._counts):
            return 0.0, 0.0, _OWN * self._weight
        offered, taken, own = self._counts[row].tolist()
        return offered, taken, own * self._weight


class Counts:
    """Counts of offered and accepted candidates, of one temperature band.

    Args:
        prior: counts to start from.
        half_life: steps after which a count has lost half its weight.
        further: the further sources, each with what is known of its offsets, None: nothing.
    """

    def __init__(
        self,
        prior: Prior,
        half_life: float,
        further: Sequence[tuple[Source, Learnt | None]] = (),
    ) -> None:
        self._growth = 2.0 ** (1.0 / half_life)
        self._weight = 1.0
        # A source has a negative number in its keys, so that they are no bucket's.
        summed: dict[_Key, list[float]] = {}
        buckets: dict[_Key, list[float]] = {}
        for codes, (offered, taken) in prior.items():
            buckets[codes] = [offered, taken]
            for source, code in enumerate(codes):
                sums = summed.setdefault((-1 - source, code), [0.0, 0.0])
                sums[0] += offered
                sums[1] += taken
        every = summed | buckets
        self._rows: dict[_Key, int] = {key: row for row, key in enumerate(every)}
        self._counts = _capped(np.array([*every.values()], dtype=np.float64).reshape(-1, 2))
        total = sum(offered for offered, _ in prior.values())
        hits = sum(taken for _, taken in prior.values())
        scale = min(1.0, _PRIOR_OF_ALL / total) if total else 0.0
        self._offered, self._taken = total * scale + _START[0], hits * scale + _START[1]
        self._places: dict[Codes, list[int]] = {}
        self._acceptance: AcceptanceTable | None = None
        self._offsets = Offsets((), half_life)
        for each, learnt in further:
            self.extend(each, learnt)

    @property
    def acceptance(self) -> AcceptanceTable:
        """The estimates as of now, frozen: later observations do not change them."""
        if self._acceptance is None:
            self._counts.flags.writeable = False
            common = self._taken / self._offered
            self._acceptance = AcceptanceTable(
                self._rows, self._counts, self._weight, common, self._offsets.table
            )
        return self._acceptance

    def observe(self, codes: Collection[Codes], taken: Collection[bool]) -> None:
        """Count labelled candidates; ``taken`` says for each whether the target accepted it."""
        # Others say nothing of the offsets, and a snapshot costs a copy of all counts.
        further = [
            (each, hit) for each, hit in zip(codes, taken, strict=True) if len(each) > len(SOURCES)
        ]
        if further:
            predicted = self.acceptance
            for each, hit in further:
                self._offsets.observe(each, predicted.probability(each), hit)
        known = self._places
        own = [each[: len(SOURCES)] for each in codes]
        places = [known.get(each) or self._rows_of(each) for each in own]
        # One by one, as they are mostly a handful: behind a forward, when all code is slow at
        # first, a few numpy calls take longer than this takes for dozens.
        counts = cast("memoryview[float]", self._writable().data)
        weight = self._weight
        for rows, hit in zip(places, taken, strict=True):
            for row in rows:
                counts[row, 0] += weight
                if hit:
                    counts[row, 1] += weight
        self._offered += weight * len(codes)
        self._taken += weight * sum(taken)

    def extend(self, source: Source, learnt: Learnt | None = None) -> None:
        """Add a further source, with what is known of its offsets, if anything is."""
        known = self.acceptance
        self._offsets.extend(learnt or begin(source, known.odds_of, known.common))
        self._acceptance = None

    def fade(self) -> None:
        """Decay all counts by one step."""
        # New counts grow instead, which is the same and touches nothing.
        self._weight *= self._growth
        self._offsets.fade()
        self._acceptance = None
        if self._weight > _LIMIT:
            self._writable()[:, :2] /= self._weight
            # Steps without candidates add nothing. The frequency of all stays what it was.
            scale = max(1.0 / self._weight, 1.0 / (_LIMIT * self._offered))
            self._offered *= scale
            self._taken *= scale
            self._weight = 1.0

    def totals(self) -> dict[Codes, tuple[float, float]]:
        """Decayed counts of offered and accepted candidates, by bucket."""
        pairs = (self._counts[:, :2] / self._weight).tolist()
        return {key: tuple(pairs[row]) for key, row in self._rows.items() if key[0] >= 0}

    def learnt(self) -> list[Learnt]:
        """Offsets of the further sources, and their curvatures."""
        return self._offsets.learnt()

    def _rows_of(self, codes: Codes) -> list[int]:
        """The rows of a candidate, one for each key; a key that has none gets one."""
        rows, keys = self._rows, _keys(codes)
        for key in keys:
            if key not in rows:
                if len(rows) == len(self._counts):
                    self._counts = np.concatenate([self._counts, _capped(np.zeros((0, 2)))])
                rows[key] = len(rows)
        found = self._places[codes] = [rows[key] for key in keys]
        return found

    def _writable(self) -> NDArray[np.float64]:
        """The counts, copied if a table has them."""
        if not self._counts.flags.writeable:
            self._counts = self._counts.copy()
        self._acceptance = None
        return self._counts


class Calibration:
    """A table for each band of temperatures.

    Args:
        prior: by band, the counts to start from; a band that is missing knows nothing.
        half_life: steps after which a count has lost half its weight.
        sources: in the order of the codes.
        learnt: by band and further source, the offsets to start from.
    """

    def __init__(
        self,
        prior: Mapping[str, Prior] | None = None,
        half_life: float = HALF_LIFE,
        sources: tuple[Source, ...] = SOURCES,
        learnt: Mapping[str, Mapping[Source, Learnt]] | None = None,
    ) -> None:
        self.sources = sources
        self._prior = dict(prior or {})
        self._learnt = dict(learnt or {})
        self._half_life = half_life
        self._counts: dict[str, Counts] = {}

    def at(self, temperature: float) -> Counts:
        """The counts for a temperature."""
        name = band(temperature)
        if name not in self._counts:
            known = self._learnt.get(name, {})
            further = [(each, known.get(each)) for each in self.sources[len(SOURCES) :]]
            self._counts[name] = Counts(self._prior.get(name, {}), self._half_life, further)
        return self._counts[name]

    def extend(self, source: Source) -> None:
        """Add a further source; candidates that it was not asked about need no code of it."""
        self.sources = (*self.sources, source)
        for name, counts in self._counts.items():
            counts.extend(source, self._learnt.get(name, {}).get(source))

    def totals(self) -> dict[str, Prior]:
        """Offered and taken candidates by band and bucket, as they count now."""
        return self._prior | {name: each.totals() for name, each in self._counts.items()}

    def learnt(self) -> dict[str, Mapping[Source, Learnt]]:
        """Offsets of the further sources by band, as they are now."""
        further = self.sources[len(SOURCES) :]
        now = {
            name: dict(zip(further, each.learnt(), strict=True))
            for name, each in self._counts.items()
        }
        return self._learnt | now


def _keys(codes: Codes) -> list[_Key]:
    """Keys of the rows of a candidate: each code's, and its bucket's."""
    return [*((-1 - source, code) for source, code in enumerate(codes)), codes]


def _capped(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows ``[n + spare, 3]`` of prior counts ``[n, 2]``.

    Prior counts are capped at 20 observations, so that new evidence soon outweighs them. The
    shrinkage weight is scaled by the same factor.
    """
    counts = np.concatenate([counts, np.zeros((_SPARE, 2))])
    scale = _PRIOR / np.maximum(counts[:, 0], _PRIOR)
    return np.stack([counts[:, 0] * scale, counts[:, 1] * scale, _OWN * scale], axis=1)
