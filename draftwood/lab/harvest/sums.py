"""Sums of probabilities by pair of tokens and successor, exact in any order of addition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.files import write_bytes

UNIT = 1 << 30
"""A probability of 1. Sums of integers do not depend on the order of the texts."""


@dataclass(frozen=True, eq=False)
class Sums:
    """What a model said after each key, summed over the key's occurrences.

    The key of a pair is ``token * (V + 1) + before``, with ``before = V`` where the token is the
    first of a window.

    Attributes:
        keys: ascending, int64 ``[n]``.
        counts: occurrences of each key, int64 ``[n]``.
        lengths: number of successors of each key, int64 ``[n]``.
        successors: ascending for each key, int32 ``[sum(lengths)]``.
        sums: of their probabilities, in 1/UNIT, int64 ``[sum(lengths)]``.
    """

    keys: NDArray[np.int64]
    counts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    successors: NDArray[np.int32]
    sums: NDArray[np.int64]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the successors of each key begin, and their total number: ``[n + 1]``."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def rekeyed(self, keys: NDArray[np.int64]) -> Sums:
        """The sums under other keys, equal ones added."""
        return _grouped(
            keys, self.counts, np.repeat(keys, self.lengths), self.successors, self.sums
        )


def sums_of(keys: NDArray[np.int64], tokens: NDArray[np.int64], probs: NDArray[np.float32]) -> Sums:
    """The sums over occurrences: a key ``[m]`` each, its best tokens and their probabilities
    ``[m, k]``."""
    whole = np.rint(probs.astype(np.float64) * UNIT).astype(np.int64)
    every = np.repeat(keys, tokens.shape[1])
    ones = np.ones(len(keys), dtype=np.int64)
    return _grouped(keys, ones, every, tokens.ravel().astype(np.int32), whole.ravel())


def merged(parts: Sequence[Sums]) -> Sums:
    """The sums of several texts, added."""
    return _grouped(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([np.repeat(part.keys, part.lengths) for part in parts]),
        np.concatenate([part.successors for part in parts]),
        np.concatenate([part.sums for part in parts]),
    )


def write(path: Path, sums: Sums) -> None:
    """Write sums to a file, whole or not at all."""
    from safetensors.numpy import save

    write_bytes(path, save({field.name: getattr(sums, field.name) for field in fields(Sums)}))


def read(path: Path, first: int, end: int) -> Sums:
    """Read the sums of the keys from ``first`` to below ``end``; the rest stays on the disk."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        keys, lengths = file.get_tensor("keys"), file.get_tensor("lengths")
        a, b = (int(place) for place in np.searchsorted(keys, [first, end]))
        low = int(lengths[:a].sum())
        high = low + int(lengths[a:b].sum())
        return Sums(
            keys[a:b],
            file.get_tensor("counts")[a:b],
            lengths[a:b],
            _part(file, "successors", low, high),
            _part(file, "sums", low, high),
        )


def entries_by_key(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The keys of a file, and the number of successors of each."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        return file.get_tensor("keys"), file.get_tensor("lengths")


def _part(file: Any, name: str, low: int, high: int) -> NDArray[Any]:
    # An empty slice at the end of a tensor is refused.
    found: NDArray[Any] = file.get_slice(name)[low:high] if low < high else file.get_slice(name)[:0]
    return found


def _grouped(
    keys: NDArray[np.int64],
    counts: NDArray[np.int64],
    every: NDArray[np.int64],
    successors: NDArray[np.int32],
    sums: NDArray[np.int64],
) -> Sums:
    """Add what has equal keys, and equal keys and successors.

    Args:
        keys, counts: occurrences of keys.
        every, successors, sums: key, successor and probability of each addend.
    """
    order = np.argsort(keys, kind="stable")
    starts = _starts(keys[order])
    found, occurrences = keys[order][starts], _added(counts[order], starts)
    order = np.lexsort((successors, every))
    every, successors = every[order], successors[order]
    starts = _starts(every, successors)
    own = every[starts]
    ends = np.searchsorted(own, found, side="right")
    lengths = np.diff(ends, prepend=0)
    return Sums(found, occurrences, lengths, successors[starts], _added(sums[order], starts))


def _starts(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """Where a run of equal values begins, in columns that are sorted together."""
    new = np.zeros(len(columns[0]), dtype=bool)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def _added(values: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    # reduceat refuses an empty list of starts.
    return np.add.reduceat(values, starts) if len(starts) else values[:0]
