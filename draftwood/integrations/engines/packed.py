"""Trees in the form of engines that verify the same number of nodes for every request.

A tree with fewer nodes is filled up with *detached* ones: nobody's children, seen by nobody, and
never accepted. Children of the root would not do: an engine that samples walks along all siblings
and adds up their probabilities, so a token that is listed twice is drawn too often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.tree import TokenTree, ancestors


@dataclass(frozen=True, eq=False)
class PackedTree:
    """A tree of exactly ``n`` nodes, the root first.

    Attributes:
        tokens: int64 ``[n]``.
        mask: bool ``[n, n]``: whether node ``j`` is node ``i`` or an ancestor of it.
        nodes: how many of them are the tree's, the root included; the others are detached.
    """

    tokens: NDArray[np.int64]
    mask: NDArray[np.bool_]
    nodes: int


def packed(tree: TokenTree, nodes: int) -> PackedTree:
    """A tree, filled up to a number of nodes.

    A detached node repeats the root's token, which is a valid id whatever the vocabulary.

    Raises:
        DraftwoodError: the tree has more nodes, or two siblings have the same token.
    """
    count = len(tree)
    if count > nodes:
        raise DraftwoodError(f"a tree of {count} nodes does not fit in {nodes}")
    if len(set(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True))) < count:
        raise DraftwoodError("two siblings have the same token, which an engine would draw twice")
    tokens = np.full(nodes, tree.tokens[0], dtype=np.int64)
    tokens[:count] = tree.tokens
    mask = np.eye(nodes, dtype=np.bool_)
    mask[:count, :count] = ancestors(tree.parents.tolist())
    return PackedTree(tokens, mask, count)
