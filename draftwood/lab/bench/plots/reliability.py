"""Calibration of a method: how often candidates were accepted, by the predicted probability.

A reliability diagram: a point for each source and tenth of the chance, on the diagonal where as
many were accepted as was predicted, below it where the prediction is too high. Intervals are
Wilson's (1927).

Sources have colours of their own (of Tol's bright ones), which are no method's.
"""

from collections.abc import Sequence
from math import log10

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binomtest

from draftwood.lab.bench.document import Document
from draftwood.lab.bench.figures import Reliability, SourceReliability
from draftwood.lab.bench.forecast import Bin
from draftwood.lab.bench.plots.palette import MARKERS, MUTED, PAPER, Look
from draftwood.lab.bench.plots.style import SIZE, WIDTH, Sheet, plain, shortened, width
from draftwood.lab.bench.plots.tiles import ACROSS, LEFT, tiles

TITLE = "Calibration: predicted and observed acceptance"
FEWEST = 5
"""Candidates of a bin that is drawn: a share of fewer says nothing."""
CAPTION = (
    "Across, the predicted probability that a candidate is accepted if the node above it is; "
    "upwards, the share that was. A point for each tenth of the probability and each source, the "
    "first that offered the candidate. On the dashed line both agree; below it the prediction is "
    "too high. A point's area grows with the logarithm of the number of candidates; its "
    f"line is the 95 % interval if they are independent. Fewer than {FEWEST} are left out."
)
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
FRAME = 149.0
"""Height of a panel's frame, in points: it is square."""
LINE, TOP = 18.0, 4.0


def draw(document: Document) -> Figure | None:
    """The figure, or None if too little was predicted."""
    panels = {
        m.name: m.reliability.all_steps for m in document.by_speed if m.reliability is not None
    }
    panels = {
        name: found for name, found in panels.items() if any(map(drawn, found.by_source.values()))
    }
    if not panels:
        return None
    names = sorted({name for found in panels.values() for name in found.by_source})
    looks = {
        name: Look(COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)])
        for k, name in enumerate(names)
    }
    rows = _rows(names)
    head = TOP + LINE * len(rows)
    grid = tiles(list(panels), FRAME, foot="predicted probability", head=head)
    _legend(grid.sheet, rows, looks)
    for place, found in enumerate(panels.values()):
        axes = grid.axes[place]
        axes.set_xlim(-0.04, 1.04)
        axes.set_ylim(-0.04, 1.04)
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.grid()
        axes.plot([0, 1], [0, 1], color=MUTED, lw=1.2, ls=(0, (4, 3)), zorder=1)
        _series(axes, found, looks)
        if place % ACROSS == 0:
            axes.set_ylabel("share taken")
        grid.tidy(place)
    return grid.sheet.figure


def drawn(found: SourceReliability) -> list[Bin]:
    """The bins of a source that have candidates enough."""
    return [each for each in found.bins if each.candidates >= FEWEST]


def wilson(accepted: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share, by Wilson's score."""
    found = binomtest(accepted, of).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def _series(axes: Axes, found: Reliability, looks: dict[str, Look]) -> None:
    for source, each in found.by_source.items():
        bins, look = drawn(each), looks[source]
        across = [one.predicted / one.candidates for one in bins]
        upwards = [one.accepted / one.candidates for one in bins]
        for x, one in zip(across, bins, strict=True):
            axes.plot([x, x], wilson(one.accepted, one.candidates), color=look.colour, lw=1.2)
        axes.plot(across, upwards, color=look.colour, lw=0.8, alpha=0.6)
        axes.scatter(
            across,
            upwards,
            s=[18 * log10(one.candidates) for one in bins],
            marker=look.marker,
            color=look.colour,
            edgecolors=PAPER,
            linewidths=0.6,
            zorder=3,
            clip_on=False,
            label=plain(source),
        )


def _rows(names: Sequence[str]) -> list[list[str]]:
    """Names in lines as wide as the sheet."""
    rows: list[list[str]] = [[]]
    for name in names:
        if rows[-1] and sum(map(_room, [*rows[-1], name])) > WIDTH - LEFT:
            rows.append([])
        rows[-1].append(name)
    return rows


def _legend(sheet: Sheet, rows: Sequence[Sequence[str]], looks: dict[str, Look]) -> None:
    for row, names in enumerate(rows):
        x, y = LEFT, TOP + LINE * (row + 0.5)
        for name in names:
            swatch = sheet.axes(x, y - 5, 10, 10)
            swatch.set_axis_off()
            swatch.plot([0], [0], looks[name].marker, color=looks[name].colour, ms=6)
            sheet.write(x + 14, y, _short(name))
            x += _room(name)


def _short(name: str) -> str:
    return shortened(name, WIDTH - LEFT - 14 - SIZE)


def _room(name: str) -> float:
    return 14 + width(_short(name)) + SIZE
