"""The formulas of RMS norms, and which of them a module computes.

Modules are recognised by a test, not by class: a module has a formula if it returns exactly what
the formula does, for random weights and inputs over a wide range.
"""

from collections.abc import Callable
from inspect import signature
from typing import Final, TypeAlias

import torch
from torch import Tensor, nn, rms_norm

Formula: TypeAlias = Callable[[Tensor, Tensor, float], Tensor]
"""``(x, weight, eps) -> y``."""

_SCALES = (1e-3, 1.0, 37.0, 1e4)


def late(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``torch.rms_norm``, which rounds to x's dtype once, at the end."""
    return rms_norm(x, weight.shape, weight, eps)


def early(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm of Llama, which rounds before it multiplies by the weight."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * scaled.to(x.dtype)


FORMULAS: Final = (late, early)
"""In float32, where both round alike, the first."""


def norm_of(module: nn.Module) -> tuple[Formula, float] | None:
    """The formula of ``FORMULAS`` that a module computes bit for bit, and its eps; or None."""
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not isinstance(eps, float):
        return None
    found = next((each for each in FORMULAS if _computes(module, each, eps)), None)
    return None if found is None else (found, eps)


def _computes(module: nn.Module, formula: Formula, eps: float) -> bool:
    weight = module._parameters.get("weight")
    if len(module._parameters) != 1 or module._modules or module._buffers or weight is None:
        return False
    if weight.ndim != 1 or type(weight.data) is not torch.Tensor:
        return False
    # Of a gated norm, the second argument changes what it computes, and may have a default.
    if len(signature(type(module).forward).parameters) != 2:
        return False
    generator = torch.Generator().manual_seed(0)
    width = weight.shape[0]
    with torch.no_grad():
        for rows, scale in enumerate(_SCALES, 1):
            x = (torch.randn(2, rows, width, generator=generator, device="cpu") * scale).to(weight)
            other = torch.randn(width, generator=generator, device="cpu").to(weight)
            try:
                found = torch.func.functional_call(module, {"weight": other}, (x,))
            except (TypeError, RuntimeError, ValueError):
                return False
            expected = formula(x, other, eps)
            if not isinstance(found, torch.Tensor) or found.dtype is not expected.dtype:
                return False
            if not torch.equal(found, expected):
                return False
    return True
