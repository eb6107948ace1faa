"""A verified tree as a PNG, drawn with matplotlib from the layout that the SVG has too.

Light paper and the SVG's light colours. A PNG carries no font for the reader's machine to replace,
so characters that the drawing font lacks are spelt as escapes.

matplotlib is optional: this module is imported only where a PNG is asked for.
"""

import colorsys
from collections.abc import Sequence
from functools import cache
from io import BytesIO

from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from draftwood.errors import DraftwoodError
from draftwood.lab.picture.layout import (
    BOX,
    CAPTION,
    LEGEND,
    MARGIN,
    PADDING,
    SWATCH,
    Box,
    Edge,
    Layout,
    hue,
    layout,
)
from draftwood.tree import TokenTree

SHARPNESS = 2
"""Dots a layout's pixel, each way."""
LARGEST = 40_000_000
"""Dots of the largest picture; also keeps each side below matplotlib's own limit."""
_SIDE = 65_000
_FONT = "DejaVu Sans Mono"  # comes with matplotlib
_INK, _LINE, _ACCEPTED = "#1f2328", "#9aa4ae", "#1a7f37"
_DASHES = {"without-replacement": (0, (4, 2)), "iid": (0, (1, 2)), "coupled": (0, (6, 2))}


def png(
    tree: TokenTree,
    path: Sequence[int],
    texts: Sequence[str],
    bonus: str | None = None,
    *,
    title: str = "",
) -> bytes:
    """Draw ``tree``; for the arguments see :func:`~.layout.layout`.

    Returns:
        The bytes of a PNG file.

    Raises:
        DraftwoodError: what the layout refuses, or the picture has too many dots.
    """
    found = layout(tree, path, texts, bonus, title=title, quote=quoted)
    sharpness = _sharpness(found.width, found.height)
    # A dot an inch is a pixel of the layout: widths of lines and sizes of type are in pixels.
    figure = Figure(figsize=(found.width / 72, found.height / 72), dpi=72 * sharpness)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, found.width)
    axes.set_ylim(found.height, 0)
    _paint(axes, found)
    target = BytesIO()
    figure.savefig(target, format="png", dpi="figure", metadata={"Software": None})
    return target.getvalue()


def quoted(text: str) -> str:
    """The text as Python writes strings, with escapes for what the font lacks."""
    return _drawable(repr(text))


def _drawable(text: str) -> str:
    return "".join(
        c
        if all(font.get_char_index(ord(c)) for font in _fonts())
        else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


@cache
def _fonts() -> tuple[FT2Font, ...]:
    """The upright and the bold one."""
    return tuple(
        font_manager.get_font(font_manager.findfont(f"{_FONT}:{weight}"))
        for weight in ("normal", "bold")
    )


def _sharpness(width: int, height: int) -> float:
    for sharpness in (SHARPNESS, 1):
        across, down = width * sharpness, height * sharpness
        if max(across, down) <= _SIDE and across * down <= LARGEST:
            return sharpness
    raise DraftwoodError(
        f"the picture has {width} x {height} pixels, too many for a PNG: write an SVG instead"
    )


def _paint(axes: Axes, found: Layout) -> None:
    _write(axes, MARGIN, CAPTION, found.caption)
    for key in found.keys:
        face, line, thick, dash = _look((key.kind,))
        _block(axes, (key.x, LEGEND - 12, SWATCH, 14), 4, face, line, thick, dash)
        _write(axes, key.x + SWATCH + 8, LEGEND, key.words)
    for edge in found.edges:
        axes.add_patch(_curve(edge))
    for box in found.boxes:
        _node(axes, box)


def _node(axes: Axes, box: Box) -> None:
    face, line, thick, dash = _look(box.classes)
    _block(axes, (box.x, box.y, box.width, BOX), box.radius, face, line, thick, dash)
    colour = "white" if "bonus" in box.classes else _INK
    weight = "bold" if box.committed else "normal"
    _write(axes, box.x + PADDING, box.y + 17, box.label, colour, weight)


def _look(classes: Sequence[str]) -> tuple[str, str, float, tuple[int, tuple[int, ...]] | str]:
    """Fill, outline, its width and its dashes."""
    face, line, thick = "#eaeef2", "#59636e", 1.5
    dash: tuple[int, tuple[int, ...]] | str = "solid"
    for name in classes:
        if name.startswith("source-"):
            face = _fill(int(name.removeprefix("source-")))
        dash = _DASHES.get(name, dash)
    if "accepted" in classes:
        line, thick = _ACCEPTED, 3
    if "bonus" in classes:
        face = line = _ACCEPTED
    return face, line, thick, dash


def _fill(source: int) -> str:
    red, green, blue = colorsys.hls_to_rgb(hue(source) / 360, 0.86, 0.75)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def _block(
    axes: Axes,
    place: tuple[int, int, int, int],
    radius: int,
    face: str,
    line: str,
    thick: float,
    dash: tuple[int, tuple[int, ...]] | str,
) -> None:
    x, y, width, height = place
    shape = f"round,pad=0,rounding_size={min(radius, height / 2)}"
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, height, boxstyle=shape, fc=face, ec=line, lw=thick, ls=dash, zorder=2
        )
    )


def _curve(edge: Edge) -> PathPatch:
    points = [
        (edge.start, edge.high),
        (edge.bend, edge.high),
        (edge.middle, edge.high),
        (edge.middle, edge.low),
        (edge.end, edge.low),
    ]
    codes = [Path.MOVETO, Path.LINETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    colour, thick = (_ACCEPTED, 3.0) if edge.committed else (_LINE, 1.5)
    return PathPatch(Path(points, codes), fc="none", ec=colour, lw=thick, zorder=1)


def _write(
    axes: Axes, x: int, y: int, text: str, colour: str = _INK, weight: str = "normal"
) -> None:
    axes.text(
        x,
        y,
        _drawable(text),
        family=_FONT,
        size=13,
        color=colour,
        weight=weight,
        parse_math=False,
        zorder=3,
    )
