"""The acceptance funnel (TALON, Figure 3): acceptance by depth and by rank among siblings.

The colour is the share of nodes that were accepted, of those whose parent was accepted. The paper
ranks the K² nodes of a static tree's level together and counts all of them; here ranks are among
siblings, so that trees of every shape compare.
"""

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from draftwood.lab.bench.document import Document, MethodResult
from draftwood.lab.bench.plots.style import ACROSS, panels, ticks

TITLE = "Acceptance funnel"
DEEPEST, LOWEST = 12, 10
"""Largest depth and rank that are drawn."""
FEWEST = 5
"""Fewest nodes of a square that is drawn."""
CAPTION = (
    "Of the nodes at a depth and with a rank among their siblings whose parent was accepted, the "
    f"share that was accepted too. Depths over {DEEPEST} and ranks over {LOWEST} are cut off, and "
    f"squares of fewer than {FEWEST} nodes left out."
)
SQUARE, SCALE = 11.0, 48.0
"""Height of a square, and of the colour scale, in points."""
_MAP = LinearSegmentedColormap.from_list(
    # Both ends are visible on white paper and on a dark page.
    "funnel",
    ["#dceaf7", "#a5cbe8", "#6aa6d6", "#3a80bf", "#1f5fa8"],
)


def draw(document: Document) -> Figure | None:
    """The figure, or None if no square has enough nodes."""
    maps = {m.name: _rates(m) for m in document.by_speed}
    maps = {name: rates for name, rates in maps.items() if np.isfinite(rates).any()}
    if not maps:
        return None
    known = np.any([np.isfinite(rates) for rates in maps.values()], axis=0)
    deepest = 1 + int(np.flatnonzero(known.any(axis=0))[-1])
    lowest = 1 + int(np.flatnonzero(known.any(axis=1))[-1])
    figure, frames = panels(list(maps), SQUARE * max(4, lowest), "depth in the tree")
    figure.set_figheight(figure.get_figheight() + SCALE / 72)
    for axes, rates in zip(frames, maps.values(), strict=True):
        mesh = axes.pcolormesh(
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
    for axes in frames[::ACROSS]:
        axes.set_ylabel("rank")
    steps = np.linspace(0, 1, 21).tolist()  # finer scales become a bitmap
    scale = figure.colorbar(
        mesh, ax=frames, location="top", aspect=30, pad=0.01, boundaries=steps, ticks=[0, 0.5, 1]
    )
    scale.ax.set_xticklabels(["0", "50 %", "100 %"])
    scale.set_label("share accepted")
    scale.outline.set_visible(False)
    return figure


def _rates(method: MethodResult) -> NDArray[np.float64]:
    """Shares by ``[rank, depth]``, NaN where there are too few nodes."""
    rates = np.full((LOWEST, DEEPEST), np.nan)
    for found in method.acceptance_by_rank:
        if found.depth <= DEEPEST and found.rank <= LOWEST and found.offered >= FEWEST:
            rates[found.rank - 1, found.depth - 1] = found.accepted / found.offered
    return rates
