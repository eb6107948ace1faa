"""How deep drafts are accepted: the share of steps whose accepted path reached each depth.

One small panel a method, on the same scales, with all others faint behind it: lines of two dozen
methods in one panel cannot be followed.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from draftwood.lab.bench.document import Document
from draftwood.lab.bench.figures import DepthRate
from draftwood.lab.bench.plots.palette import LINE, Look, looks
from draftwood.lab.bench.plots.tiles import ticks, tiles

TITLE = "Acceptance by depth"
DEEPEST = 16
"""Depths that are drawn."""
FEWEST = 5
"""Steps of a depth that is drawn: a share of fewer says nothing."""
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
    grid = tiles(list(curves), FRAME, foot="depth in the tree")
    look = looks(list(document.methods))
    for place, name in enumerate(curves):
        axes = grid.axes[place]
        axes.set_xlim(0.7, deepest + 0.3)
        axes.set_ylim(0, 1.04)
        axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
        axes.set_xticks(ticks(deepest))
        axes.grid(axis="y")
        for other, curve in curves.items():
            if other != name:
                axes.plot(*_points(curve), color=LINE, lw=1)
        _curve(axes, curves[name], look[name])
        grid.tidy(place)
    return grid.sheet.figure


def _points(curve: Sequence[DepthRate]) -> tuple[list[int], list[float]]:
    known = [(p.depth, p.rate.middle) for p in curve if p.rate.middle is not None]
    return [depth for depth, _ in known], [rate for _, rate in known]


def _curve(axes: Axes, curve: Sequence[DepthRate], look: Look) -> None:
    bounds = [
        (p.depth, p.rate.low, p.rate.high)
        for p in curve
        if p.rate.low is not None and p.rate.high is not None
    ]
    if bounds:
        depths, lows, highs = zip(*bounds, strict=True)
        axes.fill_between(depths, lows, highs, color=look.colour, alpha=0.22, lw=0)
    axes.plot(*_points(curve), color=look.colour, marker=look.marker, ms=4, lw=1.6)
