"""Replaces RMS norms by ``torch.rms_norm`` where the result is the same to the last bit.

Modeling files write the norm as seven operations. On a CPU their dispatch costs a small model more
than their arithmetic. Modules are recognised by a test, not by class: a module is patched if
``torch.rms_norm`` returns exactly its output, for random weights and inputs over a wide range. Only
the instance's ``forward`` changes.
"""

import torch
from torch import nn, rms_norm

from draftwood.runner.patched import PatchedForward

_SCALES = (1e-3, 1.0, 37.0, 1e4)


def fuse_norms(model: nn.Module) -> "list[FusedNorm]":
    """Patch every module on the CPU that equals ``torch.rms_norm`` bit for bit."""
    fused = []
    for module in model.modules():
        if "forward" in module.__dict__ or type(module) is nn.RMSNorm:
            continue
        eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        if isinstance(eps, float) and _is_rms_norm(module, eps):
            fused.append(FusedNorm(module, eps))
    return fused


def _is_rms_norm(module: nn.Module, eps: float) -> bool:
    weight = module._parameters.get("weight")
    if len(module._parameters) != 1 or module._modules or module._buffers or weight is None:
        return False
    if weight.ndim != 1 or type(weight.data) is not torch.Tensor or weight.device.type != "cpu":
        return False
    generator = torch.Generator().manual_seed(0)
    width = weight.shape[0]
    with torch.no_grad():
        for rows, scale in enumerate(_SCALES, 1):
            x = (torch.randn(2, rows, width, generator=generator) * scale).to(weight.dtype)
            other = torch.randn(width, generator=generator).to(weight.dtype)
            try:
                found = torch.func.functional_call(module, {"weight": other}, (x,))
            except (TypeError, RuntimeError, ValueError):
                return False
            fused = rms_norm(x, (width,), other, eps)
            if not isinstance(found, torch.Tensor) or found.dtype is not fused.dtype:
                return False
            if not torch.equal(found, fused):
                return False
    return True


class FusedNorm(PatchedForward):
    """The ``forward`` of a norm, in one operation."""

    def __init__(self, module: nn.Module, eps: float) -> None:
        super().__init__(module)
        self._parameters = module._parameters
        self._eps = eps
        self._shape = tuple(module._parameters["weight"].shape)  # type: ignore[union-attr]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        weight = self._parameters["weight"]
        if torch.is_grad_enabled() or x.dtype is not weight.dtype:  # type: ignore[union-attr]
            return type(self._module).forward(self._module, x)  # type: ignore[no-any-return]
        return rms_norm(x, self._shape, weight, self._eps)
