"""Calibration files: what was learnt of the acceptance of candidates, as JSON.

By temperature band: offered and accepted candidates by bucket, and the offsets of further sources,
of those with a model apart.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from draftwood.errors import DraftwoodError
from draftwood.files import decode, encode, read_json, write_text
from draftwood.policies.auto.calibration import Calibration, Prior
from draftwood.policies.auto.features import SCHEME, Source, bucket_of, codes_of
from draftwood.policies.auto.offsets import BOUND, Learnt
from draftwood.protocols import Evidence, Fingerprint

VERSION = 2
"""Version of the JSON; other versions are refused."""

_FURTHER = {"further": False, "neural": True}
"""Members with the offsets of further sources, and whether these have a model."""

_LEAST = 0.05
"""Offered candidates, decayed, below which a bucket is left out."""


class Known(NamedTuple):
    """What a file holds, by band.

    Attributes:
        counts: offered and accepted candidates.
        learnt: offsets of the further sources.
    """

    counts: dict[str, Prior]
    learnt: dict[str, dict[Source, Learnt]]

    def calibration(self, sources: tuple[Source, ...]) -> Calibration:
        """A calibration that begins with it."""
        return Calibration(self.counts, sources=sources, learnt=self.learnt)


@dataclass(frozen=True)
class _Offsets:
    """Offsets of a further source, and their curvatures."""

    name: str
    evidence: Evidence
    offsets: tuple[float, ...]
    curvatures: tuple[float, ...]

    def learnt(self, *, neural: bool) -> tuple[Source, Learnt]:
        """The source, with its offsets; ValueError if they are not as many as it has codes."""
        source = Source(self.name, self.evidence, neural)
        if not len(self.offsets) == len(self.curvatures) == 2 * source.codes:
            raise ValueError(f"{2 * source.codes} offsets of {self.name} are needed")
        if any(abs(offset) > BOUND for offset in self.offsets) or min(self.curvatures) < 0.0:
            raise ValueError(f"an offset of {self.name} above {BOUND:g}, or a negative curvature")
        return source, (self.offsets, self.curvatures)


@dataclass(frozen=True)
class _Band:
    """Numbers of the buckets seen, with their two counts."""

    buckets: tuple[int, ...]
    offered: tuple[float, ...]
    taken: tuple[float, ...]

    def counts(self) -> Prior:
        """The counts by codes; ValueError for numbers that are no buckets or no counts."""
        found = {}
        for bucket, offered, taken in zip(self.buckets, self.offered, self.taken, strict=True):
            codes = codes_of(bucket)
            if codes in found:
                raise ValueError(f"bucket {bucket} is named twice")
            if not 0 <= taken <= offered:
                raise ValueError("a count that is negative or above what was offered")
            found[codes] = offered, taken
        if not isfinite(sum(offered for offered, _ in found.values())):
            raise ValueError("counts that are too large to add up")
        return found


def save(path: Path, calibration: Calibration, model: Fingerprint | None = None) -> None:
    """Write what an engine begins with if the setting ``calibration`` names the file.

    Args:
        path: of the file.
        calibration: what has been learnt.
        model: that the candidates were offered to, if known.
    """
    bands = {}
    for name, known in calibration.totals().items():
        seen = sorted(
            (bucket_of(codes), round(offered, 2), round(taken, 2))
            for codes, (offered, taken) in known.items()
            if offered >= _LEAST
        )
        bands[name] = _Band(*(zip(*seen, strict=True) if seen else ((), (), ())))
    found = {"version": VERSION, "scheme": SCHEME, "bands": encode(bands)}
    for member, neural in _FURTHER.items():
        offsets = {
            name: [
                _Offsets(each.name, each.evidence, _rounded(values), _rounded(curvatures))
                for each, (values, curvatures) in known.items()
                if each.neural is neural
            ]
            for name, known in calibration.learnt().items()
        }
        if any(offsets.values()):
            found[member] = encode(offsets)
    if model is not None:
        found["model"] = encode(model)
    write_text(path, json.dumps(found) + "\n")


def _rounded(numbers: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(number, 3) for number in numbers)


def load(path: Path) -> Known:
    """What :func:`save` wrote.

    Raises:
        DraftwoodError: it cannot be read, is of another version, or its numbers are not counts.
    """
    found = read_json(path)
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise DraftwoodError(
            f"{path} is not a calibration file of version {VERSION}: run 'draftwood calibrate' "
            "again"
        )
    if found.get("scheme") != SCHEME:
        raise DraftwoodError(
            f"{path} was counted with other buckets than this version of draftwood has: run "
            "'draftwood calibrate' again"
        )
    try:
        bands = decode(dict[str, _Band], found.get("bands"), "bands")
        counts = {name: band.counts() for name, band in bands.items()}
        learnt: dict[str, dict[Source, Learnt]] = {}
        for member, neural in _FURTHER.items():
            further = decode(dict[str, tuple[_Offsets, ...]], found.get(member, {}), member)
            for name, own in further.items():
                known = learnt.setdefault(name, {})
                known.update(each.learnt(neural=neural) for each in own)
    except (DraftwoodError, LookupError, ValueError) as error:
        raise DraftwoodError(f"{path} is not a calibration file: {error}") from error
    return Known(counts, learnt)
