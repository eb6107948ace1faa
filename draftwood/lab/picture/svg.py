"""A verified tree as a self-contained SVG picture, for light and for dark pages.

The fill colour of a node is its source; the outline is its kind of draw. The accepted path is
green, thick and ticked, so that it is visible without colour. The picture loads no font, script or
style, and sets no ids, so that one page can hold several pictures.
"""

from collections.abc import Iterator, Sequence
from html import escape

from draftwood.lab.picture.layout import (
    BOX,
    CAPTION,
    LEGEND,
    MARGIN,
    PADDING,
    SWATCH,
    Box,
    Edge,
    Key,
    Layout,
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


def drawing(found: Layout, head: str = "", *, widest: int | None = None) -> str:
    """The ``svg`` element of a layout, with ``head`` as its first children.

    A picture wider than ``widest`` is scaled down. A page with several pictures needs
    :func:`style` once.
    """
    width, height = found.width, found.height
    scale = 1.0 if widest is None else min(1.0, widest / width)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="draftwood-tree" role="img" '
        f'aria-label="{escape(found.caption)}" '
        f'width="{width * scale:g}" height="{height * scale:g}" '
        f'viewBox="0 0 {width} {height}" xml:space="preserve">',
        f'{head}<rect class="paper" width="{width}" height="{height}"/>',
        f'<text x="{MARGIN}" y="{CAPTION}">{escape(found.caption)}</text>',
        *_keys(found.keys),
        *map(_edge, found.edges),
        *map(_node, found.boxes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def style(sources: int) -> str:
    """Style sheet for pictures with this many sources."""
    light, dark = (
        "".join(
            f"\n.draftwood-tree .source-{k} rect {{ fill: hsl({hue(k)}, {fill}) }}"
            for k in range(sources)
        )
        for fill in ("75%, 86%", "45%, 26%")
    )
    return f"{_STYLE}{light}\n@media (prefers-color-scheme: dark) {{{_DARK}{dark}\n}}"


def _edge(edge: Edge) -> str:
    mark = ' class="committed"' if edge.committed else ""
    return (
        f'<path{mark} d="M{edge.start} {edge.high}H{edge.bend}'
        f'C{edge.middle} {edge.high} {edge.middle} {edge.low} {edge.end} {edge.low}"/>'
    )


def _node(box: Box) -> str:
    return (
        f'<g class="{" ".join(box.classes)}"><title>{escape(box.about)}</title>'
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{BOX}" rx="{box.radius}"/>'
        f'<text x="{box.x + PADDING}" y="{box.y + 17}">{escape(box.label)}</text></g>'
    )


def _keys(keys: Sequence[Key]) -> Iterator[str]:
    for key in keys:
        # The words are outside the group, because a class may set the colour of text on its fill.
        yield (
            f'<g class="key {key.kind}"><rect x="{key.x}" y="{LEGEND - 12}" width="{SWATCH}" '
            f'height="14" rx="4"/></g>'
            f'<text x="{key.x + SWATCH + 8}" y="{LEGEND}">{escape(key.words)}</text>'
        )
