"""Calibration files: offered and accepted candidates by temperature band and bucket, as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftwood.errors import DraftwoodError
from draftwood.files import decode, encode, read_json, write_text
from draftwood.policies.auto.calibration import Prior
from draftwood.policies.auto.features import (
    NOT_ASKED,
    SCHEME,
    SOURCES,
    Codes,
    Source,
    bucket_of,
    codes_of,
)
from draftwood.protocols import Fingerprint

VERSION = 2
"""Version of the JSON; other versions are refused."""

_LEAST = 0.05
"""Offered candidates, decayed, below which a bucket is left out."""


@dataclass(frozen=True)
class _Band:
    """Numbers of the buckets seen, with their two counts."""

    buckets: tuple[int, ...]
    offered: tuple[float, ...]
    taken: tuple[float, ...]

    def counts(self, sources: Sequence[Source]) -> dict[Codes, tuple[float, float]]:
        """The counts by codes; ValueError for numbers that are no buckets or no counts."""
        found = {}
        for bucket, offered, taken in zip(self.buckets, self.offered, self.taken, strict=True):
            codes = codes_of(bucket, sources)
            if codes in found:
                raise ValueError(f"bucket {bucket} is named twice")
            if not 0 <= taken <= offered:
                raise ValueError("a count that is negative or above what was offered")
            found[codes] = offered, taken
        return found


def save(
    path: Path,
    counts: Mapping[str, Prior],
    sources: Sequence[Source] = SOURCES,
    model: Fingerprint | None = None,
) -> None:
    """Write counts, with which an engine begins if the setting ``calibration`` names the file.

    Args:
        path: of the file.
        counts: by band, such as :meth:`Calibration.totals`.
        sources: in the order of the codes.
        model: that the candidates were offered to, if known.
    """
    bands = {}
    for name, known in counts.items():
        seen = sorted(
            (bucket_of(codes, sources), round(offered, 2), round(taken, 2))
            for codes, (offered, taken) in known.items()
            if offered >= _LEAST
        )
        bands[name] = _Band(*(zip(*seen, strict=True) if seen else ((), (), ())))
    found = {"version": VERSION, "scheme": SCHEME, "bands": encode(bands)}
    if model is not None:
        found["model"] = encode(model)
    if len(sources) > len(SOURCES):
        found["further sources"] = sources[len(SOURCES) :]
    write_text(path, json.dumps(found) + "\n")


def load(
    path: Path, sources: Sequence[Source] = SOURCES
) -> dict[str, dict[Codes, tuple[float, float]]]:
    """Counts by band from a file that :func:`save` wrote.

    Args:
        path: of the file.
        sources: in the order of the codes; those that the file does not name were not asked.

    Raises:
        DraftwoodError: it cannot be read, is of another version, counts other sources, or its
            numbers are not counts.
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
        named = found.get("further sources", [])
        pairs = decode(list[tuple[str, str]], named, "further sources")
        own = (*SOURCES, *(Source(*each) for each in pairs))
        known = decode(dict[str, _Band], found.get("bands"), "bands")
        bands = {name: band.counts(own) for name, band in known.items()}
    except (DraftwoodError, LookupError, ValueError) as error:
        raise DraftwoodError(f"{path} is not a calibration file: {error}") from error
    missing = [source.name for source in own if source not in sources]
    if missing:
        raise DraftwoodError(
            f"{path} counts sources that this method does not have: {', '.join(missing)}"
        )
    places = [own.index(source) if source in own else -1 for source in sources]
    return {
        name: {
            tuple([codes[i] if i >= 0 else NOT_ASKED for i in places]): pair
            for codes, pair in counts.items()
        }
        for name, counts in bands.items()
    }
