"""Trees with given distributions, for verifiers to judge: no policy and no drafter made them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from draftwood.lab.lossless.canned import CannedDistributions
from draftwood.lab.lossless.enumeration import Drafted
from draftwood.lab.lossless.tiny import Law, Row
from draftwood.tree import TokenTree

SOURCE = "draft"


@dataclass(eq=False)
class Proposed:
    """Rows of q by handle; a :class:`draftwood.protocols.Drafter` as far as verifiers see it."""

    dtype: torch.dtype
    rows: list[torch.Tensor] = field(default_factory=list)
    _handles: dict[bytes, int] = field(default_factory=dict)

    def handle(self, q: Row) -> int:
        """A name for q, the same for equal rows."""
        key = q.tobytes()
        if key not in self._handles:
            self._handles[key] = len(self.rows)
            self.rows.append(torch.tensor(q, dtype=self.dtype))
        return self._handles[key]


@dataclass(frozen=True, eq=False)
class TreeRows:
    """A :class:`draftwood.protocols.Proposals`."""

    tree: TokenTree
    proposed: Proposed

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """q as ``[n, V]``, earlier siblings still in."""
        return torch.stack([self.proposed.rows[self.tree.q_rows[node]] for node in nodes])


def planted(tree: TokenTree, p: Law, proposed: Proposed, dtype: torch.dtype) -> Drafted:
    """A tree with its distributions; ``p`` is given by the tokens below the root."""
    rows = CannedDistributions(p, tree, (), dtype, greedy=False)
    return Drafted(tree, rows, TreeRows(tree, proposed))
