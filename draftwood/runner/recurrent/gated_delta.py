"""The gated delta rule over trees, with a decay for each head or for each channel of the keys.

Step by step, a head's state ``S [dk, dv]`` decays, and the part that it predicts of a value is
replaced: ``S <- e^g S``, ``d = beta (v - k' S)``, ``S <- S + k d'``, ``o = q' S``. With a decay for
each head this is gated DeltaNet (arXiv 2412.06464), for each channel of the keys Kimi Delta
Attention (arXiv 2510.26692). Over a tree, with ``E_ij = e^g`` summed from behind node j to node i
and ``G_i`` from the tokens before the tree:

    (I + T) D = beta (V - e^G K S),  T_ij = beta_i E_ij (k_i . k_j)  for strict ancestors j of i
    O = e^G Q S + (Q K' * E) D

T is strictly lower triangular in topological order, so that the rows of D are found in turn, and a
node's row has to do with its ancestors only.
"""

from typing import NamedTuple

import torch

from draftwood.runner.recurrent.ancestry import Ancestry, blocks, log_decays, path_decays
from draftwood.runner.recurrent.exact_products import exact_products


class Kept(NamedTuple):
    """What a commit needs of the nodes, float32 or float64.

    Attributes:
        keys: ``[b, heads, N, dk]``.
        added: the vectors d, ``[b, heads, N, dv]``.
        logs: log decays, ``[b, heads, N]`` or ``[b, heads, N, dk]``.
    """

    keys: torch.Tensor
    added: torch.Tensor
    logs: torch.Tensor


@exact_products()
def gated_delta(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    logs: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    trees: Ancestry,
    before: Kept | None = None,
) -> tuple[torch.Tensor, Kept]:
    """Output of the nodes that were not computed before, n of them with padding.

    Args:
        queries: ``[b, heads, n, dk]``, scaled.
        keys: ``[b, heads, n, dk]``.
        values: ``[b, heads, n, dv]``.
        logs: log decays g, ``[b, heads, n]`` or ``[b, heads, n, dk]``.
        beta: ``[b, heads, n]``.
        state: S behind the tokens before the trees, ``[b, heads, dk, dv]``.
        trees: the trees.
        before: of the nodes that were computed before; None: there are none.

    Returns:
        Output ``[b, heads, n, dv]``, and what is kept of all nodes.
    """
    all_keys, all_logs = keys, logs
    if before is not None:
        all_keys = torch.cat([before.keys, keys], dim=2)
        all_logs = torch.cat([before.logs, logs], dim=2)
    within, across, start = _products(queries, keys, all_keys, all_logs, trees)
    within = beta[..., None] * within
    from_state = start.exp() if logs.ndim == 4 else start.exp()[..., None]
    right = beta[..., None] * (values - (keys * from_state) @ state)
    done = trees.done
    if before is not None:
        right = right - within[..., :done] @ before.added
    added = torch.linalg.solve_triangular(
        within[..., done:], right, upper=False, unitriangular=True
    )
    if before is not None:
        added = torch.cat([before.added, added], dim=2)
    output = (queries * from_state) @ state + across @ added
    return output, Kept(all_keys, added, all_logs)


def _products(
    queries: torch.Tensor,
    keys: torch.Tensor,
    all_keys: torch.Tensor,
    all_logs: torch.Tensor,
    trees: Ancestry,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Products of keys and of queries with all keys, both decayed, and the decays from the start.

    ``[b, heads, n, N]`` twice; ``[b, heads, n]`` or ``[b, heads, n, dk]``.
    """
    done, n = trees.done, keys.shape[2]
    if all_logs.ndim == 3:
        start, between = log_decays(all_logs, trees, done, done + n)
        decay, turned = between.exp(), all_keys.transpose(2, 3)
        return keys @ turned * decay, queries @ turned * decay, start
    b, heads, total, width = all_keys.shape
    found = []
    for begin, end in blocks(n, b * heads * total * width):
        start, between = log_decays(all_logs, trees, done + begin, done + end)
        decayed = between.exp() * all_keys[:, :, None]
        own = [(decayed @ each[:, :, begin:end, :, None]).squeeze(-1) for each in (keys, queries)]
        found.append((*own, start))
    within, across, start = (torch.cat(parts, dim=2) for parts in zip(*found, strict=True))
    return within, across, start


@exact_products()
def committed(
    state: torch.Tensor,
    kept: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    path: torch.Tensor,
    valid: torch.Tensor,
) -> torch.Tensor:
    """The state behind a path.

    Args:
        state: behind the tokens before the trees, ``[b, heads, dk, dv]``.
        kept: of the nodes, as :class:`Kept` has it.
        path: int64 ``[b, m]``, the nodes of each path from the root on; padding is behind them.
        valid: bool ``[b, m]``, which are nodes of the path.
    """
    keys, added, logs = (_picked(each, path) for each in kept)
    whole, behind = path_decays(logs, valid)
    weights = behind.exp().masked_fill(
        ~(valid[:, None] if logs.ndim == 3 else valid[:, None, :, None]), 0.0
    )
    if logs.ndim == 3:
        whole, weights = whole[..., None], weights[..., None]
    # In place, as to allocate a state takes longer than the product.
    found = (whole.exp()[..., None] * state).contiguous()
    found.flatten(0, 1).baddbmm_(
        (keys * weights).transpose(2, 3).flatten(0, 1), added.flatten(0, 1)
    )
    return found


def _picked(tensor: torch.Tensor, path: torch.Tensor) -> torch.Tensor:
    """The nodes of paths ``[b, m]`` of ``[b, heads, N, ..]``."""
    index = path.view(len(path), 1, -1, *[1] * (tensor.ndim - 3))
    return tensor.gather(2, index.expand(-1, tensor.shape[1], -1, *tensor.shape[3:]))
