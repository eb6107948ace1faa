"""The acceptance funnel (TALON, Figure 3): where in the tree nodes are accepted.

A cell is a depth and a rank among siblings; its colour is the share of such nodes that was
accepted, of those whose parent had been. The paper's figure ranks a level's K² nodes of a static
tree together and counts all of them; ours knows no level, so that trees of every shape compare.
"""

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from draftwood.lab.bench.document import Document, Method
from draftwood.lab.bench.plots.palette import MUTED
from draftwood.lab.bench.plots.style import Sheet
from draftwood.lab.bench.plots.tiles import LEFT, ticks, tiles

TITLE = "Acceptance funnel"
DEEPEST, LOWEST = 12, 10
"""Depth and rank up to which cells are drawn."""
FEWEST = 5
"""Nodes of a cell that is drawn: a share of fewer says nothing."""
CAPTION = (
    "Of the nodes at a depth and with a rank among their siblings whose parent was accepted, the "
    f"share that was accepted too. Depths over {DEEPEST} and ranks over {LOWEST} are cut off, and "
    f"cells of fewer than {FEWEST} nodes left out."
)
CELL, HEAD, BAR = 11.0, 34.0, 140.0
_MAP = LinearSegmentedColormap.from_list(
    # Both ends stand out from white paper and from a dark page.
    "funnel",
    ["#dceaf7", "#a5cbe8", "#6aa6d6", "#3a80bf", "#1f5fa8"],
)


def draw(document: Document) -> Figure | None:
    """The figure, or None if no cell has nodes enough."""
    maps = {m.name: _rates(m) for m in document.by_speed}
    maps = {name: rates for name, rates in maps.items() if np.isfinite(rates).any()}
    if not maps:
        return None
    known = np.any([np.isfinite(rates) for rates in maps.values()], axis=0)
    deepest = 1 + int(np.flatnonzero(known.any(axis=0))[-1])
    lowest = 1 + int(np.flatnonzero(known.any(axis=1))[-1])
    grid = tiles(list(maps), CELL * max(4, lowest), foot="depth in the tree", head=HEAD)
    _scale(grid.sheet)
    for place, rates in enumerate(maps.values()):
        axes = grid.axes[place]
        axes.pcolormesh(
            np.arange(deepest + 1) + 0.5,
            np.arange(lowest + 1) + 0.5,
            np.ma.masked_invalid(rates[:lowest, :deepest]),
            cmap=_MAP,
            vmin=0,
            vmax=1,
            edgecolors="white",
            linewidth=0.6,
        )
        axes.set_ylim(lowest + 0.5, 0.5)
        axes.set_xticks(ticks(deepest))
        axes.set_yticks(ticks(lowest))
        if place % 2 == 0:
            axes.set_ylabel("rank")
        grid.tidy(place)
    return grid.sheet.figure


def _rates(method: Method) -> NDArray[np.float64]:
    """[rank, depth], NaN where there are too few nodes."""
    rates = np.full((LOWEST, DEEPEST), np.nan)
    for cell in method.acceptance_by_rank:
        if cell.depth <= DEEPEST and cell.rank <= LOWEST and cell.offered >= FEWEST:
            rates[cell.rank - 1, cell.depth - 1] = cell.accepted / cell.offered
    return rates


def _scale(sheet: Sheet) -> None:
    axes = sheet.axes(LEFT, 4, BAR, 10)
    axes.pcolormesh(np.linspace(0, 1, 21), [0, 1], np.linspace(0, 1, 20)[None, :], cmap=_MAP)
    axes.set_axis_off()
    for share in (0, 0.5, 1):
        sheet.write(LEFT + BAR * share, 22, f"{100 * share:.0f}", colour=MUTED, align="center")
    sheet.write(LEFT + BAR + 14, 9, "% accepted", colour=MUTED)
