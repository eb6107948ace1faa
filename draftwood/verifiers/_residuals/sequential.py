"""Tries siblings one after the other, each when it is asked about.

A verifier that goes from node to node mostly ends before it has seen the whole tree; here it pays
for what it sees. A child's chance takes two numbers, and only its rejection a pass over the
vocabulary. On the host, where numbers need no hand-over;
:mod:`draftwood.verifiers._residuals.batched` is the plain twin.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import torch

from draftwood.protocols import Verification
from draftwood.tree import Draw
from draftwood.verifiers._residuals.siblings import Siblings


def try_in_turn(spots: Sequence[Siblings], p: Sequence[torch.Tensor]) -> list["Sequential"]:
    """Be ready to try the children of all spots, ``p`` being ``[V]`` each; results are on the host.

    q is asked for node by node, where the first of the children that share it is tried.
    """
    return [Sequential(spot, row.cpu()) for spot, row in zip(spots, p, strict=True)]


class Sequential:
    """Implements :class:`draftwood.verifiers._residuals.Tested` for one node.

    Attributes:
        chances: P of the children, each worked out when it is taken.
    """

    known = False

    def __init__(self, spot: Siblings, p: torch.Tensor) -> None:
        self.chances = self._try(spot, p)
        self._mass = 0.0
        self._residual = p

    @property
    def mass(self) -> float:
        """Sum of R; children that were not asked about are rejected."""
        deque(self.chances, maxlen=0)
        return self._mass

    @property
    def residual(self) -> torch.Tensor:
        """``[V]``; likewise."""
        deque(self.chances, maxlen=0)
        return self._residual

    def _try(self, spot: Siblings, p: torch.Tensor) -> Iterator[float]:
        tree, reach = spot.case.tree, spot.reach
        offers = _Offers(spot.case, p.dtype)
        most = float(torch.finfo(p.dtype).max)
        # R / P(v), which is p to begin with.
        left, view, weight = p, p.numpy(), 1.0
        for child in spot.children:
            token, draw = int(tree.tokens[child]), int(tree.draws[child])
            row, wanted, offered = None, reach * float(view[token]), weight
            if draw != Draw.ONE_HOT:
                row = offers.take(child, token, draw)
                # Where nothing is left the child is a zero-probability pick, which takes no part.
                scale = weight / row.sum if weight < row.sum * most else 0.0
                offered = float(row.view[token]) * scale
            yield min(wanted, offered) / offered if offered > 0 else 0.0
            if row is None:
                left = p.clone() if left is p else left
            else:
                # Bounded, as infinity times a zero of q is not a number; nothing is so unlikely.
                into = None if left is p else left
                share = min(scale / reach, most)
                left = torch.sub(left, row.numbers, alpha=share, out=into).relu_()
            view = left.numpy()
            view[token] = max(wanted - offered, 0.0) / reach
            self._residual, self._mass = left, reach * left.sum().item()
            weight = self._mass + (1 - reach)


class _Offers:
    """Rows of q below one node."""

    __slots__ = ("_case", "_dtype", "_rows")

    def __init__(self, case: Verification, dtype: torch.dtype) -> None:
        self._case = case
        self._dtype = dtype
        self._rows: dict[tuple[str, int, int], _Row] = {}

    def take(self, child: int, token: int, draw: int) -> "_Row":
        """What a child was drawn from."""
        tree = self._case.tree
        key = (tree.sources[child], int(tree.q_rows[child]), draw)
        row = self._rows.get(key)
        if row is None:
            q = self._case.q.probabilities([child])[0]
            row = self._rows[key] = _Row(q.to("cpu", self._dtype))
        row.settle()
        if draw == Draw.WITHOUT_REPLACEMENT:
            row.gone = token
        return row


class _Row:
    """A row of q, from which drawn tokens are taken out one by one.

    Attributes:
        numbers: ``[V]``.
        view: the same, for single numbers, which cost a tensor's call each.
        sum: of the numbers; of a whole row it is 1 by definition.
        gone: the token that is to be taken out before the row is used again; -1 for none.
    """

    __slots__ = ("_owned", "gone", "numbers", "sum", "view")

    def __init__(self, numbers: torch.Tensor) -> None:
        self._owned = False
        self.numbers, self.view = numbers, numbers.numpy()
        self.sum = 1.0
        self.gone = -1

    def settle(self) -> None:
        """Take out what is to be taken out."""
        if self.gone < 0:
            return
        if not self._owned:
            self._owned, self.numbers = True, self.numbers.clone()
            self.view = self.numbers.numpy()
        self.view[self.gone] = 0
        self.sum = self.numbers.sum().item()
