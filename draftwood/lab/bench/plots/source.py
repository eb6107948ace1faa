"""Acceptance by source: accepted over drafted nodes of each drafter.

Nodes off the accepted path count as drafted. A source that offers alternatives therefore has a low
rate even where it helps, and the counts are written beside the rates.
"""

from matplotlib.figure import Figure

from draftwood.lab.bench.document import Document
from draftwood.lab.bench.figures import SourceRate
from draftwood.lab.bench.intervals import ends
from draftwood.lab.bench.plots.style import INK, LINE_HEIGHT, MUTED, method_marks, rows, sheet

TITLE = "Acceptance by source"
CAPTION = (
    "Of the nodes that each drafter of a method offered, the share that was accepted, with its "
    "95 % interval, and their numbers. Of a source's alternatives for one token at most one can be "
    "accepted."
)
ROW = 17.0


def draw(document: Document) -> Figure | None:
    """The figure, or None if nothing was drafted."""
    methods = [m for m in document.by_speed if m.acceptance_by_source]
    if not methods:
        return None
    lines: list[tuple[str, str, SourceRate | None]] = []
    for m in methods:
        lines.append((m.name, m.name, None))
        lines += [(m.name, source, found) for source, found in m.acceptance_by_source.items()]
    figure = sheet(ROW * len(lines) + 2 * LINE_HEIGHT)
    axes = figure.subplots()
    rows(axes, [label for _, label, _ in lines])
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axes.grid(axis="x")
    mark = method_marks(list(document.methods))
    for y, (name, _, found) in enumerate(lines):
        if found is None:
            axes.get_yticklabels()[y].set_fontweight("bold")
            continue
        if known := ends(found.rate):
            axes.plot(known, [y] * 2, color=INK, lw=1.2)
        if found.rate.middle is not None:
            own, x = mark[name], found.rate.middle
            axes.plot([x], [y], own.marker, color=own.colour, ms=7, clip_on=False, zorder=3)
    numbers = axes.twinx()
    rows(numbers, ["" if found is None else _numbers(found) for _, _, found in lines])
    numbers.tick_params(labelcolor=MUTED)
    return figure


def _numbers(found: SourceRate) -> str:
    counts = f"{_brief(found.accepted)}/{_brief(found.drafted)}"
    return counts if found.rate.middle is None else f"{100 * found.rate.middle:.0f} % = {counts}"


def _brief(count: int) -> str:
    """A count in at most four characters or so: 987, 12k, 3.4M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            return f"{count / size:.{int(count < 10 * size)}f}{unit}"
    return str(count)
