"""Checks that the machine was quiet enough for a run's times to be published.

A run records the share of the cores that other processes used while its jobs were timed, and over
the whole run (``provenance.other_processes``, see :func:`recorded`). Above :data:`LIMIT` its times
are not reliable. Figures without times (τ, acceptance, equality of tokens) do not depend on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftwood.costs.busy import Others
from draftwood.files import decode

LIMIT = 0.05
"""Largest share of the cores that other processes may use in a published run."""

UNKNOWN = "this system has no /proc/stat, which shows the load by other processes"


def recorded(timed: Others | None, whole: Others | None) -> dict[str, object]:
    """Load by other processes, for the document's provenance.

    Args:
        timed: load while jobs were timed, in all processes of a resumed run.
        whole: load since the run began, or was resumed.

    Returns:
        ``share`` and ``timed_share`` of the cores that the run could use (null if unknown),
        ``limit``, and ``unknown``, the reason why they are unknown.
    """
    return {
        "share": None if whole is None else whole.share,
        "timed_share": None if timed is None else timed.share,
        "limit": LIMIT,
        "unknown": UNKNOWN if whole is None else None,
    }


@dataclass(frozen=True)
class _OtherProcesses:
    """The part of :func:`recorded` that :func:`objection` reads."""

    share: float | None
    timed_share: float | None
    unknown: str | None


def objection(document: Mapping[str, Any]) -> str | None:
    """Reason why a document's times may not be published; None if they may.

    It depends on the share while jobs were timed, or over the whole run if no job was timed.

    Raises:
        DraftwoodError: the document's record of other processes is damaged.
    """
    plain = document["provenance"].get("other_processes")
    if plain is None:
        return "it does not record the load by other processes"
    found = decode(_OtherProcesses, plain, "provenance.other_processes")
    share = found.share if found.timed_share is None else found.timed_share
    if share is None:
        return str(found.unknown)
    if share > LIMIT:
        return f"other processes used {share:.0%} of the cores (at most {LIMIT:.0%} are allowed)"
    return None


def warning(provenance: Mapping[str, Any]) -> str | None:
    """Warning about the times of a disturbed run; None if it was not disturbed, or unknown.

    Args:
        provenance: provenance of a benchmark's document.
    """
    share = provenance.get("other_processes", {}).get("timed_share")
    if share is None or share <= LIMIT:
        return None
    return (
        f"Other processes used {share:.0%} of the cores during this run: its times and "
        "speeds are not reliable. Run it again on a quiet machine."
    )
