"""How likely the target is to take a candidate token, learnt from what it took.

One table per temperature band, of how often candidates of each cell
(:mod:`draftwood.policies.auto.features`) were offered below a token that was committed, and how
often they were the next one. A cell's estimate is its own frequency, drawn towards what the
sources' codes say one by one (their log odds added up, as if they were independent given the token)
with the weight of a few observations; these in turn are drawn towards the frequency of all. Old
counts fade, so that the table follows the text. Knows nothing of trees and costs.
"""

import json
import math
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.files import write_text
from draftwood.policies.auto.features import CELLS, CODES, SCHEME, SILENT, Codes, cell

VERSION = 1
"""Of the JSON; other versions are refused."""

BANDS = ("greedy", "low", "high")
_LOW = 0.6

HALF_LIFE = 200.0
"""Steps after which a count has lost half its weight."""

_OWN = 2.0
_PRIOR = 20.0
_LIMIT = 1e9

_TABLE, _NEURAL, _CELLS = (sum(CODES[:i]) for i in (1, 2, 3))
"""Rows of the counts: those of the copying source's codes come first, and then these begin."""

_SURE = (1e-4, 1.0 - 1e-4)
"""A source's word is never taken for more certain than this."""


def band(temperature: float) -> str:
    """The table for a temperature: acceptance falls with it."""
    if temperature <= 0.0:
        return "greedy"
    return "low" if temperature <= _LOW else "high"


class Counts:
    """Offered and taken candidates of one temperature band.

    Args:
        offered: float64 ``[CELLS]``, how many candidates of each cell were judged before.
        taken: float64 ``[CELLS]``, how many of them the target took.
        half_life: steps after which a count has lost half its weight.
    """

    def __init__(
        self, offered: NDArray[np.float64], taken: NDArray[np.float64], half_life: float
    ) -> None:
        self._growth = 2.0 ** (1.0 / half_life)
        self._odds: dict[int, float] = {}
        self._chances: dict[Codes, float] = {}
        # What is given is believed at first, and soon listens to what happens now: it has the
        # weight of a few observations, however many there were. What a frequency is drawn to has
        # as much less of a say in it as that scales it down, as it had next to none in all of them.
        self._weight = 1.0
        sources = [(_summed(offered, i), _summed(taken, i)) for i in range(len(CODES))]
        # A row for each code of each source, then one for each cell: offered, taken and the weight
        # of what their frequency is drawn to. These lie side by side because they are read
        # together, and a forward leaves none of them in the processor's caches.
        self._counts = _capped(*np.concatenate((*sources, (offered, taken)), axis=1))
        total, hits = float(offered.sum()), float(taken.sum())
        scale = min(1.0, 10 * _PRIOR / total) if total else 0.0
        self._offered, self._taken = total * scale + 2.0, hits * scale + 0.5

    def probability(self, codes: Codes) -> float:
        """The probability that the target takes a candidate with these codes."""
        # A step asks for the same few over and over.
        if codes not in self._chances:
            self._chances[codes] = self._estimate(codes)
        return self._chances[codes]

    def _estimate(self, codes: Codes) -> float:
        copied, ranked, neural = codes
        common = min(max(self._taken / self._offered, _SURE[0]), _SURE[1])
        odds = base = math.log(common / (1.0 - common))
        for row, code in ((copied, copied), (_TABLE + ranked, ranked), (_NEURAL + neural, neural)):
            if code != SILENT:
                odds += self._odds_of(row, common) - base
        offered, taken, own = self._counts[_CELLS + cell(codes)].tolist()
        own *= self._weight
        return float((taken + own / (1.0 + math.exp(-odds))) / (offered + own))

    def _odds_of(self, row: int, common: float) -> float:
        """Log odds by what one source says."""
        if row not in self._odds:
            offered, taken, own = self._counts[row].tolist()
            own *= self._weight
            rate = (taken + own * common) / (offered + own)
            rate = min(max(rate, _SURE[0]), _SURE[1])
            self._odds[row] = math.log(rate / (1.0 - rate))
        return self._odds[row]

    def observe(self, codes: Collection[Codes], taken: Collection[bool]) -> None:
        """Candidates with these codes were judged; which of them the target took, one for one."""
        # One by one, as they are mostly a handful: behind a forward, when all code is slow at
        # first, a few numpy calls take longer than this takes for dozens.
        counts = cast("memoryview[float]", self._counts.data)
        weight = self._weight
        for each, hit in zip(codes, taken, strict=True):
            copied, ranked, neural = each
            for row in (copied, _TABLE + ranked, _NEURAL + neural, _CELLS + cell(each)):
                counts[row, 0] += weight
                if hit:
                    counts[row, 1] += weight
        self._offered += weight * len(codes)
        self._taken += weight * sum(taken)
        self._forget()

    def fade(self) -> None:
        """A step has passed: everything counted so far loses a little of its weight."""
        # New counts grow instead, which is the same and touches nothing.
        self._weight *= self._growth
        self._forget()
        if self._weight > _LIMIT:
            self._counts[:, :2] /= self._weight
            self._offered /= self._weight
            self._taken /= self._weight
            self._weight = 1.0

    def _forget(self) -> None:
        """What was worked out holds no more."""
        self._odds.clear()
        self._chances.clear()

    def totals(self) -> NDArray[np.float64]:
        """Offered and taken by cell as they count now: float64 ``[2, CELLS]``."""
        return self._counts[_CELLS:, :2].T / self._weight


class Calibration:
    """A table for each band of temperatures, from what a file or nothing says.

    Args:
        prior: by band, offered and taken counts by cell, float64 ``[2, CELLS]``; a band that is
            missing knows nothing.
        half_life: steps after which a count has lost half its weight.
    """

    def __init__(
        self,
        prior: Mapping[str, NDArray[np.float64]] | None = None,
        half_life: float = HALF_LIFE,
    ) -> None:
        self._prior = dict(prior or {})
        self._half_life = half_life
        self._counts: dict[str, Counts] = {}

    def at(self, temperature: float) -> Counts:
        """The table for a temperature."""
        name = band(temperature)
        if name not in self._counts:
            offered, taken = self._prior.get(name, np.zeros((2, CELLS)))
            self._counts[name] = Counts(offered, taken, self._half_life)
        return self._counts[name]

    def save(self, path: Path) -> None:
        """Write what is known now, so that the next process starts from it."""
        known = self._prior | {name: c.totals() for name, c in self._counts.items()}
        write_text(path, dumps(known))


def dumps(counts: Mapping[str, NDArray[np.float64]]) -> str:
    """Counts by band as JSON: of each band, the cells seen and their two counts."""
    bands = {}
    for name, (offered, taken) in counts.items():
        seen = np.flatnonzero(offered >= 0.05)
        bands[name] = {
            "cells": seen.tolist(),
            "offered": offered[seen].round(2).tolist(),
            "taken": taken[seen].round(2).tolist(),
        }
    return json.dumps({"version": VERSION, "scheme": SCHEME, "bands": bands}) + "\n"


def load(path: Path) -> dict[str, NDArray[np.float64]]:
    """Counts by band from a file that :meth:`Calibration.save` wrote.

    Raises:
        DraftwoodError: it cannot be read, is of another version, or its numbers are not counts.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DraftwoodError(f"cannot read the calibration {path}: {error}") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise DraftwoodError(f"{path} is not a version-{VERSION} calibration file: leave it out")
    if found.get("scheme") != SCHEME:
        raise DraftwoodError(
            f"{path} was counted with other cells than this version of draftwood has: count anew "
            "with 'draftwood calibrate'"
        )
    try:
        return {str(name): _counts(entry) for name, entry in found["bands"].items()}
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DraftwoodError(f"{path} is not a calibration file: {error!r}") from error


@cache
def shipped() -> dict[str, NDArray[np.float64]]:
    """The calibration that comes with the package, read once: every engine begins with it."""
    return load(Path(str(files("draftwood"))) / "assets" / "calibration.json")


def _counts(entry: Mapping[str, Any]) -> NDArray[np.float64]:
    seen = np.array(entry["cells"], dtype=np.int64)
    if {len(entry[name]) for name in ("offered", "taken")} != {len(seen)}:
        raise ValueError("not as many counts as cells")
    counts = np.zeros((2, CELLS))
    counts[0, seen], counts[1, seen] = entry["offered"], entry["taken"]
    if len(set(entry["cells"])) < len(seen) or any(
        type(cell) is not int for cell in entry["cells"]
    ):
        raise ValueError("a cell that is named twice or is no integer")
    if len(seen) and seen.min() < 0:
        raise ValueError("a cell below 0")
    if not (np.isfinite(counts).all() and (counts >= 0).all() and (counts[1] <= counts[0]).all()):
        raise ValueError("a count that is negative or above what was offered")
    return counts


def _summed(counts: NDArray[np.float64], source: int) -> NDArray[np.float64]:
    others = tuple(i for i in range(len(CODES)) if i != source)
    return np.asarray(counts.reshape(CODES).sum(axis=others), dtype=np.float64)


def _capped(offered: NDArray[np.float64], taken: NDArray[np.float64]) -> NDArray[np.float64]:
    """Counts scaled down to the weight of what is given, and the weight of what they are drawn to
    scaled alike: float64 ``[n, 3]``."""
    scale = _PRIOR / np.maximum(offered, _PRIOR)
    return np.stack([offered * scale, taken * scale, _OWN * scale], axis=1)
