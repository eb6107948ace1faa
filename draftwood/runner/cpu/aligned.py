"""Weights moved to the beginning of a cache line, for the compiled products.

In a mapped file the weights lie behind a header of any length: safetensors pads it to 8 bytes. Then
nearly every vector of a weight lies in two cache lines, and products of 4, 5 or 9 rows take up to a
sixth longer. All of a model's weights are moved: one that stayed would keep the whole file in
memory beside the copies of the others.
"""

from collections import Counter
from collections.abc import Iterable

import torch

LINE = 64
"""Bytes of a cache line, and of the widest vector."""


def align(weights: Iterable[torch.Tensor]) -> int:
    """Move weights that begin within a cache line, bit for bit; returns their bytes.

    A weight whose memory another tensor or process may use stays where it is.

    Args:
        weights: contiguous, on the CPU; tied ones may come several times.
    """
    different = {id(weight): weight for weight in weights}.values()
    begins = Counter(weight.data_ptr() for weight in different)
    moved = 0
    for weight in different:
        place, storage = weight.data_ptr(), weight.untyped_storage()
        used = begins[place] > 1 or storage.nbytes() != weight.nbytes or storage.is_shared()
        if used or place % LINE == 0:
            continue
        with torch.inference_mode(False), torch.no_grad():
            # PyTorch's own memory begins at a multiple of 64 bytes.
            weight.data = torch.empty_like(weight).copy_(weight)
        moved += weight.nbytes
    return moved
