"""CPU time of other processes, from the kernel's counters.

Linux counts the time of every core in ``/proc/stat`` (proc_stat(5)). The time of this process and
of the children it has waited for is subtracted. The rest is other processes' time, the kernel's own
work and the time that the hypervisor gave to other machines (``steal``). A child that still runs
counts as another process. Without that file, every result is None: unknown.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

_STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of a core's line that are not idle: user, nice, system, irq, softirq, steal."""
_SAMPLE = 0.25
"""Seconds over which the present usage is sampled: 25 kernel ticks per core."""


@dataclass(frozen=True)
class Counters:
    """The CPU time counters at one moment.

    Attributes:
        time: of a monotonic clock, seconds.
        busy: CPU seconds of all processes on the cores that this process may use.
        own: CPU seconds of this process and of the children it has waited for.
        cores: number of these cores.
    """

    time: float
    busy: float
    own: float
    cores: int


@dataclass(frozen=True)
class Others:
    """CPU usage of other processes over a period.

    Attributes:
        seconds: their CPU time. The kernel counts in ticks, so that of a short period may be
            slightly negative.
        available: wall-clock seconds times cores.
    """

    seconds: float
    available: float

    @property
    def share(self) -> float:
        """Share of the available CPU time, 0 to 1."""
        return max(0.0, self.seconds / self.available) if self.available > 0 else 0.0


@dataclass
class Watched:
    """The result of :func:`watched`: ``others`` is set when the block ends; None if unknown."""

    others: Others | None = None


def counters(stat: Path = _STAT) -> Counters | None:
    """Read the CPU time counters; None if the system has none."""
    try:
        lines = [line.split() for line in stat.read_text().splitlines()]
    except OSError:  # only Linux has the file
        return None
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    cores = [list(map(int, line[1:])) for line in lines if line and line[0] in names]
    if not any(sum(core) for core in cores):  # some sandboxes show zeros only
        return None
    ticks = sum(core[column] for core in cores for column in _BUSY)
    own = os.times()
    return Counters(
        time=time.monotonic(),
        busy=ticks / os.sysconf("SC_CLK_TCK"),
        own=own.user + own.system + own.children_user + own.children_system,
        cores=len(cores),
    )


def usage_between(before: Counters | None, after: Counters | None) -> Others | None:
    """Usage between two readings; None if either is unknown."""
    if before is None or after is None:
        return None
    spent = (after.busy - before.busy) - (after.own - before.own)
    return Others(spent, (after.time - before.time) * after.cores)


def total_usage(parts: Iterable[Others | None]) -> Others | None:
    """The sum over several periods; None if there are none, or one is unknown."""
    found = list(parts)
    known = [part for part in found if part is not None]
    if not known or len(known) < len(found):
        return None
    return Others(sum(p.seconds for p in known), sum(p.available for p in known))


@contextmanager
def watched() -> Iterator[Watched]:
    """Measure other processes' usage during a ``with`` block."""
    found = Watched()
    before = counters()
    yield found
    found.others = usage_between(before, counters())


def warn_if_busy(threads: int | None) -> None:
    """Warn on standard error if other processes leave too few cores for a timing.

    Args:
        threads: of this process; None: torch's default.
    """
    import torch

    found = warning(threads or torch.get_num_threads())
    if found is not None:
        click.secho(f"warning: {found}", err=True, fg="yellow")


def warning(threads: int, sample: float = _SAMPLE) -> str | None:
    """The warning before a timing; None if enough cores are free.

    Args:
        threads: of this process.
        sample: seconds over which usage is sampled. Without counters, the load average of the last
            minute is used.
    """
    before = counters()
    if before is None:
        return _by_load(threads)
    time.sleep(sample)
    found = usage_between(before, counters())
    if found is None:
        return None
    return advice(found.share * before.cores, before.cores, threads)


def advice(taken: float, cores: int, threads: int) -> str | None:
    """The warning if ``threads`` do not fit beside the cores ``taken``, else None."""
    # Half a core is tolerated: a browser or an editor takes less and slows no thread down.
    if taken + threads <= cores + 0.5:
        return None
    busy = f"other processes are using {taken:.1f} of the {cores} cores: times will be wrong"
    fitting = max(1, int(cores - taken))
    if fitting < threads:
        return f"{busy}; try --threads {fitting}, or wait until they have ended"
    return f"{busy}; wait until they have ended"


def _by_load(threads: int) -> str | None:
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return advice(load, cores, threads) if load > cores else None
