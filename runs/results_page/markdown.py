"""Tables and numbers in Markdown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Tables: TypeAlias = Mapping[str, Callable[[dict[str, Any]], Iterable[str]]]
"""Functions that write a run's tables, by a member that only its kind has."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table; a column without any value is left out."""
    lines = list(rows)
    used = [i for i in range(len(header)) if i == 0 or any(line[i] != "-" for line in lines)]
    whole = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(line[i] for i in used) + " |" for line in whole)


def number(value: float | None, digits: int = 2) -> str:
    """Format a number; a dash stands for an unknown one."""
    return "-" if value is None else f"{value:.{digits}f}"


def percent(value: float | None, *, sign: str = "") -> str:
    """Format a share as a percentage; a dash stands for an unknown one."""
    return "-" if value is None else f"{100 * value:{sign}.1f} %"


def estimate(metric: Mapping[str, Any], digits: int = 2) -> str:
    """Format a metric of ``draftwood bench`` with its 95 % interval in brackets."""
    value = metric.get("median", metric.get("value"))
    if value is None or metric["low"] is None or metric["high"] is None:
        return number(value, digits)
    return f"{value:.{digits}f} ({metric['low']:.{digits}f}-{metric['high']:.{digits}f})"
