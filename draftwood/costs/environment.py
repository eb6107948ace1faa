"""Facts of the installation and the machine, for reports: versions, device, platform.

Reads the machine; measures nothing. Importing this module does not import torch.
"""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from draftwood.costs.store import cpu_model


class Fact(NamedTuple):
    """One fact.

    Attributes:
        name: what it is about, such as ``"torch"``.
        value: in words.
    """

    name: str
    value: str


def facts() -> list[Fact]:
    """Python, torch, transformers, the device and the platform, in this order.

    It imports torch, which takes seconds, to name the device. A library that is missing or broken
    is named as such.
    """
    return [
        Fact("Python", f"{platform.python_version()} ({platform.python_implementation()})"),
        *(Fact(name, _version(name)) for name in ("torch", "transformers")),
        Fact("device", device_in_words()),
        Fact("platform", platform.platform()),
    ]


def device_in_words() -> str:
    """The CUDA devices, or else the processor with its cores and torch's number of threads."""
    processor = f"CPU, {cpu_model()}, {usable_cores()} of {os.cpu_count()} cores"
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:  # OSError: a shared library is missing
        reason = " ".join(str(error).split())
        return f"{processor}; torch cannot be imported: {reason}"
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        names = [f"cuda:{i}, {torch.cuda.get_device_name(i)}" for i in range(count)]
        return f"{'; '.join(names)} (CUDA {torch.version.cuda})"
    return f"{processor}, {torch.get_num_threads()} threads"


def usable_cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
