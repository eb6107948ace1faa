"""Causal convolutions over trees: a node reads its own input and those of its nearest ancestors."""

import torch

from draftwood.runner.recurrent.ancestry import Ancestry


def convolved(
    inputs: torch.Tensor,
    stored: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    trees: Ancestry,
) -> torch.Tensor:
    """Output ``[b, n, channels]`` of a depthwise convolution, in float32 or float64.

    It is of the nodes that were not computed before.

    Args:
        inputs: of all nodes, ``[b, nodes, channels]``.
        stored: of the last ``taps - 1`` tokens before the trees, ``[b, taps - 1, channels]``.
        weight: ``[channels, taps]``.
        bias: ``[channels]``, or None.
        trees: the trees.
    """
    exact = torch.promote_types(inputs.dtype, torch.float32)
    line = torch.cat([stored.to(exact), inputs.to(exact)], dim=1)
    turned = weight.T.to(exact).contiguous()
    if trees.single:
        output = (line * turned).sum(1, keepdim=True)
    else:
        # Tap by tap: what all taps read together would be several times as large.
        rows, read = line.flatten(0, 1), trees.windows(len(turned))
        output = rows.index_select(0, read[0]).mul_(turned[0])
        for own, factor in zip(read[1:], turned[1:], strict=True):
            output.addcmul_(rows.index_select(0, own), factor)
        output = output.view(len(line), -1, line.shape[2])
    return output if bias is None else output.add_(bias.to(exact))


def commit_inputs(
    stored: torch.Tensor,
    kept: tuple[torch.Tensor, ...],
    path: torch.Tensor,
    valid: torch.Tensor | None,
) -> None:
    """Advance the stored inputs over a path.

    Args:
        stored: of the last ``taps - 1`` tokens before the trees, ``[b, taps - 1, channels]``;
            overwritten with those of the last ones behind the path.
        kept: the inputs of all nodes, ``[b, nodes, channels]``.
        path: int64 ``[b, m]``, the nodes of each path from the root on; padding is behind them.
        valid: bool ``[b, m]``, which are nodes of the path; None: all.
    """
    [inputs] = kept
    count = stored.shape[1]
    if len(path) == 1:
        own = inputs.index_select(1, path[0])
    else:
        own = inputs.gather(1, path[..., None].expand(-1, -1, inputs.shape[2]))
    line = torch.cat([stored, own.to(stored.dtype)], dim=1)
    if valid is None:
        stored.copy_(line[:, line.shape[1] - count :])
        return
    last = valid.sum(1, keepdim=True) + torch.arange(count, device=path.device)
    stored.copy_(line.gather(1, last[..., None].expand(-1, -1, line.shape[2])))
