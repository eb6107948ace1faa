"""Which drafter's tokens are accepted: accepted over drafted nodes of each source.

Nodes off the accepted path count as drafted, so that a source that offers alternatives has a low
rate even where it is of use: the counts stand beside the rates.
"""

from matplotlib.figure import Figure

from draftwood.lab.bench.document import Document
from draftwood.lab.bench.plots.palette import INK, MUTED, looks
from draftwood.lab.bench.plots.style import WIDTH, Sheet, label_room, shortened

TITLE = "Acceptance by source"
CAPTION = (
    "Of the nodes that each drafter of a method offered, the share that was accepted, with its "
    "95 % interval, and their numbers. Of a source's alternatives for one token at most one can be "
    "accepted."
)
ROW, HEADING, FOOT, TOP = 17.0, 19.0, 22.0, 6.0
COUNTS = 104.0
"""Points for the numbers on the right."""


def draw(document: Document) -> Figure | None:
    """The figure, or None if nothing was drafted."""
    methods = [m for m in document.by_speed if m.acceptance_by_source]
    if not methods:
        return None
    sources = [source for m in methods for source in m.acceptance_by_source]
    left = 20 + label_room(sources, 90) + 10
    frame = sum(HEADING + ROW * len(m.acceptance_by_source) for m in methods)
    sheet = Sheet(TOP + frame + FOOT)
    axes = sheet.axes(left, TOP, WIDTH - left - COUNTS, frame)
    axes.set_xlim(0, 1)
    axes.set_ylim(frame, 0)
    axes.set_yticks([])
    axes.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    look = looks(list(document.methods))
    y = 0.0
    for m in methods:
        heading = shortened(m.name, WIDTH - 16, "bold")
        sheet.write(8, TOP + y + HEADING / 2, heading, weight="bold")
        y += HEADING
        for source, found in m.acceptance_by_source.items():
            middle, rate = y + ROW / 2, found.rate
            sheet.write(20, TOP + middle, shortened(source, left - 28))
            if rate.low is not None and rate.high is not None:
                axes.plot([rate.low, rate.high], [middle] * 2, color=INK, lw=1.2)
            if rate.middle is not None:
                axes.plot(
                    [rate.middle],
                    [middle],
                    look[m.name].marker,
                    color=look[m.name].colour,
                    ms=7,
                    clip_on=False,
                    zorder=3,
                )
                share = f"{100 * rate.middle:.0f} %"
                sheet.write(WIDTH - COUNTS + 40, TOP + middle, share, align="right")
            counts = f"{_brief(found.accepted)}/{_brief(found.drafted)}"
            sheet.write(WIDTH - 8, TOP + middle, counts, colour=MUTED, align="right")
            y += ROW
    return sheet.figure


def _brief(count: int) -> str:
    """At most four characters or so: 987, 12k, 3.4M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            return f"{count / size:.{int(count < 10 * size)}f}{unit}"
    return str(count)
