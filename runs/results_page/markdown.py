"""Tables, numbers and their spread as Markdown. Knows nothing of runs."""

import statistics
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None, digits: int = 2) -> str:
    """The number, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A share as a percentage, or a dash where there is none."""
    return "-" if value is None else f"{value:.0%}"


def spread(values: Sequence[float], scale: float = 1.0) -> str:
    """Mean, and its standard error if there are several values."""
    mean = f"{scale * statistics.mean(values):.2f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {scale * statistics.stdev(values) / len(values) ** 0.5:.2f}"


def spanned(values: Iterable[int]) -> str:
    """The one value that all are, or the least and the greatest."""
    found = sorted(values)
    low, high = found[0], found[-1]
    return str(low) if low == high else f"{low} to {high}"
