"""Speed-up over plain decoding, overall and for each task, with 95 % intervals.

Bars start at 0, and the panels stand below one another with the same scale and order, so that a
method is found at the same place in each. Plain decoding is the line at 1, and transformers' own
``generate``, where it was run, a dashed one.
"""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from draftwood.lab.bench.document import PEER, REFERENCE, Document
from draftwood.lab.bench.figures import Metrics
from draftwood.lab.bench.plots.palette import INK, MUTED, PAPER, Look, looks
from draftwood.lab.bench.plots.style import WIDTH, Sheet, label_room, shortened

TITLE = "Speed-up over plain decoding"
CAPTION = (
    "Tokens per second over those of plain decoding through the same engine (ar, the line at 1) on "
    "the same prompts: the median over prompts, with its 95 % interval. The dashed line is plain "
    "generate of transformers (hf), if it was run."
)
ROW, HEADING, FOOT, LEGEND = 16.0, 22.0, 26.0, 22.0
VALUES = 36.0
"""Points kept for values right of the scale."""


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
    left = 8 + label_room(names, 130) + 8
    tall = HEADING + ROW * len(names) + FOOT
    sheet = Sheet(LEGEND + tall * len(panels))
    _legend(sheet, left, [REFERENCE, PEER] if PEER in panels[0][1] else [REFERENCE])
    for k, (heading, found) in enumerate(panels):
        top = LEGEND + tall * k
        sheet.write(8, top + HEADING / 2, shortened(heading, WIDTH - 16, "bold"), weight="bold")
        for i, name in enumerate(names):
            middle = top + HEADING + ROW * (i + 0.5)
            sheet.write(left - 6, middle, shortened(name, left - 14), align="right")
        axes = sheet.axes(left, top + HEADING, WIDTH - left - VALUES, ROW * len(names))
        axes.set_xlim(0, max(known))
        _bars(axes, names, found, looks(list(document.methods)))
    return sheet.figure


def _panels(document: Document) -> list[tuple[str, Mapping[str, Metrics]]]:
    """Heading and each method's metrics: of everything, then of each task if there are several."""
    whole = {m.name: m for m in document.methods.values()}
    panels: list[tuple[str, Mapping[str, Metrics]]] = [("All tasks", whole)]
    for task in document.tasks:
        panels.append(
            (
                task,
                {m.name: m.by_task[task] for m in document.methods.values() if task in m.by_task},
            )
        )
    return panels if len(panels) > 2 else [(" ".join(document.tasks), whole)]


def _bars(
    axes: Axes, names: Sequence[str], found: Mapping[str, Metrics], look: Mapping[str, Look]
) -> None:
    axes.set_ylim(len(names), 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    for i, name in enumerate(names):
        speed = found[name].speedup_vs_ar if name in found else None
        if speed is None or speed.middle is None:
            axes.text(0, i + 0.5, " unknown", color=MUTED, va="center_baseline")
            continue
        axes.barh(i + 0.5, speed.middle, height=0.66, color=look[name].colour)
        end = speed.middle
        if speed.low is not None and speed.high is not None:
            for colour, thick in ((PAPER, 3.6), (INK, 1.2)):  # seen on its bar and beside it
                axes.plot([speed.low, speed.high], [i + 0.5] * 2, color=colour, lw=thick)
            end = max(end, speed.high)
        axes.annotate(
            f"{speed.middle:.2f}",
            (end, i + 0.5),
            (4, 0),
            textcoords="offset points",
            va="center_baseline",
            annotation_clip=False,
            zorder=4,
            bbox={"fc": PAPER, "ec": "none", "pad": 0.4},  # the lines at 1 and of hf stop at it
        )
    axes.axvline(1, color=INK, lw=1.2)
    line = found[PEER].speedup_vs_ar.middle if PEER in found else None
    if line is not None:
        axes.axvline(line, color=INK, lw=1.2, ls=(0, (3, 2)))


def _legend(sheet: Sheet, x: float, names: Sequence[str]) -> None:
    for name, dash in zip(names, ("-", (0, (3, 2))), strict=False):
        axes = sheet.axes(x, LEGEND / 2 - 7, 10, 14)
        axes.set_axis_off()
        axes.axvline(0.5, color=INK, lw=1.2, ls=dash)
        sheet.write(x + 12, LEGEND / 2, name)
        x += 50
