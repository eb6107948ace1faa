"""Tells one set of weights from another: a digest of a sample of every tensor.

All of a large model need not be read: training, merging or quantising changes nearly every number
of a tensor, so a few thousand of each give it away. It is no defence against somebody who chooses
which numbers to change.
"""

import hashlib

import torch

_SAMPLE = 4096


def digest(model: torch.nn.Module) -> str:
    """32 hexadecimal digits for the names, shapes, dtypes and sampled numbers of all parameters.

    To be taken before a model is attached, which may lay its weights out anew.
    """
    found = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        flat = parameter.detach().reshape(-1)
        step = max(1, flat.numel() // _SAMPLE)
        sample = flat[::step].cpu().contiguous()
        found.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}\n".encode())
        found.update(sample.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:32]
