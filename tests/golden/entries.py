"""Values of golden files: distributions, laws by token prefix, and results of checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.tiny import Prefix, Row

SUM = 1e-6
"""Largest difference of a distribution's sum from 1."""

Values: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class Check:
    """Outcome of one recomputed case or ensemble.

    Attributes:
        subject: name of the case or ensemble.
        compared: number of compared values.
        complaints: one sentence for each value that differs.
    """

    subject: str
    compared: int
    complaints: tuple[str, ...]

    def __str__(self) -> str:
        if not self.complaints:
            return f"{self.subject}: {self.compared} numbers agree"
        more = f" (and {len(self.complaints) - 1} more)" if len(self.complaints) > 1 else ""
        return f"{self.subject}: {self.complaints[0]}{more}"


@dataclass(frozen=True, eq=False)
class Table:
    """Rows by prefix: a :data:`draftwood.lab.lossless.tiny.Law`."""

    place: str
    rows: Mapping[Prefix, Row]

    def __call__(self, prefix: Prefix) -> Row:
        """The row after ``prefix``.

        Raises:
            DraftwoodError: the file has no such row.
        """
        if prefix not in self.rows:
            raise DraftwoodError(f'{self.place}: there is no row "{as_key(prefix)}"')
        return self.rows[prefix]


def as_key(prefix: Prefix) -> str:
    """A prefix as a key of the file: tokens joined by commas."""
    return ",".join(map(str, prefix))


def prefix_of(key: str, place: str) -> Prefix:
    """The prefix that a key names."""
    if key and not all(part.isdecimal() for part in key.split(",")):
        raise DraftwoodError(f'{place}: keys are comma-separated tokens, not "{key}"')
    return tuple(int(part) for part in key.split(",")) if key else ()


def row(values: Values, vocab: int, place: str) -> Row:
    """A distribution over ``vocab`` tokens."""
    found = np.array(values, dtype=np.float64)
    if len(found) != vocab or not (found >= 0).all() or abs(found.sum() - 1) > SUM:
        raise DraftwoodError(f"{place}: expected a distribution over {vocab} tokens")
    return found


def rows(values: Sequence[Values | None], vocab: int, place: str) -> tuple[Row | None, ...]:
    """Distributions; null stays None."""
    return tuple(None if each is None else row(each, vocab, place) for each in values)


def table(values: Mapping[str, Values], vocab: int, place: str) -> Table:
    """Distributions by prefix."""
    found = {prefix_of(key, place): row(each, vocab, place) for key, each in values.items()}
    return Table(place, found)


def law(values: Mapping[str, float], place: str) -> dict[Prefix, float]:
    """Probabilities by tokens."""
    return {prefix_of(key, place): value for key, value in values.items()}
