"""A sheet of small panels, two beside each other, one for each method.

Knows nothing of what is drawn in them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from draftwood.lab.bench.plots.palette import MUTED
from draftwood.lab.bench.plots.style import WIDTH, Sheet, shortened

LEFT, GAP, HEADING, FOOT = 40.0, 14.0, 20.0, 24.0
ACROSS = 2


@dataclass(frozen=True)
class Tiles:
    """The sheet, and the axes of each name in order."""

    sheet: Sheet
    axes: tuple[Axes, ...]

    def tidy(self, place: int) -> None:
        """Leave out the labels that the panel on the left has as well."""
        if place % ACROSS:
            self.axes[place].tick_params(labelleft=False)


def tiles(names: Sequence[str], frame: float, *, foot: str, head: float = 0.0) -> Tiles:
    """An empty panel for each name.

    Args:
        names: headings.
        frame: height of a panel's frame, in points.
        foot: what runs to the right in all of them.
        head: points left free above them.
    """
    wide = (WIDTH - LEFT - 8 - GAP * (ACROSS - 1)) / ACROSS
    tall = HEADING + frame + FOOT
    rows = -(-len(names) // ACROSS)
    sheet = Sheet(head + tall * rows + 18)
    axes = []
    for place, name in enumerate(names):
        row, column = divmod(place, ACROSS)
        x, y = LEFT + column * (wide + GAP), head + tall * row
        sheet.write(x, y + HEADING / 2, shortened(name, wide, "bold"), weight="bold")
        axes.append(sheet.axes(x, y + HEADING, wide, frame))
    sheet.write(LEFT, sheet.height - 12, foot, colour=MUTED)
    return Tiles(sheet, tuple(axes))


def ticks(most: int) -> list[int]:
    """Whole numbers from 1 to ``most`` that fit below a panel."""
    if most <= 12:
        return list(range(1, most + 1, 1 if most <= 8 else 2))
    return [1, *range(5, most + 1, 5)]
