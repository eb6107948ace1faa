"""Linears with int8 weights, quantised by torchao, by the kernel of ``rows.h``.

torchao's weight-only quantisation keeps an integer for each weight and a scale for each output.
With few rows a product takes as long as reading the weight, so that a quarter or half of the bytes
takes as much less time. The products are those of the quantised weights, without rounding of the
activations: the model's distribution is that of the model that the user quantised.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from draftwood.kernels.functions import kernels
from draftwood.models.quantising import is_quantised_weight
from draftwood.runner.cpu.rows import RowsLinear
from draftwood.runner.patched import PatchedForward

_MOST = 64
"""Rows from which torchao's own product is used."""


class Int8Weight(NamedTuple):
    """A weight ``numbers * scales[:, None]``.

    Attributes:
        numbers: int8 ``[outputs, inputs]``, contiguous.
        scales: float32 ``[outputs]``.
    """

    numbers: Tensor
    scales: Tensor


def int8_weight(weight: Any) -> Int8Weight | None:
    """The parts of torchao's int8 weight; None if it is another, or changes activations too."""
    if not is_quantised_weight(weight):
        return None
    numbers, scales = getattr(weight, "qdata", None), getattr(weight, "scale", None)
    if not isinstance(numbers, Tensor) or not isinstance(scales, Tensor) or numbers.dim() != 2:
        return None
    shift = getattr(weight, "zero_point", None)
    fits = (
        numbers.dtype is torch.int8
        and numbers.is_cpu
        and numbers.is_contiguous()
        and numbers.shape[1] > 0
        and scales.numel() == len(numbers)
        and getattr(weight, "act_quant_kwargs", None) is None
        and getattr(weight, "act_pre_scale", None) is None
        and (shift is None or not bool(shift.any()))
        and weight.dtype in (torch.float32, torch.bfloat16)
    )
    return Int8Weight(numbers, scales.detach().float().flatten().contiguous()) if fits else None


class Int8Linear(PatchedForward):
    """The ``forward`` of a linear with an int8 weight.

    Args:
        module: the linear.
        weight: its weight.

    Attributes:
        high: first number of rows for which the kernel is not used.
        layout_name: of the weight's layout.
    """

    high: ClassVar = _MOST
    layout_name: ClassVar = "int8"

    def __init__(self, module: nn.Linear, weight: Int8Weight) -> None:
        self.module = module
        self.weight = weight
        self._parameters = module._parameters
        self._read(module._parameters["weight"], weight)
        self._end = _MOST * module.in_features
        super().__init__(module)

    def __call__(self, x: Tensor) -> Tensor:
        if x.numel() < self._end and not torch.is_grad_enabled() and self.unchanged():
            found = self._linear.product(x, self._parameters.get("bias"))
            if found is not None:
                return found
        return nn.Linear.forward(self.module, x)

    def unchanged(self) -> bool:
        """Whether the weight is the one that was read, where it was, with the same scales."""
        held = self._parameters.get("weight")
        try:
            return self._here(held) == self._place and _changes(held) == self._version
        except AttributeError:  # it is not quantised any more
            return False

    @property
    def shape(self) -> torch.Size:
        """Outputs and inputs."""
        return self.weight.numbers.shape

    @property
    def dtype(self) -> torch.dtype:
        """Of the rows that it multiplies."""
        return self._dtype

    def refresh(self) -> None:
        """Read the weight again if it was replaced or moved, or its scales were changed."""
        if self.unchanged():
            return
        held = self._parameters.get("weight")
        found = int8_weight(held)
        if found is None:
            return
        if self._here(held) == self._place:
            # Where they are, as fused layers have their address.
            with torch.inference_mode():
                self.weight.scales.copy_(found.scales)
            self._version = _changes(held)
        else:
            self._read(held, found)

    def _read(self, held: Any, weight: Int8Weight) -> None:
        self.weight, self._place, self._version = weight, self._here(held), _changes(held)
        self._held = held
        self._dtype: torch.dtype = held.dtype
        self._linear = RowsLinear(weight.numbers, weight.scales, held.dtype)

    @staticmethod
    def _here(held: Any) -> tuple[int, int, int]:
        """Which weight it is, and where its numbers and its scales are.

        They may move within the weight, as into memory of several processes.
        """
        return id(held), held.qdata.data_ptr(), held.scale.data_ptr()


def _changes(weight: Any) -> int:
    """How often the scales of a weight were changed where they are; they may have been copied."""
    scale = weight.scale
    return 0 if scale.is_inference() else scale._version


def patch_int8(model: nn.Module) -> list[Int8Linear]:
    """Patch the linears of ``model`` that have an int8 weight."""
    if kernels() is None:
        return []
    return [Int8Linear(module, weight) for module, weight in _candidates(model)]


def _candidates(model: nn.Module) -> Iterator[tuple[nn.Linear, Int8Weight]]:
    for module in model.modules():
        if type(module) is nn.Linear and "forward" not in module.__dict__:
            weight = int8_weight(module._parameters.get("weight"))
            if weight is not None:
                yield module, weight
