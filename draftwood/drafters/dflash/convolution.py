"""DFlash2's convolutions over the slots of a block, around attention and MLP.

Source: DFlash2 (z-lab, 2026), in its published checkpoints. Each sublayer has one on its input and
one on its output. Slot j sees slots j, j - 1, ..., j - k + 1 of its block, each channel by itself.
The kernel is a fixed one and a part that the slot's normed input decides, for groups of channels.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


class SlotConvolution(nn.Module):
    """The two convolutions of a sublayer.

    Args:
        size: slots k that a kernel sees.
        group: channels for which the slot's own part of a kernel is the same.
        hidden_size: H.
    """

    def __init__(self, size: int, group: int, hidden_size: int) -> None:
        super().__init__()
        self.group = group
        self.base_kernel = nn.Parameter(torch.zeros(2, size, hidden_size))
        self.kernel_projection = nn.Linear(hidden_size, 2 * size * hidden_size // group, bias=False)

    def forward(self, normed: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """The convolved output ``[b, B, H]`` of the sublayer on convolved rows of that shape."""
        sides, size, _ = self.base_kernel.shape
        own = self.kernel_projection(normed).view(*normed.shape[:2], sides, size, -1)
        kernels = self.base_kernel + own.repeat_interleave(self.group, dim=-1)
        found = sublayer(_convolved(normed, kernels[:, :, 0]))
        return _convolved(found, kernels[:, :, 1])


def _convolved(rows: Tensor, kernels: Tensor) -> Tensor:
    """Rows ``[b, B, H]`` by kernels ``[b, B, k, H]``; there is nothing before the first slot."""
    found = torch.zeros_like(rows)
    for back in range(kernels.shape[2]):
        shifted = functional.pad(rows, (0, 0, back, 0))[:, : rows.shape[1]]
        found = found + kernels[:, :, back] * shifted
    return found
