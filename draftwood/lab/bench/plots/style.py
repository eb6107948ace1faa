"""How all figures are set: type, rules, and a sheet that is laid out in points.

A sheet is 360 points wide, so that shown 360 pixels wide its type keeps its size.

Knows nothing of the figures.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from io import BytesIO
from typing import Any, Literal, TypeAlias, cast

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from draftwood.lab.bench.plots.palette import INK, LINE, MUTED, PAPER

WIDTH = 360
"""Of a sheet, in points."""
SIZE = 10.0
"""Of type, in points."""
_RC: dict[str, object] = {
    "font.family": "sans-serif",
    "font.size": SIZE,
    "axes.labelsize": SIZE,
    "xtick.labelsize": SIZE,
    "ytick.labelsize": SIZE,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "text.parse_math": False,  # names come from the user
    "svg.fonttype": "none",  # text stays text: selectable, and set in the page's type
    "svg.hashsalt": "draftwood",  # the same document makes the same bytes
}

Weight: TypeAlias = Literal["normal", "bold"]


def drawing() -> AbstractContextManager[None]:
    """To be entered while a figure is drawn or saved: no setting outlives it."""
    context: AbstractContextManager[None] = style.context(["default", cast(Any, _RC)])
    return context


class Sheet:
    """A figure whose parts are placed in points from its upper left corner.

    Attributes:
        figure: matplotlib's.
        height: in points.
    """

    def __init__(self, height: float) -> None:
        self.height = height
        self.figure = Figure(figsize=(WIDTH / 72, height / 72), facecolor=PAPER)

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Axes whose frame has its upper left corner at (x, y)."""
        return self.figure.add_axes(
            (x / WIDTH, 1 - (y + height) / self.height, width / WIDTH, height / self.height)
        )

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        colour: str = INK,
        weight: Weight = "normal",
        align: Literal["left", "center", "right"] = "left",
    ) -> None:
        """A line of text whose middle has the height y."""
        self.figure.text(
            x / WIDTH,
            1 - y / self.height,
            plain(text),
            color=colour,
            weight=weight,
            ha=align,
            va="center_baseline",
        )


def footed(figure: Figure, text: str) -> None:
    """Add a note below everything else, in as many lines as it needs."""
    lines = _lines(plain(text), WIDTH - 16)
    before = figure.get_figheight()
    more = (len(lines) + 1) * 1.3 * SIZE / 72
    kept = before / (before + more)
    for part in figure.texts:
        part.set_y(1 - (1 - part.get_position()[1]) * kept)
    for axes in figure.axes:
        x, y, across, tall = axes.get_position().bounds
        axes.set_position((x, 1 - (1 - y) * kept, across, tall * kept))
    figure.set_figheight(before + more)
    figure.text(8 / WIDTH, 1 - kept, "\n".join(lines), color=MUTED, va="top", linespacing=1.3)


def _lines(text: str, room: float) -> list[str]:
    """The words of a text in lines of at most ``room`` points."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and width(longer) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def rendered(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """The bytes of a file of that kind."""
    target = BytesIO()
    # Without a date or a version, the same document makes the same bytes.
    nothing = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
    with drawing():
        figure.savefig(target, format=kind, dpi=200 if kind == "png" else 72, metadata=nothing)
    return target.getvalue()


def plain(text: str) -> str:
    """The text on one line, without characters that no picture can hold."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shortened(text: str, room: float, weight: Weight = "normal") -> str:
    """The text, its middle left out if it is wider than ``room`` points."""
    text = plain(text)
    kept = len(text)
    shown = text
    while kept > 2 and width(shown, weight) > room:
        kept -= 1
        shown = f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"
    return shown


@cache
def width(text: str, weight: Weight = "normal") -> float:
    """Of a line of text, in points."""
    face = FontProperties(family="sans-serif", weight=weight, size=SIZE)
    across, _, _ = text_to_path.get_text_width_height_descent(text, face, ismath=False)
    return float(across)


def label_room(names: Sequence[str], most: float) -> float:
    """Points that a column of these names needs, ``most`` at most."""
    return min(most, max(map(width, map(plain, names)), default=0.0))
