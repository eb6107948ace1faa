"""Layout of the picture of a verified tree, in pixels.

Depth grows to the right. A node's first child is on its parent's row and every other child opens a
row below, so a spine is a straight line. The bonus is no node of the tree; it is the child of the
accepted path's last node.

Texts are quoted as Python strings, so that spaces and control characters are visible. A box has
classes; a style sheet gives them colours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.cells import cell_len, set_cell_size

from draftwood.errors import DraftwoodError
from draftwood.tree import ROOT, Draw, TokenTree

# In pixels; LONGEST is in columns of text.
CELL, BOX, ROW, GAP, PADDING, MARGIN = 8, 24, 34, 30, 8, 16
CAPTION, LEGEND, TOP = 28, 56, 84
SWATCH = 22
LONGEST = 24
HUES = (215, 30, 285, 185, 345, 60)
DRAWS = {
    Draw.ONE_HOT: ("one-hot", "deterministic"),
    Draw.WITHOUT_REPLACEMENT: ("without-replacement", "drawn without replacement"),
    Draw.IID: ("iid", "drawn independently"),
    Draw.COUPLED: ("coupled", "drawn as the target draws"),
}


@dataclass(frozen=True)
class Box:
    """One rounded box with its text.

    Attributes:
        classes: ``node``, ``root``, ``accepted``, ``bonus``, the kind of draw, and ``source-K`` for
            the K-th source.
        label: the text in the box.
        about: the whole text, its source and whether it was accepted.
        depth: column.
        row: row, from 0.
        parent: index of the parent's box; -1 for the root.
        x: left edge.
    """

    classes: tuple[str, ...]
    label: str
    about: str
    depth: int
    row: int
    parent: int
    x: int = 0

    @property
    def y(self) -> int:
        """Upper edge."""
        return TOP + ROW * self.row

    @property
    def width(self) -> int:
        return CELL * cell_len(self.label) + 2 * PADDING

    @property
    def radius(self) -> int:
        return BOX // 2 if "bonus" in self.classes else 5

    @property
    def committed(self) -> bool:
        return not {"accepted", "bonus"}.isdisjoint(self.classes)


@dataclass(frozen=True)
class Edge:
    """Line from a parent's right edge to a child's left edge.

    It is level until ``bend``; then it is a curve with its control points at ``middle``.
    """

    start: int
    high: int
    end: int
    low: int
    committed: bool

    @property
    def bend(self) -> int:
        return self.end - GAP

    @property
    def middle(self) -> int:
        # The curve stays in the gap between the columns, clear of the boxes.
        return self.end - GAP // 2


@dataclass(frozen=True)
class Key:
    """A line of the legend: a swatch of class ``kind`` at ``x`` and words beside it."""

    kind: str
    words: str
    x: int


@dataclass(frozen=True)
class Layout:
    """The whole picture; ``edges`` are in painting order."""

    width: int
    height: int
    caption: str
    sources: int
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    keys: tuple[Key, ...]


def hue(source: int) -> int:
    """Hue of the K-th source, in degrees."""
    return HUES[source] if source < len(HUES) else 137 * source % 360


def layout(
    tree: TokenTree,
    path: Sequence[int],
    texts: Sequence[str],
    bonus: str | None = None,
    *,
    title: str = "",
    sources: Sequence[str] = (),
) -> Layout:
    """Lay out ``tree``.

    Args:
        tree: the verified tree. The kind of draw of a node with log q NaN is not shown.
        path: accepted nodes, from the root's child down; may be empty.
        texts: the text of each node's token, root included. Labels are cut after a few columns;
            ``about`` has the whole text.
        bonus: the text of the token committed after the path; None leaves it out.
        title: text in front of the caption.
        sources: sources that are numbered first, in this order, so that a source has one colour in
            the pictures of several trees.

    Raises:
        DraftwoodError: there is not one text per node, or ``path`` is no path of the tree.
    """
    if len(texts) != len(tree):
        raise DraftwoodError(f"{len(tree)} nodes have {len(texts)} texts: give one for each node")
    if path and not (0 < path[-1] < len(tree) and tree.path(path[-1]) == tuple(path)):
        raise DraftwoodError(f"{list(path)} is no path from a child of the root downwards")
    numbers = {name: k for k, name in enumerate(dict.fromkeys([*sources, *tree.sources[1:]]))}
    boxes = _boxes(tree, path, texts, bonus, numbers)
    route = _printable(tree.route) or "-"
    caption = f"{tree.drafted} drafted, {len(path)} accepted, route {route}"
    if title:
        caption = f"{_printable(title)}: {caption}"
    keys = _keys(_legend(tree, path, bonus, numbers))
    right = max(box.x + box.width for box in boxes)
    words = max(CELL * cell_len(caption), sum(_key_width(key.words) for key in keys))
    return Layout(
        width=MARGIN + max(right, MARGIN + words),
        height=TOP + ROW * max(box.row for box in boxes) + BOX + MARGIN,
        caption=caption,
        sources=len(numbers),
        boxes=tuple(boxes),
        edges=tuple(_edges(boxes)),
        keys=keys,
    )


def _boxes(
    tree: TokenTree,
    path: Sequence[int],
    texts: Sequence[str],
    bonus: str | None,
    numbers: dict[str, int],
) -> list[Box]:
    """The nodes in their order, then the bonus."""
    tip = path[-1] if path else ROOT
    parents = [*tree.parents.tolist(), *([] if bonus is None else [tip])]
    rows = _rows(parents)
    boxes = []
    for i, text in enumerate(texts):
        label, about = _shown(repr(text)), f"{text!r}, the anchor: committed before this step"
        classes: tuple[str, ...] = ("node", "root")
        if i != ROOT:
            outline, drawn = DRAWS[Draw(int(tree.draws[i]))]
            about = f"{text!r} from {_printable(tree.sources[i])}"
            if not np.isnan(tree.logq[i]):
                about += f", {drawn}, log q {float(tree.logq[i]):.3f}"
            classes = ("node", outline, f"source-{numbers[tree.sources[i]]}")
        if i in path:
            label, about, classes = f"{label} ✓", f"{about}, accepted", (*classes, "accepted")
        boxes.append(Box(classes, label, about, int(tree.depths[i]), rows[i], parents[i]))
    if bonus is not None:
        about = f"{bonus!r}, the bonus: the target's own token"
        depth = int(tree.depths[tip]) + 1
        boxes.append(Box(("bonus",), _shown(repr(bonus)), about, depth, rows[-1], tip))
    return _placed(boxes)


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


def _placed(boxes: Sequence[Box]) -> list[Box]:
    """The same boxes, each at the left edge of its depth's column."""
    widest = [0] * (1 + max(box.depth for box in boxes))
    for box in boxes:
        widest[box.depth] = max(widest[box.depth], box.width)
    lefts = [MARGIN]
    for width in widest[:-1]:
        lefts.append(lefts[-1] + width + GAP)
    return [replace(box, x=lefts[box.depth]) for box in boxes]


def _shown(quoted: str) -> str:
    if cell_len(quoted) <= LONGEST:
        return quoted
    return set_cell_size(quoted, LONGEST - 1) + "…"


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


def _edges(boxes: Sequence[Box]) -> Iterator[Edge]:
    # Committed edges come last: they are on top where edges overlap.
    for box in sorted(boxes[1:], key=lambda box: box.committed):
        above = boxes[box.parent]
        yield Edge(
            above.x + above.width, above.y + BOX // 2, box.x, box.y + BOX // 2, box.committed
        )


def _legend(
    tree: TokenTree, path: Sequence[int], bonus: str | None, numbers: dict[str, int]
) -> Iterator[tuple[str, str]]:
    """Class and words of each legend entry that occurs in the picture."""
    present = set(tree.sources[1:])
    yield from ((f"source-{k}", _printable(name)) for name, k in numbers.items() if name in present)
    if path:
        yield "accepted", "accepted"
    if bonus is not None:
        yield "bonus", "bonus"
    draws = sorted(set(tree.draws[1:].tolist()))
    if draws not in ([], [Draw.ONE_HOT]):
        yield from (DRAWS[Draw(draw)] for draw in draws)


def _key_width(words: str) -> int:
    return SWATCH + 8 + CELL * cell_len(words) + 20


def _keys(legend: Iterator[tuple[str, str]]) -> tuple[Key, ...]:
    keys, x = [], MARGIN
    for kind, words in legend:
        keys.append(Key(kind, words, x))
        x += _key_width(words)
    return tuple(keys)
