"""Cached step costs: the key of a target and its drafters, and reading and writing by key."""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import draftwood
from draftwood.costs import cache
from draftwood.costs.busy import watched
from draftwood.costs.curve import StepCosts
from draftwood.errors import DraftwoodError
from draftwood.protocols import TargetInfo

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

# Fields of a config that do not affect costs.
_IMMATERIAL = {"_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype"}


@dataclass(frozen=True)
class CostsKey:
    """Everything that costs depend on.

    Attributes:
        model: :func:`identity` of the target's configuration.
        drafters: source names and identities of the drafters with a model, sorted.
        device: name of the GPU or the processor.
        dtype: of the target's weights.
        threads: CPU threads.
        layouts: names of the weights' layouts on a CPU, sorted.
        kernels: version of the compiled kernels on a CPU; "" without.
        torch: version.
        draftwood: version.
    """

    model: str
    drafters: tuple[tuple[str, str], ...]
    device: str
    dtype: str
    threads: int
    layouts: tuple[str, ...]
    kernels: str
    torch: str
    draftwood: str


def identity(config: Mapping[str, object]) -> str:
    """A digest of a model's configuration, on which costs depend; weights and path do not count.

    Args:
        config: a transformers configuration's ``to_dict()``.
    """
    return cache.digest({k: v for k, v in config.items() if k not in _IMMATERIAL})


def read(key: CostsKey) -> StepCosts | None:
    """The cached costs of the key; None if there are none, or they cannot be used."""
    found = cache.read(cache.COSTS, asdict(key))
    try:
        return None if found is None else StepCosts.from_json(found)
    except DraftwoodError as error:
        cache.warn_unused(cache.directory(cache.COSTS), error)
        return None


def write(key: CostsKey, costs: StepCosts) -> Path:
    """Cache the costs; returns the file, which is replaced in one step.

    Raises:
        DraftwoodError: it cannot be written.
    """
    return cache.write(cache.COSTS, asdict(key), costs.to_json(), _about(key, costs))


def read_or_measure(key: CostsKey, measure: Callable[[], StepCosts]) -> StepCosts:
    """The cached costs of the key, or the result of ``measure``.

    A new measurement is cached unless other processes disturbed it or the cache is read-only.
    """
    found = read(key)
    if found is not None:
        logger.info("costs: as cached in %s", cache.directory(cache.COSTS))
    else:
        with watched() as neighbours:
            found = measure()
        if cache.disturbed(neighbours.others):
            logger.info("costs are not cached: other processes used too much of the cores")
        else:
            cache.try_write(cache.COSTS, asdict(key), found.to_json(), _about(key, found))
    return found


def _about(key: CostsKey, costs: StepCosts) -> str:
    drafted = "".join(f", with a {source}" for source, _ in key.drafters)
    return (
        f"{key.device}, {key.threads} threads, {key.dtype}: "
        f"{costs.target.seconds(1) * 1e3:.3g} ms for one token{drafted}"
    )


def key_of(info: TargetInfo, drafters: Mapping[str, str] | None = None) -> CostsKey:
    """The key of a target and its drafters, with the present number of threads.

    Args:
        info: of the attached target.
        drafters: :meth:`draftwood.protocols.Host.identity` of each drafter with a model, by source.
    """
    import torch

    return CostsKey(
        model=info.identity,
        drafters=tuple(sorted((drafters or {}).items())),
        device=device_name(info.device),
        dtype=str(info.dtype).removeprefix("torch."),
        threads=torch.get_num_threads(),
        layouts=info.layouts,
        kernels=info.kernels,
        torch=torch.__version__,
        draftwood=draftwood.__version__,
    )


def identity_at(where: str) -> str:
    """The identity of a model or head in a directory, or else by its hub id."""
    try:
        found = json.loads((Path(where) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return identity({"hub": where})
    return identity(found)


def device_name(device: torch.device) -> str:
    """The name of the GPU or the processor."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_model()


def cpu_model() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass  # only Linux has the file
    return platform.processor() or platform.machine()
