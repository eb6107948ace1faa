"""Who is an ancestor of whom in the trees of a batch, and how much decays on the way."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.copies import uploaded
from draftwood.tree import ancestors

_NUMBERS = 1 << 22
"""Numbers of a temporary tensor at most, where blocks of pairs can be computed apart."""

_FEW = 64
"""Nodes of a batch's trees up to which their ancestry is kept: small trees come again and again."""


class Pairs(NamedTuple):
    """Nodes with each of their ancestors and with themselves, int64 ``[b, P]``, padded.

    Attributes:
        below: the nodes, counted from the first that was not computed before.
        above: the ancestors' places.
    """

    below: torch.Tensor
    above: torch.Tensor


@dataclass(frozen=True, eq=False)
class Ancestry:
    """The trees of a batch, padded: first the nodes that were computed before, then the others.

    Attributes:
        shown: bool ``[b, N, N]``, whether node j is node i or an ancestor of it. A node of the
            padding has itself alone.
        parents: int64 ``[b, N]``, place of each node's parent; -1: the tokens before the tree.
        done: how many of the N nodes were computed before, padding included.
        places: int64 ``[b, n]``, place of each node of a tree; beyond its nodes, its last one's.
        host: ``shown``, on the host.
    """

    shown: torch.Tensor
    parents: torch.Tensor
    done: int
    places: torch.Tensor
    host: NDArray[np.bool_]
    _windows: dict[int, torch.Tensor] = field(default_factory=dict, repr=False)
    _numbers: dict[torch.dtype, tuple[torch.Tensor, torch.Tensor]] = field(
        default_factory=dict, repr=False
    )

    @property
    def single(self) -> bool:
        """Whether every tree is its root alone."""
        return len(self.host[0]) == 1

    @cached_property
    def hidden(self) -> torch.Tensor:
        """Bool ``[b, 1, N, N]``, whether node j is neither node i nor an ancestor of it."""
        return ~self.shown[:, None]

    def numbers(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """``shown``, and the same without each node itself, as numbers ``[b, 1, N, N]``."""
        if dtype not in self._numbers:
            own = torch.eye(self.shown.shape[-1], dtype=torch.bool, device=self.shown.device)
            strictly = self.shown & ~own
            self._numbers[dtype] = self.shown[:, None].to(dtype), strictly[:, None].to(dtype)
        return self._numbers[dtype]

    @cached_property
    def levels(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of the nodes that were not computed before, by depth: their trees and places."""
        depths = self.host[:, self.done :].sum(2)
        found: list[NDArray[np.int64]] = []
        for depth in np.unique(depths):
            tree, node = np.nonzero(depths == depth)
            found += [tree, node + self.done]
        sent = uploaded(found, self.shown.device)
        return list(zip(sent[::2], sent[1::2], strict=True))

    @cached_property
    def pairs(self) -> Pairs:
        """All pairs of a node that was not computed before and one that it sees."""
        found = [np.stack(np.nonzero(each[self.done :])) for each in self.host]
        most = max(each.shape[1] for each in found)
        # A tree's last pair again.
        filled = np.stack([np.pad(e, ((0, 0), (0, most - e.shape[1])), mode="edge") for e in found])
        return Pairs(*uploaded([filled[:, 0].copy(), filled[:, 1].copy()], self.shown.device))

    def windows(self, taps: int) -> torch.Tensor:
        """Which inputs of a convolution the nodes read that were not computed before.

        Int64 ``[taps, b * n]``, places in the inputs of all trees one behind another. Those of a
        tree are the inputs of the last ``taps - 1`` tokens before it, in order, and of its N nodes.
        """
        if taps not in self._windows:
            b, total = self.parents.shape
            node = torch.arange(self.done, total, device=self.parents.device).expand(b, -1)
            found = [node]
            for _ in range(taps - 1):
                # Before the root come the tokens before the tree: -1, -2, and so on.
                node = torch.where(node < 0, node - 1, self.parents.gather(1, node.clamp(min=0)))
                found.append(node)
            first = torch.arange(b, device=node.device) * (total + taps - 1) + (taps - 1)
            self._windows[taps] = (torch.stack(found[::-1]) + first[:, None]).flatten(1)
        return self._windows[taps]


def ancestry(
    parents: Sequence[Sequence[int]], done: Sequence[int], device: torch.device
) -> Ancestry:
    """The ancestry of some trees.

    Args:
        parents: of each tree's nodes, which come behind their parents; -1: none.
        done: nodes of each tree that were computed before.
        device: where the tensors are.
    """
    # On other devices, a tensor is for the stream that it was made on.
    if device.type == "cpu" and sum(map(len, parents)) <= _FEW:
        return _known(tuple(map(tuple, parents)), tuple(done))
    return _made(parents, done, device)


@lru_cache(maxsize=256)
def _known(parents: Sequence[Sequence[int]], done: Sequence[int]) -> Ancestry:
    with torch.inference_mode(mode=False):
        return _made(parents, done, torch.device("cpu"))


def _made(parents: Sequence[Sequence[int]], done: Sequence[int], device: torch.device) -> Ancestry:
    before = max(done)
    after = max(len(each) - first for each, first in zip(parents, done, strict=True))
    b, most = len(parents), before + after
    shown = np.tile(np.eye(most, dtype=np.bool_), (b, 1, 1))
    above = np.full((b, most), -1, dtype=np.int64)
    places = np.zeros((b, max(map(len, parents))), dtype=np.int64)
    for i, (own, first) in enumerate(zip(parents, done, strict=True)):
        n = len(own)
        at = np.array([*range(first), *range(before, before + n - first)])
        places[i, :n], places[i, n:] = at, at[-1]
        shown[i, at[:, None], at] = ancestors(own).astype(np.bool_)
        above[i, at] = [-1 if parent < 0 else at[parent] for parent in own]
    sent = uploaded([shown.astype(np.int64), above, places], device)
    return Ancestry(sent[0].bool(), sent[1], before, sent[2], shown)


def log_decays(logs: torch.Tensor, trees: Ancestry) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of log decays along paths, of the nodes that were not computed before.

    They are sums over the nodes of a path and not differences of two sums from the root: these lose
    their digits where much has decayed.

    Args:
        logs: log decay of each node, ``[b, heads, N]``.
        trees: the trees.

    Returns:
        From the tokens before the tree to each node, itself included, ``[b, heads, n]``; and from
        behind node j to node i, ``[b, heads, n, N]``, minus infinity where j is no ancestor of i
        and not i itself.
    """
    path, strictly = trees.numbers(logs.dtype)
    along = path[:, :, trees.done :] * logs[:, :, None]
    found = along @ strictly
    return along.sum(-1), found.masked_fill_(trees.hidden[:, :, trees.done :], -torch.inf)


def channel_decays(logs: torch.Tensor, trees: Ancestry, pairs: Pairs) -> torch.Tensor:
    """Sums of log decays by channel from behind one node of each pair to the other one.

    Sums along paths, as in :func:`log_decays`.

    Args:
        logs: log decay of each node, ``[b, heads, N, d]``.
        trees: the trees.
        pairs: some of their pairs.

    Returns:
        ``[b, heads, P, d]``.
    """
    tree = torch.arange(len(pairs.below), device=logs.device)[:, None]
    behind = trees.shown[tree, pairs.below + trees.done] & ~trees.shown[tree, pairs.above]
    return behind[:, None].to(logs.dtype) @ logs


def blocks(n: int, each: int) -> list[tuple[int, int]]:
    """Begin and end of blocks of n pairs, of which one takes so many numbers."""
    size = max(1, _NUMBERS // max(1, each))
    return [(begin, min(begin + size, n)) for begin in range(0, n, size)]


def path_decays(logs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of log decays along one path, for what its nodes leave behind its end.

    Args:
        logs: of the nodes of the path, ``[b, heads, m]`` or ``[b, heads, m, d]``; zeros for what is
            behind it.

    Returns:
        Of the whole path, and from behind each of its nodes to its end.
    """
    ends = logs.flip(2).cumsum(2).flip(2)
    behind = torch.cat([ends[:, :, 1:], torch.zeros_like(ends[:, :, :1])], dim=2)
    return ends[:, :, 0], behind
