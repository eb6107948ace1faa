"""Calibration of a method: how often candidates were accepted, by the predicted probability.

A reliability diagram: a point for each source and tenth of the probability. A point is on the
diagonal where the prediction is right, below it where the prediction is too high. Intervals are
Wilson's (1927). Sources have colours that no method has (Tol's bright ones).
"""

from math import log10

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import binomtest

from draftwood.lab.bench.document import Document
from draftwood.lab.bench.figures import Reliability, SourceReliability
from draftwood.lab.bench.plots.style import (
    ACROSS,
    DASHED,
    LINE_HEIGHT,
    MUTED,
    PAPER,
    Mark,
    legend_columns,
    marks,
    panels,
    plain,
)
from draftwood.lab.bench.predictions import Bin

TITLE = "Calibration: predicted and observed acceptance"
FEWEST = 5
"""Fewest candidates of a bin that is drawn."""
CAPTION = (
    "Across, the predicted probability that a candidate is accepted if the node above it is; "
    "upwards, the share that was. A point for each tenth of the probability and each source, the "
    "first that offered the candidate. On the dashed line both agree; below it the prediction is "
    "too high. A point's area grows with the logarithm of the number of candidates; its "
    f"line is the 95 % interval if they are independent. Fewer than {FEWEST} are left out."
)
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
FRAME = 149.0
"""Height of a panel's frame, in points."""


def draw(document: Document) -> Figure | None:
    """The figure, or None if too little was predicted."""
    shown = {
        m.name: m.reliability.all_steps for m in document.by_speed if m.reliability is not None
    }
    shown = {
        name: found for name, found in shown.items() if any(map(drawn, found.by_source.values()))
    }
    if not shown:
        return None
    names = sorted({name for found in shown.values() for name in found.by_source})
    mark = marks(names, COLOURS)
    figure, frames = panels(list(shown), FRAME, "predicted probability")
    for axes, found in zip(frames, shown.values(), strict=True):
        axes.set_xlim(-0.04, 1.04)
        axes.set_ylim(-0.04, 1.04)
        axes.set_box_aspect(1)
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.grid()
        axes.plot([0, 1], [0, 1], color=MUTED, lw=1.2, ls=DASHED, zorder=1)
        _series(axes, found, mark)
    for axes in frames[::ACROSS]:
        axes.set_ylabel("share accepted")
    handles = [
        Line2D([], [], ls="", marker=m.marker, color=m.colour, ms=6, label=plain(name))
        for name, m in mark.items()
    ]
    columns = legend_columns(names)
    lines = -(-len(names) // columns)
    figure.set_figheight(figure.get_figheight() + (lines + 1) * LINE_HEIGHT / 72)
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)
    return figure


def drawn(found: SourceReliability) -> list[Bin]:
    """The bins of a source that have candidates enough."""
    return [each for each in found.bins if each.candidates >= FEWEST]


def _series(axes: Axes, found: Reliability, mark: dict[str, Mark]) -> None:
    for source, each in found.by_source.items():
        bins, own = drawn(each), mark[source]
        across = [one.predicted / one.candidates for one in bins]
        upwards = [one.accepted / one.candidates for one in bins]
        for x, one in zip(across, bins, strict=True):
            ends = binomtest(one.accepted, one.candidates).proportion_ci(method="wilson")
            axes.plot([x, x], [ends.low, ends.high], color=own.colour, lw=1.2)
        axes.plot(across, upwards, color=own.colour, lw=0.8, alpha=0.6)
        axes.scatter(
            across,
            upwards,
            s=[18 * log10(one.candidates) for one in bins],
            marker=own.marker,
            color=own.colour,
            edgecolors=PAPER,
            linewidths=0.6,
            zorder=3,
            clip_on=False,
            label=plain(source),
        )
