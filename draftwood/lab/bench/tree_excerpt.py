"""The tree of one step in words: what an excerpt holds of it, and what a report reads back.

Plain values; loads no model code.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class TreeExcerpt:
    """The whole tree of a step; node 0 is the root.

    Attributes:
        step: number of the step, from 0.
        parents: of each node; -1 for the root.
        texts: of each node's token.
        sources: the drafter of each node; ``"root"`` for the root.
        path: accepted nodes.
        bonus: text of the bonus token; empty if the answer ended before it.
    """

    step: int
    parents: tuple[int, ...]
    texts: tuple[str, ...]
    sources: tuple[str, ...]
    path: tuple[int, ...]
    bonus: str
