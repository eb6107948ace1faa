"""How fast this machine reads memory, and how much of a model a plain step reads."""

from typing import Any

import numpy as np
import torch

from runs.median_time import median_seconds

_NUMBERS = 1 << 26
"""float32 numbers that are read: 256 MB, which no cache holds."""


def read_speed() -> float:
    """Bytes per second of a sum over memory, the median, with torch's threads."""
    # In large pages, as an attached model's weights: NumPy asks for them.
    numbers = torch.from_numpy(np.ones(_NUMBERS, dtype=np.float32))
    return numbers.nbytes / median_seconds(numbers.sum, numbers.device)


def weight_bytes(model: Any) -> int:
    """Bytes of weights that a forward over one token reads, of a model without experts.

    All of them, but for an embedding that is not the output layer as well: of that it reads a row.

    Args:
        model: a transformers model that is not attached, as reading packed weights unpacks them.
    """
    outputs = getattr(model.get_output_embeddings(), "weight", None)
    embedding = model.get_input_embeddings().weight
    read = {id(each): each for each in model.parameters()}
    if embedding is not outputs:
        read.pop(id(embedding), None)
    return sum(each.nbytes for each in read.values())
