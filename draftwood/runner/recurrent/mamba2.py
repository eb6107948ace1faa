"""Mamba-2's recurrence over trees (arXiv 2405.21060): a decay for each head, and sums.

Step by step, ``S <- e^a S + (dt x) B'``, ``y = S C``, with a head's state ``S [p, N]``. It is the
gated delta rule without the part that is predicted, so that there is nothing to solve:
``Y = e^G C S' + (C B' * E) U`` with ``U = dt x``.
"""

import torch

from draftwood.runner.recurrent.ancestry import Ancestry, log_decays
from draftwood.runner.recurrent.exact_products import exact_products
from draftwood.runner.recurrent.gated_delta import Kept, along_path, spread


@exact_products()
def selective_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    logs: torch.Tensor,
    b_in: torch.Tensor,
    c_out: torch.Tensor,
    state: torch.Tensor,
    trees: Ancestry,
    before: Kept | None = None,
) -> tuple[torch.Tensor, Kept]:
    """Output of the nodes that were not computed before, without the skip ``D x``.

    Args:
        x: ``[b, heads, n, p]``.
        dt: ``[b, heads, n]``, positive.
        logs: log decays ``dt A``, ``[b, heads, n]``.
        b_in: B, ``[b, groups, n, N]``; each is of as many heads.
        c_out: C, ``[b, groups, n, N]``.
        state: S behind the tokens before the trees, ``[b, heads, p, N]``.
        trees: the trees.
        before: of the nodes that were computed before; None: there are none.

    Returns:
        Output ``[b, heads, n, p]``, and what is kept of all nodes.
    """
    added = x * dt[..., None]
    heads = x.shape[1]
    # A group's heads share C, so that one product is of all of them: [b, groups, n, heads * p].
    b, groups, n, width = c_out.shape
    of_groups = c_out @ state.reshape(b, groups, -1, width).transpose(2, 3)
    from_state = of_groups.view(b, groups, n, -1, x.shape[3]).transpose(2, 3).flatten(1, 2)
    if trees.single:
        own = spread((c_out * b_in).sum(-1, keepdim=True), heads)
        return logs.exp()[..., None] * from_state + own * added, Kept(b_in, added, logs)
    if before is not None:
        b_in = torch.cat([before.keys, b_in], dim=2)
        added = torch.cat([before.added, added], dim=2)
        logs = torch.cat([before.logs, logs], dim=2)
    start, between = log_decays(logs, trees)
    mixed = spread(c_out @ b_in.transpose(2, 3), heads) * between.exp_()
    output = start.exp()[..., None] * from_state + mixed @ added
    return output, Kept(b_in, added, logs)


@exact_products()
def commit_scan(
    state: torch.Tensor,
    kept: tuple[torch.Tensor, ...],
    path: torch.Tensor,
    valid: torch.Tensor | None,
) -> None:
    """Advance states ``[b, heads, p, N]`` over a path; see :func:`gated_delta.commit`."""
    b_in, added, whole = along_path(kept, path, valid)
    state.mul_(whole)
    # One product for each group: [heads * p, m] with [m, N].
    b, groups, m, width = b_in.shape
    turned = added.transpose(2, 3).reshape(b * groups, -1, m)
    state.view(b * groups, -1, width).baddbmm_(turned, b_in.flatten(0, 1))
