"""The progress bar of a run: which method answers which prompt, and how long the rest will take.

Drawn between jobs only: a thread that redraws would take time from what is measured.
"""

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from draftwood.bench.runs import Job

_PERIOD = 3600.0
"""Seconds that the estimate looks back: methods differ in speed, and a job may take minutes."""


def progress(console: Console) -> Progress:
    """An empty bar; it is gone when it ends."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        speed_estimate_period=_PERIOD,
    )


class Bar:
    """Told each job before it begins.

    Args:
        shown: where it is drawn.
        ended: jobs that another process has run; they count as done, but not for the speed from
            which the rest is estimated.
        left: jobs to come.
    """

    def __init__(self, shown: Progress, ended: int, left: int) -> None:
        self._shown = shown
        self._ended = ended
        self._task = shown.add_task("warm-up", total=ended + left, completed=ended)

    def __call__(self, job: Job, timed: bool) -> None:
        """A job begins, timed or to warm up."""
        what = job.method if timed else f"warm-up {job.method}"
        self._shown.update(
            self._task,
            description=f"{what} · {job.items[0].prompt.id}",
            completed=self._ended,
            refresh=True,
        )
        self._ended += timed
