"""Typed reading of a golden file's JSON, with a clear error for each wrong value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.tiny import Prefix, Row

SUM = 1e-6
"""Largest difference of a distribution's sum from 1."""


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

    where: str
    rows: Mapping[Prefix, Row]

    def __call__(self, prefix: Prefix) -> Row:
        """The row after ``prefix``.

        Raises:
            DraftwoodError: the file has no such row.
        """
        if prefix not in self.rows:
            raise DraftwoodError(f'{self.where}: there is no row "{as_key(prefix)}"')
        return self.rows[prefix]


def as_key(prefix: Prefix) -> str:
    """A prefix as a key of the file: tokens joined by commas."""
    return ",".join(map(str, prefix))


class Entry:
    """A JSON object and its place in the file, which its errors name."""

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, dict):
            raise DraftwoodError(f"{where}: not an object; see tests/golden for the format")
        self._raw = raw
        self.where = where

    def __contains__(self, key: str) -> bool:
        return key in self._raw

    def wrong(self, key: str, what: str) -> DraftwoodError:
        return DraftwoodError(f'{self.where}: "{key}" must be {what}')

    def of(self, key: str, kind: type, what: str) -> Any:
        value = self._raw.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.wrong(key, what)
        return value

    def entry(self, key: str) -> "Entry":
        return Entry(self.of(key, dict, "an object"), f"{self.where}, {key}")

    def entries(self, key: str) -> list["Entry"]:
        if key not in self:
            return []
        found = self.of(key, list, "a list")
        return [Entry(raw, f"{self.where}, {key} {i}") for i, raw in enumerate(found)]

    def text(self, key: str) -> str:
        return str(self.of(key, str, "text"))

    def number(self, key: str) -> float:
        value = self._raw.get(key)
        if type(value) not in {int, float}:
            raise self.wrong(key, "a number")
        return float(value)  # type: ignore[arg-type]

    def integer(self, key: str) -> int:
        value = self._raw.get(key)
        if type(value) is not int:
            raise self.wrong(key, "an integer")
        return value

    def count(self, key: str) -> int:
        value = self._raw.get(key)
        if type(value) is not int or value < 0:
            raise self.wrong(key, "an integer, 0 or more")
        return value

    def numbers(self, key: str, n: int) -> tuple[float, ...]:
        found = self.of(key, list, f"a list of {n} numbers")
        if len(found) != n or not all(type(value) in {int, float} for value in found):
            raise self.wrong(key, f"a list of {n} numbers")
        return tuple(map(float, found))

    def integers(self, key: str) -> tuple[int, ...]:
        found = self.of(key, list, "a list of integers")
        if not all(type(value) is int for value in found):
            raise self.wrong(key, "a list of integers")
        return tuple(found)

    def rows(self, key: str, vocab: int) -> tuple[Row | None, ...]:
        found = self.of(key, list, "a list of distributions")
        return tuple(None if row is None else self.row(key, row, vocab) for row in found)

    def row(self, key: str, row: object, vocab: int) -> Row:
        what = f"made of distributions over {vocab} tokens"
        if not isinstance(row, list) or not all(type(value) in {int, float} for value in row):
            raise self.wrong(key, what)
        values = np.array(row, dtype=np.float64)
        if len(values) != vocab or not (values >= 0).all() or abs(values.sum() - 1) > SUM:
            raise self.wrong(key, what)
        return values

    def table(self, key: str, vocab: int) -> Table:
        raw = self.of(key, dict, "an object of rows by prefix")
        rows = {self.prefix(key, name): self.row(key, row, vocab) for name, row in raw.items()}
        return Table(f"{self.where}, {key}", rows)

    def law(self, key: str) -> dict[Prefix, float]:
        raw = self.of(key, dict, "an object of probabilities by tokens")
        if not all(type(value) in {int, float} for value in raw.values()):
            raise self.wrong(key, "an object of probabilities by tokens")
        return {self.prefix(key, name): float(value) for name, value in raw.items()}

    def prefix(self, key: str, name: str) -> Prefix:
        if name and not all(part.isdecimal() for part in name.split(",")):
            raise self.wrong(key, f'keyed by comma-separated tokens, not by "{name}"')
        return tuple(int(part) for part in name.split(",")) if name else ()
