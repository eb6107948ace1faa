"""Trees with given distributions, as verifiers see them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from draftwood.lab.lossless.canned import CannedDistributions
from draftwood.lab.lossless.enumeration import DraftedTree
from draftwood.lab.lossless.tiny import Law, Row
from draftwood.tree import TokenTree

SOURCE = "draft"


@dataclass(eq=False)
class ProposedRows:
    """Rows of q by handle."""

    dtype: torch.dtype
    rows: list[torch.Tensor] = field(default_factory=list)
    _handles: dict[bytes, int] = field(default_factory=dict)

    def handle(self, q: Row) -> int:
        """The handle of q, the same for equal rows."""
        key = q.tobytes()
        if key not in self._handles:
            self._handles[key] = len(self.rows)
            self.rows.append(torch.tensor(q, dtype=self.dtype))
        return self._handles[key]


@dataclass(frozen=True, eq=False)
class TreeRows:
    """Rows of q by node: a :class:`draftwood.protocols.Proposals`."""

    tree: TokenTree
    proposed: ProposedRows

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """q as ``[n, V]``, earlier siblings still in."""
        return torch.stack([self.proposed.rows[self.tree.q_rows[node]] for node in nodes])


def with_distributions(tree: TokenTree, p: Law, proposed: ProposedRows) -> DraftedTree:
    """A tree with its distributions; ``p`` is given by the tokens below the root."""
    rows = CannedDistributions(p, tree, (), proposed.dtype, greedy=False)
    return DraftedTree(tree, rows, TreeRows(tree, proposed))
