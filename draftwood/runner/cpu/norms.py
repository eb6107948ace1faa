"""Replaces RMS norms by one operation: a kernel, ``norms.h``, or ``torch.rms_norm``.

Modeling files write the norm as seven operations. On a CPU their dispatch costs a small model more
than their arithmetic. Modules are recognised by a test, not by class: a module is patched if it
returns exactly what one of two formulas does, for random weights and inputs over a wide range. Only
the instance's ``forward`` changes. The kernel's results differ by the rounding of a sum.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import torch
from torch import Tensor, nn, rms_norm

from draftwood.kernels.functions import kernels, readable
from draftwood.runner.patched import PatchedForward

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


def fuse_norms(model: nn.Module) -> "list[FusedNorm]":
    """Patch every module on the CPU that equals one of ``FORMULAS`` bit for bit."""
    fused = []
    for module in model.modules():
        if "forward" in module.__dict__ or type(module) is nn.RMSNorm:
            continue
        eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        if isinstance(eps, float):
            found = next((each for each in FORMULAS if _computes(module, each, eps)), None)
            # Without the kernel, Llama's has seven operations in any case.
            if found is late or (found is not None and kernels() is not None):
                fused.append(FusedNorm(module, eps, found))
    return fused


def _computes(module: nn.Module, formula: Formula, eps: float) -> bool:
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
            expected = formula(x, other, eps)
            if not isinstance(found, torch.Tensor) or found.dtype is not expected.dtype:
                return False
            if not torch.equal(found, expected):
                return False
    return True


class FusedNorm(PatchedForward):
    """The ``forward`` of a norm, in one operation.

    Args:
        module: the norm.
        eps: is added to the mean square.
        formula: what the module computes.
    """

    def __init__(self, module: nn.Module, eps: float, formula: Formula) -> None:
        super().__init__(module)
        self._parameters = module._parameters
        self.module, self.eps, self.formula = module, eps, formula
        compiled = kernels()
        self._kernel = None if compiled is None else compiled.rms_norm

    def __call__(self, x: Tensor) -> Tensor:
        weight = self._parameters["weight"]
        assert weight is not None
        if torch.is_grad_enabled() or x.dtype is not weight.dtype:
            return type(self._module).forward(self._module, x)  # type: ignore[no-any-return]
        if self._kernel is None or not self._takes(x, weight.data):
            return self.formula(x, weight, self.eps)
        x = x.contiguous()
        y = torch.empty_like(x)
        width = x.shape[-1]
        self._kernel(
            *(x.data_ptr(), weight.data_ptr(), y.data_ptr(), x.numel() // width, width),
            *(self.eps, self.formula is early, x.dtype is torch.bfloat16),
        )
        return y

    @staticmethod
    def _takes(x: Tensor, weight: Tensor) -> bool:
        return (
            x.dtype in (torch.float32, torch.bfloat16)
            and readable(x, x.dtype)
            and readable(weight, x.dtype)
            and weight.is_contiguous()
            and x.shape[-1:] == weight.shape
        )
