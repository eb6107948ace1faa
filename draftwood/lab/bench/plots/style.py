"""The style of all figures: colours, panels, and the bytes of a file.

A figure is 360 points wide, so that its type keeps its size on a page 360 pixels wide. matplotlib's
constrained layout places all parts. ``draftwood.mplstyle`` has the settings.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Literal

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from draftwood.lab.bench.document import REFERENCE

WIDTH = 360
"""Width of a figure, in points."""
SIZE = 10
"""Size of type, in points."""
LINE_HEIGHT = 14
"""Height of a line of text, in points."""
NAME = 22
"""Most characters of a shown name; longer ones lose their middle."""
_TITLE = 20
"""Most characters of a panel's title, which is bold."""
ACROSS = 2
"""Panels beside each other."""
_NOTE = 60
"""Characters of a line of a note."""

INK, MUTED, LINE, PAPER = "#1f2328", "#59636e", "#d1d9e0", "#ffffff"
"""Text, lesser text, rules and background; a page may replace them by its own."""
ON_FILL = "#111111"
"""Text on a coloured area, whatever the page's own colours are."""
GREY = "#7d8590"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours of Okabe and Ito (2008), which colour-blind readers can tell apart."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHED = (0, (4, 3))


@dataclass(frozen=True)
class Mark:
    """Colour and marker of a method or a source."""

    colour: str
    marker: str


def method_marks(names: Sequence[str]) -> dict[str, Mark]:
    """The mark of each method, the same in all figures of a document; the reference is grey."""
    found = marks([name for name in names if name != REFERENCE], COLOURS)
    return found | {REFERENCE: Mark(GREY, "o")}


def marks(names: Sequence[str], colours: Sequence[str]) -> dict[str, Mark]:
    """A different mark for each name."""
    return {
        name: Mark(colours[k % len(colours)], MARKERS[k % len(MARKERS)])
        for k, name in enumerate(names)
    }


def drawing() -> AbstractContextManager[None]:
    """Context in which figures are drawn and saved: no setting outlives it."""
    settings = Path(__file__).with_name("draftwood.mplstyle")
    context: AbstractContextManager[None] = style.context(["default", settings])
    return context


def sheet(height: float) -> Figure:
    """An empty figure of this height in points."""
    return Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")


def panels(names: Sequence[str], frame: float, foot: str) -> tuple[Figure, list[Axes]]:
    """A figure with a small panel for each name, two beside each other, on one vertical scale.

    Args:
        names: titles.
        frame: height of a panel's frame, in points.
        foot: the label of all horizontal axes.
    """
    rows = -(-len(names) // ACROSS)
    figure = sheet((frame + 3 * LINE_HEIGHT) * rows + 2 * LINE_HEIGHT)
    grid = figure.subplots(rows, ACROSS, sharey=True, squeeze=False).ravel().tolist()
    for axes, name in zip(grid, names, strict=False):
        axes.set_title(shortened(name, _TITLE))
    for axes in grid[len(names) :]:
        axes.remove()
    figure.supxlabel(foot, color=MUTED)
    return figure, grid[: len(names)]


def rows(axes: Axes, names: Sequence[str]) -> None:
    """Horizontal rows from the top, one for each name, without a vertical axis."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [shortened(name) for name in names], color=INK)
    axes.spines["left"].set_visible(False)


def legend_columns(names: Sequence[str]) -> int:
    """Columns of a legend with these names that is no wider than a figure."""
    return max(1, WIDTH // (20 + 7 * max(map(len, names), default=0)))


def ticks(most: int) -> list[int]:
    """Whole numbers from 1 to ``most`` that fit below a panel."""
    if most <= 12:
        return list(range(1, most + 1, 1 if most <= 8 else 2))
    return [1, *range(5, most + 1, 5)]


def footed(figure: Figure, text: str) -> None:
    """Add a note below everything else, in as many lines as it needs."""
    note = fill(plain(text), _NOTE)
    above = figure.get_supxlabel()
    lines = note.count("\n") + 1
    figure.set_figheight(figure.get_figheight() + lines * LINE_HEIGHT / 72)
    text = f"{above}\n{note}" if above else note
    figure.supxlabel(text, color=MUTED, size=SIZE, ha="left", x=0.02)


def rendered(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """The bytes of a file of that kind; equal documents have equal bytes."""
    target = BytesIO()
    undated = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
    with drawing():
        figure.savefig(target, format=kind, dpi=200 if kind == "png" else 72, metadata=undated)
    return target.getvalue()


def plain(text: str) -> str:
    """The text on one line, without characters that no picture can hold."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shortened(text: str, most: int = NAME) -> str:
    """The text with at most ``most`` characters; a longer one loses its middle."""
    text = plain(text)
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}…{text[len(text) - (most - 1) // 2 :]}"
