"""Reads a model's fingerprint."""

from typing import Any

import torch

from draftwood.protocols import Fingerprint

_MATRICES = 64
"""Most matrices that are sampled, evenly over the model."""

_VALUES = 4
"""Weights of a matrix."""

_STEP = (5**0.5 - 1) / 2
"""Golden ratio: its multiples, without the integer part, spread evenly over 0 to 1."""

_READABLE = (torch.float32, torch.bfloat16, torch.float16)


def fingerprint_of(model: Any) -> Fingerprint | None:
    """The fingerprint of a transformers model; None if its weights are quantised.

    At most 256 weights are read, and no matrix is copied. The output matrix is left out, because a
    checkpoint may hold a tied one twice. Of an attached model, take ``TargetInfo.fingerprint``:
    here its packed weights would be unpacked.
    """
    config = model.config.get_text_config()
    found = _matrices(model)
    if len(found) <= config.num_hidden_layers or not all(map(_readable, found)):
        return None
    count = min(_MATRICES, len(found))
    chosen = [found[number * len(found) // count] for number in range(count)]
    with torch.no_grad():
        sampled = torch.cat([_sample(matrix, number) for number, matrix in enumerate(chosen)])
    values = [float(f"{value:.9g}") for value in sampled.tolist()]
    return Fingerprint(
        family=config.model_type,
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        vocabulary=config.vocab_size,
        values=tuple(values),
    )


def _matrices(model: Any) -> list[torch.nn.Parameter]:
    """The weights of two or more dimensions, each once, without an output matrix of its own."""
    head = model.get_output_embeddings()
    modules = (module for module in model.modules() if module is not head)
    weights = (each for module in modules for each in module.parameters(recurse=False))
    return list({id(each): each for each in weights if each.dim() > 1}.values())


def _readable(weight: torch.nn.Parameter) -> bool:
    """Whether the weight is a plain tensor of floats; quantised ones are classes of their own."""
    return type(weight.data) is torch.Tensor and weight.dtype in _READABLE


def _sample(matrix: torch.Tensor, number: int) -> torch.Tensor:
    """Some of the matrix's values, float32 ``[n]``; other places in every matrix."""
    places = [_STEP * (number * _VALUES + i + 1) % 1.0 for i in range(_VALUES)]
    rest = [int(place * matrix.numel()) for place in places]
    index: list[torch.Tensor] = []
    for size in reversed(matrix.shape):
        index.insert(0, torch.tensor([each % size for each in rest], device=matrix.device))
        rest = [each // size for each in rest]
    return matrix[tuple(index)].float()
