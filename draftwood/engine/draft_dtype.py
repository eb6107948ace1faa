"""The number format of a draft model's or head's weights.

Reading its weights is most of a draft forward. A CPU with bfloat16 instructions reads half as much
in bfloat16 as in float32, and multiplies several rows two to five times as fast. Without them the
kernels of :mod:`draftwood.kernels` still read half as much, which pays for up to about 16 rows: for
the levels of an EAGLE head, but not for a draft model's prompts and large batches, nor for networks
that are called without the kernels. Rounded drafts are drafts all the same: no promise depends on
them.
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from draftwood import models
from draftwood.kernels.functions import kernels
from draftwood.models import DTYPES, Loaded
from draftwood.protocols import DraftDtype

M = TypeVar("M", bound=nn.Module)

_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")
"""Names in :func:`torch.cpu.get_capabilities`; the last one is Arm's."""

_CACHED = 1 << 23
"""Bytes of bfloat16 weights that stay in a CPU's cache, where the format changes little."""


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether ``device`` is a CPU with instructions for products of bfloat16 numbers."""
    if device.type != "cpu" or not hasattr(torch.cpu, "get_capabilities"):
        return False  # PyTorch 2.11 cannot tell
    found = torch.cpu.get_capabilities()
    return any(bool(found.get(name)) for name in _INSTRUCTIONS)


def reads_bfloat16(device: torch.device) -> bool:
    """Whether ``device`` is a CPU on which kernels multiply few rows by bfloat16 weights."""
    return device.type == "cpu" and kernels() is not None


def load_in(
    wanted: DraftDtype,
    target: torch.dtype,
    device: torch.device,
    load: Callable[[torch.dtype], M],
    *,
    few_rows: bool = False,
) -> M:
    """Load the weights of a draft model or head in the format that ``wanted`` says.

    Args:
        wanted: a name in :data:`draftwood.models.DTYPES`; ``"target"``: the target's; ``"auto"``:
            bfloat16 for a float32 target where :func:`multiplies_bfloat16`, or with few rows
            :func:`reads_bfloat16`, if the weights exceed the cache, else the target's. No timing
            decides, so that a seed always draws the same samples on one machine.
        target: the target's dtype.
        device: where the weights will be.
        load: loads them in a dtype.
        few_rows: whether most forwards are of few rows, and by the kernels.
    """
    if wanted in DTYPES:
        return load(DTYPES[wanted])
    faster = multiplies_bfloat16(device) or (few_rows and reads_bfloat16(device))
    if wanted == "auto" and target == torch.float32 and faster:
        found = load(torch.bfloat16)
        if sum(parameter.nbytes for parameter in found.parameters()) > _CACHED:
            return found
    return load(target)


def load_draft(name: str, wanted: DraftDtype, target: torch.dtype, device: torch.device) -> Loaded:
    """Load a draft model as :func:`load_in` does.

    Args:
        name: see :func:`draftwood.models.load`.
        wanted, target, device: see :func:`load_in`.

    Raises:
        DraftwoodError: see :func:`draftwood.models.load`.
    """
    found: list[Loaded] = []

    def load(dtype: torch.dtype) -> nn.Module:
        spelt = next((name for name, each in DTYPES.items() if each == dtype), "auto")
        found.append(models.load(name, dtype=spelt, device=str(device)))
        return found[-1].model

    load_in(wanted, target, device, load)
    return found[-1]
