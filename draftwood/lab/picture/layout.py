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
class LegendEntry:
    """A swatch of class ``kind`` at ``x`` and words beside it."""

    kind: str
    words: str
    x: int

    @property
    def end(self) -> int:
        """Left edge of the next entry."""
        return self.x + SWATCH + 8 + CELL * cell_len(self.words) + 20


@dataclass(frozen=True)
class TreeLayout:
    """The whole picture."""

    width: int
    height: int
    caption: str
    sources: int
    boxes: tuple[Box, ...]
    legend: tuple[LegendEntry, ...]


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
) -> TreeLayout:
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
    route = printable(tree.route) or "-"
    caption = f"{tree.drafted} drafted, {len(path)} accepted, route {route}"
    if title:
        caption = f"{printable(title)}: {caption}"
    legend: list[LegendEntry] = []
    for kind, words in _legend(tree, path, bonus, numbers):
        legend.append(LegendEntry(kind, words, legend[-1].end if legend else MARGIN))
    right = max(box.x + box.width for box in boxes)
    written = MARGIN + CELL * cell_len(caption)
    return TreeLayout(
        width=MARGIN + max(right, written, *(entry.end for entry in legend)),
        height=TOP + ROW * max(box.row for box in boxes) + BOX + MARGIN,
        caption=caption,
        sources=len(numbers),
        boxes=tuple(boxes),
        legend=tuple(legend),
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
            about = f"{text!r} from {printable(tree.sources[i])}"
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


def printable(text: str, allowed: str = "") -> str:
    """The text with escapes, as in Python, in place of other unprintable characters."""
    return "".join(c if c.isprintable() or c in allowed else repr(c)[1:-1] for c in text)


def _legend(
    tree: TokenTree, path: Sequence[int], bonus: str | None, numbers: dict[str, int]
) -> Iterator[tuple[str, str]]:
    """Class and words of each legend entry that occurs in the picture."""
    present = set(tree.sources[1:])
    yield from ((f"source-{k}", printable(name)) for name, k in numbers.items() if name in present)
    if path:
        yield "accepted", "accepted"
    if bonus is not None:
        yield "bonus", "bonus"
    draws = sorted(set(tree.draws[1:].tolist()))
    if draws not in ([], [Draw.ONE_HOT]):
        yield from (DRAWS[Draw(draw)] for draw in draws)
