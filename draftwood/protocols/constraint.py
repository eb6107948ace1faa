"""The constraint of a request: the tokens that its grammar allows after some path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """What may follow the committed tokens of one request, and any path of drafted ones behind.

    After a path that is not legal itself, or that ends the sequence, every token counts as legal:
    nothing can come of it.
    """

    @property
    def error(self) -> str:
        """Why no token is legal any more; empty if the grammar just has none."""
        ...

    def bits(self, path: Sequence[int]) -> NDArray[np.int64]:
        """The legal tokens after a path, int64 ``[ceil(V / 64)]``.

        Token t is legal if bit t % 64 of number t // 64 is set.
        """
        ...

    def allows(self, path: Sequence[int], tokens: Sequence[int]) -> list[bool]:
        """Whether each token may be drafted after a path: behind an end or an illegal one, none."""
        ...

    def legal_length(self, tokens: Sequence[int]) -> int:
        """How many of some tokens may follow the committed ones, one after the other."""
        ...

    def forced(self) -> tuple[int, ...]:
        """The tokens that must come next, as the tokenizer would spell them; often none."""
        ...

    def advance(self, tokens: Sequence[int]) -> None:
        """Commit tokens.

        Raises:
            DraftwoodError: one of them is not legal.
        """
        ...
