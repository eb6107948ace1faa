"""Links between the nodes of trees, from their masks."""

from torch import Tensor, arange, ones, where


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    batch_size: int,
    nodes: int,
) -> None:
    """Positions, first children and next siblings; -1 where there is none."""
    below = ones(nodes, nodes).tril(-1).bool()
    ancestors = tree_mask.view(batch_size, nodes, nodes).bool() & below
    depths = ancestors.sum(-1) + verified_seq_len.view(-1, 1)
    positions.copy_(depths.flatten())
    retrieve_index.copy_(arange(batch_size * nodes).view(batch_size, nodes))
    order = arange(nodes)
    parents = where(ancestors, order, -1).amax(-1).tolist()
    for row, own in enumerate(parents):
        for node, parent in enumerate(own):
            later = range(node + 1, nodes)
            child = next((k for k in later if own[k] == node), -1)
            sibling = next((k for k in later if own[k] == parent >= 0), -1)
            retrieve_next_token[row, node] = child
            retrieve_next_sibling[row, node] = sibling
