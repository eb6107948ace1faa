"""Speed-up over plain decoding, overall and for each task, with 95 % intervals.

Bars start at 0. All panels have one scale and one order, so that a method has the same place in
each. Plain decoding is the line at 1; transformers' own ``generate`` is a dashed line.
"""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from draftwood.lab.bench.document import PEER, REFERENCE, Document
from draftwood.lab.bench.figures import Metrics
from draftwood.lab.bench.intervals import ends
from draftwood.lab.bench.plots.style import (
    DASHED,
    INK,
    LINE_HEIGHT,
    MUTED,
    PAPER,
    Mark,
    method_marks,
    rows,
    sheet,
    shortened,
)

TITLE = "Speed-up over plain decoding"
CAPTION = (
    "Tokens per second over those of plain decoding through the same engine (ar, the line at 1) on "
    "the same prompts: the median over prompts, or over groups that were decoded together, with "
    "its 95 % interval. The dashed line is plain generate of transformers (hf), if it was run."
)
ROW = 16.0
TASK = 45
"""Most characters of a shown task."""


def draw(document: Document) -> Figure | None:
    """The figure, or None if no speed-up is known."""
    names = [m.name for m in document.by_speed if m.name not in (REFERENCE, PEER)]
    panels = _panels(document)
    known = [
        value
        for _, found in panels
        for metrics in found.values()
        for value in (metrics.speedup_vs_ar.middle, metrics.speedup_vs_ar.high)
        if value is not None
    ]
    if not names or not known:
        return None
    figure = sheet(2 * LINE_HEIGHT + (ROW * len(names) + 3.5 * LINE_HEIGHT) * len(panels))
    frames = figure.subplots(len(panels), squeeze=False).ravel()
    mark = method_marks(list(document.methods))
    for axes, (heading, found) in zip(frames, panels, strict=True):
        axes.set_title(shortened(heading, TASK))
        axes.set_xlim(0, max(known))
        _bars(axes, names, found, mark)
    figure.legend(*frames[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def _panels(document: Document) -> list[tuple[str, Mapping[str, Metrics]]]:
    """Title and metrics of each panel: of everything, then of each task if there are several."""
    methods, tasks = document.methods.values(), document.tasks
    whole = {m.name: m for m in methods}
    if len(tasks) < 2:
        return [(" ".join(tasks), whole)]
    parts = [
        (task, {m.name: m.by_task[task] for m in methods if task in m.by_task}) for task in tasks
    ]
    return [("All tasks", whole), *parts]


def _bars(
    axes: Axes, names: Sequence[str], found: Mapping[str, Metrics], mark: Mapping[str, Mark]
) -> None:
    rows(axes, names)
    axes.grid(axis="x")
    for y, name in enumerate(names):
        speed = found[name].speedup_vs_ar if name in found else None
        if speed is None or speed.middle is None:
            axes.text(0, y, " unknown", color=MUTED, va="center_baseline")
            continue
        axes.barh(y, speed.middle, height=0.66, color=mark[name].colour)
        known = ends(speed) or (speed.middle, speed.middle)
        for colour, thick in ((PAPER, 3.6), (INK, 1.2)):  # visible on its bar and beside it
            axes.plot(known, [y] * 2, color=colour, lw=thick)
        axes.annotate(
            f"{speed.middle:.2f}",
            (max(speed.middle, known[1]), y),
            (4, 0),
            textcoords="offset points",
            va="center_baseline",
            annotation_clip=False,
            zorder=4,
            bbox={"fc": PAPER, "ec": "none", "pad": 0.4},  # hides the lines at 1 and of hf
        )
    axes.axvline(1, color=INK, lw=1.2, label=REFERENCE)
    line = found[PEER].speedup_vs_ar.middle if PEER in found else None
    if line is not None:
        axes.axvline(line, color=INK, lw=1.2, ls=DASHED, label=PEER)
