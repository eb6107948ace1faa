"""The legal tokens after each node of a tree, as a grammar allows them.

Each node is masked by its own path, so that its distribution is that of plain decoding behind the
path. On a CPU a node's mask is computed when its row is asked for. On another device all nodes'
masks are computed together, while a forward runs there, and are uploaded once.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.copies import uploaded
from draftwood.protocols import Constraint
from draftwood.tree import TokenTree


class TreeMask:
    """The legal tokens after each node of one tree.

    Args:
        constraint: of the request; it must not advance while this object is in use.
        tree: the drafted tree.
    """

    def __init__(self, constraint: Constraint, tree: TokenTree) -> None:
        self.tree = tree
        self._constraint = constraint
        self._bits: dict[int, NDArray[np.int64]] = {}
        self._everywhere: torch.Tensor | None = None

    def masked(self, rows: torch.Tensor, nodes: Sequence[int], fill: float) -> torch.Tensor:
        """A copy of rows ``[n, V]`` after some nodes, with ``fill`` at tokens that are illegal."""
        return rows.masked_fill(~self._legal(nodes, rows.shape[1], rows.device), fill)

    def complaint(self, node: int) -> str:
        """Why no token may follow a node; empty if some may."""
        # Asked anew: a look at another node may have put something else in the error's place.
        if self._constraint.bits(self.tree.path_tokens(node)).any():
            return ""
        return self._constraint.error or "the grammar allows none"

    def _of(self, node: int) -> NDArray[np.int64]:
        if node not in self._bits:
            self._bits[node] = self._constraint.bits(self.tree.path_tokens(node))
        return self._bits[node]

    def _legal(self, nodes: Sequence[int], size: int, device: torch.device) -> torch.Tensor:
        """Bool ``[n, size]`` on the device."""
        if device.type == "cpu":
            return _unpacked(torch.from_numpy(np.stack([*map(self._of, nodes)])), size)
        if self._everywhere is None:
            bits = np.stack([self._of(node) for node in range(len(self.tree))])
            [there] = uploaded([bits], device)
            self._everywhere = _unpacked(there, size)
        if len(nodes) == len(self.tree) and list(nodes) == [*range(len(self.tree))]:
            return self._everywhere
        if len(nodes) == 1:
            return self._everywhere[nodes[0] : nodes[0] + 1]
        [places] = uploaded([np.array(nodes)], device)
        return self._everywhere.index_select(0, places)


def _unpacked(bits: torch.Tensor, size: int) -> torch.Tensor:
    """Bool ``[n, size]`` of int64 ``[n, ceil(size / 64)]``."""
    places = torch.arange(8, dtype=torch.uint8, device=bits.device)
    found = bits.contiguous().view(torch.uint8)[:, :, None] >> places & 1
    return found.flatten(1)[:, :size].bool()
