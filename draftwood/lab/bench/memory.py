"""Peak memory of the process while a block runs, weights and other models included.

* CUDA: the most bytes allocated by torch at once (without unused parts of its pools and memory of
  other libraries);
* the CPU on Linux: the peak resident set (``VmHWM`` in ``/proc/self/status``), which is reset by
  writing ``5`` to ``/proc/self/clear_refs`` (proc(5)). Memory that an earlier block freed may still
  be resident, so peaks can be compared only between contenders that took turns often.

Elsewhere, or if the peak cannot be reset, it is unknown.
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
    """Peak memory ``mb`` in MiB, set when the block has ended; None if unknown."""

    mb: float | None = None


@contextmanager
def peak_memory(device: torch.device, process: Path = _PROCESS) -> Iterator[Peak]:
    """Measure the peak of a ``with`` block; unknown if the block raises.

    Args:
        device: device of the models.
        process: directory of the process in ``/proc``.
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
        # For update, which does not create the file.
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
    # "VmHWM:     13520 kB", in units of 1,024 bytes.
    return int(found[0][1]) * 1024 / MIB if found else None
