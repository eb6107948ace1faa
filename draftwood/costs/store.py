"""Keeps measured costs, by what they depend on; knows nothing of how costs are measured."""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import draftwood
from draftwood.costs import cache as kept
from draftwood.costs.busy import watched
from draftwood.costs.curve import StepCosts
from draftwood.errors import DraftwoodError
from draftwood.protocols import TargetInfo

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

# What two checkpoints of one shape may differ in.
_IMMATERIAL = {"_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype"}


@dataclass(frozen=True)
class Key:
    """What costs depend on, and are therefore kept by.

    Attributes:
        model: :func:`identity` of the target's configuration.
        drafters: the same by source name, for drafters with a model, sorted.
        device: name of the device: the GPU, or the processor.
        dtype: of the target's weights.
        threads: of the CPU.
        torch: version.
        draftwood: version, because its kernels change as well.
    """

    model: str
    drafters: tuple[tuple[str, str], ...]
    device: str
    dtype: str
    threads: int
    torch: str
    draftwood: str


def identity(config: Mapping[str, object]) -> str:
    """A digest of a model's configuration: costs depend on its shape, not on its weights' values.

    Args:
        config: what a transformers configuration's ``to_dict()`` gives; where it was loaded from
            does not count.
    """
    return kept.digest({k: v for k, v in config.items() if k not in _IMMATERIAL})


def read(key: Key) -> StepCosts | None:
    """What is kept for the key; None if nothing is, or nothing that can be used."""
    found = kept.read(kept.COSTS, asdict(key))
    try:
        return None if found is None else StepCosts.from_json(found)
    except DraftwoodError as error:
        kept.unused(kept.directory(kept.COSTS), error)
        return None


def write(key: Key, costs: StepCosts) -> Path:
    """Keep the costs; returns the file, which is replaced in one step.

    Raises:
        DraftwoodError: it cannot be written.
    """
    return kept.write(kept.COSTS, asdict(key), costs.to_json(), _about(key, costs))


def recall(key: Key, measure: Callable[[], StepCosts]) -> StepCosts:
    """What is kept for the key, or is measured now; kept if the machine was quiet meanwhile and the
    cache can be written to."""
    found = read(key)
    if found is not None:
        logger.info("costs: as kept in %s", kept.directory(kept.COSTS))
    else:
        with watched() as neighbours:
            found = measure()
        if kept.disturbed(neighbours.others):
            logger.info("costs are not kept: other processes used too much of the cores")
        else:
            kept.try_write(kept.COSTS, asdict(key), found.to_json(), _about(key, found))
    return found


def _about(key: Key, costs: StepCosts) -> str:
    drafted = "".join(f", with a {source}" for source, _ in key.drafters)
    return (
        f"{key.device}, {key.threads} threads, {key.dtype}: "
        f"{costs.target.seconds(1) * 1e3:.3g} ms for one token{drafted}"
    )


def key_of(info: TargetInfo, drafters: Mapping[str, str] | None = None) -> Key:
    """The key of a target and its drafters, as of now: threads may be set anew at any time.

    Args:
        info: of the attached target.
        drafters: :func:`identity_at` of each drafter with a model, by source name.
    """
    import torch

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
    import torch

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
