"""How much of the machine other processes use, read from the kernel's counters.

Linux counts in ``/proc/stat`` what every core has spent its time on (proc_stat(5)). What this
process and the children it has waited for used is taken off; the rest is other processes' time,
the kernel's own work and what the hypervisor gave to other machines (``steal``). A child that
still runs counts as another process. Where there is no such file, everything here is unknown:
None. Knows nothing of what runs meanwhile.
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
"""Seconds over which the present use is measured: 25 ticks of the kernel's clock for each core."""


@dataclass(frozen=True)
class Counters:
    """The counters at one moment, all in seconds.

    Attributes:
        time: a monotonic clock.
        busy: CPU time of all processes on the cores that this process may use.
        own: CPU time of this process and of the children that it has waited for.
        cores: number of these cores.
    """

    time: float
    busy: float
    own: float
    cores: int


@dataclass(frozen=True)
class Others:
    """What other processes used over some time.

    Attributes:
        seconds: their CPU time. The kernel counts in ticks, so a short time may come out a little
            below zero; sums over many such times do not.
        available: wall-clock time times the number of cores.
    """

    seconds: float
    available: float

    @property
    def share(self) -> float:
        """Their share of the cores, from 0 to 1."""
        return max(0.0, self.seconds / self.available) if self.available > 0 else 0.0


@dataclass
class Watched:
    """What :func:`watched` yields: ``others`` once the block has ended, None if unknown."""

    others: Others | None = None


def counters(stat: Path = _STAT) -> Counters | None:
    """The counters now; None where the system has none."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    names = {f"cpu{number}" for number in usable}
    try:
        lines = [line.split() for line in stat.read_text().splitlines()]
    except OSError:
        return None
    cores = [list(map(int, line[1:])) for line in lines if line and line[0] in names]
    if not any(sum(core) for core in cores):  # a sandbox that shows zeros knows nothing
        return None
    ticks = sum(core[column] for core in cores for column in _BUSY)
    own = os.times()
    return Counters(
        time=time.monotonic(),
        busy=ticks / os.sysconf("SC_CLK_TCK"),
        own=own.user + own.system + own.children_user + own.children_system,
        cores=len(cores),
    )


def between(before: Counters | None, after: Counters | None) -> Others | None:
    """What other processes used between two moments; None if either is unknown."""
    if before is None or after is None:
        return None
    spent = (after.busy - before.busy) - (after.own - before.own)
    return Others(spent, (after.time - before.time) * after.cores)


def together(parts: Iterable[Others | None]) -> Others | None:
    """The sum over several stretches of time; None if there are none, or one is unknown."""
    found = list(parts)
    known = [part for part in found if part is not None]
    if not known or len(known) < len(found):
        return None
    return Others(sum(p.seconds for p in known), sum(p.available for p in known))


@contextmanager
def watched() -> Iterator[Watched]:
    """Measure what other processes use over a ``with`` block."""
    found = Watched()
    before = counters()
    yield found
    found.others = between(before, counters())


def warn_if_busy(threads: int | None) -> None:
    """Warn on standard error if other processes leave too few cores for what is to be timed.

    Args:
        threads: how many were asked for; None for those that torch takes by itself.
    """
    import torch

    found = warning(threads or torch.get_num_threads())
    if found is not None:
        click.secho(f"warning: {found}", err=True, fg="yellow")


def warning(threads: int, sample: float = _SAMPLE) -> str | None:
    """What to tell somebody who is about to time something here; None if the machine is free.

    Args:
        threads: how many this process computes with.
        sample: seconds to watch the machine for. Where there are no counters, the load average
            of the last minute is looked at instead.
    """
    before = counters()
    if before is None:
        return _by_load(threads)
    time.sleep(sample)
    found = between(before, counters())
    if found is None:
        return None
    return advice(found.share * before.cores, before.cores, threads)


def advice(taken: float, cores: int, threads: int) -> str | None:
    """The warning, if ``threads`` do not fit beside what is ``taken`` of the ``cores``."""
    # Half a core: a browser or an editor takes less and does not make a thread wait for another.
    if taken + threads <= cores + 0.5:
        return None
    said = f"other processes are using {taken:.1f} of the {cores} cores: times will be wrong"
    fitting = max(1, int(cores - taken))
    if fitting < threads:
        return f"{said}; try --threads {fitting}, or wait until they have ended"
    return f"{said}; wait until they have ended"


def _by_load(threads: int) -> str | None:
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return advice(load, cores, threads) if load > cores else None
