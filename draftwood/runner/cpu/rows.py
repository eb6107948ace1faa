"""Linears over few rows by a kernel, ``rows.h``, on the weight as it is stored.

With few rows, a product takes as long as reading the weight. PyTorch's products read it at a
fraction of the memory's speed, or reorder it first. The compiled one reads it once for up to 64
rows, and nearly at the memory's speed for up to 8, or for up to 16 in bfloat16 where the processor
has AMX (``tiles.h``). Its result for a row does not depend on the other rows.
"""

import ctypes
from ctypes import c_int64, c_void_p

import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwood.kernels.functions import kernels, readable


class _Product(ctypes.Structure):
    """``Product`` of rows.h."""

    _fields_ = (
        ("openmp", c_void_p),
        ("w", c_void_p),
        ("scales", c_void_p),
        ("outputs", c_int64),
        ("inputs", c_int64),
        ("in_panels", c_int64),
        ("narrow", c_int64),
    )


class RowsLinear:
    """``(x, bias) -> x @ weight.T + bias`` for ``x`` of few rows.

    Args:
        weight: ``[outputs, inputs]``, float32, bfloat16 or int8, contiguous, on the CPU; kept as it
            is.
        scales: float32 ``[outputs]``, by which int8 weights are multiplied.
        dtype: of ``x``; None: the weight's.
        shape: outputs and inputs; None: those of ``weight``.
        in_panels: whether the weight lies in panels (:mod:`draftwood.runner.cpu.panels`).

    Tensors that it cannot read, such as those of a compiler or of another dtype, or under
    ``torch.autocast`` to another one, go to ``torch.nn.functional.linear``.
    """

    def __init__(
        self,
        weight: Tensor,
        scales: Tensor | None = None,
        dtype: torch.dtype | None = None,
        *,
        shape: tuple[int, int] | None = None,
        in_panels: bool = False,
    ) -> None:
        compiled = kernels()
        assert compiled is not None, "callers ask for the kernels first"
        self._multiply, self._weight, self._scales = compiled.multiply, weight, scales
        self._dtype = dtype or weight.dtype
        self._outputs, self._inputs = shape or weight.shape
        self._product = _Product(
            compiled.openmp,
            weight.data_ptr(),
            None if scales is None else scales.data_ptr(),
            self._outputs,
            self._inputs,
            in_panels,
            self._dtype is torch.bfloat16,
        )
        self._address = ctypes.addressof(self._product)

    def __call__(self, x: Tensor, bias: Tensor | None) -> Tensor:
        found = self.product(x, bias)
        return linear(x, self._weight, bias) if found is None else found

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor | None:
        """The product; None if the kernel cannot read the tensors."""
        if not self._takes(x, bias):
            return None
        x = x.contiguous()
        y = x.new_empty((*x.shape[:-1], self._outputs))
        added = None if bias is None else bias.data_ptr()
        rows = x.numel() // self._inputs
        self._multiply(self._address, added, x.data_ptr(), y.data_ptr(), rows)
        return y

    def _takes(self, x: Tensor, bias: Tensor | None) -> bool:
        dtype = self._dtype
        return (
            readable(x, dtype)
            and x.shape[-1] == self._inputs
            and (
                bias is None
                or (
                    readable(bias.data, dtype)
                    and bias.shape == (self._outputs,)
                    and bias.is_contiguous()
                )
            )
        )
