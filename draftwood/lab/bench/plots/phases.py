"""What the time of a step is spent on, as shares of it.

The phases have pale colours of their own, which are no method's.
"""

from matplotlib.figure import Figure

from draftwood.lab.bench.document import PHASES, Document
from draftwood.lab.bench.plots.palette import ON_FILL, PAPER
from draftwood.lab.bench.plots.style import SIZE, WIDTH, Sheet, label_room, shortened, width

TITLE = "Where the time goes"
CAPTION = (
    "Shares of the time after the prompt: drafting, the target's forward, verification, committing "
    "to the cache, drafters' learning, and what none of them covers. Other libraries' phases are "
    "not known."
)
COLOURS = ("#77aadd", "#ee8866", "#eedd88", "#bbcc33", "#ffaabb", "#c9ced4")
ROW, LEGEND, FOOT = 18.0, 22.0, 24.0
LEGIBLE = 0.12
"""Share from which a part has its number in it."""


def draw(document: Document) -> Figure | None:
    """The figure, or None if no method's phases are known."""
    methods = [m for m in document.by_speed if m.time_share]
    if not methods:
        return None
    left = 8 + label_room([m.name for m in methods], 130) + 8
    sheet = Sheet(LEGEND + ROW * len(methods) + FOOT)
    _legend(sheet)
    axes = sheet.axes(left, LEGEND, WIDTH - left - 22, ROW * len(methods))
    axes.set_xlim(0, 1)
    axes.set_ylim(len(methods), 0)
    axes.set_yticks([])
    axes.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axes.spines["left"].set_visible(False)
    for i, m in enumerate(methods):
        sheet.write(left - 6, LEGEND + ROW * (i + 0.5), shortened(m.name, left - 14), align="right")
        start = 0.0
        for phase, colour in zip(PHASES, COLOURS, strict=True):
            share = m.time_share.get(phase, 0.0)
            axes.barh(i + 0.5, share, left=start, height=0.78, color=colour, ec=PAPER, lw=0.6)
            if share >= LEGIBLE:
                axes.text(
                    start + share / 2,
                    i + 0.5,
                    f"{100 * share:.0f}",
                    color=ON_FILL,
                    ha="center",
                    va="center_baseline",
                )
            start += share
    return sheet.figure


def _legend(sheet: Sheet) -> None:
    x = 8.0
    for phase, colour in zip(PHASES, COLOURS, strict=True):
        sheet.axes(x, LEGEND / 2 - 5, 10, 10).set_axis_off()
        sheet.figure.axes[-1].axhspan(0, 1, color=colour, lw=0)
        sheet.write(x + 13, LEGEND / 2, phase)
        x += 13 + width(phase) + SIZE
