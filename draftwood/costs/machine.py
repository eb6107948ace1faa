"""Which costs are this machine's and this model's: the key they are kept by.

Reads the machine and a model's description; measures nothing.
"""

import json
import platform
from collections.abc import Mapping
from pathlib import Path

import torch

import draftwood
from draftwood.costs.store import Key, identity
from draftwood.protocols import TargetInfo


def key_of(info: TargetInfo, drafters: Mapping[str, str] | None = None) -> Key:
    """The key of a target and its drafters, as of now: threads may be set anew at any time.

    Args:
        info: of the attached target.
        drafters: :func:`identity_at` of each drafter with a model, by source name.
    """
    return Key(
        model=info.identity,
        drafters=tuple(sorted((drafters or {}).items())),
        device=device_name(info.device),
        dtype=str(info.dtype).removeprefix("torch."),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        draftwood=draftwood.__version__,
    )


def identity_at(where: str) -> str:
    """The identity of a model or head in a directory, or by its hub id if there is none."""
    try:
        found = json.loads((Path(where) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return identity({"hub": where})
    return identity(found)


def device_name(device: torch.device) -> str:
    """What the device is called: the GPU's name, or the processor's."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_model()


def cpu_model() -> str:
    """The processor's name as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass  # only Linux has the file
    return platform.processor() or platform.machine()
