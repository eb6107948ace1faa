"""Mamba-1's recurrence over trees (arXiv 2312.00752): a decay for each number of a state.

Step by step, ``S <- e^(dt A) S + (dt x) B'``, ``y = S C``, with a state ``S [d, N]``. Such decays
have no form by pairs of nodes that costs less than states. N is small, so a state is kept for each
node, and the nodes of one depth are computed together.
"""

import torch

from draftwood.runner.recurrent.ancestry import Ancestry
from draftwood.runner.recurrent.exact_products import exact_products


@exact_products()
def selective_scan_by_depth(
    x: torch.Tensor,
    dt: torch.Tensor,
    a: torch.Tensor,
    b_in: torch.Tensor,
    c_out: torch.Tensor,
    state: torch.Tensor,
    trees: Ancestry,
    before: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output of the nodes that were not computed before, without the skip ``D x``.

    Args:
        x: ``[b, d, n]``.
        dt: ``[b, d, n]``, positive.
        a: A, ``[d, N]``, negative.
        b_in: B, ``[b, N, n]``.
        c_out: C, ``[b, N, n]``.
        state: S behind the tokens before the trees, ``[b, d, N]``.
        trees: the trees.
        before: states of the nodes that were computed before; None: there are none.

    Returns:
        Output ``[b, d, n]``, and the states ``[b, nodes, d, N]`` of all nodes.
    """
    decay = (dt.transpose(1, 2)[..., None] * a).exp()
    added = (dt * x).transpose(1, 2)[..., None] * b_in.transpose(1, 2)[:, :, None]
    n, done = x.shape[2], trees.done
    # The last place is that of the state before the trees: parent -1.
    states = added.new_zeros(len(x), done + n + 1, *state.shape[1:])
    states[:, -1] = state
    if before is not None:
        states[:, :done] = before
    for i, place in trees.levels:
        node = place - done
        above = states[i, trees.parents[i, place]]
        states[i, place] = above * decay[i, node] + added[i, node]
    output = torch.einsum("bnds,bsn->bdn", states[:, done:-1], c_out)
    return output, states[:, :-1]
