"""The gated delta rule over trees, with a decay for each head or for each channel of the keys.

Step by step, a head's state ``S [dk, dv]`` decays, and the part that it predicts of a value is
replaced: ``S <- e^g S``, ``d = beta (v - k' S)``, ``S <- S + k d'``, ``o = q' S``. With a decay for
each head this is gated DeltaNet (arXiv 2412.06464), for each channel of the keys Kimi Delta
Attention (arXiv 2510.26692). Over a tree, with ``E_ij = e^g`` summed from behind node j to node i
and ``G_i`` from the tokens before the tree:

    (I + T) D = beta (V - e^G K S),  T_ij = beta_i E_ij (k_i . k_j)  for strict ancestors j of i
    O = e^G Q S + (Q K' * E) D

T is strictly lower triangular in topological order, so that the rows of D are found in turn, and a
node's row has to do with its ancestors only. Several heads of values may share a key and a query.
"""

from typing import NamedTuple

import torch

from draftwood.runner.recurrent.ancestry import (
    Ancestry,
    Pairs,
    blocks,
    channel_decays,
    log_decays,
    path_decays,
)
from draftwood.runner.recurrent.exact_products import exact_products


class Kept(NamedTuple):
    """What a commit needs of the nodes, float32 or float64.

    Attributes:
        keys: ``[b, key heads, N, dk]``.
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
        queries: ``[b, key heads, n, dk]``, scaled.
        keys: ``[b, key heads, n, dk]``.
        values: ``[b, heads, n, dv]``.
        logs: log decays g, ``[b, heads, n]``, or ``[b, heads, n, dk]`` with as many heads of keys.
        beta: ``[b, heads, n]``.
        state: S behind the tokens before the trees, ``[b, heads, dk, dv]``.
        trees: the trees.
        before: of the nodes that were computed before; None: there are none.

    Returns:
        Output ``[b, heads, n, dv]``, and what is kept of all nodes.
    """
    if trees.single:
        return _of_roots(queries, keys, values, logs, beta, state)
    all_keys, all_logs = keys, logs
    if before is not None:
        all_keys = torch.cat([before.keys, keys], dim=2)
        all_logs = torch.cat([before.logs, logs], dim=2)
    within, across, start = _products(queries, keys, all_keys, all_logs, trees)
    within = beta[..., None] * within
    right = beta[..., None] * (values - _from_state(keys, start, state))
    done = trees.done
    if before is not None:
        right = right - within[..., :done] @ before.added
    added = torch.linalg.solve_triangular(
        within[..., done:], right, upper=False, unitriangular=True
    )
    if before is not None:
        added = torch.cat([before.added, added], dim=2)
    output = _from_state(queries, start, state) + across @ added
    return output, Kept(all_keys, added, all_logs)


def _from_state(rows: torch.Tensor, logs: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """Products ``[b, heads, n, dv]`` of keys or queries with a state that has decayed since."""
    if logs.ndim == 4:
        return (rows * logs.exp()) @ state
    return (spread(rows, state.shape[1]) @ state).mul_(logs.exp()[..., None])


def spread(x: torch.Tensor, heads: int) -> torch.Tensor:
    """``[b, groups, ..]`` as ``[b, heads, ..]``, each group as many times as it has heads."""
    groups = x.shape[1]
    if groups == heads:
        return x
    # As repeat_interleave, for which a GPU is waited for.
    return x.unsqueeze(2).expand(-1, -1, heads // groups, *x.shape[2:]).flatten(1, 2)


def _of_roots(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    logs: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, Kept]:
    """The rule for trees that are their roots alone: one product reads the state."""
    both = torch.cat([keys, queries], dim=2)
    from_state = _from_state(both, logs.expand(-1, -1, 2, *logs.shape[3:]), state)
    added = beta[..., None] * (values - from_state[:, :, :1])
    own = spread((queries * keys).sum(-1, keepdim=True), values.shape[1])
    return from_state[:, :, 1:] + own * added, Kept(keys, added, logs)


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
    if all_logs.ndim == 4:
        return _channel_products(queries, keys, all_keys, all_logs, trees)
    start, between = log_decays(all_logs, trees)
    decay, turned = between.exp_(), all_keys.transpose(2, 3)
    within, across = (spread(each @ turned, all_logs.shape[1]) * decay for each in (keys, queries))
    return within, across, start


def _channel_products(
    queries: torch.Tensor,
    keys: torch.Tensor,
    all_keys: torch.Tensor,
    all_logs: torch.Tensor,
    trees: Ancestry,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """:func:`_products` with a decay for each channel.

    They are not products of matrices. So they are computed for nodes and their ancestors only,
    which are few of all pairs.
    """
    b, heads, total, width = all_keys.shape
    n = keys.shape[2]
    within, across = all_keys.new_zeros(2, b, heads, n * total).unbind()
    for begin, end in blocks(trees.pairs.below.shape[1], b * heads * width):
        pairs = Pairs(*(each[:, begin:end] for each in trees.pairs))
        decayed = channel_decays(all_logs, trees, pairs).exp_()
        decayed.mul_(picked(all_keys, pairs.above))
        place = (pairs.below * total + pairs.above)[:, None].expand(-1, heads, -1)
        for found, rows in ((within, keys), (across, queries)):
            found.scatter_(2, place, (decayed * picked(rows, pairs.below)).sum(-1))
    path, _ = trees.numbers(all_logs.dtype)
    shape = (b, heads, n, total)
    return within.view(shape), across.view(shape), path[:, :, trees.done :] @ all_logs


@exact_products()
def commit(
    state: torch.Tensor,
    kept: tuple[torch.Tensor, ...],
    path: torch.Tensor,
    valid: torch.Tensor | None,
) -> None:
    """Advance states over a path.

    Args:
        state: behind the tokens before the trees, ``[b, heads, dk, dv]``, contiguous; overwritten
            with that behind the path.
        kept: of the nodes, as :class:`Kept` has it.
        path: int64 ``[b, m]``, the nodes of each path from the root on; padding is behind them.
        valid: bool ``[b, m]``, which are nodes of the path; None: all.
    """
    keys, added, whole = along_path(kept, path, valid)
    keys = spread(keys, state.shape[1])
    # In place, as to allocate a state takes longer than the product.
    state.mul_(whole)
    state.flatten(0, 1).baddbmm_(keys.transpose(2, 3).flatten(0, 1), added.flatten(0, 1))


def along_path(
    kept: tuple[torch.Tensor, ...], path: torch.Tensor, valid: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What a path adds to a state, as it has decayed at the path's end.

    Args:
        kept, path, valid: see :func:`commit`.

    Returns:
        Keys and added vectors of its nodes, one of which has the decays, and what is left of the
        state before it: ``[b, heads, 1 or dk, 1]``.
    """
    keys, added, logs = (picked(each, path) for each in kept)
    by_channel = logs.ndim == 4
    if path.shape[1] == 1:
        whole = logs[:, :, 0]
    else:
        if valid is not None:
            padding = ~valid[:, None, :, *[None] * (logs.ndim - 3)]
            logs = logs.masked_fill(padding, 0.0)
            added = added.masked_fill(~valid[:, None, :, None], 0.0)
        whole, behind = path_decays(logs)
        if by_channel:
            keys = keys * behind.exp()
        else:
            added = added * behind.exp()[..., None]
    return keys, added, whole.exp()[..., None] if by_channel else whole.exp()[..., None, None]


def picked(tensor: torch.Tensor, path: torch.Tensor) -> torch.Tensor:
    """The nodes of paths ``[b, m]`` of ``[b, heads, N, ..]``."""
    if len(path) == 1:
        return tensor.index_select(2, path[0])
    index = path.view(len(path), 1, -1, *[1] * (tensor.ndim - 3))
    return tensor.gather(2, index.expand(-1, tensor.shape[1], -1, *tensor.shape[3:]))
