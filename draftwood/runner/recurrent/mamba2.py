"""Mamba-2's recurrence over trees (arXiv 2405.21060): a decay for each head, and sums.

Step by step, ``S <- e^a S + (dt x) B'``, ``y = S C``, with a head's state ``S [p, N]``. It is the
gated delta rule without the part that is predicted, so that there is nothing to solve:
``Y = e^G C S' + (C B' * E) U`` with ``U = dt x``.
"""

import torch

from draftwood.runner.recurrent.ancestry import Ancestry, log_decays
from draftwood.runner.recurrent.exact_products import exact_products
from draftwood.runner.recurrent.gated_delta import Kept, commit


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
        b_in: B, ``[b, heads, n, N]``.
        c_out: C, ``[b, heads, n, N]``.
        state: S behind the tokens before the trees, ``[b, heads, p, N]``.
        trees: the trees.
        before: of the nodes that were computed before; None: there are none.

    Returns:
        Output ``[b, heads, n, p]``, and what is kept of all nodes.
    """
    added = x * dt[..., None]
    if trees.single:
        own = (c_out * b_in).sum(-1, keepdim=True)
        from_state = logs.exp()[..., None] * (c_out @ state.transpose(2, 3))
        return from_state + own * added, Kept(b_in, added, logs)
    if before is not None:
        b_in = torch.cat([before.keys, b_in], dim=2)
        added = torch.cat([before.added, added], dim=2)
        logs = torch.cat([before.logs, logs], dim=2)
    start, between = log_decays(logs, trees)
    mixed = (c_out @ b_in.transpose(2, 3)).mul_(between.exp_())
    output = start.exp()[..., None] * (c_out @ state.transpose(2, 3)) + mixed @ added
    return output, Kept(b_in, added, logs)


def commit_scan(
    state: torch.Tensor,
    kept: tuple[torch.Tensor, ...],
    path: torch.Tensor,
    valid: torch.Tensor | None,
) -> None:
    """Advance states ``[b, heads, p, N]`` over a path; see :func:`gated_delta.commit`."""
    b_in, added, logs = kept
    # The state is the transpose of the gated delta rule's, and so is what a node adds.
    commit(state, (added, b_in, logs), path, valid)
