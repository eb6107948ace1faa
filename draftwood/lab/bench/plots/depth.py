"""Share of steps whose accepted path reached each depth.

Each method has a small panel with its curve; the curves of the others are faint behind it.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from draftwood.lab.bench.document import Document
from draftwood.lab.bench.figures import DepthRate
from draftwood.lab.bench.intervals import ends
from draftwood.lab.bench.plots.style import LINE, Mark, method_marks, panels, ticks

TITLE = "Acceptance by depth"
DEEPEST = 16
"""Largest depth that is drawn."""
FEWEST = 5
"""Fewest steps of a depth that is drawn."""
CAPTION = (
    "Of the steps whose tree was at least so deep, the share whose accepted path reached that "
    "depth, with its 95 % interval. The other methods are faint. Depths to which fewer than "
    f"{FEWEST} steps drafted are left out."
)
FRAME = 70.0
"""Height of a panel's frame, in points."""


def draw(document: Document) -> Figure | None:
    """The figure, or None if too little was drafted."""
    curves = {
        m.name: [p for p in m.acceptance_by_depth if p.depth <= DEEPEST and p.offered >= FEWEST]
        for m in document.by_speed
    }
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return None
    deepest = max(point.depth for curve in curves.values() for point in curve)
    figure, frames = panels(list(curves), FRAME, "depth in the tree")
    mark = method_marks(list(document.methods))
    for axes, name in zip(frames, curves, strict=True):
        axes.set_xlim(0.7, deepest + 0.3)
        axes.set_ylim(0, 1.04)
        axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
        axes.set_xticks(ticks(deepest))
        axes.grid(axis="y")
        for other, curve in curves.items():
            if other != name:
                axes.plot(*_points(curve), color=LINE, lw=1)
        _curve(axes, curves[name], mark[name])
    return figure


def _points(curve: Sequence[DepthRate]) -> tuple[list[int], list[float]]:
    known = [(p.depth, p.rate.middle) for p in curve if p.rate.middle is not None]
    return [depth for depth, _ in known], [rate for _, rate in known]


def _curve(axes: Axes, curve: Sequence[DepthRate], mark: Mark) -> None:
    bounds = [(p.depth, *known) for p in curve if (known := ends(p.rate))]
    if bounds:
        depths, lows, highs = zip(*bounds, strict=True)
        axes.fill_between(depths, lows, highs, color=mark.colour, alpha=0.22, lw=0)
    axes.plot(*_points(curve), color=mark.colour, marker=mark.marker, ms=4, lw=1.6)
