"""The colours of all figures.

A method has one colour and one marker in all figures of a document; the colours are those of Okabe
and Ito (2008), which colour-blind readers tell apart, and every method is named beside what is
drawn of it, so that nothing hangs on colour alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draftwood.lab.bench.document import REFERENCE

INK, MUTED, LINE, PAPER = "#1f2328", "#59636e", "#d1d9e0", "#ffffff"
"""Text, lesser text, rules and background; a page may put its own in their place."""
ON_FILL = "#111111"
"""Text on a coloured area, whatever the page's own colours are."""
GREY = "#7d8590"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Look:
    """A method's colour and marker."""

    colour: str
    marker: str


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Of all methods of a document, in its order; the reference is grey."""
    others = [name for name in names if name != REFERENCE]
    found = {
        name: Look(COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)])
        for k, name in enumerate(others)
    }
    return found | {REFERENCE: Look(GREY, "o")}
