"""Whether a figure agrees with a paper's, in words. Knows nothing of runs."""

from dataclasses import dataclass

SLACK = 0.01
"""A ratio within one percent of another is taken to be the same."""


@dataclass(frozen=True)
class Printed:
    """A ratio as a paper prints it, or the least and the greatest of several.

    Attributes:
        low: the least.
        high: the greatest.
        source: where they are printed.
    """

    low: float
    high: float
    source: str

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.low:.2f} ({self.source})"
        return f"{self.low:.2f} to {self.high:.2f} ({self.source})"


def verdict(ours: float | None, printed: Printed) -> str:
    """What is to be said beside our ratio of a method to its rival; bold where it is a loss to
    which the paper has no parallel."""
    if ours is None:
        return "-"
    if ours < 1 - SLACK and printed.low >= 1:
        return "**against the paper: a loss here, a gain there**"
    if ours < printed.low - SLACK:
        return "less than in the paper"
    if ours > printed.high + SLACK:
        return "more than in the paper"
    return "as in the paper"


def control(ours: float | None) -> str:
    """What is to be said of GOOSE's control, τ over τ of the method itself.

    The paper's Table 2 has 1.00, and concludes that the shape of the tree matters more than where
    the spine's tokens come from.
    """
    if ours is None:
        return ""
    told = f"τ of the control is {ours:.2f} of GOOSE's own (the paper: 1.00, Table 2)"
    if ours < 1 - SLACK:
        return (
            f"**Against the paper**: {told}. Here it matters where the spine's tokens come from, "
            "and not only the shape of the tree."
        )
    return f"As in the paper, the shape matters more than where the tokens come from: {told}."
