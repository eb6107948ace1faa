"""Causal convolutions over trees: a node reads its own input and those of its nearest ancestors."""

import torch

from draftwood.runner.recurrent.ancestry import Ancestry


def windows(trees: Ancestry, taps: int) -> torch.Tensor:
    """Which inputs the nodes that were not computed before read, int64 ``[b, n, taps]``.

    They are places in the inputs of the last ``taps - 1`` tokens before the tree, in order, and of
    all nodes behind them.
    """
    b, total = trees.parents.shape
    node = torch.arange(trees.done, total, device=trees.parents.device).expand(b, -1)
    found = [node]
    for _ in range(taps - 1):
        # Before the root come the tokens before the tree: -1, -2, and so on.
        node = torch.where(node < 0, node - 1, trees.parents.gather(1, node.clamp(min=0)))
        found.append(node)
    return torch.stack(found[::-1], dim=-1) + (taps - 1)


def convolved(
    inputs: torch.Tensor,
    stored: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    read: torch.Tensor,
) -> torch.Tensor:
    """Output of a depthwise convolution, ``[b, n, channels]`` in float32 or float64.

    Args:
        inputs: of all nodes, ``[b, nodes, channels]``.
        stored: of the last ``taps - 1`` tokens before the trees, ``[b, taps - 1, channels]``.
        weight: ``[channels, taps]``.
        bias: ``[channels]``, or None.
        read: what each node reads, see :func:`windows`.
    """
    b, n, taps = read.shape
    exact = torch.promote_types(inputs.dtype, torch.float32)
    line = torch.cat([stored.to(exact), inputs.to(exact)], dim=1)
    index = read.reshape(b, n * taps, 1).expand(-1, -1, line.shape[2])
    seen = line.gather(1, index).view(b, n, taps, -1)
    output = (seen * weight.T.to(exact)).sum(2)
    return output if bias is None else output + bias.to(exact)


def committed_inputs(
    inputs: torch.Tensor, stored: torch.Tensor, path: torch.Tensor, valid: torch.Tensor
) -> torch.Tensor:
    """The last inputs behind a path, ``[b, taps - 1, channels]``.

    Args:
        inputs: of all nodes, ``[b, nodes, channels]``.
        stored: of the last ``taps - 1`` tokens before the trees.
        path: int64 ``[b, m]``, the nodes of each path from the root on; padding is behind them.
        valid: bool ``[b, m]``, which are nodes of the path.
    """
    kept = stored.shape[1]
    if not kept:
        return stored
    own = inputs.gather(1, path[..., None].expand(-1, -1, inputs.shape[2]))
    line = torch.cat([stored, own.to(stored.dtype)], dim=1)
    last = valid.sum(1, keepdim=True) + torch.arange(kept, device=path.device)
    return line.gather(1, last[..., None].expand(-1, -1, line.shape[2]))
