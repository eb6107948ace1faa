"""The sibling test child by child, on the host, each when its result is needed.

A verifier that goes from node to node usually ends before it has tested the whole tree. A child's
probability takes two numbers; only its rejection takes a pass over the vocabulary.
:mod:`draftwood.verifiers._residuals.batched` is the plain twin.
"""

import math
from collections import deque
from collections.abc import Iterator
from typing import ClassVar

import torch

from draftwood.protocols import Verification
from draftwood.tree import Draw
from draftwood.verifiers._residuals.siblings import Siblings


class Sequential:
    """The result for one node, computed as it is read.

    A row of q is fetched when the first child that shares it is tested.

    Args:
        siblings: the node with its children.
        reach: P of the node, above 0.
        p: ``[V]`` after the node, NaN if no token can follow it; results are on the host.

    Attributes:
        known: whether the result is computed, so that reading it is free.
        token: is drawn by the host.
        dead: whether no token can follow the node.
        probabilities: P of each child, in drawing order; to be read once.
    """

    known: ClassVar = False
    token: ClassVar[int | None] = None

    def __init__(self, siblings: Siblings, reach: float, p: torch.Tensor) -> None:
        p = p.cpu()
        self.dead = math.isnan(p[0].item())
        self.probabilities = self._try(siblings, reach, p)
        self._mass = 0.0
        self._residual = p

    @property
    def mass(self) -> float:
        """Sum of R after all children; reading it tests the remaining ones."""
        deque(self.probabilities, maxlen=0)
        return self._mass

    @property
    def residual(self) -> torch.Tensor:
        """R ``[V]`` after all children, up to a factor; reading it tests the remaining ones."""
        deque(self.probabilities, maxlen=0)
        return self._residual

    def _try(self, siblings: Siblings, reach: float, p: torch.Tensor) -> Iterator[float]:
        tree = siblings.case.tree
        offers = _Offers(siblings.case, p.dtype)
        most = float(torch.finfo(p.dtype).max)
        # R / P(v), which is p to begin with.
        left, view, weight = p, p.numpy(), 1.0
        for child in siblings.children:
            token, draw = int(tree.tokens[child]), int(tree.draws[child])
            row, wanted, offered = None, reach * float(view[token]), weight
            if draw != Draw.ONE_HOT:
                row = offers.take(child, token, draw)
                # If nothing is left, the child has probability zero and takes no part.
                scale = weight / row.sum if weight < row.sum * most else 0.0
                offered = float(row.view[token]) * scale
            yield min(wanted, offered) / offered if offered > 0 else 0.0
            if row is None:
                left = p.clone() if left is p else left
            else:
                # Bounded, because infinity times zero is NaN; no real probability is so small.
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
        """The row that a child was drawn from."""
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
    """A row of q from which drawn tokens are removed one by one.

    Attributes:
        numbers: ``[V]``.
        view: the same as a NumPy array: reading one number costs less than with a tensor.
        sum: of the numbers; 1 by definition if none was removed.
        gone: the token to remove before the row is used again; -1 for none.
    """

    __slots__ = ("_owned", "gone", "numbers", "sum", "view")

    def __init__(self, numbers: torch.Tensor) -> None:
        self._owned = False
        self.numbers, self.view = numbers, numbers.numpy()
        self.sum = 1.0
        self.gone = -1

    def settle(self) -> None:
        """Remove the token that is due."""
        if self.gone < 0:
            return
        if not self._owned:
            self._owned, self.numbers = True, self.numbers.clone()
            self.view = self.numbers.numpy()
        self.view[self.gone] = 0
        self.sum = self.numbers.sum().item()
