"""Computed numbers beside a file's, and the outcome of comparing them."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Number:
    """A computed number beside the file's, ``what`` in words.

    ``share`` is the probability of the event that a ratio is conditioned on: a ratio's tolerance
    grows as its denominator shrinks.
    """

    what: str
    found: float
    expected: float
    share: float = 1.0


@dataclass(frozen=True)
class Check:
    """Outcome of one recomputed case.

    Attributes:
        subject: name of the case.
        compared: number of compared numbers.
        complaints: one sentence for each number that differs.
    """

    subject: str
    compared: int
    complaints: tuple[str, ...]

    def __str__(self) -> str:
        more = f" (and {len(self.complaints) - 1} more)" if len(self.complaints) > 1 else ""
        return f"{self.subject}: {self.complaints[0]}{more}" if self.complaints else self.subject


def compare(subject: str, *parts: tuple[float, Iterable[Number]]) -> Check:
    """Compare numbers; each part comes with its largest difference."""
    compared = 0
    complaints = []
    for tolerance, numbers in parts:
        for number in numbers:
            compared += 1
            if not abs(number.found - number.expected) * number.share <= tolerance:
                complaints.append(
                    f"{number.what} is {number.found!r}, the file has {number.expected!r} "
                    f"(tolerance {tolerance:g})"
                )
    return Check(subject, compared, tuple(complaints))
