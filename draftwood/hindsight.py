"""What the committed tokens of a step show of its candidates. Nothing here decides anything."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Judged:
    """Candidates of which a step has shown whether they were right.

    Attributes:
        codes: int64 ``[n, 3]``.
        sources: of each, the first source that offered it.
        chances: float64 ``[n]``, that the target takes it if it took its parent, as the pool said.
        taken: bool ``[n]``.
    """

    codes: NDArray[np.int64]
    sources: tuple[str, ...]
    chances: NDArray[np.float64]
    taken: NDArray[np.bool_]


class Added(NamedTuple):
    """What a source was worth at a node.

    Attributes:
        accepted: whether a token that only this source had named was drafted, and right.
        open: chance that none of the others' was right.
    """

    accepted: bool
    open: float
