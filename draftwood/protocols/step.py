"""What one step of one sequence yields: the verdict, and all that drafters and policies learn from.

Nothing here computes anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from draftwood.protocols.target import TargetOutput
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Verdict:
    """A verifier's answer: accepted nodes from the root's child down, and the bonus token."""

    path: tuple[int, ...]
    bonus: int


@dataclass(frozen=True, eq=False)
class Prefill:
    """What a drafter and a policy learn when a request begins.

    Attributes:
        prompt: int64 ``[n]`` token ids.
        first: the token that the prefill yielded (the first tree's root).
        rows: the target's rows (all positions only if some drafter needs them).
    """

    prompt: NDArray[np.int64]
    first: int
    rows: TargetOutput


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a drafter and a policy learn from a finished step.

    Attributes:
        tree: the tree that was verified.
        path: accepted nodes, root excluded.
        committed: tokens committed: the path's, then the bonus (the next root).
        rows: the target's rows of all nodes, rejected ones included.
    """

    tree: TokenTree
    path: tuple[int, ...]
    committed: tuple[int, ...]
    rows: TargetOutput
