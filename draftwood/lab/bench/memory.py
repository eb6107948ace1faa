"""The most memory that was in use while a block ran.

Knows nothing of what the block does. Two quantities, by device, and both are of the *whole*
process: the weights, the other contenders' models and this program itself are in them.

* CUDA: the most bytes that torch's allocator had handed out at once (its pools' unused rest and
  what other libraries allocate are not in it);
* the CPU of a Linux machine: the peak resident set, that is the most physical memory that the
  process held. The kernel keeps that mark (``VmHWM`` in ``/proc/self/status``) and sets it back to
  the present size when a ``5`` is written to ``/proc/self/clear_refs`` (proc(5)). Memory that an
  earlier block freed and the C library did not hand back is still resident, so a peak can only be
  compared between contenders that took turns often.

Elsewhere, or where the kernel or a sandbox does not let the mark be set back, it is unknown.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

MIB = 2**20
_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"


@dataclass
class Peak:
    """What :func:`peak_memory` yields: ``mb``, MiB once the block has ended, None if unknown."""

    mb: float | None = None


@contextmanager
def peak_memory(device: torch.device, process: Path = _PROCESS) -> Iterator[Peak]:
    """Measure the peak over a ``with`` block; a block that raises leaves it unknown.

    Args:
        device: where the models are.
        process: the process's directory in Linux's ``/proc``.
    """
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.mb = torch.cuda.max_memory_allocated(device) / MIB
    elif device.type == "cpu" and _reset(process):
        yield peak
        peak.mb = _resident_peak(process)
    else:
        yield peak


def _reset(process: Path) -> bool:
    try:
        # Opened for update: were there no such file, none may be made.
        with (process / "clear_refs").open("r+") as file:
            file.write(_RESET_PEAK)
    except OSError:
        return False
    return True


def _resident_peak(process: Path) -> float | None:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("VmHWM:")]
    # A line reads "VmHWM:     13520 kB"; the kernel's kB are of 1,024 bytes.
    return int(found[0][1]) * 1024 / MIB if found else None
