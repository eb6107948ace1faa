"""Tokens per step against draft forwards per step (TALON, Figure 6).

δ, the forwards of a draft model or head for each of the target, runs to the right; τ, the tokens
committed for each of them, upwards. On the oracle line τ = δ every draft forward brings a token;
below it drafts are wasted, and how far below is the waste. One point a method, over all rows, where
the paper joins the points of several data sets.

Peers are left out: their drafts cannot be counted from outside.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from draftwood.lab.bench.document import Document
from draftwood.lab.bench.intervals import Estimate
from draftwood.lab.bench.plots.palette import LINE, MUTED, PAPER, Look, looks
from draftwood.lab.bench.plots.style import WIDTH, Sheet, label_room, shortened

TITLE = "Tokens per step and draft forwards per step"
CAPTION = (
    "τ: tokens committed for each forward of the target. δ: forwards of a draft model for each "
    "forward of the target; 0 for methods that copy or look up. On the dashed line every draft "
    "forward brings one token; in the shaded region drafts are wasted. With 95 % intervals. "
    "Other libraries' drafts cannot be counted and are left out."
)
ROW, LEFT, TOP, FOOT = 15.0, 36.0, 10.0, 40.0
HEIGHT = 220.0
"""Of the frame, if there are few methods."""
WASTE = "#d55e00"


@dataclass(frozen=True)
class _Point:
    """δ and τ of a method, and their intervals."""

    name: str
    x: float
    y: float
    across: tuple[float, float]
    up: tuple[float, float]


def draw(document: Document) -> Figure | None:
    """The figure, or None if no method is known to draft with a model."""
    points = sorted(_points(document), key=lambda point: -point.y)
    if not any(point.x for point in points):  # nobody drafts with a model: there is no cost
        return None
    room = label_room([point.name for point in points], 120)
    frame = max(HEIGHT, ROW * len(points))
    edge = WIDTH - room - 30
    sheet = Sheet(TOP + frame + FOOT)
    axes = sheet.axes(LEFT, TOP, edge - LEFT, frame)
    right = 1.08 * max(1.0, *(point.across[1] for point in points))
    high = 1.08 * max(1.0, *(point.up[1] for point in points))
    axes.set_xlim(-0.04 * right, right)
    axes.set_ylim(0, high)
    axes.set_xlabel("draft forwards per target forward, δ")
    axes.set_ylabel("tokens per target forward, τ")
    axes.grid(color=LINE)
    _oracle(axes, right, high)
    look = looks(list(document.methods))
    places = spread([frame * (1 - point.y / high) for point in points], ROW, frame)
    for point, place in zip(points, places, strict=True):
        _mark(axes, point, look[point.name])
        swatch = sheet.axes(edge + 8, TOP + place - 5, 10, 10)
        swatch.set_axis_off()
        swatch.plot([0], [0], look[point.name].marker, color=look[point.name].colour, ms=6)
        sheet.write(edge + 22, TOP + place, shortened(point.name, room))
        axes.annotate(
            "",
            xy=(point.x, point.y),
            xytext=(1 + 8 / (edge - LEFT), 1 - place / frame),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": look[point.name].colour, "lw": 0.6},
            annotation_clip=False,
        )
    return sheet.figure


def _points(document: Document) -> Iterator[_Point]:
    for m in document.methods.values():
        x, y = m.draft_efficiency, m.mean_acceptance_length
        if m.time_share and x.middle is not None and y.middle is not None:
            yield _Point(m.name, x.middle, y.middle, _bounds(x, x.middle), _bounds(y, y.middle))


def _bounds(of: Estimate, middle: float) -> tuple[float, float]:
    return (middle if of.low is None else of.low), (middle if of.high is None else of.high)


def _mark(axes: Axes, point: _Point, look: Look) -> None:
    axes.plot(point.across, [point.y] * 2, color=look.colour, lw=1.2)
    axes.plot([point.x] * 2, point.up, color=look.colour, lw=1.2)
    axes.plot([point.x], [point.y], look.marker, color=look.colour, ms=6, mec=PAPER, mew=0.6)


def spread(wanted: Sequence[float], gap: float, room: float) -> list[float]:
    """Places near the wanted ones, in their order, at least ``gap`` apart, within ``room``.

    Args:
        wanted: rising.
        gap: between neighbours; half of it is kept to both ends.
        room: at least ``gap * len(wanted)``.
    """
    places: list[float] = []
    for place in wanted:
        least = places[-1] + gap if places else gap / 2
        places.append(max(place, least))
    most = room - gap / 2
    for i in reversed(range(len(places))):
        places[i] = min(places[i], most)
        most = places[i] - gap
    return places


def _oracle(axes: Axes, right: float, high: float) -> None:
    end = min(right, high)
    axes.plot([0, end], [0, end], color=MUTED, lw=1.2, ls=(0, (4, 3)), zorder=1)
    axes.fill_between([0, end, right], [0, end, end], color=WASTE, alpha=0.14, lw=0, zorder=0)
    axes.text(right, 0.03 * high, "waste ", color=MUTED, ha="right", va="bottom")
    axes.annotate(
        "τ = δ",
        (end, end),
        (-10, 0),
        textcoords="offset points",
        color=MUTED,
        ha="right",
        va="top" if end == high else "center",
    )
