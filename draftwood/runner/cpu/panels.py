"""Weights in panels, which the kernel of ``panels.h`` multiplies with rows.

A panel is some 32 outputs of a weight: for each input, what all of them multiply it with. With 16
rows and more, a product takes as long as its arithmetic, of which the stored layout allows half.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwood.kernels.functions import kernels
from draftwood.runner.cpu.aligned import Pages
from draftwood.runner.cpu.rows import RowsLinear

_pages = Pages()


@cache
def panel_width() -> int:
    """Outputs of a panel; 0 if there is no such kernel for this processor."""
    compiled = kernels()
    return int(compiled.panel()) if compiled else 0


def fits(weight: Tensor) -> bool:
    """Whether a weight ``[outputs, inputs]`` can lie in panels."""
    width = panel_width()
    return bool(width) and weight.dtype is torch.float32 and not weight.shape[0] % width


def in_panels(weight: Tensor) -> Tensor:
    """A copy of a weight, ``[outputs / width, inputs, width]``."""
    outputs, inputs = weight.shape
    width = panel_width()
    place = torch.from_numpy(_pages.take(weight.nbytes)).view(weight.dtype)
    found = place.view(outputs // width, inputs, width)
    return found.copy_(weight.view(-1, width, inputs).transpose(1, 2))


def out_of_panels(panels: Tensor) -> Tensor:
    """The weight ``[outputs, inputs]``, bit for bit."""
    return panels.transpose(1, 2).reshape(-1, panels.shape[1]).contiguous()


class PanelsLinear(RowsLinear):
    """``(x, bias) -> x @ weight.T + bias`` for a weight in panels, which is kept as it is."""

    def __init__(self, panels: Tensor) -> None:
        count, inputs, width = panels.shape
        super().__init__(panels, shape=(count * width, inputs), in_panels=True)

    def __call__(self, x: Tensor, bias: Tensor | None) -> Tensor:
        found = self.product(x, bias)
        return linear(x, out_of_panels(self._weight), bias) if found is None else found
