"""What a draft model reads for the target's tokens.

A model with the target's token ids reads them as they are. For others there is a
:class:`draftwood.protocols.Translation`: a token of the target may be none or several of theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from draftwood.tree import TreeBuilder


class Reader(Protocol):
    """Makes a draft model's tokens of the target's.

    See :class:`draftwood.protocols.Translation`.
    """

    def begin(self, tokens: Sequence[int]) -> tuple[list[int], bytes]: ...

    def read(self, tokens: Sequence[int], held: bytes = b"") -> tuple[list[int], bytes]: ...

    def depths(self, tree: TreeBuilder) -> Sequence[int]: ...


@dataclass(frozen=True)
class SameIds:
    """Reads the target's tokens under their own ids.

    Attributes:
        readable: number of ids that the model can read; higher ones become the last.
    """

    readable: int

    def begin(self, tokens: Sequence[int]) -> tuple[list[int], bytes]:
        """The tokens; nothing is held."""
        return self.read(tokens)

    def read(self, tokens: Sequence[int], held: bytes = b"") -> tuple[list[int], bytes]:
        """The tokens; nothing is held."""
        last = self.readable - 1
        return [min(token, last) for token in tokens], held

    def depths(self, tree: TreeBuilder) -> Sequence[int]:
        """The nodes' own depths."""
        return tree.depths
