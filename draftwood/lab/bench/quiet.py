"""Whether the machine was quiet enough for a run's times to be published.

A run records what other processes used of the cores while its jobs were timed, and over the whole
run (``provenance.other_processes``, see :func:`recorded`). Above :data:`LIMIT` its times are of the
neighbours as much as of the methods. Figures that hold no time (τ, acceptance, equality of
tokens) do not depend on it. Knows nothing of what the run measured.
"""

from collections.abc import Mapping
from typing import Any

from draftwood.costs.busy import Others

LIMIT = 0.05
"""Share of the cores; times of a run in which other processes used more are not published."""

UNKNOWN = "this system has no /proc/stat to tell what other processes used"


def recorded(timed: Others | None, whole: Others | None) -> dict[str, object]:
    """What the document's provenance says of other processes.

    Args:
        timed: while jobs were timed, those of a resumed run's earlier processes included.
        whole: since the run began, or was resumed.

    Returns:
        ``share`` and ``timed_share``, of the cores that the run could use (null where unknown),
        ``limit``, and ``unknown``, the reason if they are unknown.
    """
    return {
        "share": None if whole is None else whole.share,
        "timed_share": None if timed is None else timed.share,
        "limit": LIMIT,
        "unknown": UNKNOWN if whole is None else None,
    }


def objection(document: Mapping[str, Any]) -> str | None:
    """Why the times of a benchmark's document may not be published; None if they may.

    Judged by the share while jobs were timed; by that of the whole run if no job was.
    """
    found = document["provenance"].get("other_processes")
    if found is None:
        return "it does not record what other processes used"
    share = found["share"] if found["timed_share"] is None else found["timed_share"]
    if share is None:
        return str(found["unknown"])
    if share > LIMIT:
        return f"other processes used {share:.0%} of the cores (at most {LIMIT:.0%} are allowed)"
    return None


def warning(provenance: Mapping[str, Any]) -> str | None:
    """What to say beside the times of a run that was disturbed; None if it was not, or unknown.

    Args:
        provenance: of a benchmark's document.
    """
    share = provenance.get("other_processes", {}).get("timed_share")
    if share is None or share <= LIMIT:
        return None
    return (
        f"Other processes used {share:.0%} of the cores while this was timed: its times and "
        "speeds are not reliable. Run it again on a quiet machine."
    )
