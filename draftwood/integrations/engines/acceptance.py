"""What was accepted of drafts, by source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from draftwood.tree import TokenTree


@dataclass
class Acceptance:
    """Sums over steps of requests.

    Attributes:
        steps: of requests.
        committed: tokens, the target's own included.
        drafted: tokens, by source.
        accepted: drafted tokens, by source.
        scattered: steps whose accepted nodes are not the first ones of their tree, so that an
            engine has to move keys and values.
    """

    steps: int = 0
    committed: int = 0
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    scattered: int = 0

    def add(self, tree: TokenTree, path: Sequence[int], committed: int) -> None:
        """Count a step."""
        self.steps += 1
        self.committed += committed
        self.drafted.update(tree.sources[1:])
        self.accepted.update(tree.sources[node] for node in path)
        self.scattered += [*path] != [*range(1, len(path) + 1)]

    def __str__(self) -> str:
        """One line for a log."""
        mean = self.committed / self.steps if self.steps else 0.0
        sources = ", ".join(
            f"{name} {self.accepted[name]} of {count}"
            for name, count in sorted(self.drafted.items())
        )
        return (
            f"{self.steps} steps, {mean:.2f} tokens a step; accepted of drafted tokens: "
            f"{sources or 'none'}; {self.scattered} scattered paths"
        )
