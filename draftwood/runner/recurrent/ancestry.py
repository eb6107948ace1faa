"""Who is an ancestor of whom in the trees of a batch, and how much decays on the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from draftwood.copies import uploaded
from draftwood.tree import ancestors

_NUMBERS = 1 << 22
"""Numbers of a temporary tensor at most, where blocks of queries can be computed apart."""


@dataclass(frozen=True, eq=False)
class Ancestry:
    """The trees of a batch, padded: first the nodes that were computed before, then the others.

    Attributes:
        shown: bool ``[b, N, N]``, whether node j is node i or an ancestor of it. A node of the
            padding has itself alone.
        parents: int64 ``[b, N]``, place of each node's parent; -1: the tokens before the tree.
        done: how many of the N nodes were computed before, padding included.
        places: int64 ``[b, n]``, place of each node of a tree; beyond its nodes, its last one's.
        levels: of the nodes that were not computed before, by depth: their trees and places.
    """

    shown: torch.Tensor
    parents: torch.Tensor
    done: int
    places: torch.Tensor
    levels: Sequence[tuple[torch.Tensor, torch.Tensor]]

    @cached_property
    def strictly(self) -> torch.Tensor:
        """Bool ``[b, N, N]``, whether node j is an ancestor of i and not i itself."""
        own = torch.eye(self.shown.shape[-1], dtype=torch.bool, device=self.shown.device)
        return self.shown & ~own


def ancestry(
    parents: Sequence[Sequence[int]], done: Sequence[int], device: torch.device
) -> Ancestry:
    """The ancestry of some trees.

    Args:
        parents: of each tree's nodes, which come behind their parents; -1: none.
        done: nodes of each tree that were computed before.
        device: where the tensors are.
    """
    before = max(done)
    after = max(len(each) - first for each, first in zip(parents, done, strict=True))
    b, most = len(parents), before + after
    shown = np.tile(np.eye(most, dtype=np.bool_), (b, 1, 1))
    above = np.full((b, most), -1, dtype=np.int64)
    places = np.zeros((b, max(map(len, parents))), dtype=np.int64)
    levels: dict[int, list[tuple[int, int]]] = {}
    for i, (own, first) in enumerate(zip(parents, done, strict=True)):
        n = len(own)
        at = np.array([*range(first), *range(before, before + n - first)])
        places[i, :n], places[i, n:] = at, at[-1]
        own_ancestors = ancestors(own).astype(np.bool_)
        shown[i, at[:, None], at] = own_ancestors
        above[i, at] = [-1 if parent < 0 else at[parent] for parent in own]
        for node, depth in enumerate(own_ancestors[first:].sum(1), first):
            levels.setdefault(int(depth), []).append((i, int(at[node])))
    at_depth = [np.array(levels[depth], dtype=np.int64).T for depth in sorted(levels)]
    sent = uploaded([shown.astype(np.int64), above, places, *at_depth], device)
    return Ancestry(
        sent[0].bool(), sent[1], before, sent[2], [(tree, place) for tree, place in sent[3:]]
    )


def log_decays(
    logs: torch.Tensor, trees: Ancestry, first: int, end: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of log decays along paths, of the nodes from ``first`` to ``end``.

    They are sums over the nodes of a path and not differences of two sums from the root: these lose
    their digits where much has decayed.

    Args:
        logs: log decay of each node, ``[b, heads, N]`` or, by channel, ``[b, heads, N, d]``.
        trees: the trees.
        first: node.
        end: node behind the last one.

    Returns:
        From the tokens before the tree to each node, itself included, ``[b, heads, n(, d)]``; and
        from behind node j to node i, ``[b, heads, n, N(, d)]``, minus infinity where j is no
        ancestor of i and not i itself.
    """
    shown = trees.shown[:, None, first:end]
    path = shown.to(logs)
    strictly = trees.strictly.to(logs)
    if logs.ndim == 3:
        along = path * logs[:, :, None]
        found = along @ strictly[:, None]
        return along.sum(-1), found.masked_fill(~shown, -torch.inf)
    along = path[:, :, :, None] * logs.transpose(2, 3)[:, :, None]
    found = (along @ strictly[:, None, None]).transpose(3, 4)
    return along.sum(-1), found.masked_fill(~shown[..., None], -torch.inf)


def blocks(n: int, each: int) -> list[tuple[int, int]]:
    """Begin and end of blocks of n queries, of which one takes so many numbers."""
    size = max(1, _NUMBERS // max(1, each))
    return [(begin, min(begin + size, n)) for begin in range(0, n, size)]


def path_decays(logs: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of log decays along one path, for what its nodes leave behind its end.

    Args:
        logs: of the nodes of the path, ``[b, heads, m]`` or ``[b, heads, m, d]``.
        valid: bool ``[b, m]``, the nodes of the path; padding is behind them.

    Returns:
        Of the whole path, and from behind each of its nodes to its end.
    """
    kept = valid[:, None] if logs.ndim == 3 else valid[:, None, :, None]
    logs = logs.masked_fill(~kept, 0.0)
    ends = logs.flip(2).cumsum(2).flip(2)
    behind = torch.cat([ends[:, :, 1:], torch.zeros_like(ends[:, :, :1])], dim=2)
    return ends[:, :, 0], behind
