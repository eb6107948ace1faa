"""Refuses ``torch.autocast`` to another dtype than the model's.

Under it the model's layers compute in one dtype and their caches hold another, and kernels that
take the place of layers know nothing of it.
"""

from typing import Any

import torch

from draftwood.errors import DraftwoodError


def refuse_autocast(model: Any, device: torch.device) -> None:
    """Refuse a forward that would be cast, by a context or by accelerate's mixed precision.

    Raises:
        DraftwoodError: it would; the message says what to do.
    """
    kind, own = type(model).__name__, model.dtype
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
        if dtype != own:
            raise DraftwoodError(
                f"torch.autocast computes in {dtype} here and this {kind} is in {own}: leave "
                f"autocast, or load the model with dtype={dtype}"
            )
    # Accelerate keeps the forward that it wraps, and casts parameters of this dtype only.
    if own == torch.float32 and "_original_forward" in vars(model):
        raise DraftwoodError(
            f"accelerate runs this {kind} in mixed precision: give Draftwood "
            "accelerator.unwrap_model(model, keep_fp32_wrapper=False), or load the model in the "
            "dtype that it is to compute in"
        )
