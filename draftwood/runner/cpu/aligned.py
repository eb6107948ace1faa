"""Weights moved to the beginning of a cache line, for the compiled products.

In a mapped file the weights lie behind a header of any length: safetensors pads it to 8 bytes. Then
nearly every vector of a weight lies in two cache lines, and products of 4, 5 or 9 rows take up to a
sixth longer. Where one is moved, all weights in mapped memory are: one that stayed would keep the
whole file in memory beside the copies of the others.
"""

from collections import Counter
from collections.abc import Iterable

import torch

LINE = 64
"""Bytes of a cache line, and of the widest vector."""


def align(weights: Iterable[torch.Tensor]) -> int:
    """Move weights that begin within a cache line, bit for bit; returns the bytes that were moved.

    With them all others in mapped memory. A weight whose memory another tensor or process may use
    stays where it is.

    Args:
        weights: contiguous, on the CPU; tied ones may come several times.
    """
    different = {id(weight): weight for weight in weights}.values()
    begins = Counter(weight.data_ptr() for weight in different)
    free = [weight for weight in different if begins[weight.data_ptr()] == 1 and _owns(weight)]
    if not any(weight.data_ptr() % LINE for weight in free):
        return 0
    moved = 0
    for weight in free:
        # PyTorch can resize the memory that it took itself; that of a mapped file it cannot.
        if weight.data_ptr() % LINE or not weight.untyped_storage().resizable():
            with torch.inference_mode(False), torch.no_grad():
                # PyTorch's own memory begins at a multiple of 64 bytes.
                weight.data = torch.empty_like(weight).copy_(weight)
            moved += weight.nbytes
    return moved


def _owns(weight: torch.Tensor) -> bool:
    """Whether nothing else is in a weight's memory."""
    storage = weight.untyped_storage()
    return storage.nbytes() == weight.nbytes and not storage.is_shared()
