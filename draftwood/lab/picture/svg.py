"""A verified tree as a self-contained SVG picture, for light and for dark pages.

The fill colour of a node is its source; the outline is its kind of draw. The accepted path is
green, thick and ticked, so that it is visible without colour. The picture loads no font, script or
style, and sets no ids, so that one page can hold several pictures.
"""

from collections.abc import Sequence
from html import escape

from draftwood.lab.picture.layout import (
    BOX,
    CAPTION,
    GAP,
    LEGEND,
    MARGIN,
    PADDING,
    SWATCH,
    Box,
    LegendEntry,
    TreeLayout,
    hue,
    layout,
)
from draftwood.tree import TokenTree

WIDEST = 1600
"""Largest width of a picture in a file of its own, in pixels."""

_STYLE = """
.draftwood-tree text { font: 13px ui-monospace, monospace; fill: #1f2328; white-space: pre }
.draftwood-tree rect { stroke: #59636e; stroke-width: 1.5; fill: #eaeef2 }
.draftwood-tree path { stroke: #9aa4ae; stroke-width: 1.5; fill: none }
.draftwood-tree rect.paper { stroke: none; fill: #ffffff }
.draftwood-tree .without-replacement rect { stroke-dasharray: 6 3 }
.draftwood-tree .iid rect { stroke-dasharray: 1.5 3; stroke-linecap: round }
.draftwood-tree .coupled rect { stroke-dasharray: 8 2 }
.draftwood-tree .accepted rect { stroke: #1a7f37; stroke-width: 3 }
.draftwood-tree .accepted text, .draftwood-tree .bonus text { font-weight: bold }
.draftwood-tree path.committed { stroke: #1a7f37; stroke-width: 3 }
.draftwood-tree .bonus rect { stroke: #1a7f37; fill: #1a7f37 }
.draftwood-tree .bonus text { fill: #ffffff }"""
_DARK = """
.draftwood-tree text { fill: #e6edf3 }
.draftwood-tree rect { stroke: #9198a1; fill: #2a313c }
.draftwood-tree path { stroke: #656c76 }
.draftwood-tree rect.paper { fill: #0d1117 }
.draftwood-tree .accepted rect, .draftwood-tree path.committed { stroke: #3fb950 }
.draftwood-tree .bonus rect { stroke: #3fb950; fill: #3fb950 }
.draftwood-tree .bonus text { fill: #0d1117 }"""


def svg(
    tree: TokenTree,
    path: Sequence[int],
    texts: Sequence[str],
    bonus: str | None = None,
    *,
    title: str = "",
) -> str:
    """Draw ``tree``; for the arguments and errors see :func:`~.layout.layout`.

    A picture wider than :data:`WIDEST` is scaled down to that width.

    Returns:
        An XML document without a declaration, ending in a newline.
    """
    found = layout(tree, path, texts, bonus, title=title)
    return drawing(found, f"<style>{style(found.sources)}\n</style>\n", widest=WIDEST)


def drawing(found: TreeLayout, head: str = "", *, widest: int | None = None) -> str:
    """The ``svg`` element of a layout, with ``head`` as its first children.

    A picture wider than ``widest`` is scaled down. A page with several pictures needs
    :func:`style` once.
    """
    width, height = found.width, found.height
    # Committed edges come last: they are on top where edges overlap.
    painted = sorted(found.boxes[1:], key=lambda box: box.committed)
    scale = 1.0 if widest is None else min(1.0, widest / width)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="draftwood-tree" role="img" '
        f'aria-label="{escape(found.caption)}" '
        f'width="{width * scale:g}" height="{height * scale:g}" '
        f'viewBox="0 0 {width} {height}" xml:space="preserve">',
        f'{head}<rect class="paper" width="{width}" height="{height}"/>',
        f'<text x="{MARGIN}" y="{CAPTION}">{escape(found.caption)}</text>',
        *map(_legend, found.legend),
        *(_edge(found.boxes[box.parent], box) for box in painted),
        *map(_node, found.boxes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def style(sources: int) -> str:
    """Style sheet for pictures with this many sources."""
    light, dark = colours(sources, ".draftwood-tree .source-{} rect {{ fill: {} }}")
    return f"{_STYLE}{light}\n@media (prefers-color-scheme: dark) {{{_DARK}{dark}\n}}"


def colours(sources: int, rule: str) -> tuple[str, str]:
    """Rules that give each source its colour, on light and on dark pages.

    Args:
        sources: number of sources.
        rule: format of a rule, filled with the number of a source and its colour.
    """
    light, dark = (
        "".join("\n" + rule.format(k, f"hsl({hue(k)}, {fill})") for k in range(sources))
        for fill in ("75%, 86%", "45%, 26%")
    )
    return light, dark


def _edge(above: Box, box: Box) -> str:
    """Line from the parent: level until the gap before the column, then a curve within the gap."""
    high, low, middle = above.y + BOX // 2, box.y + BOX // 2, box.x - GAP // 2
    mark = ' class="committed"' if box.committed else ""
    return (
        f'<path{mark} d="M{above.x + above.width} {high}H{box.x - GAP}'
        f'C{middle} {high} {middle} {low} {box.x} {low}"/>'
    )


def _node(box: Box) -> str:
    return (
        f'<g class="{" ".join(box.classes)}"><title>{escape(box.about)}</title>'
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{BOX}" rx="{box.radius}"/>'
        f'<text x="{box.x + PADDING}" y="{box.y + 17}">{escape(box.label)}</text></g>'
    )


def _legend(entry: LegendEntry) -> str:
    # The words are outside the group, because a class may set the colour of text on its fill.
    return (
        f'<g class="key {entry.kind}"><rect x="{entry.x}" y="{LEGEND - 12}" width="{SWATCH}" '
        f'height="14" rx="4"/></g>'
        f'<text x="{entry.x + SWATCH + 8}" y="{LEGEND}">{escape(entry.words)}</text>'
    )
