"""Replaces RMS norms by one operation: a kernel, ``norms.h``, or ``torch.rms_norm``.

Modeling files write the norm as seven operations. On a CPU their dispatch costs a small model more
than their arithmetic. Modules are recognised by a test, not by class
(:mod:`draftwood.runner.norm_formulas`). Only the instance's ``forward`` changes. The kernel's
results differ by the rounding of a sum.
"""

import torch
from torch import Tensor, nn

from draftwood.kernels.functions import casts, kernels, readable
from draftwood.runner.norm_formulas import Formula, early, late, norm_of
from draftwood.runner.patched import PatchedForward


def fuse_norms(model: nn.Module) -> "list[FusedNorm]":
    """Patch every module on the CPU that equals one of ``FORMULAS`` bit for bit."""
    fused = []
    for module in model.modules():
        if "forward" in module.__dict__ or type(module) is nn.RMSNorm:
            continue
        weight = module._parameters.get("weight")
        if weight is None or weight.device.type != "cpu":
            continue
        found = norm_of(module)
        # Without the kernel, Llama's has seven operations in any case.
        if found is not None and (found[0] is late or kernels() is not None):
            fused.append(FusedNorm(module, found[1], found[0]))
    return fused


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
        if torch.is_grad_enabled() or x.dtype is not weight.dtype or casts(x.dtype):
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
