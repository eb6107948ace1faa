"""A verified tree as a self-contained SVG picture, for light and for dark pages.

Depth runs to the right. A node's first child stands on its row and every other child opens a row
below, so a spine is a straight line. Fill colours tell sources apart, outlines how a token was
drawn; the accepted path is green, thick and ticked, so that it does not hang on colour alone. The
bonus, which is no node of the tree, hangs off the end of that path.

Knows tokens by their texts only: no tokenizer, no model, no files. It asks for no font, script or
style from elsewhere, and sets no ids, so that several pictures fit on one page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from rich.cells import cell_len, set_cell_size

from draftwood.errors import DraftwoodError
from draftwood.tree import ROOT, Draw, TokenTree

# Pixels, but for LONGEST: columns of text.
CELL, BOX, ROW, GAP, PADDING, MARGIN = 8, 24, 34, 30, 8, 16
CAPTION, LEGEND, TOP = 28, 56, 84
LONGEST = 24
HUES = (215, 30, 285, 185, 345, 60)
DRAWS = {
    Draw.ONE_HOT: ("one-hot", "deterministic"),
    Draw.WITHOUT_REPLACEMENT: ("without-replacement", "drawn without replacement"),
    Draw.IID: ("iid", "drawn independently"),
}

_STYLE = """
.draftwood-tree text { font: 13px ui-monospace, monospace; fill: #1f2328; white-space: pre }
.draftwood-tree rect { stroke: #59636e; stroke-width: 1.5; fill: #eaeef2 }
.draftwood-tree path { stroke: #9aa4ae; stroke-width: 1.5; fill: none }
.draftwood-tree rect.paper { stroke: none; fill: #ffffff }
.draftwood-tree .without-replacement rect { stroke-dasharray: 6 3 }
.draftwood-tree .iid rect { stroke-dasharray: 1.5 3; stroke-linecap: round }
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


@dataclass(frozen=True)
class _Box:
    """One rounded box with its text; ``about`` is its tooltip, ``classes`` style it."""

    classes: tuple[str, ...]
    label: str
    about: str
    depth: int
    row: int
    parent: int

    @property
    def width(self) -> int:
        return CELL * cell_len(self.label) + 2 * PADDING

    @property
    def committed(self) -> bool:
        return not {"accepted", "bonus"}.isdisjoint(self.classes)


def svg(
    tree: TokenTree, path: Sequence[int], texts: Sequence[str], bonus: str | None = None
) -> str:
    """Draw ``tree``.

    Args:
        tree: what was verified.
        path: accepted nodes, from the root's child down; may be empty.
        texts: the text of each node's token, root included. They are shown as Python writes
            strings, so that spaces and control characters are seen, and cut after a few columns;
            the tooltip has them whole.
        bonus: the text of the token committed after the path; None leaves it out.

    Returns:
        An XML document without a declaration, ending in a newline.

    Raises:
        DraftwoodError: ``texts`` are not one a node, or ``path`` is no path of the tree.
    """
    if len(texts) != len(tree):
        raise DraftwoodError(f"{len(tree)} nodes meet {len(texts)} texts: give one for each node")
    if path and not (0 < path[-1] < len(tree) and tree.path(path[-1]) == tuple(path)):
        raise DraftwoodError(f"{list(path)} is no path from a child of the root downwards")
    sources = {name: k for k, name in enumerate(dict.fromkeys(tree.sources[1:]))}
    boxes = _boxes(tree, path, texts, bonus, sources)
    lefts = _lefts(boxes)
    caption = f"{tree.drafted} drafted, {len(path)} accepted, route {tree.route or '-'}"
    keys = list(_legend(tree, path, bonus, sources))
    right = max(lefts[box.depth] + box.width for box in boxes)
    words = max(CELL * cell_len(caption), sum(_key_width(words) for _, words in keys))
    width = MARGIN + max(right, MARGIN + words)
    height = TOP + ROW * max(box.row for box in boxes) + BOX + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="draftwood-tree" role="img" '
        f'aria-label="{escape(caption)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" xml:space="preserve">',
        _style(len(sources)),
        f'<rect class="paper" width="{width}" height="{height}"/>',
        f'<text x="{MARGIN}" y="{CAPTION}">{escape(caption)}</text>',
        *_keys(keys),
        *_edges(boxes, lefts),
        *(_node(box, lefts[box.depth]) for box in boxes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _boxes(
    tree: TokenTree,
    path: Sequence[int],
    texts: Sequence[str],
    bonus: str | None,
    sources: dict[str, int],
) -> list[_Box]:
    """The nodes in their order, then the bonus."""
    tip = path[-1] if path else ROOT
    parents = [*tree.parents.tolist(), *([] if bonus is None else [tip])]
    rows = _rows(parents)
    boxes = []
    for i, text in enumerate(texts):
        label, about = _shown(text), f"{text!r}, the anchor: committed before this step"
        classes: tuple[str, ...] = ("node", "root")
        if i != ROOT:
            outline, drawn = DRAWS[Draw(int(tree.draws[i]))]
            about = f"{text!r} from {tree.sources[i]}, {drawn}, log q {float(tree.logq[i]):.3f}"
            classes = ("node", outline, f"source-{sources[tree.sources[i]]}")
        if i in path:
            label, about, classes = f"{label} ✓", f"{about}, accepted", (*classes, "accepted")
        boxes.append(_Box(classes, label, about, int(tree.depths[i]), rows[i], parents[i]))
    if bonus is not None:
        about = f"{bonus!r}, the bonus: the target's own token"
        boxes.append(
            _Box(("bonus",), _shown(bonus), about, int(tree.depths[tip]) + 1, rows[-1], tip)
        )
    return boxes


def _rows(parents: Sequence[int]) -> list[int]:
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents[1:], start=1):
        children[parent].append(node)
    rows = [0] * len(parents)
    last, waiting = 0, [ROOT]
    while waiting:
        node = waiting.pop()
        if node != ROOT and children[parents[node]][0] != node:
            last += 1
        rows[node] = last
        waiting.extend(reversed(children[node]))
    return rows


def _lefts(boxes: Sequence[_Box]) -> list[int]:
    """Left edge of each depth's column."""
    lefts = [MARGIN]
    for depth in range(max(box.depth for box in boxes)):
        widest = max(box.width for box in boxes if box.depth == depth)
        lefts.append(lefts[-1] + widest + GAP)
    return lefts


def _shown(text: str) -> str:
    quoted = repr(text)
    if cell_len(quoted) <= LONGEST:
        return quoted
    return set_cell_size(quoted, LONGEST - 1) + "…"


def _edges(boxes: Sequence[_Box], lefts: Sequence[int]) -> Iterator[str]:
    # Committed ones last: they lie on top where edges share a stretch.
    for box in sorted(boxes[1:], key=lambda box: box.committed):
        above = boxes[box.parent]
        start, high = lefts[above.depth] + above.width, TOP + ROW * above.row + BOX // 2
        end, low = lefts[box.depth], TOP + ROW * box.row + BOX // 2
        # The curve stays in the gap between the columns, clear of the boxes.
        middle = end - GAP // 2
        mark = ' class="committed"' if box.committed else ""
        yield (
            f'<path{mark} d="M{start} {high}H{end - GAP}'
            f'C{middle} {high} {middle} {low} {end} {low}"/>'
        )


def _node(box: _Box, x: int) -> str:
    y = TOP + ROW * box.row
    radius = BOX // 2 if "bonus" in box.classes else 5
    return (
        f'<g class="{" ".join(box.classes)}"><title>{escape(box.about)}</title>'
        f'<rect x="{x}" y="{y}" width="{box.width}" height="{BOX}" rx="{radius}"/>'
        f'<text x="{x + PADDING}" y="{y + 17}">{escape(box.label)}</text></g>'
    )


def _legend(
    tree: TokenTree, path: Sequence[int], bonus: str | None, sources: dict[str, int]
) -> Iterator[tuple[str, str]]:
    """Class of the swatch and the words beside it, for what is in the picture."""
    yield from ((f"source-{k}", name) for name, k in sources.items())
    if path:
        yield "accepted", "accepted"
    if bonus is not None:
        yield "bonus", "bonus"
    draws = sorted(set(tree.draws[1:].tolist()))
    if draws not in ([], [Draw.ONE_HOT]):
        yield from (DRAWS[Draw(draw)] for draw in draws)


def _key_width(words: str) -> int:
    return 22 + 8 + CELL * cell_len(words) + 20


def _keys(keys: Sequence[tuple[str, str]]) -> Iterator[str]:
    x = MARGIN
    for kind, words in keys:
        # The words stand outside the group: a class may set the colour of text on its fill.
        yield (
            f'<g class="key {kind}"><rect x="{x}" y="{LEGEND - 12}" width="22" height="14" rx="4"/>'
            f'</g><text x="{x + 30}" y="{LEGEND}">{escape(words)}</text>'
        )
        x += _key_width(words)


def _style(sources: int) -> str:
    hues = [HUES[k] if k < len(HUES) else 137 * k % 360 for k in range(sources)]
    light, dark = (
        "".join(
            f"\n.draftwood-tree .source-{k} rect {{ fill: hsl({hue}, {fill}) }}"
            for k, hue in enumerate(hues)
        )
        for fill in ("75%, 86%", "45%, 26%")
    )
    return (
        f"<style>{_STYLE}{light}\n@media (prefers-color-scheme: dark) {{{_DARK}{dark}\n}}\n</style>"
    )
