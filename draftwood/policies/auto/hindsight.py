"""What the committed tokens of a step show of its candidates. Nothing here decides anything."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Judged:
    """Candidates of which a step has shown whether they were right.

    A tuner makes and reads them right behind a forward, when all code is slow at first: arrays of a
    handful of candidates would take longer than all else that it does with them. So these are
    plain lists, and arrays are made for whoever asks for them, once.

    Attributes:
        said: what each kind of source says of each.
        sources: of each, the first source that offered it.
        foretold: that the target takes it if it took its parent, as the pool said.
        right: whether it did.
    """

    said: Collection[tuple[int, int, int]]
    sources: tuple[str, ...]
    foretold: Collection[float]
    right: Collection[bool]

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """What is said, ``[n, 3]``."""
        return np.array(self.said, dtype=np.int64).reshape(-1, 3)

    @cached_property
    def chances(self) -> NDArray[np.float64]:
        """What was foretold, ``[n]``."""
        return np.array(self.foretold, dtype=np.float64)

    @cached_property
    def taken(self) -> NDArray[np.bool_]:
        """What was right, ``[n]``."""
        return np.array(self.right, dtype=np.bool_)


NOTHING = Judged((), (), (), ())
"""No candidate was judged."""


class Added(NamedTuple):
    """What a source was worth at a node.

    Attributes:
        accepted: whether a token that only this source had named was drafted, and right.
        open: chance that none of the others' was right.
    """

    accepted: bool
    open: float
