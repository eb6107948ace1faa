"""Settings of a harvest."""

from __future__ import annotations

from dataclasses import dataclass

from draftwood.protocols import setting
from draftwood.protocols.settings import Part


@dataclass(frozen=True)
class HarvestPlan(Part):
    """What is read, and which rows are stored.

    Raises:
        DraftwoodError: a setting is out of range.
    """

    width: int = setting(10, "Most successors of a key.", least=1, most=255)
    min_score: float = setting(
        0.01,
        "Least probability of a successor, in the mean over the key's occurrences.",
        least=0,
        below=1,
    )
    max_megabytes: float = setting(3.0, "Size of the table; the most useful rows stay.", above=0)
    length: int = setting(1024, "Tokens read together; longer documents are cut.", least=2)
    limit_tokens: int | None = setting(
        None, "Read so many tokens only, of the first documents.", least=1
    )

    @property
    def read_width(self) -> int:
        """Successors that are read at a position: more than are stored, so that means are exact."""
        return 2 * self.width
